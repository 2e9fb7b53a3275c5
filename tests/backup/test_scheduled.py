"""Backups by a schedule: jobs of the queue, which workers run with the guarantees of the command."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock import Penstock
from penstock.config import Settings
from penstock.errors import InvalidName, InvalidRequest, ScheduleExists
from penstock.queue.job import Job, Status
from penstock.worker.upkeep import ScheduleRunner
from tests.backup.places import assembled, give_all_back, settings_of
from tests.servers.stores import DURABLE, others_later


@pytest.fixture(autouse=True)
def _given_back(tmp_path: Path) -> Iterator[None]:
    yield
    give_all_back(tmp_path)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return settings_of("sqlite", tmp_path / "one")


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    (tmp_path / "kept").mkdir()
    return tmp_path / "kept"


def run_once(app: Penstock, hours: int) -> Job:
    """Run the schedule at one of its next times, and wait for its job."""
    ScheduleRunner(app.queue).run(app.queue.now() + timedelta(hours=hours))
    job_id = app.schedules.show("backup").last_job_id
    assert job_id is not None
    return app.wait(job_id, timeout=60)


@pytest.mark.parametrize("engine", others_later(DURABLE, ("sqlite",)))
def test_a_schedule_writes_backups_and_keeps_the_newest(tmp_path: Path, kept: Path, engine: str):
    settings = settings_of(engine, tmp_path / "one")
    with Penstock(settings=settings) as app:
        record = app.schedules.add_backup("every 1h", kept, keep=2)
        assert ("backup", f"backup {kept}, keep 2") == (record.name, record.does)
        note = app.documents.note("The mill runs at dawn.")
        with app.worker_thread():
            app.wait(note.job_id, timeout=60)
            jobs = [run_once(app, hours) for hours in (1, 2, 3)]

    assert [Status.DONE] * 3 == [job.status for job in jobs], jobs[0].error_message
    results = [job.result for job in jobs]
    assert [[], [], [results[0]["path"]]] == [result["removed"] for result in results]
    assert {result["path"] for result in results[1:]} == {str(path) for path in kept.iterdir()}
    other = settings_of("sqlite", tmp_path / "other")
    with assembled(other) as made:
        made.backups.restore(Path(results[-1]["path"]))
        assert Status.DONE is made.queue.get(note.job_id).status  # type: ignore[union-attr]
        assert ["backup"] == [one.name for one in made.queue.schedules()]


def test_backups_of_other_stores_in_the_directory_stay(tmp_path: Path, settings: Settings, kept: Path):
    with assembled(settings_of("sqlite", tmp_path / "other")) as other:
        foreign = Path(other.backups.write(kept).path)
    broken = kept / "penstock-20200101-000000-000000.backup"
    broken.write_bytes(b"penstock backup\n and no more")
    with assembled(settings) as made:
        first = made.backups.write(kept, keep=1)
        second = made.backups.write(kept, keep=1)
    assert (first.path,) == second.removed
    assert {foreign, broken, Path(second.path)} == set(kept.iterdir())


@pytest.mark.long
def test_a_backup_that_is_killed_with_its_worker_is_written_again(tmp_path: Path, kept: Path):
    settings = settings_of("sqlite", tmp_path / "one")
    with Penstock(settings=settings) as app:
        app.schedules.add_backup("every 1h", kept)
        job_id = app.schedules.run_now("backup").job_id
        command = [sys.executable, "-m", "tests.backup.killed_worker", "sqlite", str(tmp_path / "one")]
        place = Path(__file__).parents[2]
        subprocess.run([*command, job_id, str(tmp_path / "mark")], check=True, cwd=place)
        job = app.job(job_id)

    assert (Status.DONE, 1) == (job.status, job.lost_count), job.error_message
    assert [Path(job.result["path"])] == list(kept.iterdir())
    with assembled(settings) as made:
        made.backups.check(Path(job.result["path"]))


def test_a_cancelled_backup_leaves_nothing(settings: Settings, kept: Path, monkeypatch: pytest.MonkeyPatch):
    from penstock.handlers.context import Context

    with Penstock(settings=settings) as app:
        report = Context.report
        app.schedules.add_backup("every 1h", kept)
        job_id = app.schedules.run_now("backup").job_id

        def cancelled(context: Context, progress: Any) -> None:
            app.cancel(job_id)
            while not context._stop_requested():
                pass
            report(context, progress)

        monkeypatch.setattr(Context, "report", cancelled)
        with app.worker_thread():
            job = app.wait(job_id, timeout=60)
    assert (Status.CANCELLED, []) == (job.status, list(kept.iterdir()))


def test_a_missing_directory_fails_the_job_with_its_name(settings: Settings, kept: Path):
    with Penstock(settings=settings) as app:
        app.schedules.add_backup("every 1h", kept)
        kept.rmdir()
        receipt = app.schedules.run_now("backup")
        assert receipt.job_id == app.schedules.run_now("backup").job_id  # one at a time
        with app.worker_thread():
            job = app.wait(receipt.job_id, timeout=60)
    assert (Status.FAILED, "ERR_INVALID_REQUEST") == (job.status, job.error_code)
    assert str(kept) in str(job.error_message)
    assert not kept.exists()


def test_no_request_can_call_a_backup(settings: Settings, kept: Path):
    payload = {"function_name": "penstock.backup", "payload": {"directory": str(kept)}}
    with Penstock(settings=settings) as app:
        with pytest.raises(InvalidName, match=r"penstock\.backup cannot be called"):
            app.submit(item_type="function", op="run", payload=payload)
        with pytest.raises(InvalidName):
            app.schedules.add_call("@daily", "penstock.backup", {"directory": str(kept)})
        with pytest.raises(InvalidRequest, match="keep"):
            app.schedules.add_backup("@daily", kept, keep=0)
        app.schedules.add_backup("@daily", kept)
        with pytest.raises(ScheduleExists, match="does something else"):
            app.schedules.add_call("@daily", "report", name="backup", replace=True)
        assert f"backup {kept}, keep 3" == app.schedules.add_backup("@daily", kept, keep=3, replace=True).does
        assert [] == app.jobs()
    with Penstock("memory://") as app, pytest.raises(InvalidRequest, match="ends with this process"):
        app.schedules.add_backup("@daily", kept)
