"""Deleting rows in any state, for a tenant that is to be forgotten."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from penstock.job import Job
from penstock.queue.rules import locks
from penstock.queue.rules.rows import Rows


class Deletable(Rows, Protocol):
    def delete(self, ids: Sequence[str]) -> None: ...


def purge(rows: Deletable, jobs: Sequence[Job], now: datetime) -> int:
    """Delete these rows, except those that changed since they were read; their locks are passed on."""
    rows.hold([job.queue_id for job in jobs])
    found = [(seen, rows.get(seen.queue_id)) for seen in jobs]
    meant = [job for seen, job in found if job is not None and job.updated_at == seen.updated_at]
    freed = {job.lock_key for job in meant if job.lock_held and job.lock_key is not None}
    rows.delete([job.queue_id for job in meant])
    if freed:
        locks.wake(rows, freed, now)
    return len(meant)
