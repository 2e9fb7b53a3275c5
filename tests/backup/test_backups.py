"""Backups of a store in use, restored into every engine, also after kills."""

from __future__ import annotations

import json
import os
import resource
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner, Result

from penstock import Penstock, clock
from penstock.cli.main import cli
from penstock.cli.stores import time_left
from penstock.config import Settings
from penstock.errors import BackupDamaged, DiskFull, RestoreUnfinished, StoreNotEmpty, WorkersRunning
from penstock.queue.job import ClaimRequest, Job, JobQuery, Scope, Status, WorkerReport
from tests.backup.places import assembled, give_all_back, index_of, settings_of
from tests.servers.stores import DURABLE, others_later

ALL = JobQuery(limit=100_000)
SHORT = {("sqlite", "sqlite"), ("sqlite", "postgres"), ("postgres", "sqlite")}
PAIRS = [
    pytest.param(source, target, marks=[pytest.mark.long] * ((source, target) not in SHORT))
    for source in DURABLE
    for target in DURABLE
]


@pytest.fixture(autouse=True)
def _given_back(tmp_path: Path) -> Iterator[None]:
    yield
    give_all_back(tmp_path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("docs")
    for number in range(6):
        (folder / f"{number}.md").write_text(f"# Part {number}\n\nSubject{number} of the mill.\n")
    return folder


class Source(NamedTuple):
    """A filled SQLite store, and a backup of it."""

    settings: Settings
    folder: Path
    file: Path


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory, folder: Path) -> Source:
    place = tmp_path_factory.mktemp("one")
    settings = settings_of("sqlite", place)
    fill(settings, folder)
    return Source(settings, folder, backed_up(settings, place / "kept"))


def fill(settings: Settings, folder: Path) -> None:
    """Index a folder, and leave jobs in other states."""
    with Penstock(settings=settings) as app:
        with app.worker_thread():
            app.wait(app.index(folder).job_id, timeout=120)
        for number in range(3):
            app.submit(item_type="content", op="ingest", payload={"content": f"A note {number}"})
        app.queue.claim(ClaimRequest("w1", 1))
        app.queue.pause(Scope("acme", "*"))
        app.schedules.add_call("0 3 * * *", "report", zone="Europe/Berlin")


def backed_up(settings: Settings, place: Path) -> Path:
    place.mkdir(exist_ok=True)
    with assembled(settings) as made:
        return Path(made.backups.write(place).path)


def jobs_of(settings: Settings) -> dict[str, Job]:
    with assembled(settings) as made:
        return {job.queue_id: job for job in made.queue.find(ALL)}


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_every_engine_restores_into_every_engine(
    tmp_path: Path, folder: Path, source: str, target: str
) -> None:
    one, other = settings_of(source, tmp_path / "one"), settings_of(target, tmp_path / "other")
    fill(one, folder)
    file = backed_up(one, tmp_path / "kept")
    assert 0o600 == file.stat().st_mode & 0o777
    with assembled(other) as made:
        report = made.backups.restore(file)
        assert frozenset({Scope("acme", "*")}) == made.queue.paused()
        assert [("report", "0 3 * * *")] == [(one.name, one.timing) for one in made.queue.schedules()]
        assert [] == list(made.verifier.differences())
    before, after = jobs_of(one), jobs_of(other)
    assert (len(before), 6) == (report.jobs, report.documents)
    assert before.keys() == after.keys()
    running = [job for job in before.values() if job.status is Status.IN_PROGRESS]
    assert 1 == len(running)
    assert Status.PENDING is after[running[0].queue_id].status
    for name in ("item_type", "payload_json", "priority", "created_at", "result_json", "metadata"):
        assert [getattr(job, name) for job in before.values()] == [
            getattr(after[job_id], name) for job_id in before
        ]
    assert index_of(one, folder).pieces == index_of(other, folder).pieces
    with Penstock(settings=other) as app:
        with app.worker_thread():
            app.queue.resume(Scope("acme", "*"))
            for job_id in after:
                assert Status.DONE is app.wait(job_id, timeout=120).status
        assert 3 == len([hit for hit in app.search("note", limit=9) if "A note" in hit.text])


