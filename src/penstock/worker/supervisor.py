"""The supervisor: keeps the children running, renews their leases and settles the jobs of dead ones.

It never runs a handler, so no handler can keep it from its duties. The watchdog enforces timeouts.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import msgspec

from penstock import clock
from penstock.catalog.rules import publication
from penstock.errors import PenstockError, WorkerFailed
from penstock.pipeline import budget
from penstock.queue import transitions
from penstock.queue.job import DOCUMENT_FILE, WORKER_ENDED, Beat, Job, Settlement, WorkerReport
from penstock.vocabulary import how_many
from penstock.worker import orphans
from penstock.worker.executor import settle_all
from penstock.worker.lanes import DocumentNotifier, lane_name, lanes_idle, open_later_tasks
from penstock.worker.liveness_lock import release_dead
from penstock.worker.orphans import Resolve
from penstock.worker.outage import OutageLog
from penstock.worker.pool import (
    STARVING_AFTER_S,
    ChildHandle,
    ProcessPool,
    SafeProcess,
    WorkerOptions,
    child_for_small_jobs,
)
from penstock.worker.shared_state import Execution, FileRun
from penstock.worker.upkeep import (
    EVERY_S,
    Duties,
    OverdueEnder,
    Pruner,
    Reaper,
    Reconciler,
    ScheduleRunner,
    StuckWarner,
    Sweeper,
    clear_outbox,
    record_upkeep,
)
from penstock.worker.vector_upkeep import VectorKeeper

if TYPE_CHECKING:
    from penstock.queue.protocol import Queue


_TICK_S = 0.1
_TIMEOUT_UNWIND_S, _CANCEL_UNWIND_S = 2.0, 0.5
"""From SIGTERM to SIGKILL. A cancelled job had its grace period before."""
_FROZEN_S = 1.0
"""A tick this late means that this process, and most likely its children, were frozen."""
_BACKSTOP_S = 2.0
"""CPU time beyond the budget of a file before it is killed: its own process interrupts it first."""
_STUCK = "its batch took too long; it runs alone now"
_BLOCKED = "its process blocked the store; it runs alone now"

log = logging.getLogger("penstock.worker")


class Culprits(msgspec.Struct, frozen=True):
    """Jobs responsible for the delay of an execution, and the rule for settling them."""

    indexes: frozenset[int]
    resolve: Resolve


def late_jobs(
    execution: Execution, run: FileRun | None, elapsed: float, cpu_seconds: float | None
) -> Culprits | None:
    """Find the jobs over their time. Pure: no clock, no signals.

    A batch of files tells which file it is parsing. Then only the job of that file is responsible, for its
    own time; the others are released, no retry spent. ``elapsed``: seconds since ``clock_start``;
    ``cpu_seconds``: CPU time of the process.
    """
    mark = run.mark if run is not None else None
    if mark is not None and cpu_seconds is not None:
        used = cpu_seconds - mark.cpu_started
        if used > mark.seconds + _BACKSTOP_S:
            return Culprits(frozenset([mark.member]), _over_budget(mark.seconds))
    found = frozenset(index for index, member in enumerate(execution.members) if elapsed > member.timeout_s)
    if not found:
        return None
    if run is None or len(execution.members) == 1:
        return Culprits(found, transitions.timed_out)
    if mark is None:
        # Between two files, while the batch is written. Run alone, each job shows whether it is the slow one.
        return Culprits(
            frozenset(range(len(execution.members))), lambda job: transitions.suspected(job, _STUCK)
        )
    return Culprits(frozenset([mark.member]), transitions.timed_out) if mark.member in found else None


def clock_start(execution: Execution, run: FileRun | None) -> float:
    """Start of the timeout: in a batch of files, the start of the current file or write."""
    return (
        execution.started if run is None or len(execution.members) == 1 else max(run.since, execution.started)
    )


def _over_budget(seconds: float) -> Resolve:
    error = budget.time_exceeded(seconds)

    def resolve(job: Job) -> Settlement:
        return transitions.failed(job, error.code, error.message)

    return resolve


def blocked_the_store(job: Job) -> Settlement:
    """Release the job, the first time: another one of its batch may have been sent just then.

    Alone, it has nobody else to blame. It would block the store again and again if it spent no retry.
    """
    return orphans.lost(job) if job.lost_count else orphans.suspected(job, _BLOCKED)


class Watchdog:
    """Enforces timeouts, CPU budgets and cancels in a thread, for the time of a ``with`` block.

    It reads the shared states and sends signals, and never opens the store. A store that blocks holds up
    every thread that uses it; jobs that exceed their time are stopped all the same. ``check`` raises the
    thread's error, if any.
    """

    def __init__(self, pool: ProcessPool, options: WorkerOptions) -> None:
        self._pool = pool
        self._options = options
        self._ended = threading.Event()
        self._error: Exception | None = None
        self._checked_at = self._awake_since = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="penstock-watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def check(self) -> None:
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            while not self._ended.wait(_TICK_S):
                with self._pool.lock:
                    self._check_children(time.monotonic())
        except Exception as error:  # noqa: BLE001 - ``check`` raises it in the main thread
            self._error = error

    def _check_children(self, now: float) -> None:
        self._extend_after_freeze(now)
        for child in self._pool.children:
            execution = child.executing
            if child.being_killed:
                child.enforce_kill(execution, now)
            elif execution is not None and not child.state.leaving_since:
                self._check_time(child, execution, now)
            else:
                self._terminate_if_hung(child, now)

    def _extend_after_freeze(self, now: float) -> None:
        """Ignore the time in which the whole worker was frozen (SIGSTOP, a paused container)."""
        frozen_s = now - self._checked_at - _TICK_S
        self._checked_at = now
        if frozen_s > _FROZEN_S:
            log.warning("this worker stood still for %.1f s; its jobs get as much more time", frozen_s)
            self._awake_since = now
            for child in self._pool.children:
                child.extend_time(frozen_s, now)

    def _terminate_if_hung(self, child: ChildHandle, now: float) -> None:
        """Kill a child hung outside of jobs, where no timeout applies: a leftover thread may block it."""
        if child.state.leaving_since:
            since, most, fault = child.state.leaving_since, self._options.leaving_s, "hung while exiting"
        elif child.state.ready:
            since, most, fault = child.state.heartbeat_at, self._options.silence_s, "hung without a job"
        else:
            return
        if child.fault is None and now - max(since, self._awake_since) > most:
            child.terminate(fault)

    def _check_time(self, child: ChildHandle, execution: Execution, now: float) -> None:
        run = child.state.file_run(execution.number)
        elapsed = child.elapsed(execution, clock_start(execution, run), now)
        cpu_seconds = budget.cpu_seconds(child.pid) if run is not None and run.mark is not None else None
        late = late_jobs(execution, run, elapsed, cpu_seconds)
        ignoring = child.ignored_stops(execution.number, self._options.grace_s, now)
        if late is not None:
            child.stop_execution(execution, late.indexes, late.resolve, now + _TIMEOUT_UNWIND_S)
        elif ignoring:
            child.stop_execution(execution, ignoring, transitions.cancelled_by_flag, now + _CANCEL_UNWIND_S)
        elif self._blocks_the_store(child, now):
            log.warning("a handler blocks its process, which has the lock of the store: it is stopped")
            members = frozenset(range(len(execution.members)))
            child.stop_execution(execution, members, blocked_the_store, now + _TIMEOUT_UNWIND_S)

    def _blocks_the_store(self, child: ChildHandle, now: float) -> bool:
        """Check whether a handler in native code stopped the child's sender amid a transaction.

        No timeout of the job may come for hours, and no cancel can be written meanwhile.
        """
        silent_s = now - max(child.state.heartbeat_at, self._awake_since)
        if silent_s <= self._options.lock_silence_s:
            return False
        return (self._options.row_locks and child.state.in_store) or self._options.lock_holder() == child.pid


CHECK_S = 1.0
"""Interval at which progress is written, cancel flags are read and dead workers are looked for."""
_RESERVE_S = 0.25
"""Interval at which the child reserved for small jobs is chosen."""
_CLEAR_OUTBOX_S = 5.0
"""Interval at which the outbox is read here. Children read it, too; this is for children that died."""
_IDLE_EVERY_S = 0.2
_FAILED_STARTS_LIMIT = 3
_LAST_TRIES, _LAST_PAUSE_S = 5, 0.2
_SPREAD = 0.1


__all__ = ["Supervisor", "WorkerOptions"]


class Supervisor:
    """One worker: a pool of children and the duties around them."""

    def __init__(self, options: WorkerOptions) -> None:
        self._options = options
        self._queue = options.open_queue()
        self._catalog = options.open_catalog() if options.open_catalog is not None else None
        self._host = socket.gethostname()
        self._name = f"{self._host}-{os.getpid()}-{clock.new_id()[-8:]}"
        self._vectors = self._open_vectors()
        keep_stores = options.keep_stores
        self._keepers = keep_stores(self._catalog) if keep_stores is not None and self._catalog else []
        self._stuck = StuckWarner(self._queue)
        self._outages = OutageLog(options.directory)
        self._signals = 0
        self._started_at = clock.now()
        self._reported: dict[str, Any] = {}
        self._idle_at = self._lingers_until = 0.0
        self._executed: list[int] | None = None
        self._has_documents = False
        self._pool: ProcessPool

    def _open_vectors(self) -> VectorKeeper | None:
        options = self._options
        directory = options.cache_directory
        if self._catalog is None or options.open_catalog is None or directory is None:
            return None
        return VectorKeeper(self._catalog, options.open_catalog, directory, options.start_method)

    def run(self) -> None:
        """Work until a signal or ``stop`` comes or, with ``until_idle`` or ``until_job``, all is done."""
        self._pool = ProcessPool(self._queue, self._catalog, self._options, self._name)
        try:
            with self._signal_handlers(), Watchdog(self._pool, self._options) as watch:
                self._work(watch)
                self._drain(watch)
        finally:
            if self._vectors is not None:
                self._vectors.close()
            self._pool.terminate_all()
            self._settle_before_exit()
            self._outages.close()
            for keeper in self._keepers:
                keeper.close()
            self._pool.close()
            self._queue.close()
            if self._catalog is not None:
                self._catalog.close()

    def stop(self) -> None:
        """Ask to stop, from another thread; a second call kills running jobs instead of waiting."""
        self._signals += 1

    def _work(self, watch: Watchdog) -> None:
        self._outages.attempt(self._log_store_warnings, "check")
        schedule = self._new_schedule()
        self._add_upkeep(schedule)
        while not self._signals:
            now = time.monotonic()
            schedule.run_due(now)
            if (self._options.until_idle or self._options.until_job) and self._finished(now):
                return
            self._pool.fill(now)
            self._pool.wait(_TICK_S)
            self._pool.collect_dead()
            watch.check()

    def _log_store_warnings(self) -> None:
        for warning in self._queue.check():
            log.warning("%s", warning)

    def _drain(self, watch: Watchdog) -> None:
        """Stop claiming, let running jobs finish, release the rest. Leases are renewed to the end."""
        # Read before the message is logged: a reader of the log may send the second signal at once.
        signals, deadline = self._signals, time.monotonic() + self._options.shutdown_grace_s
        log.info("finishing running jobs, for at most %.0f s", self._options.shutdown_grace_s)
        for child in self._pool.children:
            child.state.request_exit()
        schedule = self._new_schedule()
        while self._pool.children and self._signals == signals and time.monotonic() < deadline:
            schedule.run_due(time.monotonic())
            self._pool.wait(_TICK_S)
            self._pool.collect_dead()
            watch.check()

    def _settle_before_exit(self) -> None:
        for _ in range(_LAST_TRIES):
            self._outages.attempt(self._pool.settle_dead, "settle")
            if not self._pool.unsettled:
                break
            time.sleep(_LAST_PAUSE_S)
        else:
            log.warning("the store is unavailable; the next worker on this host will release the jobs")
        if self._catalog is not None:
            catalog = self._catalog
            self._outages.attempt(
                lambda: clear_outbox(self._queue, catalog, self._options.source_files), "outbox"
            )
        self._outages.attempt(self._report_end, "end")

    def _report_end(self) -> None:
        """Report the end. A worker for one job leaves no report: each command would add one for good."""
        if self._options.until_job is None:
            self._report(ended=True)
        else:
            own = [report for report in self._queue.workers() if report.worker_id == self._name]
            self._queue.forget_workers(own)

    def _new_schedule(self) -> Duties:
        schedule = Duties(self._outages)
        schedule.add(self._options.heartbeat_s, self._renew)
        schedule.add(CHECK_S, self._sync_progress)
        schedule.add(CHECK_S, self._release_starved_jobs)
        schedule.add(CHECK_S, self._release_tasks)
        schedule.add(_RESERVE_S, self._reserve_one_for_jobs)
        schedule.add(0.0, self._pool.settle_dead)
        return schedule

    def _add_upkeep(self, schedule: Duties) -> None:
        queue, options = self._queue, self._options
        longest = max(options.leases)
        schedule.add(CHECK_S, self._release_dead_workers)
        schedule.add(CHECK_S, self._report_changes)
        schedule.add(EVERY_S, ScheduleRunner(queue).run)
        schedule.add(EVERY_S, lambda: queue.admit() < 0)
        reaper = Reaper(queue, longest.total_seconds(), catalog=self._catalog)
        schedule.add(options.upkeep_s, reaper.run, spread=_SPREAD)
        schedule.add(options.upkeep_s, Reconciler(queue).run, spread=_SPREAD)
        overdue = OverdueEnder(queue, self._catalog)
        schedule.add(CHECK_S, overdue.end_bounded)
        schedule.add(options.upkeep_s, overdue.run, spread=_SPREAD)
        schedule.add(options.upkeep_s, overdue.stop_leftovers, spread=_SPREAD)
        pruner = Pruner(queue, options.retention, options.heartbeat_s)
        schedule.add(options.upkeep_s, pruner.run, spread=_SPREAD)
        schedule.add(options.upkeep_s, lambda: queue.expire_results() > 0, spread=_SPREAD)
        schedule.add(options.upkeep_s, self._stuck.run, spread=_SPREAD)
        schedule.add(options.upkeep_s, lambda: record_upkeep(options.directory))
        if self._catalog is not None:
            notifier = DocumentNotifier(queue, self._catalog)
            sweeper = Sweeper(self._catalog, options.source_files)
            schedule.add(_CLEAR_OUTBOX_S, notifier.process_outbox)
            schedule.add(CHECK_S, notifier.check_waiting)
            schedule.add(_CLEAR_OUTBOX_S, sweeper.clear_leftovers)
            lease = options.task_lease
            schedule.add(options.upkeep_s, lambda: sweeper.reclaim_tasks(lease), spread=_SPREAD)
            schedule.add(options.upkeep_s, lambda: sweeper.drop_unfinished(lease), spread=_SPREAD)
            schedule.add(options.upkeep_s, sweeper.sweep, spread=_SPREAD)
        if self._vectors is not None:
            schedule.add(options.upkeep_s, self._vectors.run, spread=_SPREAD)

    def _finished(self, now: float) -> bool:
        ready, counts = any(child.state.ready for child in self._pool.children), self._pool.exit_counts
        if counts.failed_starts >= _FAILED_STARTS_LIMIT and not ready:
            raise WorkerFailed(f"no process lives long enough to take a job: {counts.last_death}")
        if self._options.until_job is not None:
            return self._job_ended(self._options.until_job, now)
        executed = self._executed_when_idle()
        if now < self._idle_at or executed is None or not all(keeper.idle for keeper in self._keepers):
            return False
        # Several reads: a job claimed in between is in none of them.
        idle = (
            bool(self._outages.attempt(self._lanes_idle, "idle")) and self._executed_when_idle() == executed
        )
        if not idle or executed != self._executed:
            self._executed, self._lingers_until = executed, now + self._options.linger_s
        self._idle_at = now + (CHECK_S if idle and self._options.linger_s else _IDLE_EVERY_S)
        return idle and now >= self._lingers_until

    def _executed_when_idle(self) -> list[int] | None:
        """Executed jobs of each child; None while one of them is at work."""
        ready = [child.state for child in self._pool.children if child.state.ready]
        return [state.executed for state in ready] if all(state.idle for state in ready) else None

    def _lanes_idle(self) -> bool:
        """Check the lanes, except those served by no child because they need another model."""
        refused = [set(child.message().get("services", {})) for child in self._pool.children]
        unserved = set.intersection(*refused) if refused else set()
        lanes = [lane for lane in self._options.lanes if lane_name(lane) not in unserved]
        takes_jobs = self._options.takes_jobs
        return lanes_idle(self._queue, self._catalog, lanes, takes_jobs=takes_jobs)

    def _job_ended(self, job_id: str, now: float) -> bool:
        if now < self._idle_at:
            return False
        self._idle_at = now + _IDLE_EVERY_S

        def ended() -> bool:
            job = self._queue.get(job_id)
            if job is not None and not job.ended:
                return False
            # A document is published before its later phases are done, and no other worker may be there.
            return self._catalog is None or not open_later_tasks(self._catalog, self._options.lanes)

        return bool(self._outages.attempt(ended, "ended"))

    # Leases, progress, cancels.

    def _renew(self) -> None:
        start = time.monotonic()
        beats = [
            Beat(job.queue_id, job.claim_number, self._options.lease_of(job.item_type))
            for child in self._pool.children
            for job in orphans.held_by(self._queue, child.worker_id)
        ]
        if beats:
            self._queue.renew(beats)
        self._pool.record_renewal(start, time.monotonic())
        if self._catalog is not None:
            claims = [claim for child in self._pool.children for claim in self._catalog.held(child.worker_id)]
            if claims:
                self._catalog.renew(claims)
        self._report()

    def _sync_progress(self) -> None:
        """Write changed progress and read the cancel flags, in one call."""
        targets: list[tuple[ChildHandle, int, int]] = []
        beats: list[Beat] = []
        for child in self._pool.children:
            execution = child.executing
            if execution is None or execution.runs_tasks:
                # Tasks are not in the queue, which would answer that they are not held.
                continue
            for index, member in enumerate(execution.members):
                progress = child.new_progress(execution.number, index)
                beats.append(Beat(member.queue_id, member.claim_number, None, progress))
                targets.append((child, execution.number, index))
        if not beats:
            return
        answers = self._queue.renew(beats)
        with self._pool.lock:
            now = time.monotonic()
            for (child, number, index), answer in zip(targets, answers, strict=True):
                if answer.cancel_requested or not answer.held:
                    # A job taken from this worker is stopped, too: its result would be refused.
                    child.request_stop(number, index, now)

    def _release_starved_jobs(self) -> None:
        """Release the jobs behind a slow one that the child itself cannot release."""
        now = time.monotonic()
        for child in self._pool.children:
            execution = child.executing
            if execution is None or not child.may_hold_up_jobs(execution, now):
                continue
            held = orphans.held_by(self._queue, child.worker_id)
            beside = {member.name for member in child.state.beside()}
            behind = [
                job
                for job in held
                if not orphans.was_executing(job, execution)
                and (job.queue_id, job.claim_number) not in beside
            ]
            if behind:
                # First, so that the child begins none of them if the slow job ends just now.
                child.state.set_jobs_released(execution.number)
                if child.executing != execution:
                    continue
                settle_all(self._queue, child.state.results())
                settle_all(self._queue, [transitions.released(job, "behind a slow job") for job in behind])
            child.record_look(execution.number, now)

    def _release_tasks(self) -> None:
        """Release the tasks of a child while a job takes unexpectedly long."""
        if self._catalog is None:
            return
        now = time.monotonic()
        for child in self._pool.children:
            execution = child.executing
            if execution is None or execution.runs_tasks or now - execution.started < STARVING_AFTER_S:
                continue
            held = [] if child.state.tasks_released(execution.number) else self._catalog.held(child.worker_id)
            held = [claim for claim in held if claim.lane not in self._options.background_lanes]
            if held and child.executing == execution:
                self._catalog.settle([publication.released(claim) for claim in held])
                child.state.set_tasks_released(execution.number)

    def _reserve_one_for_jobs(self) -> None:
        """Reserve one of several children for small jobs, which then wait for no task."""
        children = self._pool.children
        reserved = child_for_small_jobs(children, time.monotonic())
        for child in children:
            child.state.reserve_for_jobs(child is reserved)

    # Dead workers and reports.

    def _release_dead_workers(self) -> None:
        released = release_dead(self._queue, self._options.directory, self._catalog)
        if released:
            log.warning("released %s of a worker that died on this host", how_many(released, "job"))

    def _report_changes(self) -> None:
        if self._info() != self._reported:
            self._report()

    def _info(self) -> dict[str, Any]:
        exit_counts, children = self._pool.exit_counts, self._pool.children
        services: dict[str, str] = {}
        for child in children:
            services |= child.message().get("services", {})
        return self._catalog_place() | {
            "processes": len(children),
            "refused": exit_counts.refused + sum(child.state.refused for child in children),
            "deaths": exit_counts.deaths,
            "last_death": exit_counts.last_death,
            "stuck": self._stuck.stuck,
            "services": services,
        }

    def _catalog_place(self) -> dict[str, str]:
        """Report the catalog as a file of this host, once documents exist: until then any host may start."""
        if not self._options.one_host or self._catalog is None:
            return {}
        if not self._has_documents:
            with self._catalog.snapshot() as snapshot:
                self._has_documents = bool(snapshot.tenants())
        return dict(DOCUMENT_FILE) if self._has_documents else {}

    def _report(self, *, ended: bool = False) -> None:
        info = self._info() | ({WORKER_ENDED: True} if ended else {})
        info_json = msgspec.json.encode(info | self._pool.work_counts()).decode()
        self._queue.report(
            WorkerReport(
                worker_id=self._name,
                host=self._host,
                pid=os.getpid(),
                started_at=self._started_at,
                info_json=info_json,
            )
        )
        self._reported = info

    @contextmanager
    def _signal_handlers(self) -> Iterator[None]:
        """Count signals: the first asks to stop, the second not to wait. Works in the main thread only."""

        def count_signal(number: int, _frame: object) -> None:
            if number != signal.SIGHUP or not self._signals:
                # A closed terminal may send SIGHUP more than once, with the same meaning.
                self._signals += 1

        numbers = [signal.SIGTERM]
        for number in (signal.SIGINT, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:
                # A signal ignored at the start stays ignored: by nohup, or by a shell for background jobs.
                numbers.append(number)
        try:
            before = {number: signal.signal(number, count_signal) for number in numbers}
        except ValueError:
            before = {}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


_PAUSE_S = 1.0
"""Least time between two starts of a worker."""


class OnDemandWorker:
    """Starts a worker when there are jobs and no other worker serves the queue.

    The worker stays for a while without work, since each start costs processes and a model. It ends with the
    process that started it, also if that is killed. ``run`` is called in the new process, and has to return
    after a stop signal, or when it has been idle for long.
    """

    def __init__(self, queue: Queue, is_served: Callable[[], bool], run: Callable[[], None]) -> None:
        self._queue = queue
        self._is_served = is_served
        self._run = run
        self._lock = threading.Lock()
        self._process: SafeProcess | None = None
        self._closed = threading.Event()
        self._calls = 0

    def ensure(self) -> None:
        """Start the worker, unless one runs or there is nothing to do."""
        with self._lock:
            self._calls += 1
            alive = self._process is not None and self._process.is_alive()
            if alive or self._closed.is_set() or not self._queue.busy() or self._is_served():
                return
            self._process = SafeProcess(target=_work, args=(self._run,))
            self._process.start()
            follow = threading.Thread(target=self._follow, args=(self._process, self._calls), daemon=True)
            follow.start()

    def _follow(self, process: SafeProcess, calls: int) -> None:
        """Start another worker if jobs may have come while this one was ending."""
        process.join()
        if self._calls != calls and not self._closed.wait(_PAUSE_S):
            try:
                self.ensure()
            except PenstockError as error:
                # The next call of a client tries again.
                log.warning("no worker was started: %s. %s", error, error.remedy)

    def close(self) -> None:
        """Stop the worker; its jobs finish within its grace, or wait for another worker."""
        self._closed.set()
        with self._lock:
            if self._process is not None and self._process.is_alive():
                self._process.terminate()
                self._process.join()


def _work(run: Callable[[], None]) -> None:
    # Standard input and output may belong to a protocol between the server and its client.
    with open(os.devnull, "r+b") as nothing:  # noqa: PTH123 - a descriptor is wanted
        os.dup2(nothing.fileno(), 0)
        os.dup2(nothing.fileno(), 1)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    threading.Thread(target=_end_with_parent, daemon=True).start()
    run()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
