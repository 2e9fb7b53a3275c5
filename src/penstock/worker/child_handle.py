"""The supervisor's view of a child: process, shared state, pending kill, and the outcome of the jobs."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.process import BaseProcess
from typing import Any

import msgspec

from penstock import clock, lifecycle
from penstock.job import Job, Settlement
from penstock.named_tuple import NamedTuple
from penstock.worker import orphans
from penstock.worker.shared_state import Execution, SharedState

OCCUPIED_S = 0.25
"""A job that has run for longer is not a small one."""
STARVING_AFTER_S = 2.0
LOOK_AGAIN_S = 10.0
"""Interval at which jobs behind a slow one are looked for: the store may have committed a claim late, or its
response was lost."""


class Kill(NamedTuple):
    """A pending kill of a process, because some jobs (``culprits``) of the execution have to be stopped."""

    number: int
    culprits: frozenset[int]
    resolve: orphans.Resolve
    kill_at: float


class ChildHandle:
    """The supervisor's handle on one child."""

    def __init__(
        self, worker_id: str, state: SharedState, process: BaseProcess, *, recognizes: bool = False
    ) -> None:
        self.worker_id = worker_id
        self.recognizes = recognizes
        self.state = state
        self.process = process
        self._pending_kill: Kill | None = None
        self._terminated = False
        self.fault: str | None = None
        """Reason for a kill that is the fault of the process and not of a job."""
        self._stop_requests: dict[tuple[int, int], float] = {}
        self._progress_seen: dict[int, tuple[int, str]] = {}
        self._looked = (0, 0.0)
        """The last execution behind which jobs were looked for, and when."""
        self._extra_time = (0, 0.0)
        self._renewed_at = time.monotonic()
        self.parsed_file: orphans.ParsedFile | None = None
        """The file that the child was parsing when it was stopped or died."""

    @property
    def executing(self) -> Execution | None:
        return self.state.executing()

    def occupied(self, now: float) -> bool:
        """True if the same jobs have run for long. Tasks do not count: a job interrupts them."""
        executing = self.executing
        return executing is not None and not executing.runs_tasks and now - executing.started > OCCUPIED_S

    @property
    def being_killed(self) -> bool:
        return self._pending_kill is not None

    @property
    def stopped(self) -> bool:
        """True if the supervisor ended this child."""
        return (self._terminated and self.fault is None) or self.being_killed

    @property
    def lost_tasks(self) -> bool:
        """True if the child died by itself during a batch of tasks."""
        executing = self.executing
        return executing is not None and executing.runs_tasks and not self._terminated

    def message(self) -> dict[str, Any]:
        text = self.state.message()
        try:
            message: dict[str, Any] = msgspec.json.decode(text) if text else {}
        except msgspec.DecodeError:
            # Truncated at the end of its place.
            message = {"died": text}
        return message

    # Progress and cancelling.

    def new_progress(self, number: int, index: int) -> str | None:
        """Return the progress of a job, or None if unchanged since the last call."""
        progress = self.state.progress(number, index)
        if progress is None or self._progress_seen.get(index) == (number, progress):
            return None
        self._progress_seen[index] = (number, progress)
        return progress

    def request_stop(self, number: int, index: int, now: float) -> None:
        if (number, index) not in self._stop_requests:
            self._stop_requests = {key: at for key, at in self._stop_requests.items() if key[0] == number}
            self._stop_requests[number, index] = now
            self.state.request_stop(number, index)

    def ignored_stops(self, number: int, grace_s: float, now: float) -> frozenset[int]:
        """List the jobs of an execution still running after the grace period."""
        requests = self._stop_requests.items()
        return frozenset(index for (which, index), at in requests if which == number and now - at > grace_s)

    def may_hold_up_jobs(self, execution: Execution, now: float) -> bool:
        """True if it is time to look for jobs behind this execution.

        The child's own thread releases them, unless a handler blocks the interpreter, or the child does not
        know that it holds them.
        """
        number, looked_at = self._looked
        if number == execution.number:
            return now - looked_at > LOOK_AGAIN_S
        silent = now - self.state.heartbeat_at > STARVING_AFTER_S
        return now - execution.started > (STARVING_AFTER_S if silent else LOOK_AGAIN_S)

    def record_look(self, number: int, now: float) -> None:
        """Record a look for jobs behind an execution."""
        self._looked = (number, now)

    # Time.

    def record_renewal(self, start: float, end: float, lease_s: float) -> None:
        """Record that the leases of its claims were renewed, perhaps after some had ended."""
        if end - self._renewed_at > lease_s:
            # First: whoever sees the renewal knows that it was late.
            self.state.record_late_renewal(end)
        self._renewed_at = start
        self.state.record_renewal(start)

    def extend_time(self, seconds: float, now: float) -> None:
        """Allow as much more time: the whole worker was frozen for so long."""
        execution = self.executing
        if execution is not None:
            before = self._extra_time_of(execution)
            self._extra_time = (execution.number, before + min(seconds, now - execution.started - before))
        self._stop_requests = {key: at + seconds for key, at in self._stop_requests.items()}
        if self._pending_kill is not None:
            self._pending_kill = self._pending_kill._replace(kill_at=self._pending_kill.kill_at + seconds)

    def elapsed(self, execution: Execution, since: float, now: float) -> float:
        return now - since - self._extra_time_of(execution)

    def _extra_time_of(self, execution: Execution) -> float:
        number, seconds = self._extra_time
        return seconds if number == execution.number else 0.0

    # The end.

    def stop_execution(
        self, execution: Execution, culprits: frozenset[int], resolve: orphans.Resolve, kill_at: float
    ) -> None:
        self._pending_kill = Kill(execution.number, culprits, resolve, kill_at)
        # Read now: when stopped in Python code, the child clears the mark on its way out.
        self.parsed_file = orphans.file_being_parsed(self.state)
        self.state.kill_execution(execution.number)
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)

    def enforce_kill(self, execution: Execution | None, now: float) -> None:
        """Kill at the planned time, but only the same execution: a job may have finished meanwhile."""
        if self._pending_kill is None or execution is None:
            return
        if execution.number != self._pending_kill.number:
            self._pending_kill = None
        elif now > self._pending_kill.kill_at:
            self.kill()

    def terminate(self, fault: str | None = None) -> None:
        """Kill the child though no job is at fault: the jobs being executed are released, no retry spent."""
        self._terminated = True
        self.fault = fault
        self.kill()

    def kill(self) -> None:
        """Kill the child and all processes started by handlers."""
        self._kill_group()
        # The child may not have a group of its own yet.
        self.process.kill()

    def collect(self) -> orphans.Resolve:
        """Clean up after the child's death; return the rule for settling the jobs."""
        self.process.join()
        self._kill_group()
        executing = self.executing
        self.parsed_file = self.parsed_file if self.being_killed else orphans.file_being_parsed(self.state)
        return lambda job: self._resolve(job, executing)

    def _resolve(self, job: Job, executing: Execution | None) -> Settlement:
        if not orphans.was_executing(job, executing) or executing is None:
            return orphans.released(job)
        kill = self._pending_kill
        if kill and kill.number == executing.number:
            index = [member.queue_id for member in executing.members].index(job.queue_id)
            if index in kill.culprits:
                return kill.resolve(job)
            return lifecycle.released(job, "its batch was stopped")
        if self._terminated:
            stopped = lifecycle.released(job, "worker stopped")
            return lifecycle.with_first_start(stopped, job, job.started_at, clock.now())
        run = self.state.file_run(executing.number)
        return orphans.resolve_crashed(executing, run, self.process.exitcode)(job)

    def _kill_group(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    @property
    def pid(self) -> int:
        pid = self.process.pid
        assert pid is not None
        return pid


def child_for_small_jobs(children: Sequence[ChildHandle], now: float) -> ChildHandle | None:
    """Choose the child to reserve for small jobs: the first of several without a long job.

    A child that reads a large file is no choice: the others would be busy with the tasks of that file. Those
    that recognize text come last, since a page cannot be interrupted.
    """
    if len(children) < 2:
        return None
    free = [child for child in children if not child.occupied(now)]
    return min(free, key=lambda child: child.recognizes, default=None)
