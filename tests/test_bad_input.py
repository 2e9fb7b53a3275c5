"""Bad input and bad stores: each is a typed error with a code and a remedy, and nothing has changed."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock import Penstock, config, errors
from penstock.errors import PenstockError
from penstock.queue import transitions
from penstock.queue.job import Beat, ClaimRequest, Job, JobQuery
from penstock.queue.sqlite.queue import SqliteQueue

NOBODY = 65534
DURABLE = ["sqlite", "jsonl"]


def url(engine: str, place: Path) -> str:
    stores = {
        "memory": "memory://",
        "sqlite": f"sqlite:///{place}/queue.db",
        "jsonl": f"jsonl://{place}/queue",
    }
    return stores[engine]


def opened(engine: str, place: Path) -> Penstock:
    return Penstock(settings=config.load({}, url=url(engine, place), state_dir=place / "state"))


@pytest.fixture(params=["memory", *DURABLE])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Penstock]:
    with opened(request.param, tmp_path) as app:
        app.submit(item_type="content", op="ingest", payload={"content": "one"}, job_id="same-1")
        app.submit(item_type="content", op="ingest", payload={"content": "two"}, job_id="same-2")
        yield app


def rows(app: Penstock) -> list[Job]:
    return app.queue.find(JobQuery(limit=1000))


@contextmanager
def refused(
    kind: type[PenstockError], app: Penstock | None = None, message: str | None = None
) -> Iterator[None]:
    """Assert exactly this error, with code and remedy, and an unchanged queue."""
    before = rows(app) if app else []
    with pytest.raises(PenstockError, match=message) as refusal:
        yield
    assert kind is refusal.type
    assert refusal.value.code.startswith("ERR_")
    assert refusal.value.code != errors.PenstockError.code
    assert refusal.value.remedy
    assert before == (rows(app) if app else [])


def submission(**changes: Any) -> Any:
    return {"item_type": "file", "op": "ingest", "payload": {"file_path": "/srv/a.pdf"}} | changes


# Requests.


WRONG: list[tuple[dict[str, Any], type[PenstockError]]] = [
    ({"item_type": "fiel"}, errors.UnknownItemType),
    ({"item_type": None}, errors.UnknownItemType),
    ({"op": "ingst"}, errors.UnknownOperation),
    ({"op": "scan"}, errors.UnsupportedOperation),
    ({"payload": {}}, errors.InvalidPayload),
    ({"payload": {"file_path": 7}}, errors.InvalidPayload),
    ({"payload": {"file_path": "/a", "size_bytes": "many"}}, errors.InvalidPayload),
    ({"payload": {"file_path": "/a", "extra": float("nan")}}, errors.InvalidPayload),
    ({"payload": "text"}, errors.InvalidPayload),
    ({"payload": {"file_path": "a.pdf"}}, errors.RelativePath),
    ({"payload": {"file_path": ""}}, errors.RelativePath),
    ({"payload": {"file_path": "/a\0b"}}, errors.InvalidText),
    ({"payload": {"file_path": "/\ud800"}}, errors.InvalidText),
    ({"payload": {"file_path": "/a", "extra": ["\udfff"]}}, errors.InvalidText),
    ({"payload": {"file_path": "/a", "\0": 1}}, errors.InvalidText),
    ({"payload": {"file_path": "/a", "extra": "x" * 10_000_000}}, errors.PayloadTooLarge),
    ({"metadata": {"extra": "x" * 10_000_000}}, errors.PayloadTooLarge),
    ({"metadata": {"extra": "\0"}}, errors.InvalidText),
    ({"priority": 11}, errors.InvalidPriority),
    ({"priority": -1}, errors.InvalidPriority),
    ({"priority": "9"}, errors.InvalidPriority),
    ({"tenant_id": ""}, errors.InvalidName),
    ({"tenant_id": "a\0"}, errors.InvalidName),
    ({"tenant_id": "\ud800"}, errors.InvalidName),
    ({"tenant_id": "x" * 256}, errors.InvalidName),
    ({"collection": "a:b"}, errors.InvalidName),
    ({"branch": "a\nb"}, errors.InvalidName),
    ({"job_id": "a b"}, errors.InvalidName),
    ({"job_id": "\ud800"}, errors.InvalidName),
    ({"job_id": "same-1"}, errors.DuplicateId),
    ({"run_at": "2030-01-01"}, errors.InvalidTime),
    ({"key": "mine"}, errors.InvalidRequest),
]


@pytest.mark.parametrize(
    ("wrong", "kind"), WRONG, ids=[f"{kind.__name__}-{n}" for n, (_, kind) in enumerate(WRONG)]
)
def test_a_wrong_submission(tmp_path: Path, wrong: dict[str, Any], kind: type[PenstockError]):
    with opened("memory", tmp_path) as app:
        app.submit(item_type="content", op="ingest", payload={"content": "one"}, job_id="same-1")
        with refused(kind, app):
            app.submit(**submission(**wrong))


def test_a_wrong_submission_takes_its_batch_with_it(app: Penstock):
    for wrong, kind in WRONG:
        with refused(kind, app):
            app.submit_many([submission(payload={"file_path": "/good"}), submission(**wrong)])


def test_the_payload_limit_can_be_set(tmp_path: Path):
    big = {"file_path": "/a", "extra": "x" * 10_000_000}
    with Penstock(settings=config.load({}, url="memory://", max_payload_bytes=20_000_000)) as app:
        assert "Job queued" == app.submit(**submission(payload=big)).message


def test_a_function_key_that_cannot_be_kept(app: Penstock):
    for key in ("", "a\0", "\ud800", "x" * 300, 7):
        with refused(errors.InvalidName, app):
            app.submit(item_type="function", op="run", payload={"function_name": "f"}, key=key)  # type: ignore[arg-type]


@pytest.mark.parametrize("ask", ["job", "details", "history", "cancel", "retry", "wait"])
def test_an_unknown_id_and_an_ambiguous_prefix(app: Penstock, ask: str):
    method: Callable[[str], object] = getattr(app, ask)
    with refused(errors.JobNotFound, app, "no job has the id or prefix 'unknown'"):
        method("unknown")
    with refused(errors.AmbiguousId, app, "same-1, same-2"):
        method("same")


def test_settle_and_renew_with_someone_elses_claim(app: Penstock):
    (stale, _) = app.queue.claim(ClaimRequest("w1", limit=2))
    app.queue.settle([transitions.released(stale, "shutting down")])
    (held,) = app.queue.claim(ClaimRequest("w2"))
    assert stale.queue_id == held.queue_id
    before = rows(app)

    assert [None] == app.queue.settle([transitions.done(stale)])
    (renewed,) = app.queue.renew([Beat(stale.queue_id, stale.claim_number, timedelta(hours=1), '{"a": 1}')])
    assert not renewed.held
    assert before == rows(app)


# Stores.


@pytest.mark.parametrize("place", ["mysql://h/d", "http://host", "postgre://h/d"])
def test_a_url_with_an_unknown_scheme(place: str):
    with refused(errors.UnknownScheme):
        Penstock(place)


def files(place: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(place.rglob("*")) if path.is_file()}


def test_a_database_from_a_newer_schema(tmp_path: Path):
    with opened("sqlite", tmp_path) as app:
        app.submit(**submission())
    with sqlite3.connect(tmp_path / "queue.db") as own:
        own.execute("INSERT INTO penstock_migration VALUES (9999, '2099-01-01T00:00:00.000000Z')")
    own.close()
    before = (tmp_path / "queue.db").read_bytes()

    with refused(errors.SchemaMismatch, message="9999"):
        opened("sqlite", tmp_path)
    assert before == (tmp_path / "queue.db").read_bytes()


def test_a_jsonl_store_from_a_newer_version(tmp_path: Path):
    with opened("jsonl", tmp_path) as app:
        for number in range(120):
            app.submit(**submission(payload={"file_path": f"/{number}"}, item_type="file", force=True))
            app.cancel(app.jobs(limit=1)[0].queue_id)
    snapshot = tmp_path / "queue" / "jobs" / "index_queue.snapshot"
    header, rest = snapshot.read_bytes().split(b"\n", 1)
    changed = json.loads(header) | {"version": 9999}
    snapshot.write_bytes(json.dumps(changed).encode() + b"\n" + rest)
    before = files(tmp_path)

    with refused(errors.SchemaMismatch, message="9999"), opened("jsonl", tmp_path) as app:
        app.jobs()
    assert before == files(tmp_path)


def test_a_file_that_is_no_database(tmp_path: Path):
    (tmp_path / "queue.db").write_text("This is not a database, but somebody's notes. " * 100)
    before = files(tmp_path)

    with refused(errors.StateDamaged):
        opened("sqlite", tmp_path)
    assert before == files(tmp_path)


def test_a_full_disk_under_sqlite(tmp_path: Path):
    with opened("sqlite", tmp_path) as app:
        app.submit(**submission())
        assert isinstance(app.queue, SqliteQueue)
        writer = app.queue._connections.get("write")
        pages = writer.execute("PRAGMA page_count").fetchone()[0]
        writer.execute(f"PRAGMA max_page_count = {pages}")
        with refused(errors.DiskFull, app):
            app.submit(**submission(payload={"file_path": "/b", "extra": "x" * 1_000_000}))
        writer.execute("PRAGMA max_page_count = 1000000")

        assert not app.submit(**submission(payload={"file_path": "/b"})).dedupe_hit


# In a child process with other limits or another user, since root may do anything.

CHILD = """
import json, os, sys
sys.path[:0] = {path!r}
import penstock.app, penstock.service.jobs, penstock.config
import penstock.queue.jsonl.queue, penstock.queue.sqlite.queue
from penstock import Penstock, config
from penstock.errors import PenstockError

