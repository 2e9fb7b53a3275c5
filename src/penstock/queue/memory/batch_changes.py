"""Changes of a whole batch of rows in a memory queue: a claim, and plain ends.

The effect is that of ``Table.change`` for each row, without a look at what such rows do not have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

import msgspec

from penstock.job import Changes, Job, Status
from penstock.queue.memory.lazy_heap import LazyHeap
from penstock.row_counts import Class

FEW = 4
"""Rows from which on a batch costs less than its rows one by one."""

_replace = msgspec.structs.replace


class BatchTable:
    """The part of a table about batches."""

    rows: dict[str, Job]
    live_keys: dict[tuple[str, str, str], str]
    lock_holders: dict[str, str]
    leased: dict[str, None]
    backlog_counts: Counter[tuple[bool, str]]
    tallies: Counter[Class]
    pending_children: int
    _ended_roots: LazyHeap[tuple[datetime | None, str]]

    def _take_all(self, jobs: Sequence[Job], changes: Changes) -> list[Job]:
        """Change claimable rows to leased ones; see ``can_take``."""
        changed = [_replace(job, **changes) for job in jobs]
        rows, leased, lock_holders, pending = self.rows, self.leased, self.lock_holders, self.backlog_counts
        for job, after in zip(jobs, changed, strict=True):
            queue_id = job.queue_id
            rows[queue_id] = after
            leased[queue_id] = None
            if job.parent_id is None:
                pending[job.item_type == "function", job.tenant_id] -= 1
            else:
                self.pending_children -= 1
            if job.lock_key is not None:
                lock_holders[job.lock_key] = queue_id
        self._count(jobs, Status.PENDING, Status.IN_PROGRESS)
        return changed

    def _end_all(self, jobs: Sequence[Job], changes: Changes) -> list[Job]:
        """Change leased rows to done ones; see ``can_end``."""
        changed = [_replace(job, **changes) for job in jobs]
        rows, leased, live_keys, lock_holders = self.rows, self.leased, self.live_keys, self.lock_holders
        for job, after in zip(jobs, changed, strict=True):
            rows[job.queue_id] = after
            del leased[job.queue_id]
            if job.dedupe and job.parent_id is None:
                live_keys.pop((job.tenant_id, job.branch, job.idempotency_key), None)
            if job.lock_held:
                lock_holders.pop(job.lock_key or "", None)
        self._count(jobs, Status.IN_PROGRESS, Status.DONE)
        self._ended_roots.put_all([job for job in changed if job.parent_id is None])
        return changed

    def _count(self, jobs: Sequence[Job], before: Status, after: Status) -> None:
        types = [job.item_type for job in jobs]
        for item_type in set(types):
            number = types.count(item_type)
            self.tallies[before, None, item_type] -= number
            self.tallies[after, None, item_type] += number


def can_take(jobs: Sequence[Job], changes: Changes) -> bool:
    """Check whether the changes claim claimable rows without a limit, a backlog key or a place in front."""
    if changes.get("status") is not Status.IN_PROGRESS or len(jobs) < FEW:
        return False
    for job in jobs:
        if job.status is not Status.PENDING or job.held or job.turn < 0 or job.limit_key or job.backlog_key:
            return False
    return True


def can_end(jobs: Sequence[Job], changes: Changes) -> bool:
    """Check whether the changes end leased rows as done, without a limit or a result that expires."""
    if changes.get("status") is not Status.DONE or len(jobs) < FEW:
        return False
    return all(job.lease_until and not job.limit_key and not job.result_ttl_s for job in jobs)
