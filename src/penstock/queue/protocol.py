"""The queue protocol: the contract of all engines.

The contract is written only here; engines have no docstrings for these methods. ``now=None`` means the
clock of the store; only tests pass a time. Every write is atomic and durable before the call returns (as
far as the settings of the engine allow). Engines raise only ``QueueFull``, subclasses of ``InvalidRequest``
for what only the rows can tell, and subclasses of ``StoreError``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, Protocol, TypeAlias

import msgspec

from penstock.errors import InvalidRequest
from penstock.queue.job import (
    SAME_METADATA,
    AddResult,
    Beat,
    CancelResult,
    Claim,
    ClaimRequest,
    FailureGroups,
    Job,
    JobQuery,
    NewJob,
    Position,
    QueueLimits,
    RenewResult,
    RequeueResult,
    RowCounts,
    Scope,
    Settlement,
    Status,
    WorkerReport,
)
from penstock.queue.limits import Limit
from penstock.queue.schedules import Schedule


class Exchange(msgspec.Struct, frozen=True):
    """Result of one fused settle and claim."""

    settled: list[Status | None]
    claims: list[Claim]


class SentExchange(Protocol):
    """An exchange that the store works on; its result is not read yet."""

    def finish(self) -> Exchange:
        """Wait for the result. After a ``StoreUnavailable`` it is unknown whether it was done."""


NO_LIMITS = QueueLimits()

POSITION_CAP = 1_000
"""``position`` counts up to this number, so that its cost does not grow with the backlog."""

CASCADE_BATCH = 1_000
"""Children cancelled, requeued or released in one transaction."""


CountedAddition: TypeAlias = tuple[AddResult, Position | None]
"""The result of an addition, and the position of the job."""


class Queue(Protocol):
    """A durable job queue, with its schedules and limits. A write is atomic and durable when it returns."""

    def add(
        self,
        new: Sequence[NewJob],
        *,
        limits: QueueLimits = NO_LIMITS,
        connection: Any = None,
        now: datetime | None = None,
    ) -> list[AddResult]:
        """Add jobs, all or none.

        A new job whose key (tenant, branch, key) is live joins that row. A pending row takes the newest op
        and payload and the higher priority; a row in progress keeps them for its next run. Raises
        ``QueueFull`` when the new rows exceed the limits, ``DuplicateId`` when an id is taken. A job with
        ``after`` is held until these have ended, one with ``limit_key`` until its limit allows a start.
        ``UnknownDependency``, ``DependencyCycle`` or ``OtherDependencies`` (a live row with its key waits for
        others) refuse the call. A job with ``lock_key`` and ``limit_key`` takes its lock together with its
        start. With ``connection`` (SQL engines) the rows join the caller's transaction; such requests must
        have ``dedupe=False``.
        """

    def add_counted(self, new: Sequence[NewJob], *, limits: QueueLimits = NO_LIMITS) -> list[CountedAddition]:
        """Add jobs as ``add`` does; return their positions as well, None for those that are not pending."""

    def restore(self, jobs: Sequence[Job]) -> list[str | None]:
        """Insert whole rows of another store, in any status, all or none. No limits apply.

        None for an inserted row; else nothing is written for it, and the id of the row in its way is
        returned: one with its id, the live one with its key, or the holder of a lock that it holds. Pending
        rows get new turns in the given order; all other columns stay as they are.
        """

    def dump(self) -> AbstractContextManager[Iterator[list[Job]]]:
        """Read all rows, ordered by id, in batches.

        The rows are those of one moment: when the context was entered. Redis has no such moment: each batch
        has one, and a row that is there from the beginning to the end is read once.
        """

    def begin_restore(self) -> None:
        """Delete all rows, pauses and reports of workers, and mark the store as unfinished.

        Until ``end_restore``, only another restore can open the store (others: ``RestoreUnfinished``).
        """

    def end_restore(self) -> None:
        """Remove the mark: the store can be opened."""

    def restore_unfinished(self) -> bool:
        """Check whether the store has the mark. Only a store opened for a restore can."""

    def claim(self, request: ClaimRequest, *, now: datetime | None = None) -> list[Claim]:
        """Claim up to ``limit`` jobs for a worker until the lease ends.

        In the order: priority (highest first), turn, created_at, queue_id. Rows that cannot be claimed
        (lock taken, tenant paused) are marked held on the way and not read again until released. A crash
        suspect is claimed alone. ``oldest`` starts with the oldest of the priorities' heads. Empty when
        nothing can be claimed, or when all of a bounded number of rows had to be held back: then ``wait``
        returns at once.
        """

    def upcoming(
        self, *, item_type: str | None = None, limit: int = 100, now: datetime | None = None
    ) -> list[Job]:
        """List jobs (of one item type, or all) for the next claim, in claim order, one for each lock key.

        Reads as few rows as possible, and changes nothing.
        """

    def start(self, queue_id: str, request: ClaimRequest, *, now: datetime | None = None) -> Claim | None:
        """Claim this pending job, at any position, also before its start time.

        None when the job is not pending, or a pause, a dependency, a limit or the holder of its lock
        prevents it.
        ``limit`` and ``oldest`` are ignored.
        """

    def start_all(
        self, ids: Sequence[str], request: ClaimRequest, *, now: datetime | None = None
    ) -> list[Claim]:
        """Claim those of these jobs that ``start`` would claim, in this order; one transaction in SQL."""

    def settle(
        self, settlements: Sequence[Settlement], *, now: datetime | None = None
    ) -> list[Status | None]:
        """End claims. Returns the new status of each job, or None for a lost claim.

        A settlement applies only if the job is in progress under that claim number. In one transaction:
        outcomes and their children in the given order, then parents whose last child ended, then locks
        passed on.
        """

    def exchange(
        self, settlements: Sequence[Settlement], request: ClaimRequest, *, now: datetime | None = None
    ) -> Exchange:
        """Settle and claim in one transaction, for half the price of two."""

    def send_exchange(
        self, settlements: Sequence[Settlement], request: ClaimRequest, *, now: datetime | None = None
    ) -> SentExchange | None:
        """Send an exchange without waiting for its result.

        None: nothing was sent, as only ``exchange`` can do it. Nothing is settled or claimed that
        ``exchange`` would not.
        """

    def renew(self, beats: Sequence[Beat], *, now: datetime | None = None) -> list[RenewResult]:
        """Extend leases and write progress of claims still held and leased."""

    def cancel(self, ids: Sequence[str], *, now: datetime | None = None) -> list[CancelResult]:
        """Cancel jobs.

        A pending job ends as cancelled. A running job gets a flag. A waiting job gets a flag, its children
        are cancelled in batches, and it ends with the last of them. An ended job stays as it is.
        """

    def requeue(
        self,
        ids: Sequence[str],
        *,
        keep_retries: bool = False,
        metadata: Mapping[str, str] = SAME_METADATA,
        now: datetime | None = None,
    ) -> list[RequeueResult]:
        """Run failed or cancelled jobs again, with all retries or (``keep_retries``) those left.

        A parent that waited for failed or cancelled children requeues them and waits again; a child
        re-opens its failed ancestors, which hold their locks again. A job with dependencies waits for live
        ones. Refused with the id of the live job that has the same key, or that holds the lock of a parent to
        be re-opened.

        ``metadata``: a job whose metadata is a key of it gets the value instead. So a text made from a row
        that was changed since changes nothing.
        """

    def prune(
        self,
        ended_before: Mapping[Status, datetime],
        *,
        item_type: str | None = None,
        limit: int = CASCADE_BATCH,
    ) -> int:
        """Delete ended top-level jobs (of one item type, or all) with all descendants, oldest end first.

        About ``limit`` rows a call; returns the number of deleted rows. Trees with a live descendant stay.
        """

    def expire_results(self, *, now: datetime | None = None, limit: int = CASCADE_BATCH) -> int:
        """Remove results of ended jobs after ``result_ttl_s``; the jobs stay.

        Returns the number of rows looked at, at most ``limit``.
        """

    def purge(self, jobs: Sequence[Job], *, now: datetime | None = None) -> int:
        """Delete these rows in any state, except rows changed since they were read. Returns the count.

        Claims on them are lost, and their locks are passed on. ``reconcile`` counts the children of their
        parents again. One transaction: callers send batches.
        """

    def scrub(self) -> None:
        """Remove the data of deleted rows from journals and logs of the store."""

    def pause(self, scope: Scope, *, now: datetime | None = None) -> None:
        """Stop claiming from a scope. Running jobs go on. Rows are held back when a claim meets them."""

    def resume(self, scope: Scope, *, now: datetime | None = None) -> int:
        """Allow claiming from a scope again. Returns the number of rows released by this call.

        Rows of one tenant and priority run in the order of submission, and take turns with other tenants.
        This call releases a bounded number of rows; claims and ``reconcile`` release the others, also after
        a crash.
        """

    def schedules(self, *, tenant_id: str | None = None) -> list[Schedule]:
        """List the schedules of a tenant, or all, by tenant and name."""

    def due_schedules(self, *, now: datetime | None = None, limit: int = 100) -> list[Schedule]:
        """List due schedules, the earliest first."""

    def put_schedule(self, schedule: Schedule, *, replaces: int | None = None) -> bool:
        """Store a schedule: a new one, or (``replaces``) in place of exactly that version.

        False if the name is taken, or the stored version is another one; then nothing was written.
        """

    def drop_schedule(self, tenant_id: str, name: str) -> bool:
        """Remove a schedule. False for an unknown name."""

    def limits(self) -> list[Limit]:
        """List the limits, by key."""

    def put_limit(self, limit: Limit, *, now: datetime | None = None) -> bool:
        """Store a limit, new or in place of another one; False if the stored one allows as much.

        Rows of the key that no worker has claimed wait again, and go as the new limit allows.
        """

    def drop_limit(self, key: str, *, now: datetime | None = None) -> bool:
        """Remove the limit of a key and release its waiting rows; False for a key without a limit."""

    def admit(self, *, now: datetime | None = None) -> int:
        """Release rows waiting for limits, as far as the limits allow. Returns the number of rows looked at.

        Called every second by each worker: rates allow more as time passes, and a claim gives slots back.
        """

    def slots_of(self, key: str) -> int:
        """Count the rows of a key with a slot, up to 1,000."""

    def paused(self) -> frozenset[Scope]: ...

    def get(self, queue_id: str) -> Job | None: ...

    def find(self, query: JobQuery) -> list[Job]:
        """Find jobs, ordered by id, or by priority and id."""

    def count(
        self, query: JobQuery, *, by: Sequence[str] = (), cap: int | None = None
    ) -> dict[tuple[Any, ...], int]:
        """Count jobs, grouped by columns of ``COUNTABLE``; paging fields of the query are ignored.

        Without groups, the count may stop at ``cap``.
        """

    def failures(self, query: JobQuery, *, limit: int = 100, now: datetime | None = None) -> FailureGroups:
        """Group failed jobs by reason, most frequent first; status and paging of the query are ignored."""

    def tally(self) -> RowCounts:
        """Count rows by status, held reason and item type, at a bounded price.

        Exact, or above some thousand rows an estimate on SQL engines, where counters would slow every call.
        """

    def oldest(self) -> datetime | None:
        """Return the creation time of the oldest job among the first of each priority and held reason."""

    def backlog(self, *, functions: bool, cap: int) -> int:
        """Count pending top-level jobs up to ``cap``: those of functions, or of all other types."""

    def busy(self, *, documents: bool = True, now: datetime | None = None) -> bool:
        """Check whether a job can be claimed, runs, waits for a document, is due or is in back-off.

        Without ``documents``, jobs that wait for a document do not count.
        """

    def position(self, queue_id: str) -> Position | None:
        """Return the position of a pending job, exact up to ``POSITION_CAP``; None for other jobs.

        With more jobs of other kinds ahead, Redis takes all other requests for requests ahead.
        """

    def positions(self, ids: Sequence[str]) -> list[Position | None]:
        """Return the positions of several jobs."""

    def expired(self, *, now: datetime | None = None, limit: int = 100) -> list[Job]:
        """List jobs past their lease, for ``lease_ended`` and ``settle``: fenced like any worker."""

    def reconcile(self, *, now: datetime | None = None, limit: int = 100) -> int:
        """Repair the effects of a crash between two transactions. Returns the number of corrected rows.

        Locks that were not passed on, interrupted cascades, waiting parents with wrong counts, rows held for
        jobs that have ended.
        """

    def report(self, worker: WorkerReport, *, now: datetime | None = None) -> None:
        """Record a live worker, for status pages and the check for live workers on other hosts."""

    def workers(self) -> list[WorkerReport]:
        """List the reports by worker, also those of dead workers until they are forgotten."""

    def forget_workers(self, reports: Sequence[WorkerReport]) -> int:
        """Remove these reports, unless replaced by a later one (another ``seen_at``). Returns the number."""

    def now(self) -> datetime:
        """Return the time of the store: of the server if there is one, which all hosts share."""

    def wait(self, timeout: float) -> bool:
        """Sleep until jobs may have been added or released, at most ``timeout`` seconds. A hint."""

    def check(self) -> list[str]:
        """Raise if the store cannot be used; return warnings for the operator."""

    def migrate(self) -> None:
        """Migrate the store to the schema of this version."""

    def close(self) -> None: ...


def refuse_uncountable(by: Sequence[str]) -> None:
    """Refuse to count by a column outside ``COUNTABLE``."""
    unknown = set(by) - COUNTABLE
    if unknown:
        raise InvalidRequest(f"cannot count by {', '.join(sorted(unknown))}")


COUNTABLE = frozenset(
    {"status", "item_type", "op", "tenant_id", "collection", "branch", "priority", "held", "worker_id"}
)


class Lengths(msgspec.Struct, frozen=True):
    """Numbers of pending jobs and of pending requests, both up to a bound."""

    jobs: int
    requests: int

    def position(
        self, jobs_ahead: int, is_request: bool, requests_ahead: Callable[[], int], cap: int
    ) -> Position:
        """The position of a pending job. ``requests_ahead`` is called only if other jobs wait as well."""
        if not is_request:
            return Position(jobs_ahead, self.jobs, jobs_ahead)
        if not jobs_ahead or self.jobs == self.requests or self.requests >= cap:
            return Position(jobs_ahead, self.requests, jobs_ahead)
        return Position(requests_ahead(), self.requests, jobs_ahead)


class QueueDefaults(ABC):
    """Methods of an engine that reads no positions in a batch, and sends no exchange ahead of its result."""

    @abstractmethod
    def add(
        self,
        new: Sequence[NewJob],
        *,
        limits: QueueLimits = NO_LIMITS,
        connection: Any = None,
        now: datetime | None = None,
    ) -> list[AddResult]: ...

    @abstractmethod
    def position(self, queue_id: str) -> Position | None: ...

    def positions(self, ids: Sequence[str]) -> list[Position | None]:
        return [self.position(queue_id) for queue_id in ids]

    def add_counted(self, new: Sequence[NewJob], *, limits: QueueLimits = NO_LIMITS) -> list[CountedAddition]:
        added = self.add(new, limits=limits)
        return list(zip(added, self.positions([one.queue_id for one in added]), strict=True))

    def send_exchange(
        self,
        settlements: Sequence[Settlement],  # noqa: ARG002
        request: ClaimRequest,  # noqa: ARG002
        *,
        now: datetime | None = None,  # noqa: ARG002
    ) -> SentExchange | None:
        """Send nothing: the result is there at once, or nothing is gained by waiting for it."""
        return None


def living_workers(queue: Queue, heartbeat_s: float) -> list[WorkerReport]:
    """Workers that reported within the last two heartbeats, and not their end."""
    now = queue.now()
    return [worker for worker in queue.workers() if worker.alive(now, heartbeat_s)]
