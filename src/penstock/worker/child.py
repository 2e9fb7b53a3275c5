"""A child process: claims batches of jobs, runs them one after the other and settles them in batches.

A child owns no lease and no timer. The supervisor renews its leases, enforces timeouts and kills the child if
needed; the shared state tells the supervisor which jobs the child executes. A second thread of the child
sends finished results while a long handler runs.
"""

from __future__ import annotations

import heapq
import logging
import math
import os
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Collection
from datetime import timedelta
from typing import NoReturn

import msgspec

import penstock.handlers.phases  # noqa: F401 - what the tasks of a forked process need is loaded before
from penstock.catalog.values import Phase
from penstock.errors import InvalidText, PenstockError, StoreError
from penstock.handlers.context import Registry
from penstock.queue import transitions
from penstock.queue.job import CHILDREN, Claim, ClaimRequest, Settlement
from penstock.queue.protocol import Queue
from penstock.store_outage import STORE
from penstock.vocabulary import how_many
from penstock.worker.executor import (
    Breakers,
    Executor,
    Outbox,
    Stopped,
)
from penstock.worker.lanes import DocumentTools, Lanes
from penstock.worker.orphans import OrphanedClaims
from penstock.worker.outage import OUTAGE, OutageRetry
from penstock.worker.process_guard import Isolation, ProcessGuard, RecyclePolicy
from penstock.worker.shared_state import MOST_MEMBERS, ExecutingJob, SharedState


class ChildOptions(msgspec.Struct, frozen=True):
    """Options of one child process, passed at the start."""

    worker_id: str
    state_path: str
    parent_pid: int
    lease: timedelta
    lease_by_type: dict[str, timedelta]
    poll_s: float
    recycle_after: int | None = None
    recycle_growth_mb: int | None = None
    takes_jobs: bool = True
    lanes: tuple[Phase, ...] = ()
    recognizes: bool = True
    """This process may recognize text in pictures; see the setting ``ocr_workers``."""


_BATCH_LIMIT = 100
_BATCH_WORTH_S = 0.1
"""Target amount of work in one claim."""
AHEAD_WORTH_S = 0.02
"""Longest work of a batch during which the next one is claimed: the jobs of both wait less than those of one
batch may."""
SLOW_S = 0.05
_NEWEST_SHARE = 0.2
LONGEST_TASK_TIME_S = 0.1
SMALL_JOB_S = 0.1
"""Longest duration of a small job."""
SMALL_JOBS_S = 1.0
"""How long the next small job is expected after one."""


class BatchSize:
    """How many jobs to claim at once, by running averages, and how long tasks run between two claims."""

    def __init__(self) -> None:
        self._seconds_a_job = _BATCH_WORTH_S
        self._by_kind: dict[tuple[str, str], float] = {}
        self._call_size = 1
        self._task_time_s = 0.0
        """Time left for tasks before more jobs are claimed: as long as the jobs before them ran."""
        self._small_at = -math.inf

    def record(self, kind: tuple[str, str], seconds: float, call_size: int = 1) -> None:
        """Record the duration of a job of this kind, and the batch size of the handler."""
        self._call_size = call_size
        self._seconds_a_job += (seconds - self._seconds_a_job) * _NEWEST_SHARE
        before = self._by_kind.get(kind, seconds)
        self._by_kind[kind] = before + (seconds - before) * _NEWEST_SHARE

    def limit(self, most: int | None = None) -> int:
        """Number of jobs to claim. A batch handler gets all jobs of a call from one claim."""
        jobs = max(int(_BATCH_WORTH_S / max(self._seconds_a_job, 1e-6)), self._call_size)
        return max(1, min(_BATCH_LIMIT, jobs, _BATCH_LIMIT if most is None else most))

    @property
    def is_quick(self) -> bool:
        """True if a full batch takes so little time that the next may be claimed before its end."""
        return self._seconds_a_job * _BATCH_LIMIT <= AHEAD_WORTH_S

    def record_jobs(self, seconds: float, *, single: bool, now: float) -> None:
        """Give tasks as much time. ``single``: no other job was claimed with this one."""
        self._task_time_s = min(max(self._task_time_s, 0.0) + seconds, LONGEST_TASK_TIME_S)
        if single and seconds < SMALL_JOB_S:
            self._small_at = now

    def expects_small_jobs(self, now: float) -> bool:
        """True if a single small job came a moment ago: the next one is likely."""
        return now - self._small_at < SMALL_JOBS_S

    @property
    def tasks_due(self) -> bool:
        """True if tasks run next."""
        return self._task_time_s > 0

    def record_tasks(self, seconds: float) -> None:
        self._task_time_s -= seconds

    def end_task_turn(self) -> None:
        self._task_time_s = 0.0

    def is_slow(self, kind: tuple[str, str]) -> bool:
        """True if jobs of this kind take long, as far as this process knows."""
        return self._by_kind.get(kind, SLOW_S) >= SLOW_S


