"""Backups while workers run and jobs are added: nothing acknowledged before is missing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import Penstock
from penstock.config import Settings
from penstock.queue.job import JobQuery, Status
from tests.backup.places import assembled, give_all_back, index_of, settings_of
from tests.servers.stores import FIRST

LIVE = JobQuery(statuses=frozenset({Status.PENDING, Status.IN_PROGRESS}), limit=1)


@pytest.fixture(autouse=True)
def _given_back(tmp_path: Path) -> Iterator[None]:
    yield
    give_all_back(tmp_path)


class Submitter(threading.Thread):
    """Writes files and indexes each, until it is told to stop."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        super().__init__()
        self._settings = settings
        self._folder = folder
        self.stopped = threading.Event()
        self.some = threading.Event()
        self.acknowledged: list[str] = []

    def run(self) -> None:
        with Penstock(settings=self._settings) as app:
            number = 0
            while not self.stopped.is_set():
                path = self._folder / f"{number % 40}.md"
                path.write_text(f"# Part {number}\n\n" + f"Subject{number} of the mill. " * 20)
                self.acknowledged.append(app.index(path).job_id)
                number += 1
                if number > 8:
                    self.some.set()


@pytest.mark.parametrize(
    ("source", "targets"),
    [("sqlite", ("sqlite",)), *(pytest.param(source, FIRST, marks=pytest.mark.long) for source in FIRST)],
)
def test_a_backup_under_load_has_all_that_was_acknowledged(
    tmp_path: Path, source: str, targets: tuple[str, ...]
) -> None:
    folder, kept = tmp_path / "docs", tmp_path / "kept"
    folder.mkdir()
    kept.mkdir()
    settings = settings_of(source, tmp_path / "one")
    submitter = Submitter(settings, folder)
    with Penstock(settings=settings) as app, app.worker_thread():
        submitter.start()
        try:
            assert submitter.some.wait(120)
            with assembled(settings) as made:
                acknowledged = set(submitter.acknowledged)
                file = Path(made.backups.write(kept).path)
        finally:
            submitter.stopped.set()
            submitter.join()
    for number, target in enumerate(targets):
        other = settings_of(target, tmp_path / f"other{number}")
        with assembled(other) as made:
            made.backups.restore(file)
            assert [] == made.catalog.audit()
            assert acknowledged <= {job.queue_id for job in made.queue.find(JobQuery(limit=100_000))}
        with Penstock(settings=other) as app:
            with app.worker_thread():
                for job_id in acknowledged:
                    assert Status.DONE is app.wait(job_id, timeout=120).status
                # Brings in what changed on the disk after the backup.
                app.wait(app.index(folder).job_id, timeout=120)
            assert [] == app.queue.find(LIVE)
            assert [] == list(app.verifier.differences())
    fresh = settings_of(targets[-1], tmp_path / "fresh")
    with Penstock(settings=fresh) as app, app.worker_thread():
        app.wait(app.index(folder).job_id, timeout=120)
    assert index_of(fresh, folder) == index_of(other, folder)
