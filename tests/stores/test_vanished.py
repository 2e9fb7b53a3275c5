"""Store files removed, replaced or read-only, before or during use."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

from penstock import Penstock, config
from penstock.cli.main import cli
from penstock.errors import StoreUnavailable, StoreVanished
from penstock.queue.job import ClaimRequest, JobQuery
from penstock.queue.jsonl.queue import JsonlQueue
from penstock.queue.sqlite.queue import SqliteQueue
from tests.catalog.conftest import begin
from tests.stores.jsonl.conftest import in_child
from tests.stores.new_jobs import new

NOBODY = 65534


# SQLite.


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "queue.db"


@pytest.fixture
def queue(path: Path) -> Iterator[SqliteQueue]:
    queue = SqliteQueue(path)
    queue.add([new(1)])
    yield queue
    queue.close()


def removed(path: Path) -> None:
    for each in path.parent.glob(f"{path.name}*"):
        each.unlink()


def replaced(path: Path) -> None:
    """By another queue, as a person puts back a backup."""
    other = path.with_name("other.db")
    SqliteQueue(other).close()
    other.replace(path)


@pytest.mark.parametrize("change", [removed, Path.unlink, replaced])
def test_nothing_is_acknowledged_that_would_go_to_a_lost_file(
    queue: SqliteQueue, path: Path, change: Callable[[Path], None]
) -> None:
    change(path)
    calls: list[Callable[[], object]] = [
        lambda: queue.add([new(2)]),
        lambda: queue.claim(ClaimRequest("w")),
        lambda: queue.cancel(["job_000001"]),
        lambda: queue.get("job_000001"),
        lambda: queue.count(JobQuery()),
    ]
    for call in calls:
        with pytest.raises(StoreVanished, match=r"queue\.db was (removed|replaced)") as refusal:
            call()
        assert "ERR_STORE_VANISHED" == refusal.value.code
        assert ("queue.db-wal" if change is replaced else "restart") in refusal.value.remedy

    # Nor does a connection that is opened only now make an empty file in its place.
    assert path.exists() is (change is replaced)


def test_a_file_put_back_is_used_again(queue: SqliteQueue, path: Path) -> None:
    path.rename(path.with_name("away.db"))
    with pytest.raises(StoreVanished):
        queue.add([new(2)])
    path.with_name("away.db").rename(path)
    queue.add([new(3)])

    assert ["job_000001", "job_000003"] == [job.queue_id for job in queue.find(JobQuery())]


def test_a_queue_that_is_closed_begins_with_what_is_there(queue: SqliteQueue, path: Path) -> None:
    replaced(path)
    queue.close()
    for left in path.parent.glob(f"{path.name}-*"):
        left.unlink()
    queue.add([new(2)])

    assert ["job_000002"] == [job.queue_id for job in queue.find(JobQuery())]


def test_a_write_asks_for_the_file_once(queue: SqliteQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    really = os.stat

    def counted(name: str, **more: Any) -> os.stat_result:
        asked.append(name)
        return really(name, **more)

    monkeypatch.setattr(os, "stat", counted)
    queue.add([new(2)])

    assert [str(queue.path)] == asked


def test_the_catalog_notices_it_too(path: Path) -> None:
    from penstock.catalog.sql.sqlite import SqliteCatalog

    catalog = SqliteCatalog(path)
    begin(catalog)
    removed(path)

    with pytest.raises(StoreVanished):
        begin(catalog, "/b.pdf")
    with pytest.raises(StoreVanished), catalog.snapshot():
        pass
    catalog.close()


# JSONL.


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "store" / "jobs" / "index_queue.jsonl"


@pytest.fixture
def jsonl(tmp_path: Path) -> Iterator[JsonlQueue]:
    queue = JsonlQueue(tmp_path / "store")
    queue.migrate()
    queue.add([new(1)])
    yield queue
    queue.close()


def test_a_journal_removed_alone_is_noticed_and_not_made_again(
    jsonl: JsonlQueue, journal: Path, tmp_path: Path
) -> None:
    away = journal.with_name("away")
    journal.rename(away)
    for queue in (jsonl, JsonlQueue(tmp_path / "store")):
        for call in (
            queue.migrate,
            lambda queue=queue: queue.add([new(2)]),
            lambda queue=queue: queue.get("x"),
        ):
            with pytest.raises(StoreVanished, match=r"index_queue\.jsonl was removed") as refusal:
                call()
            assert "Put the file back" in refusal.value.remedy
    assert not journal.exists()

    away.rename(journal)
    jsonl.add([new(3)])
    assert ["job_000001", "job_000003"] == [job.queue_id for job in jsonl.find(JobQuery())]


def test_a_store_whose_files_are_all_removed_does_not_begin_anew(jsonl: JsonlQueue, journal: Path) -> None:
    for file in journal.parent.iterdir():
        file.unlink()
    with pytest.raises(StoreVanished):
        jsonl.add([new(2)])
    assert [] == list(journal.parent.iterdir())


def test_a_store_made_again_by_another_process_is_noticed(
    jsonl: JsonlQueue, journal: Path, tmp_path: Path
) -> None:
    away = journal.parent.rename(tmp_path / "away")
    another = JsonlQueue(tmp_path / "store")
    another.migrate()
    for call in (lambda: jsonl.add([new(2)]), lambda: jsonl.get("job_000001"), jsonl.migrate):
        with pytest.raises(StoreVanished, match=r"jobs was replaced: it had 1 records?, and has 0"):
            call()
    assert [] == another.find(JobQuery())
    another.close()

    shutil.rmtree(journal.parent)
    away.rename(journal.parent)
    assert jsonl.get("job_000001")


def test_a_closed_queue_begins_with_the_journal_that_is_there(jsonl: JsonlQueue, journal: Path) -> None:
    jsonl.close()
    journal.write_bytes(b"")
    jsonl.add([new(2)])

    assert ["job_000002"] == [job.queue_id for job in jsonl.find(JobQuery())]


def test_a_directory_that_is_gone_is_unavailable(jsonl: JsonlQueue, journal: Path) -> None:
    shutil.rmtree(journal.parent)
    with pytest.raises(StoreUnavailable):
        jsonl.add([new(2)])


# Where nothing can be written.


@pytest.fixture
def shared() -> Iterator[Path]:
    """A directory reachable by other users, unlike pytest's."""
    place = Path(tempfile.mkdtemp(prefix="penstock-test-"))
    place.chmod(0o755)
    yield place
    for each in [place, *place.rglob("*")]:
        each.chmod(0o700)
    shutil.rmtree(place)