class ClaimedJobs:
    """The jobs in hand of a child: claimed, not begun, in the order of the store.

    The sender thread may add and take them as well.
    """

    def __init__(self) -> None:
        self._claims: deque[Claim] = deque()
        self._lock = threading.Lock()
        self._since = 0.0
        self.taken_since = 0.0
        """Time at which the jobs that were taken last were requested, or the first of them."""

    def __len__(self) -> int:
        return len(self._claims)

    def names(self) -> set[tuple[str, int]]:
        """Id and claim number of each."""
        with self._lock:
            return {(claim.queue_id, claim.claim_number) for claim in self._claims}

    def add(self, claims: Collection[Claim], requested_at: float) -> None:
        with self._lock:
            if not self._claims:
                self._since = requested_at
            self._claims.extend(claims)

    def first(self) -> Claim | None:
        with self._lock:
            return self._claims[0] if self._claims else None

    def take(self, size: int) -> list[Claim]:
        """Take the first job, and others of its kind that may run in one call with it."""
        with self._lock:
            if not self._claims:
                return []
            first = self._claims.popleft()
            self.taken_since = self._since
            if size == 1:
                return [first]
            kind = (first.item_type, first.op)
            similar = [
                claim
                for claim in self._claims
                if (claim.item_type, claim.op) == kind and not claim.lost_count
            ][: size - 1]
            taken = {claim.queue_id for claim in similar}
            self._claims = deque(claim for claim in self._claims if claim.queue_id not in taken)
        return [first, *similar]

    def put_back(self, claims: Collection[Claim]) -> None:
        with self._lock:
            self._claims.extendleft(reversed(list(claims)))

    def take_all(self) -> list[Claim]:
        with self._lock:
            claims, self._claims = list(self._claims), deque()
        return claims


MOST_BESIDE = 16
"""Most of these jobs in one process at a time."""
_THREADS_EACH = 3
"""The thread of a job, one for its deadline, and one for the resolver."""
FULL = f"{MOST_BESIDE} jobs of this kind wait for the network here; it is looked at again soon"
_AGAIN_S = 5.0
"""Shortest time until a job that found no room is looked at again; at most twice as long."""


