"""The memory engine, the reference for all rules. Nothing outlives the process."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from itertools import chain, groupby, islice, takewhile
from typing import Any, TypeVar

import msgspec

from penstock import clock
from penstock.database import schema
from penstock.queue import transitions
from penstock.queue.engine import DUMPED_AT_ONCE, Engine
from penstock.queue.job import (
    Beat,
    Changes,
    Claim,
    ClaimRequest,
    FailureGroups,
    Held,
    Job,
    JobQuery,
    Position,
    RenewResult,
    RowCounts,
    Scope,
    Status,
    WorkerReport,
    can_answer,
    group_failures,
    tally_answer,
)
from penstock.queue.memory.table import Table, claim_order
from penstock.queue.protocol import POSITION_CAP, Lengths, refuse_uncountable
from penstock.queue.rules import held_jobs
from penstock.queue.rules.rows import (
    DUE_AT_ONCE,
    HELD_BACK_AT_ONCE,
    ROUNDS,
    Pause,
    active_resume,
    choose,
    contains,
    everything_paused,
    first_of_each_lock,
    held_scopes,
    page,
    paused_scopes,
    wake,
)
from penstock.queue.schedules import Key, Schedule, key_of

FREEING = frozenset(
    {"add", "restore", "settle", "exchange", "cancel", "requeue", "resume", "reconcile", "purge", "resolve"}
    | {"admit", "limit"}
)
"""Writes after which more rows may be claimable. Not claims: an idle worker would wake itself for ever."""


T = TypeVar("T")


class _SeenVersion(threading.local):
    """The last version seen by each thread."""

    version = 0


class MemoryQueue(Engine[Table]):
    def __init__(self) -> None:
        self._table = Table()
        self._workers: dict[str, WorkerReport] = {}
        self._schedules: dict[Key, Schedule] = {}
        self._changed = threading.Condition(threading.RLock())
        self._version = 0
        self._seen = _SeenVersion()
        self.rows_read = 0
        """Candidates read by the last claim, which determine its cost."""
        schema.register(self)

    def _write(self, what: str, work: Callable[[Table], T]) -> T:
        with self._writing(what) as table:
            return work(table)

    @contextmanager
    def _writing(self, what: str) -> Iterator[Table]:
        with self._changed:
            yield self._table
            if what in FREEING:
                self._version += 1
                self._changed.notify_all()

    @contextmanager
    def _reading(self) -> Iterator[Table]:
        with self._changed:
            yield self._table

    @contextmanager
    def dump(self) -> Iterator[Iterator[list[Job]]]:
        with self._reading() as table:
            jobs = iter(sorted(table.rows.values(), key=lambda job: job.queue_id))
        yield iter(lambda: list(islice(jobs, DUMPED_AT_ONCE)), [])

    def begin_restore(self) -> None:
        """Delete everything. No mark is needed: other processes never open this store."""
        with self._changed:
            self._table, self._workers = Table(), {}

    def end_restore(self) -> None:
        """Do nothing: there is no mark."""

    def restore_unfinished(self) -> bool:
        return False

    def _claim(self, rows: Table, request: ClaimRequest, now: datetime) -> list[Claim] | None:
        table = rows
        known = table.pauses()
        self._resuming = bool(known) and active_resume(known) is not None
        self.rows_read = 0
        if known and everything_paused(known):
            return []
        paused = held_scopes(known) if known else frozenset()
        for job in table.due(now, max(request.limit, DUE_AT_ONCE)):
            table.change(job, {"held": None, "run_at": None, "updated_at": now})
        taken: list[Job] = []
        locked = table.lock_holders
        size = request.limit
        for number in range(ROUNDS):
            batch = self._candidates(table, size, oldest=request.oldest and number == 0)
            self.rows_read += len(batch)
            choice = choose(batch, request.limit - len(taken), first=not taken, locked=locked, paused=paused)
            for changes, jobs in _claimed_alike(choice.take, request, now):
                taken += table.change_alike(jobs, changes)
            for job, reason in choice.hold:
                table.change(job, held_jobs.held_back(job, reason, now))
                if reason is Held.PAUSE and job.lock_key and not job.lock_held:
                    wake(table, [job.lock_key], now)
            if choice.closed or not choice.hold:
                break
            size = max(request.limit, HELD_BACK_AT_ONCE)
        else:
            if not taken:
                return None
        return claims_of(taken)

    def _candidates(self, table: Table, limit: int, *, oldest: bool) -> list[Job]:
        if oldest:
            heads = sorted(table.priority_heads(), key=lambda job: (job.created_at, job.queue_id))
            if heads and not table.parked_before(heads[0]):
                rest = (job for job in table.first_claimable(limit) if job is not heads[0])
                return list(islice(chain(heads[:1], rest), limit))
        return table.first_claimable(limit)

    def renew(self, beats: Sequence[Beat], *, now: datetime | None = None) -> list[RenewResult]:
        moment = now or clock.now()
        with self._writing("renew") as table:
            return [self._renew(table, beat, moment) for beat in beats]

    def _renew(self, table: Table, beat: Beat, now: datetime) -> RenewResult:
        job = table.rows.get(beat.queue_id)
        if job is None or job.claim_number != beat.claim_number or job.lease_until is None:
            return RenewResult(held=False)
        changes = transitions.renewed(beat, now)
        if changes:
            table.change(job, changes)
        return RenewResult(held=True, cancel_requested=job.cancel_requested)

    def upcoming(
        self, *, item_type: str | None = None, limit: int = 100, now: datetime | None = None
    ) -> list[Job]:
        with self._reading() as table:
            rows = table.upcoming(item_type, now or clock.now())
            ids = first_of_each_lock(([row] for row in rows), limit, table.pauses())
            return [table.rows[queue_id] for queue_id in ids]

    def pauses(self) -> list[Pause]:
        with self._reading() as table:
            return table.pauses()

    def paused(self) -> frozenset[Scope]:
        return paused_scopes(self.pauses())

    def get(self, queue_id: str) -> Job | None:
        with self._reading() as table:
            return table.rows.get(queue_id)

    def find(self, query: JobQuery) -> list[Job]:
        with self._reading() as table:
            found = [job for job in table.values() if _matches(query, job)]
        return page(query, found)

    def failures(self, query: JobQuery, *, limit: int = 100, now: datetime | None = None) -> FailureGroups:
        wanted = msgspec.structs.replace(query, statuses=frozenset({Status.FAILED}))
        with self._reading() as table:
            failed = [job for job in table.values() if job.error_reason and _matches(wanted, job)]
        times = (
            (job.error_reason or "", job.queue_id, job.last_error_at or job.updated_at) for job in failed
        )
        return group_failures(times, now or clock.now(), limit)

    def count(
        self, query: JobQuery, *, by: Sequence[str] = (), cap: int | None = None
    ) -> dict[tuple[Any, ...], int]:
        refuse_uncountable(by)
        with self._reading() as table:
            if can_answer(query, by):
                return tally_answer(table.tallies, query, by)
            matching = (job for job in table.values() if _matches(query, job))
            counted = islice(matching, None if by else cap)
            return dict(Counter(tuple(getattr(job, name) for name in by) for job in counted))

    def position(self, queue_id: str) -> Position | None:
        with self._reading() as table:
            job = table.rows.get(queue_id)
            if job is None or job.status is not Status.PENDING:
                return None
            own = claim_order(job)
            before = takewhile(lambda other: claim_order(other) < own, table.claimable())
            pending = sum(table.backlog_counts.values()) + table.pending_children
            requests = len(table.pending_requests)
            lengths = Lengths(min(pending, POSITION_CAP), min(requests, POSITION_CAP))
            ahead = sum(1 for _ in islice(before, POSITION_CAP))
            return lengths.position(ahead, job.is_request, lambda: table.requests_before(own), POSITION_CAP)

    def tally(self) -> RowCounts:
        with self._reading() as table:
            return RowCounts({kind: number for kind, number in table.tallies.items() if number})

    def oldest(self) -> datetime | None:
        with self._reading() as table:
            return min((job.created_at for job in table.next_in_line()), default=None)

    def backlog(self, *, functions: bool, cap: int) -> int:
        with self._reading() as table:
            return table.backlog(functions=functions, tenant_id=None, cap=cap)

    def busy(self, *, documents: bool = True, now: datetime | None = None) -> bool:
        moment = now or clock.now()
        with self._reading() as table:
            paused = everything_paused(table.pauses())
            claimable = not paused and (next(table.claimable(), None) is not None or table.any_limited())
            return claimable or table.busy(moment, documents=documents)

    def expired(self, *, now: datetime | None = None, limit: int = 100) -> list[Job]:
        moment = now or clock.now()
        with self._reading() as table:
            return table.expired(moment)[:limit]

    def report(self, worker: WorkerReport, *, now: datetime | None = None) -> None:
        seen = msgspec.structs.replace(worker, seen_at=now or clock.now())
        with self._writing("report"):
            self._workers[worker.worker_id] = seen

    def workers(self) -> list[WorkerReport]:
        with self._reading():
            return sorted(self._workers.values(), key=lambda worker: worker.worker_id)

    def forget_workers(self, reports: Sequence[WorkerReport]) -> int:
        with self._writing("forget_workers"):
            gone = self._still_stored(reports)
            for worker_id in gone:
                del self._workers[worker_id]
        return len(gone)

    def _set_schedule(self, key: Key, schedule: Schedule | None) -> None:
        """Write a schedule, or (None) remove it."""
        if schedule is None:
            del self._schedules[key]
        else:
            self._schedules[key] = schedule

    def schedules(self, *, tenant_id: str | None = None) -> list[Schedule]:
        with self._reading():
            found = [one for one in self._schedules.values() if tenant_id in (None, one.tenant_id)]
        return sorted(found, key=key_of)

    def due_schedules(self, *, now: datetime | None = None, limit: int = 100) -> list[Schedule]:
        moment = now or self.now()
        with self._reading():
            due = [(one.next_at, *key_of(one)) for one in self._schedules.values() if one.next_at]
            first = sorted(entry for entry in due if entry[0] <= moment)[:limit]
            return [self._schedules[tenant_id, name] for _, tenant_id, name in first]

    def put_schedule(self, schedule: Schedule, *, replaces: int | None = None) -> bool:
        with self._writing("schedule"):
            stored = self._schedules.get(key_of(schedule))
            if (stored.version if stored else None) != replaces:
                return False
            self._set_schedule(key_of(schedule), schedule)
            return True

    def drop_schedule(self, tenant_id: str, name: str) -> bool:
        with self._writing("schedule"):
            if (tenant_id, name) not in self._schedules:
                return False
            self._set_schedule((tenant_id, name), None)
            return True

    def _still_stored(self, reports: Sequence[WorkerReport]) -> list[str]:
        """Workers with exactly these stored reports, and no later ones."""
        seen = {report.worker_id: report.seen_at for report in reports}
        return [
            name for name, at in seen.items() if name in self._workers and self._workers[name].seen_at == at
        ]

    def wait(self, timeout: float) -> bool:
        if self._has_unfinished_work():
            return True
        with self._changed:
            woken = self._changed.wait_for(lambda: self._version != self._seen.version, timeout)
            self._seen.version = self._version
            return woken

    def check(self) -> list[str]:
        return ["memory:// keeps nothing when the process ends"]

    def migrate(self) -> None:
        """Do nothing: the rows are values of this version."""

    def close(self) -> None:
        """Do nothing: there are no resources."""

    def after_fork(self) -> None:
        self._changed = threading.Condition(threading.RLock())


def _claimed_alike(jobs: list[Job], request: ClaimRequest, now: datetime) -> list[tuple[Changes, list[Job]]]:
    """Changes of a claim, with the jobs that change in this way, in order."""
    if not jobs:
        return []
    # By the values on which ``transitions.claimed`` depends.
    examples = {(job.item_type, job.claim_number, job.lock_key is None): job for job in jobs}
    by_class = {kind: transitions.claimed(job, request, now) for kind, job in examples.items()}
    first, *others = by_class.values()
    if others.count(first) == len(others):
        return [(first, jobs)]
    groups = groupby(jobs, lambda job: by_class[job.item_type, job.claim_number, job.lock_key is None])
    return [(changes, list(alike)) for changes, alike in groups]


def claims_of(jobs: Iterable[Job]) -> list[Claim]:
    """Build the claims of claimed jobs."""
    # By position: with names, or by a conversion, a claim costs three times as much.
    return [
        Claim(
            job.queue_id,
            job.claim_number,
            job.item_type,
            job.op,
            job.tenant_id,
            job.collection,
            job.branch,
            job.priority,
            job.run,
            job.retry_count,
            job.max_retries,
            job.lost_count,
            job.timeout_s,
            job.submitted_by,
            job.lock_key,
            job.parent_id,
            job.root_id,
            job.progress_json,
            job.metadata,
            job.payload_json,
            job.created_at,
            job.lease_until,
        )
        for job in jobs
        if job.lease_until is not None
    ]


_EQUAL = (
    "item_type op tenant_id collection branch held worker_id lock_key limit_key idempotency_key "
    "parent_id root_id waiting_for error_code error_reason"
).split()


def _matches(query: JobQuery, job: Job) -> bool:
    if query.statuses and job.status not in query.statuses:
        return False
    if query.top_level is not None and query.top_level is not (job.parent_id is None):
        return False
    if query.waiting and not job.waiting:
        return False
    if query.prefix is not None and not job.queue_id.startswith(query.prefix):
        return False
    if query.text is not None and not contains(job, query.text):
        return False
    wanted = ((name, getattr(query, name)) for name in _EQUAL)
    return all(value is None or getattr(job, name) == value for name, value in wanted)
