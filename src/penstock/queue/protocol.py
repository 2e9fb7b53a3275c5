"""The queue protocol: what every engine does, and means the same by.

The contract stands here once; engines carry no docstrings of their own for these methods. ``now=None`` is
the store's own clock; only tests pass a time. Every write is atomic: it happens whole or not at all, and it
is durable before the call returns (as far as the engine's settings allow). Engines raise only
``QueueFull``, ``DuplicateId`` and subclasses of ``StoreError``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from penstock.job import (
    AddResult,
    Beat,
    CancelResult,
    Claim,
    ClaimRequest,
    Exchange,
    Job,
    JobQuery,
    NewJob,
    Position,
    QueueLimits,
    RenewResult,
    RequeueResult,
    Scope,
    Settlement,
    Status,
    WorkerReport,
)
from penstock.row_counts import RowCounts

NO_LIMITS = QueueLimits()

POSITION_CAP = 1_000
"""``position`` counts no further than this, so that asking it never costs more as the backlog grows."""

CASCADE_BATCH = 1_000
"""Children cancelled, requeued or released in one transaction."""


class Queue(Protocol):
    def add(
        self,
        new: Sequence[NewJob],
        *,
        limits: QueueLimits = NO_LIMITS,
        connection: Any = None,
        now: datetime | None = None,
    ) -> list[AddResult]:
        """All or nothing. A request whose key (tenant, branch, key) is live joins that row: pending, it
        takes the newest op and payload and the higher priority; in progress, they are kept for its next
        run. Raises ``QueueFull`` when the rows that would be new do not fit the limits, ``DuplicateId``
        when an id is taken. With ``connection`` (SQL engines) the rows join the caller's transaction;
        such requests must have ``dedupe=False``.
        """

    def claim(self, request: ClaimRequest, *, now: datetime | None = None) -> list[Claim]:
        """Up to ``limit`` jobs become this worker's until the lease ends, in the order: priority
        (highest first), turn, created_at, queue_id. What cannot be claimed (lock taken, tenant paused)
        is marked held on the way and not read again until released. A crash suspect is claimed alone.
        ``oldest`` starts with the oldest of the priorities' heads. Empty when nothing can be claimed, or when
        all of a bounded number of rows had to be held back: then ``wait`` returns at once.
        """

    def upcoming(
        self, *, item_type: str | None = None, limit: int = 100, now: datetime | None = None
    ) -> list[Job]:
        """Jobs (of one item type, or all) that a claim could take now, in claim order and one for each lock
        key. Reads no further than it must, and changes nothing."""

    def start(self, queue_id: str, request: ClaimRequest, *, now: datetime | None = None) -> Claim | None:
        """Claim this pending job, wherever it stands in line, also before its time. None when it is not
        pending, or a pause or the holder of its lock keeps it back. ``limit`` and ``oldest`` mean nothing."""

    def settle(
        self, settlements: Sequence[Settlement], *, now: datetime | None = None
    ) -> list[Status | None]:
        """End claims. Each applies only if the job is in progress under that claim number; answers the
        new status, or None where the claim was lost. In one transaction: outcomes and their children in
        the order given, then parents whose last child ended, then locks passed on.
        """

    def exchange(
        self, settlements: Sequence[Settlement], request: ClaimRequest, *, now: datetime | None = None
    ) -> Exchange:
        """Settle and claim in one transaction: one commit where two would cost double."""

    def renew(self, beats: Sequence[Beat], *, now: datetime | None = None) -> list[RenewResult]:
        """Extend leases and write progress where the claim is still held and leased."""

    def cancel(self, ids: Sequence[str], *, now: datetime | None = None) -> list[CancelResult]:
        """Pending: cancelled. In progress: flag. Waiting: flag, and its children are cancelled in
        batches; it ends with the last of them. Ended: untouched.
        """

    def requeue(
        self, ids: Sequence[str], *, keep_retries: bool = False, now: datetime | None = None
    ) -> list[RequeueResult]:
        """Failed or cancelled jobs run again, with all their retries or (``keep_retries``) those left. A
        parent that waited for children that failed or were cancelled puts those back and waits again; a
        child re-opens its failed ancestors, which hold their locks again. Refused with the id of the live job
        that has the same key, or that holds the lock of a parent to be re-opened.
        """

    def prune(
        self,
        ended_before: Mapping[Status, datetime],
        *,
        item_type: str | None = None,
        limit: int = CASCADE_BATCH,
    ) -> int:
        """Delete ended top-level jobs (of one item type, or all) with all their descendants, oldest end
        first, about ``limit`` rows a call; answers how many rows went. Trees with a live descendant stay.
        """

    def purge(self, jobs: Sequence[Job], *, now: datetime | None = None) -> int:
        """Delete these rows, whatever their state, except those that changed since they were read; answers
        how many went. Claims on them are lost, and locks they held are passed on. A parent whose children
        went is counted anew by ``reconcile``. One transaction: callers send batches.
        """

    def scrub(self) -> None:
        """Remove from the store's own files what deleted rows left there: a journal that still tells of
        them, a log that was not copied back yet.
        """

    def pause(self, scope: Scope, *, now: datetime | None = None) -> None:
        """Stop claiming from a scope; what runs goes on. No row is touched before a claim meets it."""

    def resume(self, scope: Scope, *, now: datetime | None = None) -> int:
        """Allow it again. Rows of one tenant and priority run in the order in which they were submitted, and
        take turns with the other tenants. This call releases a bounded number of rows and answers how many;
        claims and ``reconcile`` go on with the others, also after a crash.
        """

    def paused(self) -> frozenset[Scope]: ...

    def get(self, queue_id: str) -> Job | None: ...

    def find(self, query: JobQuery) -> list[Job]:
        """Jobs that match, ordered by id."""

    def count(self, query: JobQuery, *, by: Sequence[str] = ()) -> dict[tuple[Any, ...], int]:
        """How many match, grouped by columns of ``COUNTABLE``; paging fields of the query are ignored."""

    def tally(self) -> RowCounts:
        """Rows by status, reason to be held and item type, at a price that does not grow with them. Exact, or
        above some thousand rows an estimate where keeping counts would slow every call (SQL engines).
        """

    def oldest(self) -> datetime | None:
        """When the oldest pending job was added, of those next in line: the first of each priority, and of
        what is held.
        """

    def backlog(self, *, functions: bool, cap: int) -> int:
        """Pending top-level jobs, counted up to ``cap``: those of functions, or those of all other types."""

    def busy(self, *, documents: bool = True, now: datetime | None = None) -> bool:
        """Whether a job can be claimed, runs, waits for a document, is due or is in back-off.

        Without ``documents``, jobs that wait for a document do not count.
        """

    def position(self, queue_id: str) -> Position | None:
        """Where a pending job stands, exact up to ``POSITION_CAP``; None when it is not pending."""

    def expired(self, *, now: datetime | None = None, limit: int = 100) -> list[Job]:
        """Jobs past their lease, for ``lifecycle.lease_lost`` and ``settle``: fenced like any worker."""

    def reconcile(self, *, now: datetime | None = None, limit: int = 100) -> int:
        """Repair what a crash between two transactions can leave: locks nobody passed on, cascades cut
        short, waiting parents whose count is off. Answers how many rows it put right.
        """

    def report(self, worker: WorkerReport, *, now: datetime | None = None) -> None:
        """Note that a worker is alive, for status pages; no decision reads it."""

    def workers(self) -> list[WorkerReport]: ...

    def now(self) -> datetime:
        """The store's own clock: that of the server where there is one, which all hosts share."""

    def wait(self, timeout: float) -> bool:
        """Sleep until something may have been added or released, at most ``timeout`` seconds. A hint."""

    def check(self) -> list[str]:
        """Raise when the store cannot be used; answer warnings a person should read."""

    def migrate(self) -> None:
        """Bring the store to this version's schema."""

    def close(self) -> None: ...


COUNTABLE = frozenset(
    {"status", "item_type", "op", "tenant_id", "collection", "branch", "priority", "held", "worker_id"}
)
