"""References that replay calls, and the differences from them that PostgreSQL is permitted."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeAlias

import msgspec

from penstock.queue.job import Claim, ClaimRequest, Job, JobQuery, Settlement, Status
from penstock.queue.memory.queue import MemoryQueue
from penstock.queue.memory.table import Table, claim_order
from penstock.queue.protocol import Exchange
from tests.conformance.invariants import outcome

Call: TypeAlias = tuple[str, Sequence[Any], Mapping[str, Any]]
_EVERYTHING = JobQuery(limit=10_000)


class ConcurrentTable(Table):
    """Rows of a reference for an engine with concurrent writers; see ``Rows.first_parked``."""

    def first_parked(self, lock_keys: Collection[str]) -> list[Job]:
        """Omit rows behind an earlier claimable row of their tenant and priority, which takes the lock first.

        The other engines wake such a row, as they have no index of the claimable rows of a lock.
        """
        return [job for job in super().first_parked(lock_keys) if not self._is_behind_own(job)]

    def _is_behind_own(self, parked: Job) -> bool:
        return any(
            (job.status, job.held, job.lock_key) == (Status.PENDING, None, parked.lock_key)
            and (job.tenant_id, job.priority) == (parked.tenant_id, parked.priority)
            and 0 <= job.turn
            and claim_order(job) < claim_order(parked)
            for job in self.rows.values()
        )


class ConcurrentReference(MemoryQueue):
    """The reference for PostgreSQL."""

    def __init__(self) -> None:
        super().__init__()
        self._table = ConcurrentTable()


def exchanged_ahead(
    calls: Sequence[Call], settlements: Sequence[Settlement], request: ClaimRequest, *, now: datetime
) -> tuple[MemoryQueue, Exchange | None]:
    """Exchange as PostgreSQL may: claim rows that want no lock, settle, claim the rest.

    The claim is in the same round trip as the settlements. Jobs that are not plain are settled in the next,
    so rows which only these make claimable are claimed after others, whatever their priority (see
    docs/decisions/0018). None: not permitted, as another request, or a row that wants a lock, goes ahead.
    """
    reference = ConcurrentReference()
    for method, args, kwargs in calls:
        outcome(reference, method, args, kwargs)
    plain = all(each.status is Status.DONE for each in settlements)
    if not plain or request.oldest or request.lease_by_type or reference.pauses():
        return reference, None
    before = {job.queue_id: job for job in reference.find(_EVERYTHING)}
    claims = reference.claim(request, now=now)
    if not claims or any(_wanted_lock(before[claim.queue_id]) for claim in claims):
        return reference, None
    answers = reference.settle(settlements, now=now)
    left = request.limit - len(claims)
    rest: list[Claim] = reference.claim(msgspec.structs.replace(request, limit=left), now=now) if left else []
    return reference, Exchange(answers, claims + rest)


def _wanted_lock(job: Job) -> bool:
    return job.lock_key is not None and not job.lock_held
