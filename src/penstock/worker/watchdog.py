"""The watchdog: enforces timeouts, CPU budgets and cancels in a thread of the supervisor.

It reads the shared states and sends signals, and never touches the store. A store that blocks holds up every
thread that uses it; jobs that exceed their time are stopped all the same.
"""

from __future__ import annotations

import logging
import threading
import time
from types import TracebackType
from typing import NamedTuple, Self

from penstock import lifecycle
from penstock.job import Job, Settlement
from penstock.pipeline import budget
from penstock.worker.child_handle import ChildHandle
from penstock.worker.orphans import Verdict
from penstock.worker.pool import ProcessPool, WorkerOptions
from penstock.worker.shared_state import Execution, FileRun

BACKSTOP_S = 2.0
"""CPU time beyond its budget that a file gets: before that, its own process interrupts it."""
STUCK = "its batch took too long; it runs alone now"


class Culprits(NamedTuple):
    indexes: frozenset[int]
    verdict: Verdict


def late_jobs(
    doing: Execution, run: FileRun | None, lasted: float, cpu_seconds: float | None
) -> Culprits | None:
    """Jobs that exceeded their time. ``lasted``: seconds since ``clock_start``; ``cpu_seconds``: what the
    process has used."""
    mark = run.mark if run is not None else None
    if mark is not None and cpu_seconds is not None:
        used = cpu_seconds - mark.cpu_started
        if used > mark.seconds + BACKSTOP_S:
            return Culprits(frozenset([mark.member]), _over_budget(mark.seconds))
    found = frozenset(index for index, member in enumerate(doing.members) if lasted > member.timeout_s)
    if not found:
        return None
    if run is None or len(doing.members) == 1:
        return Culprits(found, lifecycle.timed_out)
    if mark is None:
        # Between two files, where all of them are written: alone, each shows whether it is the slow one.
        return Culprits(frozenset(range(len(doing.members))), lambda job: lifecycle.suspected(job, STUCK))
    return Culprits(frozenset([mark.member]), lifecycle.timed_out) if mark.member in found else None


def clock_start(doing: Execution, run: FileRun | None) -> float:
    """When the timeout began to count: in a batch of files, with the file or write in hand."""
    return doing.started if run is None or len(doing.members) == 1 else max(run.since, doing.started)


def _over_budget(seconds: float) -> Verdict:
    error = budget.time_exceeded(seconds)

    def verdict(job: Job) -> Settlement:
        return lifecycle.failed(job, error.code, f"{type(error).__name__}: {error.message}")

    return verdict


TICK_S = 0.1
TIMEOUT_UNWIND_S, CANCEL_UNWIND_S = 2.0, 0.5
"""From SIGTERM to SIGKILL. Whoever is cancelled had the grace before."""
FROZEN_S = 1.0
"""A tick this late: this process did not run, nor, most likely, did its children."""

log = logging.getLogger("penstock.worker")


class Watchdog:
    """Lasts as long as its ``with`` block. ``check`` raises what ended it early."""

    def __init__(self, nursery: ProcessPool, terms: WorkerOptions) -> None:
        self._nursery = nursery
        self._terms = terms
        self._ended = threading.Event()
        self._error: Exception | None = None
        self._looked_at = self._awake_since = time.monotonic()
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
                with self._nursery.lock:
                    self._look(time.monotonic())
        except Exception as error:  # noqa: BLE001 - a thread's error is raised where it is asked for
            self._error = error

    def _look(self, now: float) -> None:
        self._excuse_sleepers(now)
        for ward in self._nursery.wards:
            doing = ward.executing
            if ward.condemned:
                ward.execute_sentence(doing, now)
            elif doing is not None and not ward.slot.left_at:
                self._judge(ward, doing, now)
            else:
                self._end_if_hung(ward, now)

    def _excuse_sleepers(self, now: float) -> None:
        """Time in which the whole worker stood still (SIGSTOP, a paused container) is nobody's."""
        frozen = now - self._looked_at - TICK_S
        self._looked_at = now
        if frozen > FROZEN_S:
            log.warning("this worker stood still for %.1f s; its jobs get as much more time", frozen)
            self._awake_since = now
            for ward in self._nursery.wards:
                ward.excuse(frozen, now)

    def _end_if_hung(self, ward: ChildHandle, now: float) -> None:
        """Without a job there is no timeout; but a thread left behind may keep the interpreter, or a lock."""
        if ward.slot.left_at:
            since, most, fault = ward.slot.left_at, self._terms.leaving_s, "hung while it left"
        elif ward.slot.ready:
            since, most, fault = ward.slot.beat_at, self._terms.silence_s, "hung without a job"
        else:
            return
        if ward.fault is None and now - max(since, self._awake_since) > most:
            ward.dismiss(fault)

    def _judge(self, ward: ChildHandle, doing: Execution, now: float) -> None:
        run = ward.slot.file_run(doing.number)
        lasted = ward.lasted(doing, clock_start(doing, run), now)
        cpu_seconds = budget.cpu_seconds(ward.pid) if run is not None and run.mark is not None else None
        late = late_jobs(doing, run, lasted, cpu_seconds)
        deaf = ward.ignored_stops(doing.number, self._terms.grace_s, now)
        if late is not None:
            ward.condemn(doing, late.indexes, late.verdict, now + TIMEOUT_UNWIND_S)
        elif deaf:
            ward.condemn(doing, deaf, lifecycle.cancelled_by_flag, now + CANCEL_UNWIND_S)
