"""Jobs that wait for a document are found without reading those that run: each host looks once a second."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from penstock.catalog.sql.sqlite import SqliteCatalog
from penstock.queue import transitions
from penstock.queue.job import ClaimRequest, JobQuery, Status
from penstock.queue.sql import statements
from penstock.queue.sqlite.queue import SqliteQueue
from penstock.worker.lanes import DocumentNotifier
from penstock.worker.upkeep import OverdueEnder
from tests.stores.new_jobs import new

WAITING = JobQuery(statuses=frozenset({Status.IN_PROGRESS}), waiting=True, limit=1_000)


def test_waiting_jobs_are_read_from_their_index(tmp_path: Path):
    queue = SqliteQueue(tmp_path / "queue.db")
    queue.migrate()
    queue.close()
    statement, values = statements.find(WAITING, "sqlite")
    raw = sqlite3.connect(tmp_path / "queue.db")
    plan = [text for *_, text in raw.execute(f"EXPLAIN QUERY PLAN {statement}", values)]
    raw.close()

    assert any("idx_unified_queue_waiting" in text for text in plan), plan


def test_duties_for_waiting_jobs_read_none_that_run(tmp_path: Path, monkeypatch):
    queue, catalog = SqliteQueue(tmp_path / "queue.db"), SqliteCatalog(tmp_path / "catalog.db")
    queue.migrate()
    queue.add([new(number) for number in range(20)])
    first, *_ = queue.claim(ClaimRequest("w", 20))
    queue.settle([transitions.waits(first, waiting_for="17")])
    read: list[str] = []
    find = queue.find

    def recorded(query: JobQuery):
        found = find(query)
        read.extend(job.queue_id for job in found)
        return found

    monkeypatch.setattr(queue, "find", recorded)
    for duty in (DocumentNotifier(queue, catalog).check_waiting, OverdueEnder(queue, catalog).run):
        duty()
        assert [first.queue_id] == read
        read.clear()
    queue.close()
    catalog.close()