def run(settings: Settings, *arguments: str, code: int = 0) -> Result:
    options = ["--state", str(settings.state_dir), "--url", settings.url]
    result = CliRunner().invoke(cli, [*options, *arguments])
    assert code == result.exit_code, result.output
    return result


def test_commands_say_what_they_did(tmp_path: Path, one: Source) -> None:
    other = settings_of("sqlite", tmp_path / "other")
    kept = tmp_path / "kept"
    kept.mkdir()
    reports = [
        json.loads(run(one.settings, "backup", str(kept), "--keep", "2", "--json").stdout) for _ in range(3)
    ]
    assert [reports[0]["path"]] == reports[2]["removed"]
    assert sorted(report["path"] for report in reports[1:]) == sorted(str(path) for path in kept.iterdir())
    assert reports[0]["size"] > 1_000
    assert {"queue/jobs", "catalog/sources", "catalog/catalog_vector"} <= {
        part["part"] for part in reports[0]["parts"]
    }
    file = reports[2]["path"]
    assert "Backup is complete" in run(other, "restore", file, "--check").output
    assert not Path(other.store.path).exists()
    assert "10 jobs, 6 documents" in run(other, "restore", file).output
    refused = run(other, "restore", file, code=5)
    assert "holds jobs already" in refused.output
    run(other, "restore", file, "--replace", code=1)
    assert "Restored into" in run(other, "restore", file, "--replace", "--yes").output
    assert "Everything matches" in run(other, "verify").output


def test_a_wrong_file_is_refused_and_nothing_is_written(tmp_path: Path, one: Source) -> None:
    other = settings_of("sqlite", tmp_path / "other")
    cut = tmp_path / "cut.backup"
    cut.write_bytes(one.file.read_bytes()[:-100])
    for path, words in (
        (cut, "truncated"),
        (one.folder / "0.md", "not a backup"),
        (tmp_path / "none", "none"),
    ):
        assert words in run(other, "restore", str(path), code=7).output
    assert not Path(other.store.path).exists()
    assert "is not a backup" in run(one.settings, "backup", str(one.folder / "0.md"), code=1).output
    assert (one.folder / "0.md").read_text().startswith("# Part")
    run(one.settings, "backup", str(tmp_path / "no" / "such" / "place"), code=7)
    run(one.settings, "backup", str(cut), "--keep", "3", code=1)


def test_a_store_of_one_process_is_refused(tmp_path: Path) -> None:
    for command in ("backup", "restore"):
        result = CliRunner().invoke(cli, ["--url", "memory://", command, str(tmp_path / "x.backup")])
        assert (1, True) == (result.exit_code, "ends with this process" in result.output)
    assert [] == list(tmp_path.iterdir())


def test_a_full_disk_leaves_no_file(tmp_path: Path) -> None:
    settings, kept = settings_of("sqlite", tmp_path / "large"), tmp_path / "kept"
    kept.mkdir()
    with assembled(settings) as made:
        made.jobs.submit(item_type="content", op="ingest", payload={"content": os.urandom(200_000).hex()})
        assert made.catalog.transfer.is_empty()
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        # More than SQLite needs to open the store, and less than the backup.
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
        try:
            with pytest.raises(DiskFull):
                made.backups.write(kept)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert [] == list(kept.iterdir())
        made.backups.check(Path(made.backups.write(kept).path))


def test_a_store_with_workers_is_not_replaced(tmp_path: Path, one: Source) -> None:
    other = settings_of("sqlite", tmp_path / "other")
    with assembled(other) as made:
        made.queue.report(WorkerReport(worker_id="w7", host="h", pid=1, started_at=clock.now()))
        with pytest.raises(WorkersRunning, match="w7 on h"):
            made.backups.restore(one.file)


def killed(engine: str, place: Path, file: Path | str, point: str, calls: int = 1) -> int:
    command = [sys.executable, "-m", "tests.backup.killed_restore", engine, str(place), str(file)]
    return subprocess.run(
        [*command, point, str(calls)], check=False, cwd=Path(__file__).parents[2]
    ).returncode