def indexed(state: Path, engine: str, documents: Path) -> str:
    """Make a store with two documents and a waiting job; returns the URL."""
    documents.mkdir()
    (documents / "mill.md").write_text("# The mill\n\nIts wheel turns in the river.\n")
    (documents / "bank.md").write_text("# The bank\n\nGrass grows there.\n")
    url = f"sqlite:///{state}/queue.db" if engine == "sqlite" else f"jsonl://{state}/queue"
    settings = config.load(environ={}, url=url, state_dir=state, embedder="hashing")
    with Penstock(settings=settings) as app:
        receipt = app.index(documents)
        with app.worker_thread():
            app.wait(receipt.job_id, timeout=60)
        app.submit(item_type="content", op="ingest", payload={"content": "waits"})
    return url


def read_only(place: Path) -> None:
    for each in [place, *place.rglob("*")]:
        if os.geteuid() == 0:
            os.chown(each, NOBODY, NOBODY)
        each.chmod(0o555 if each.is_dir() else 0o444)


class Answer(NamedTuple):
    code: int
    out: str
    error: str


def command(url: str, state: Path, *arguments: str) -> Answer:
    runner = CliRunner(env={"PENSTOCK_EMBEDDER": "hashing"})
    ran = runner.invoke(cli, ["--url", url, "--state", str(state), *arguments])
    assert ran.exception is None or isinstance(ran.exception, SystemExit), ran.exception
    return Answer(ran.exit_code, ran.stdout, ran.stderr)


def as_nobody(url: str, state: Path, *arguments: str) -> Answer:
    """Run as an unprivileged user: root may write everywhere."""

    def unprivileged() -> Answer:
        if os.geteuid() == 0:
            os.setgid(NOBODY)
            os.setuid(NOBODY)
        return command(url, state, *arguments)

    return Answer(*in_child(unprivileged))


LOOKS = {
    ("search", "wheel"): "mill.md",
    ("status",): "2",
    ("queue", "list"): "content",
    ("queue", "stats"): "pending",
    ("documents", "list"): "bank.md",
    ("why", "{documents}/mill.md"): "mill.md",
}


@pytest.mark.parametrize("engine", ["sqlite", "jsonl"])
def test_everything_that_only_reads_works_in_a_directory_that_cannot_be_written(
    engine: str, shared: Path
) -> None:
    state, documents = shared / "state", shared / "documents"
    url = indexed(state, engine, documents)
    looks = [[word.format(documents=documents) for word in look] for look in LOOKS]
    # Also loads what somebody else may not be able to load.
    before = [command(url, state, *look) for look in looks]
    command(url, state, "note", "text")
    assert [0] * len(looks) == [answer.code for answer in before]
    assert all(expected in answer.out for expected, answer in zip(LOOKS.values(), before, strict=True))
    read_only(shared)
    files = {path: path.stat().st_mtime_ns for path in shared.rglob("*")}
    for look, expected in zip(looks, LOOKS.values(), strict=True):
        ran = as_nobody(url, state, *look)
        assert (0, True) == (ran.code, expected in ran.out), (look, ran)
    ran = as_nobody(url, state, "note", "text")

    assert (7, "") == (ran.code, ran.out)
    assert "Make the file and its directory writable" in ran.error
    assert files == {path: path.stat().st_mtime_ns for path in shared.rglob("*")}


@pytest.mark.parametrize("lacking", ["nothing", "-shm"])
def test_a_log_that_was_not_written_back_is_read_where_nothing_can_be_written(
    shared: Path, lacking: str
) -> None:
    """A store after a crash: the last changes are only in the -wal file."""
    source, state = shared / "source", shared / "state"
    source.mkdir()
    state.mkdir()
    queue = SqliteQueue(source / "queue.db")
    queue.add([new(number) for number in range(3)])
    for file in source.iterdir():
        if lacking == "nothing" or not file.name.endswith(lacking):
            shutil.copy(file, state / file.name)
    queue.close()
    plain = sqlite3.connect(f"file:{state}/queue.db?mode=ro&immutable=1", uri=True)
    assert 0 == plain.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    plain.close()
    read_only(shared)
    ran = as_nobody(f"sqlite:///{state}/queue.db", state, "--json", "queue", "list")

    assert (0, 3) == (ran.code, ran.out.count('"job_id"')), ran


def test_a_directory_that_cannot_be_written_and_has_no_store(shared: Path) -> None:
    state = shared / "state"
    state.mkdir()
    read_only(shared)
    ran = as_nobody(f"sqlite:///{state}/queue.db", state, "queue", "list")

    assert 7 == ran.code, ran
    assert "cannot be written, and has no queue.db in it" in ran.error
