"""The watchdog: enforces timeouts, CPU budgets and cancels in a thread of the supervisor.

It reads the shared states and sends signals, and never opens the store. A store that blocks holds up every
thread that uses it; jobs that exceed their time are stopped all the same.
"""

from __future__ import annotations

import logging
import threading
import time
from types import TracebackType
from typing import Self

from penstock import lifecycle
from penstock.job import Job, Settlement
from penstock.named_tuple import NamedTuple
from penstock.pipeline import budget
from penstock.worker import orphans
from penstock.worker.child_handle import ChildHandle
from penstock.worker.orphans import Resolve
from penstock.worker.pool import ProcessPool, WorkerOptions
from penstock.worker.shared_state import Execution, FileRun

TICK_S = 0.1
TIMEOUT_UNWIND_S, CANCEL_UNWIND_S = 2.0, 0.5
"""From SIGTERM to SIGKILL. A cancelled job had its grace period before."""
FROZEN_S = 1.0
"""A tick this late means that this process, and most likely its children, were frozen."""
BACKSTOP_S = 2.0
"""CPU time beyond the budget of a file before it is killed: its own process interrupts it first."""
STUCK = "its batch took too long; it runs alone now"
BLOCKED = "its process blocked the store; it runs alone now"

log = logging.getLogger("penstock.worker")


class Culprits(NamedTuple):
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
        if used > mark.seconds + BACKSTOP_S:
            return Culprits(frozenset([mark.member]), _over_budget(mark.seconds))
    found = frozenset(index for index, member in enumerate(execution.members) if elapsed > member.timeout_s)
    if not found:
        return None
    if run is None or len(execution.members) == 1:
        return Culprits(found, lifecycle.timed_out)
    if mark is None:
        # Between two files, while the batch is written. Run alone, each job shows whether it is the slow one.
        return Culprits(frozenset(range(len(execution.members))), lambda job: lifecycle.suspected(job, STUCK))
    return Culprits(frozenset([mark.member]), lifecycle.timed_out) if mark.member in found else None


def clock_start(execution: Execution, run: FileRun | None) -> float:
    """Start of the timeout: in a batch of files, the start of the current file or write."""
    return (
        execution.started if run is None or len(execution.members) == 1 else max(run.since, execution.started)
    )


def _over_budget(seconds: float) -> Resolve:
    error = budget.time_exceeded(seconds)

    def resolve(job: Job) -> Settlement:
        return lifecycle.failed(job, error.code, error.message)

    return resolve


def blocked_the_store(job: Job) -> Settlement:
    """Release the job, the first time: another one of its batch may have been sent just then.

    Alone, it has nobody else to blame. It would block the store again and again if it spent no retry.
    """
    return orphans.lost(job) if job.lost_count else orphans.suspected(job, BLOCKED)


class Watchdog:
    """The watchdog thread, for the time of a ``with`` block. ``check`` raises the thread's error, if any."""

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
            while not self._ended.wait(TICK_S):
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
        frozen_s = now - self._checked_at - TICK_S
        self._checked_at = now
        if frozen_s > FROZEN_S:
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
            child.stop_execution(execution, late.indexes, late.resolve, now + TIMEOUT_UNWIND_S)
        elif ignoring:
            child.stop_execution(execution, ignoring, lifecycle.cancelled_by_flag, now + CANCEL_UNWIND_S)
        elif self._blocks_the_store(child, now):
            log.warning("a handler blocks its process, which has the lock of the store: it is stopped")
            members = frozenset(range(len(execution.members)))
            child.stop_execution(execution, members, blocked_the_store, now + TIMEOUT_UNWIND_S)

    def _blocks_the_store(self, child: ChildHandle, now: float) -> bool:
        """Check whether a handler in native code stopped the child's sender amid a transaction.

        No timeout of the job may come for hours, and no cancel can be written meanwhile.
        """
        silent_s = now - max(child.state.heartbeat_at, self._awake_since)
        if silent_s <= self._options.lock_silence_s:
            return False
        return (self._options.row_locks and child.state.in_store) or self._options.lock_holder() == child.pid
