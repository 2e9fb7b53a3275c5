"""Next jobs of a claim, and the claim of one job by id."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Protocol

import msgspec

from penstock import transitions
from penstock.job import Changes, Claim, ClaimRequest, Held, Job, Status
from penstock.named_tuple import NamedTuple
from penstock.queue.rules.pauses import Pause, everything_paused, held_scopes

FIRST_PAGE = 200
LARGEST_PAGE = 100_000


def pages() -> Iterator[tuple[int, int]]:
    """Yield start and size of growing pages.

    A queue with few locks is read with few queries, one with many locks is answered by the first.
    """
    start, size = 0, FIRST_PAGE
    while True:
        yield start, size
        start, size = start + size, min(8 * size, LARGEST_PAGE)


class NextJob(NamedTuple):
    """A row considered by a claim. Rows waiting for a held lock are left out."""

    queue_id: str
    lock_key: str | None
    tenant_id: str
    collection: str


def first_of_each_lock(
    pages: Iterable[Sequence[NextJob]], limit: int, pauses: Collection[Pause]
) -> list[str]:
    """List ids in claim order: the first of each lock key, and no paused rows."""
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
    """Methods of rows for ``start``."""

    def get(self, queue_id: str) -> Job | None: ...

    def change(self, job: Job, changes: Changes) -> Job: ...

    def lock_holder(self, lock_key: str) -> str | None:
        """Return the id of the lock's holder."""

    def pauses(self) -> Sequence[Pause]: ...


def start(rows: Startable, queue_id: str, request: ClaimRequest, now: datetime) -> Claim | None:
    """Claim one pending job at any position.

    None when the job is not pending, or a pause, a limit or a lock prevents the start.
    """
    # Before any row is locked: a resume locks pauses first, too.
    pauses = rows.pauses()
    job = rows.get(queue_id)
    if job is None or job.status is not Status.PENDING or job.held in (Held.PAUSE, Held.AFTER):
        return None
    if job.limit_key is not None and (job.held is not None or job.limit_at is None):
        return None
    if everything_paused(pauses) or any(
        scope.covers(job.tenant_id, job.collection) for scope in held_scopes(pauses)
    ):
        return None
    if job.lock_key is not None and not job.lock_held and rows.lock_holder(job.lock_key):
        return None
    return claim_of(rows.change(job, transitions.started(job, request, now)))


def claim_of(job: Job) -> Claim:
    return msgspec.convert(job, Claim, from_attributes=True)