def outcome_of(work):
    try:
        return ["done", work()]
    except PenstockError as error:
        return [type(error).__name__, error.code, error.remedy, error.message]

def note(app, text):
    return app.submit(item_type="content", op="ingest", payload={{"content": text}}).message

def become_nobody():
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid({nobody})
        os.setuid({nobody})

answers = []
{body}
print(json.dumps(answers))
"""


def child(body: str) -> list[list[Any]]:
    code = CHILD.format(path=sys.path, nobody=NOBODY, body=body)
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd="/")
    assert 0 == answer.returncode, answer.stderr
    answers: list[list[Any]] = json.loads(answer.stdout)
    return answers


@pytest.fixture
def shared() -> Iterator[Path]:
    """A directory accessible to other users, unlike pytest's."""
    place = Path(tempfile.mkdtemp(prefix="penstock-test-"))
    place.chmod(0o755)
    yield place
    shutil.rmtree(place)


def test_a_full_disk_under_jsonl(tmp_path: Path):
    with opened("jsonl", tmp_path) as app:
        app.submit(**submission())
        before = rows(app)
    refusal, kept, after = child(f"""
import resource
app = Penstock({url("jsonl", tmp_path)!r}, state_dir={str(tmp_path)!r})
resource.setrlimit(resource.RLIMIT_FSIZE, (8192, resource.RLIM_INFINITY))
answers.append(outcome_of(lambda: note(app, "x" * 100_000)))
answers.append(outcome_of(lambda: len(app.jobs())))
answers.append(outcome_of(lambda: note(app, "short")))
""")

    assert ["DiskFull", "ERR_DISK_FULL"] == refusal[:2]
    assert refusal[2]
    assert ["done", 1] == kept
    assert ["done", "Job queued"] == after
    with opened("jsonl", tmp_path) as app:
        assert before == [job for job in rows(app) if job.item_type == "file"]