@pytest.mark.parametrize("point", others_later(["while writing", "after the footer"], ["while writing"]))
def test_a_killed_backup_leaves_the_former_one(tmp_path: Path, one: Source, point: str) -> None:
    file = tmp_path / "kept.backup"
    with assembled(one.settings) as made:
        made.backups.write(file)
        before = file.read_bytes()
        assert -9 == killed("sqlite", one.file.parents[1], file, point, 3 if point == "while writing" else 1)
        assert before == file.read_bytes()
        made.backups.write(file)
        made.backups.check(file)
    assert [] == list(tmp_path.glob(".*.partial"))


KILLS = [
    ("begun", 1),
    ("while inserting", 6),
    ("while inserting", 30),
    ("before the catalog ends", 1),
    ("between catalog and queue", 1),
]

SHORT_KILLS = (("sqlite", KILLS[2]), ("sqlite", KILLS[4]), ("postgres", KILLS[1]))


@pytest.mark.parametrize(
    ("engine", "point", "calls"),
    [
        pytest.param(engine, *kill, marks=[pytest.mark.long] * ((engine, kill) not in SHORT_KILLS))
        for engine in DURABLE
        for kill in KILLS
    ],
)
def test_a_killed_restore_is_not_used_and_can_be_run_again(
    tmp_path: Path, one: Source, engine: str, point: str, calls: int
) -> None:
    other = settings_of(engine, tmp_path / "other")
    assert -9 == killed(engine, tmp_path / "other", one.file, point, calls)
    with pytest.raises(RestoreUnfinished), assembled(other) as made:
        assert made.queue
    with assembled(other) as made:
        made.backups.restore(one.file)
        assert [] == made.catalog.audit()
    assert jobs_of(one.settings).keys() == jobs_of(other).keys()
    assert index_of(one.settings, one.folder).pieces == index_of(other, one.folder).pieces


def test_a_killed_restore_of_another_backup_does_not_touch_a_full_catalog(
    tmp_path: Path, one: Source
) -> None:
    other = settings_of("sqlite", tmp_path / "other")
    first, second = one.file, backed_up(one.settings, tmp_path / "kept")
    assert -9 == killed("sqlite", tmp_path / "other", first, "between catalog and queue")
    with assembled(other) as made:
        with pytest.raises(StoreNotEmpty, match="holds documents already"):
            made.backups.restore(second)
        made.backups.restore(first)


def test_a_damaged_row_is_named(tmp_path: Path, one: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.backup import backups

    whole = backups._job_row

    def without_status(job: Job) -> list[Any]:
        return [None if value == job.status else value for value in whole(job)]

    monkeypatch.setattr(backups, "_job_row", without_status)
    file = backed_up(one.settings, tmp_path / "kept")
    with assembled(one.settings) as made, pytest.raises(BackupDamaged, match="queue/jobs is not a job"):
        made.backups.check(file)


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_a_backup_and_a_restore_tell_how_much_is_done(engine: str, tmp_path: Path, one: Source) -> None:
    shares: list[float] = []
    place = settings_of(engine, tmp_path / engine)

    def note(_part: str, _rows: int, share: float) -> None:
        shares.append(share)

    with assembled(place) as made:
        made.backups.restore(one.file, on_progress=note)
        restored = [*shares]
        shares.clear()
        made.backups.write(tmp_path / "again.backup", on_progress=note)

    for found in (restored, shares):
        assert found == sorted(found)
        # Of so small a file, the end of the last part and the footer are a sixth.
        assert 0.0 < found[0] < 0.5 < 0.8 < found[-1] <= 1.0


def test_the_time_left_is_told_once_there_is_something_to_tell() -> None:
    assert ["", "", ", 30 s left", ", 1 min left"] == [
        time_left(0.5, 0.5),
        time_left(100.0, 0.001),
        time_left(10.0, 0.25),
        time_left(10.0, 0.1),
    ]


def test_a_restored_catalog_merges_its_words_in_the_usual_way(tmp_path: Path, one: Source) -> None:
    place = settings_of("sqlite", tmp_path)
    with assembled(place) as made:
        made.backups.restore(one.file)
    with closing(sqlite3.connect(place.catalog_store.path)) as file:
        found = dict(file.execute("SELECT k, v FROM catalog_keyword_config"))
    assert 1 << 20 == found["hashsize"]
