"""Changes of a whole batch of rows in a memory queue: a claim, and plain ends.

The effect is that of ``Table.change`` for each row, without a look at what such rows do not have.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from penstock.job import Changes, Job, Settlement, Status
from penstock.named_tuple import NamedTuple
from penstock.queue.memory.lazy_heap import LazyHeap
from penstock.row_counts import Class

_replace = msgspec.structs.replace
# A member of an enum costs more to read than a global name.
_PENDING, _IN_PROGRESS, _DONE = Status.PENDING, Status.IN_PROGRESS, Status.DONE


class Alike(NamedTuple):
    """Jobs that end in the same way, and the settlement of the first."""

    settlement: Settlement
    jobs: list[Job]


class PlainEnds(NamedTuple):
    """The plain claims among some settlements; see ``Finished``."""

    over: list[bool]
    groups: list[Alike]
    parents: list[tuple[str, int | None, str | None]]


class BatchTable:
    """The part of a table about batches."""

    rows: dict[str, Job]
    live_keys: dict[tuple[str, str, str], str]
    lock_holders: dict[str, str]
    leased: dict[str, None]
    backlog_counts: defaultdict[tuple[bool, str], int]
    tallies: defaultdict[Class, int]
    pending_children: int
    pending_requests: dict[str, None]
    _ended_roots: LazyHeap[tuple[datetime | None, str]]

    def _take_all(self, jobs: Sequence[Job], changes: Changes) -> list[Job]:
        """Change claimable rows to leased ones; see ``can_take``."""
        changed: list[Job] = []
        rows, leased, lock_holders, pending = self.rows, self.leased, self.lock_holders, self.backlog_counts
        for job in jobs:
            queue_id = job.queue_id
            after = rows[queue_id] = _replace(job, **changes)
            changed.append(after)
            leased[queue_id] = None
            if job.parent_id is None:
                is_function = job.item_type == "function"
                pending[is_function, job.tenant_id] -= 1
                if not is_function:
                    del self.pending_requests[queue_id]
            else:
                self.pending_children -= 1
            if job.lock_key is not None:
                lock_holders[job.lock_key] = queue_id
        self._count(jobs, _PENDING, _IN_PROGRESS)
        return changed

    def _end_all(self, jobs: Sequence[Job], changes: Changes) -> list[Job]:
        """Change leased rows to done ones; see ``can_end``."""
        changed: list[Job] = []
        rows, leased, live_keys, lock_holders = self.rows, self.leased, self.live_keys, self.lock_holders
        for job in jobs:
            after = rows[job.queue_id] = _replace(job, **changes)
            changed.append(after)
            del leased[job.queue_id]
            if job.dedupe and job.parent_id is None:
                live_keys.pop((job.tenant_id, job.branch, job.idempotency_key), None)
            if job.lock_held:
                lock_holders.pop(job.lock_key or "", None)
        self._count(jobs, _IN_PROGRESS, _DONE)
        self._ended_roots.put_all([job for job in changed if job.parent_id is None])
        return changed

    def _count(self, jobs: Sequence[Job], before: Status, after: Status) -> None:
        types = [job.item_type for job in jobs]
        for item_type in set(types):
            number = types.count(item_type)
            self.tallies[before, None, item_type] -= number
            self.tallies[after, None, item_type] += number


def plain_ends(rows: Mapping[str, Job], settlements: Sequence[Settlement]) -> PlainEnds:
    """Find the valid claims whose end as done needs nothing of the general path."""
    over: list[bool] = []
    groups: list[Alike] = []
    parents: list[tuple[str, int | None, str | None]] = []
    alike: list[Job] = []
    values: tuple[int, str | None] | None = None
    for each in settlements:
        job = rows.get(each.queue_id)
        if (
            job is None
            or job.status is not _IN_PROGRESS
            or job.claim_number != each.claim_number
            or job.followup_json is not None
            or job.children_open
            or job.awaited
            or job.limit_key is not None
            or each.children
        ):
            over.append(False)
            continue
        over.append(True)
        # Claims equal in these values end alike, see ``transitions.settled``.
        if values != (job.lost_count, each.result_json):
            values, alike = (job.lost_count, each.result_json), []
            groups.append(Alike(each, alike))
        alike.append(job)
        if job.parent_id is not None:
            parents.append((job.parent_id, job.parent_run, each.result_json))
    return PlainEnds(over, groups, parents)


def can_take(jobs: Sequence[Job], changes: Changes) -> bool:
    """Check whether the changes claim claimable rows without a limit, a backlog key or a place in front."""
    if changes.get("status") is not _IN_PROGRESS:
        return False
    for job in jobs:
        if job.status is not _PENDING or job.held or job.turn < 0 or job.limit_key or job.backlog_key:
            return False
    return True


def can_end(jobs: Sequence[Job], changes: Changes) -> bool:
    """Check whether the changes end leased rows as done, without a limit or a result that expires."""
    if changes.get("status") is not _DONE:
        return False
    # A list, as a generator costs a call for each job.
    return not [job for job in jobs if not job.lease_until or job.limit_key or job.result_ttl_s]