@pytest.mark.parametrize("engine", DURABLE)
def test_a_read_only_file(engine: str, shared: Path):
    with opened(engine, shared) as app:
        app.submit(**submission())
        before = rows(app)
    open_to_all = 0o777
    for path in [shared, *shared.rglob("*")]:
        path.chmod(open_to_all if path.is_dir() else 0o444)
    refusal, _ = child(f"""
become_nobody()
def write():
    with Penstock({url(engine, shared)!r}, state_dir={str(shared / "state")!r}) as app:
        return note(app, "x")
answers.append(outcome_of(write))
answers.append(os.geteuid())
""")

    assert ["StoreReadOnly", "ERR_STORE_READ_ONLY"] == refusal[:2]
    assert refusal[2]
    with opened(engine, shared) as app:
        assert before == rows(app)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a directory that is somebody else's")
@pytest.mark.parametrize("mode", [0o700, 0o755])
@pytest.mark.parametrize("engine", DURABLE)
def test_a_state_directory_of_somebody_else(engine: str, mode: int, shared: Path):
    state = shared / "state"
    state.mkdir()
    place = None if engine == "sqlite" else f"jsonl://{state}"
    with Penstock(place, state_dir=state) as app:
        app.submit(**submission())
        before = rows(app)
    state.chmod(mode)
    listing = files(state)
    (refusal,) = child(f"""
become_nobody()
answers.append(outcome_of(lambda: Penstock({place!r}, state_dir={str(state)!r})))
""")

    assert ["StoreDenied", "ERR_STORE_DENIED"] == refusal[:2]
    assert str(state) in refusal[3]
    assert refusal[2]
    assert listing == files(state)
    with Penstock(place, state_dir=state) as app:
        assert before == rows(app)


def test_a_state_directory_that_may_not_be_made(shared: Path):
    below = shared / "of-root" / "state"
    below.parent.mkdir(mode=0o755)
    if os.geteuid() != 0:
        below.parent.chmod(0o555)
    (refusal,) = child(f"""
become_nobody()
answers.append(outcome_of(lambda: Penstock(state_dir={str(below)!r})))
""")

    assert ["StoreDenied", "ERR_STORE_DENIED"] == refusal[:2]
    assert not below.exists()


def test_a_state_directory_that_is_a_file(tmp_path: Path):
    (tmp_path / "state").write_text("somebody's notes")

    with refused(errors.StoreUnavailable, message="state"):
        Penstock(state_dir=tmp_path / "state")
    assert "somebody's notes" == (tmp_path / "state").read_text()