class BesideJobs:
    """Jobs that mostly wait for the network, such as webhooks: each in a thread, beside the other work.

    One job after the other, a few receivers that do not answer would hold all processes. A thread that waits
    for one costs next to nothing. The number is bounded: beyond it, jobs are released for a while.

    Such a job bounds its own time, so the watchdog does not look at it, and a cancel takes effect after the
    attempt. When its process dies, it is released: a delivery does not crash a process.
    """

    def __init__(
        self,
        executor: Executor,
        state: SharedState,
        outbox: Outbox,
    ) -> None:
        self._executor = executor
        self._state = state
        self._outbox = outbox
        self._changed = threading.Condition()
        self._running: dict[tuple[str, int], ExecutingJob] = {}

    def __len__(self) -> int:
        return len(self._running)

    @property
    def threads(self) -> int:
        return _THREADS_EACH * len(self._running)

    def names(self) -> set[tuple[str, int]]:
        """Id and claim number of each."""
        with self._changed:
            return set(self._running)

    def start(self, claim: Claim) -> Settlement | None:
        """Run a job in a thread; without room return its release."""
        if len(self._running) >= MOST_BESIDE:
            return _later(claim)
        thread = threading.Thread(target=self._run, args=(claim,), name="penstock-beside", daemon=True)
        name = claim.queue_id, claim.claim_number
        with self._changed:
            self._running[name] = ExecutingJob(*name, claim.timeout_s)
            self._state.record_beside(tuple(self._running.values()))
        try:
            thread.start()
        except RuntimeError:  # no thread or memory is left
            self._remove(name)
            return _later(claim)
        return None

    def wait_for_all(self, timeout: float) -> bool:
        """Wait until no job runs; False after the timeout."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._running, timeout)

    def _run(self, claim: Claim) -> None:
        try:
            self._outbox.add(self._executor.run_beside(claim, self._outbox))
            self._state.count_beside()
        finally:
            # Only now: until its result is in the outbox, the job counts as running.
            self._remove((claim.queue_id, claim.claim_number))

    def _remove(self, name: tuple[str, int]) -> None:
        with self._changed:
            del self._running[name]
            self._state.record_beside(tuple(self._running.values()))
            self._changed.notify_all()


def _later(claim: Claim) -> Settlement:
    delay = timedelta(seconds=_AGAIN_S * random.uniform(1, 2))
    return transitions.released(claim, FULL, delay=delay, code="ERR_TOO_EARLY")


_SETTLE_AT = 100
_SETTLE_AFTER_S = 0.05
RELEASE_AFTER_S = 1.0
"""Claimed jobs that wait this long behind a slow job are released for other workers."""
_REPLACED = "its process was replaced"
_LEASE_OVER = "its lease may have ended before it began"
_OLDEST_EVERY = 16
_CLAIM_EVERY_S = 0.25
"""Time between two claims while tasks run and no hint of a job came: a job may have become due."""
_EXIT_CHECK_S = 0.5
"""Time between two checks for a stop request while the child waits for work."""
_DUE_MARGIN_S = 0.02
"""Time from the end of a job until its release is stored, from which a store counts the delay."""
_LEAVE_WITHIN_S = 60.0
_MOST_DUE = 1_000
_BESIDE_CHECK_S = 0.05
"""Time between two looks at the results of jobs in threads."""
_HEARTBEAT_S = 1.0
"""Time between two heartbeats of a child that waits for work."""

log = logging.getLogger("penstock.worker")


class Child:
    """The loop of a child process, and the state between two jobs."""

    # Bound here, out of reach of handlers that replace them in their module and do not restore them.
    _now = staticmethod(time.monotonic)
    _sleep = staticmethod(time.sleep)

    def __init__(
        self,
        queue: Queue,
        registry: Registry,
        guard: ProcessGuard,
        state: SharedState,
        options: ChildOptions,
        documents: DocumentTools | None = None,
    ) -> None:
        self._lanes: Lanes | None = None
        if documents is not None:
            self._lanes = Lanes(
                documents, queue, state, options.worker_id, options.lanes, recognizes=options.recognizes
            )
        self._queue = queue
        self._guard = guard
        self._state = state
        self._options = options
        self._breakers = Breakers()
        self._executor = Executor(registry, self._breakers)
        self._outbox = Outbox(queue, state)
        self._beside = BesideJobs(self._executor, state, self._outbox)
        self._orphans = OrphanedClaims(queue, options.worker_id)
        self._batch_size = BatchSize()
        self._claimed = ClaimedJobs()
        self._sender_turn = threading.Lock()
        """Held by the sender thread while it uses the store."""
        self._unsent_since = 0.0
        self._executing_since = 0.0
        self._claimed_at = 0.0
        self._single_claim = False
        """The last claim returned exactly one job."""
        self._busy = threading.Event()
        self._rounds = 0
        self._jobs = 0
        policy = RecyclePolicy(options.recycle_after, options.recycle_growth_mb)
        policy.threads_beside = lambda: self._beside.threads
        self._isolation = Isolation(guard, policy, self._executor)
        self._services: dict[str, str] = {}
        self._due: list[float] = []
        """Times at which jobs released here for a while are due, as a heap. No notification comes then."""
        self._store_trouble: dict[str, str] = {}
        self._retry_on_outage = OutageRetry(self._leaving, self._report_store)

    def run(self) -> None:
        threading.Thread(target=self._send_while_busy, daemon=True).start()
        self._guard.record_state()
        self._state.heartbeat(self._now())
        self._state.set_ready()
        try:
            while not self._leaving() and (self._claimed or self._isolation.may_claim(self._jobs)):
                self._work_once()
        except Stopped:
            # The supervisor settles the jobs that were executing; the other claimed jobs are released.
            log.debug("stopped by the supervisor")
        self._leave()
        self._state.set_leaving(self._now())
        self._isolation.log_replacement()

    def _work_once(self) -> None:
        """Run the next claimed job, else a piece of a task batch, else claim.

        Tasks get as much time as the jobs before them. Jobs are claimed between two pieces of a batch.
        """
        if self._claimed:
            self._run_next()
        elif self._outbox.ahead:
            self._retry_on_outage(lambda: self._claim(self._limit()))
        elif self._batch_size.tasks_due and self._lanes is not None and self._lanes.has_work():
            # Send results first. More jobs are claimed only after the tasks had their turn.
            self._retry_on_outage(self._outbox.send)
            if not self._run_tasks():
                self._batch_size.end_task_turn()
        else:
            if self._claim_due():
                self._retry_on_outage(lambda: self._claim(self._limit()))
            if not self._claimed and not self._run_tasks():
                self._retry_on_outage(self._wait_for_work)

    def _claim_due(self) -> bool:
        """Decide whether to claim now: within a batch of tasks only when jobs may be waiting."""
        if self._lanes is None or not self._lanes.has_batch or len(self._outbox):
            return True
        return self._now() - self._claimed_at > _CLAIM_EVERY_S or self._queue.wait(0)

    def _leaving(self) -> bool:
        return self._guard.exit_requested or self._state.exit_requested()

    def _wait_for_work(self) -> None:
        """Wait for a hint of work, in short pieces: a long poll must not delay a stop."""
        self._busy.clear()
        self._batch_size.end_task_turn()
        self._state.set_idle(True)
        until = self._now() + self._options.poll_s
        while self._due and self._due[0] <= self._claimed_at:
            heapq.heappop(self._due)
        if self._due:
            until = min(until, self._due[0])
        while not self._leaving() and (left := until - self._now()) > 0:
            self._guard.exit_with_parent()
            # Also without a job: the breaker of a service may become half-open.
            self._report_services()
            piece = _BESIDE_CHECK_S if self._beside else _EXIT_CHECK_S
            if self._queue.wait(min(left, piece)) or self._background_done() or len(self._outbox):
                break
        self._state.set_idle(False)

    def _background_done(self) -> bool:
        return self._lanes is not None and self._lanes.background_done

    def _run_tasks(self) -> bool:
        lanes, worked = self._lanes, False
        if lanes is None:
            return False
        if self._state.reserved_for_jobs() and self._batch_size.expects_small_jobs(self._now()):
            self._retry_on_outage(lanes.release_batch)
            return False

        def attempt() -> None:
            nonlocal worked
            worked = lanes.run_piece(self._guard.execution)

        started = self._begin()
        self._busy.set()
        try:
            self._retry_on_outage(attempt)
        finally:
            self._executing_since = 0.0
        self._isolation.record_own_work()
        self._batch_size.record_tasks(self._now() - started)
        return worked

    def _claim(self, limit: int) -> None:
        if not self._options.takes_jobs:
            self._outbox.send()
            return
        if not (got := self._collect()):
            request = self._request(limit)
            got = self._accept(lambda: self._outbox.exchange(request))
        if got:
            self._guard.repair_output()
        # Nothing is being executed here, so every known claim is in hand or in the outbox.
        # Those in threads first: from there they go to the outbox.
        known = self._beside.names() | self._claimed.names()
        self._orphans.release_unknown(known | self._outbox.claims(), self._now())
        if got >= (limit := self._limit()) and self._may_claim_ahead():
            try:
                self._outbox.send_ahead(self._request(limit))
            except OUTAGE as error:
                # No reason to hold up the jobs just claimed.
                log.warning("the store is unavailable: %s", error)
                self._orphans.suspect(self._now())

    def _limit(self) -> int:
        return self._batch_size.limit(self._isolation.jobs_left(self._jobs))

    def _request(self, limit: int) -> ClaimRequest:
        self._rounds += 1
        self._claimed_at = self._now()
        return ClaimRequest(
            self._options.worker_id,
            limit,
            self._options.lease,
            self._options.lease_by_type,
            oldest=self._rounds % _OLDEST_EVERY == 0,
        )

    def _accept(self, attempt: Callable[[], list[Claim]]) -> int:
        """Make a claim; return the number of jobs."""
        try:
            claims = attempt()
        except OUTAGE:
            self._orphans.suspect(self._now())
            raise
        if claims:
            self._single_claim = len(claims) == 1
            self._claimed.add(claims, self._claimed_at)
            self._busy.set()
        return len(claims)

    def _collect(self) -> int:
        """Take in the jobs that were claimed while others ran; return their number."""
        with self._sender_turn:
            return self._accept(self._outbox.collect)

    def _may_claim_ahead(self) -> bool:
        """Decide whether to send the next claim before the jobs in hand are done.

        Only if these take a moment, and neither tasks nor the end of the process come first.
        """
        return (
            self._batch_size.is_quick
            and not self._leaving()
            and not self._orphans.suspected
            and self._isolation.jobs_left(self._jobs) is None
            and (self._lanes is None or not self._lanes.has_work())
        )

    # Running.

    def _run_next(self) -> None:
        claims = self._take_next()
        if not claims:
            return
        kind = (claims[0].item_type, claims[0].op)
        if not self._isolation.may_run(claims[0]):
            self._return(claims, _REPLACED)
            return
        if self._isolation.beside:
            self._start_beside(claims[0])
            return
        if len(self._outbox) and (claims[0].lost_count or self._batch_size.is_slow(kind)):
            # Send finished results before a job that may take long or kill the process.
            self._retry_on_outage(self._outbox.send)
        if self._lanes is not None and self._batch_size.is_slow(kind):
            self._retry_on_outage(self._lanes.release_batch)
        started = self._begin()
        if self._lease_may_be_over(kind[0], started):
            self._executing_since = 0.0
            log.warning("released %s: %s", how_many(len(claims) + len(self._claimed), "job"), _LEASE_OVER)
            self._return(claims, _LEASE_OVER)
            return
        number, settlements = self._executor.execute(
            claims, self._state, self._outbox, started, self._guard.execution
        )
        ended = self._now()
        self._batch_size.record(kind, (ended - started) / len(claims), self._executor.batch_size(claims[0]))
        self._batch_size.record_jobs(ended - started, single=self._single_claim, now=ended)
        self._finish(settlements, ended)
        self._forget_released(number)

    def _start_beside(self, claim: Claim) -> None:
        if self._lease_may_be_over(claim.item_type, self._now()):
            log.warning("released %s: %s", how_many(1 + len(self._claimed), "job"), _LEASE_OVER)
            self._return([claim], _LEASE_OVER)
            return
        no_room = self._beside.start(claim)
        if no_room is not None and not self._outbox.add([no_room]):
            self._retry_on_outage(self._outbox.send)

    def _begin(self) -> float:
        """Return the start of the next job or piece of tasks, when the sender thread is done with the store.

        Code that blocks the interpreter would stop it amid a transaction, with the locks of these rows.
        """
        with self._sender_turn:
            self._executing_since = started = self._now()
        return started

    def _take_next(self) -> list[Claim]:
        """Take the next job, and similar ones for a batch handler."""
        first = self._claimed.first()
        if first is None:
            return []
        size = min(self._executor.batch_size(first), MOST_MEMBERS)
        if 1 < size > len(self._claimed):
            self._retry_on_outage(lambda: self._claim(size - len(self._claimed)))
        return self._claimed.take(size)

    def _lease_may_be_over(self, item_type: str, now: float) -> bool:
        """Check whether another worker may have the jobs in hand: the store or the supervisor was away.

        Without this check an old job of an entity would run again after a newer one.
        """
        claimed_at = self._claimed.taken_since
        lease = self._options.lease_by_type.get(item_type, self._options.lease)
        held_since = max(claimed_at, self._state.renewed_at)
        return claimed_at < self._state.renewed_late_at or now - held_since > lease.total_seconds()

    def _forget_released(self, number: int) -> None:
        """Drop what the supervisor released behind an execution. Once that is over, it releases no more."""
        if self._state.jobs_released(number):
            # The next claim releases the jobs claimed meanwhile.
            self._retry_on_outage(self._collect)
            self._orphans.suspect(self._now())
            self._claimed.take_all()
        if self._lanes is not None and self._state.tasks_released(number):
            self._lanes.drop_batch()

    def _finish(self, results: list[Settlement], now: float) -> None:
        if not len(self._outbox):
            self._unsent_since = now
        kept = self._outbox.add(results)
        if self._guard.descriptors_lost:
            self._exit_without_store(len(results) if kept else 0)
        if not kept:
            self._retry_on_outage(self._outbox.send)
        # Only now: until its result is in the outbox, the job counts as being executed.
        self._state.end(len(results))
        self._executing_since = 0.0
        self._jobs += len(results)
        self._report_services()
        if self._lanes is not None and any(result.waiting_for not in (None, CHILDREN) for result in results):
            self._lanes.wake()
        if results[0].delay or len(results) > 1:
            self._note_delays(results, now)
        due = len(self._outbox) >= _SETTLE_AT or now - self._unsent_since > _SETTLE_AFTER_S
        if due and self._claimed:
            self._retry_on_outage(self._outbox.send)

    def _note_delays(self, results: list[Settlement], now: float) -> None:
        for result in results:
            if result.delay and len(self._due) < _MOST_DUE:
                heapq.heappush(self._due, now + result.delay.total_seconds() + _DUE_MARGIN_S)

    def _exit_without_store(self, finished: int) -> NoReturn:
        """Exit and leave settling to the supervisor: the store's descriptors may be other files by now."""
        if finished:
            self._state.end(finished)
        reason = "a handler closed the descriptors of its process"
        self._state.write_message(msgspec.json.encode({"died": reason}).decode())
        os._exit(1)

    def _report_services(self) -> None:
        refused = self._lanes.refused if self._lanes is not None else {}
        states = self._breakers.states() | refused | self._store_trouble
        if states != self._services:
            self._services = dict(states)
            self._state.write_message(msgspec.json.encode({"services": states}).decode())

    def _report_store(self, error: PenstockError | None) -> None:
        """Tell the supervisor of an outage that only this process may see: its report is for people."""
        trouble = {} if error is None else {STORE: f"{error.code}: {error.message}. {error.remedy}"}
        if trouble != self._store_trouble:
            self._store_trouble = trouble
            self._report_services()

    # Sending.

    def _send_while_busy(self) -> None:
        """Send the results of quick jobs, and release claimed jobs, while a slow job runs.

        The heartbeat comes from this thread too. It stops when a leftover thread blocks the interpreter.
        """
        while True:
            if self._busy.wait(_HEARTBEAT_S):
                self._sleep(_SETTLE_AFTER_S)
            self._guard.exit_with_parent()
            now, since = self._now(), self._executing_since
            # Not from the main thread, which may have to wait for the store.
            self._state.heartbeat(now)
            if since and now - since > _SETTLE_AFTER_S and self._guard.descriptors_intact():
                with self._sender_turn:
                    if since == self._executing_since:
                        self._send_beside(now - since)

    def _send_beside(self, seconds: float) -> None:
        """Send results beside a job that has run for so long."""
        try:
            self._accept(self._outbox.collect)
            if seconds > RELEASE_AFTER_S:
                self._release_claimed("behind a slow job")
            self._outbox.send()
        except (StoreError, InvalidText, MemoryError) as error:
            # The results stay in the outbox; the main thread or the next round sends them.
            # MemoryError is possible while a file uses up its share of memory.
            log.warning("results could not be sent yet: %s", error)

    def _release_claimed(self, reason: str) -> None:
        self._outbox.add([transitions.released(claim, reason) for claim in self._claimed.take_all()])

    def _return(self, claims: list[Claim], reason: str) -> None:
        """Release jobs that were about to begin, and those behind them."""
        self._claimed.put_back(claims)
        self._release_claimed(reason)

    def _leave(self) -> None:
        """Settle or release everything claimed: no job has to wait for the end of a lease."""
        self._retry_on_outage(self._collect)
        self._release_claimed("worker is stopping")
        self._retry_on_outage(self._outbox.send)
        # Those in threads take some seconds. What is left after that is released by the supervisor.
        until = self._now() + _LEAVE_WITHIN_S
        while not self._beside.wait_for_all(_EXIT_CHECK_S) and self._now() < until:
            self._retry_on_outage(self._outbox.send)
        self._retry_on_outage(self._outbox.send)
        if self._lanes is not None:
            self._retry_on_outage(self._lanes.release_batch)
            self._retry_on_outage(self._lanes.release_background)
