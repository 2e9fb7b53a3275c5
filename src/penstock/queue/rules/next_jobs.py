"""The jobs a claim could take next, and the claim of one job by its id."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

import msgspec

from penstock import transitions
from penstock.job import Changes, Claim, ClaimRequest, Held, Job, Status
from penstock.queue.rules.pauses import Pause, everything_paused, held_scopes

FIRST_PAGE = 200
LARGEST_PAGE = 100_000


def pages() -> Iterator[tuple[int, int]]:
    """Where each look begins and how many rows it reads. They grow: a queue of few locks is read with few
    looks, one of many is answered by the first."""
    start, size = 0, FIRST_PAGE
    while True:
        yield start, size
        start, size = start + size, min(8 * size, LARGEST_PAGE)


class NextJob(NamedTuple):
    """A row that a claim would look at, in claim order. Rows whose lock another job holds are left out."""

    queue_id: str
    lock_key: str | None
    tenant_id: str
    collection: str


def first_of_each_lock(
    pages: Iterable[Sequence[NextJob]], limit: int, pauses: Collection[Pause]
) -> list[str]:
    """Ids in claim order: of rows that share a lock key only the first, none that a pause covers."""
    if everything_paused(pauses):
        return []
    paused = held_scopes(pauses)
    found: dict[str, None] = {}
    locks: set[str] = set()
    for page in pages:
        for row in page:
            if row.lock_key in locks or any(scope.covers(row.tenant_id, row.collection) for scope in paused):
                continue
            if row.lock_key is not None:
                locks.add(row.lock_key)
            found[row.queue_id] = None
            if len(found) == limit:
                return list(found)
    return list(found)


class Startable(Protocol):
    def get(self, queue_id: str) -> Job | None: ...

    def change(self, job: Job, changes: Changes) -> Job: ...

    def lock_holder(self, lock_key: str) -> str | None:
        """The id of the job that holds this lock."""

    def pauses(self) -> Sequence[Pause]: ...


def start(rows: Startable, queue_id: str, request: ClaimRequest, now: datetime) -> Claim | None:
    """Claim one pending job, wherever it stands in line; None when it is not pending, or a pause or a lock
    keeps it from starting."""
    job = rows.get(queue_id)
    if job is None or job.status is not Status.PENDING or job.held is Held.PAUSE:
        return None
    pauses = rows.pauses()
    if everything_paused(pauses) or any(
        scope.covers(job.tenant_id, job.collection) for scope in held_scopes(pauses)
    ):
        return None
    if job.lock_key is not None and not job.lock_held and rows.lock_holder(job.lock_key):
        return None
    return claim_of(rows.change(job, transitions.started(job, request, now)))


def claim_of(job: Job) -> Claim:
    return msgspec.convert(job, Claim, from_attributes=True)
