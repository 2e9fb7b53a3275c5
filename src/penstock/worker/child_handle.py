"""A child as its supervisor sees it: its process, its slot, and what is to become of the jobs it executes."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple

import msgspec

from penstock import lifecycle
from penstock.job import Job, Settlement
from penstock.worker import dead_workers, failed_files
from penstock.worker.shared_state import Execution, SharedState

OCCUPIED_S = 0.25
"""A job that has run for longer is no small one."""


class Kill(NamedTuple):
    """An execution is stopped because of some of its members; the process goes with it."""

    number: int
    guilty: frozenset[int]
    verdict: dead_workers.Verdict
    kill_at: float


class ChildHandle:
    def __init__(self, worker_id: str, slot: SharedState, process: BaseProcess) -> None:
        self.worker_id = worker_id
        self.slot = slot
        self.process = process
        self._sentence: Kill | None = None
        self._dismissed = False
        self.fault: str | None = None
        """Why it had to be killed, when that is its own doing and no job's."""
        self._stop_asked: dict[tuple[int, int], float] = {}
        self._told: dict[int, tuple[int, str]] = {}
        self._relieved = 0
        self._excused = (0, 0.0)
        self.parsed: failed_files.Parsed | None = None
        """The file it was parsing when it was stopped, or died."""

    @property
    def executing(self) -> Execution | None:
        return self.slot.executing()

    def occupied(self, now: float) -> bool:
        """Whether it has run the same jobs (not tasks, which are interrupted for jobs) for long."""
        doing = self.executing
        return doing is not None and not doing.over_tasks and now - doing.started > OCCUPIED_S

    @property
    def condemned(self) -> bool:
        return self._sentence is not None

    @property
    def stopped(self) -> bool:
        """Its death is the supervisor's doing."""
        return (self._dismissed and self.fault is None) or self.condemned

    @property
    def lost_tasks(self) -> bool:
        """It died over a batch of tasks, and not because it was told to go."""
        executing = self.executing
        return executing is not None and executing.over_tasks and not self._dismissed

    def notes(self) -> dict[str, Any]:
        text = self.slot.notes()
        try:
            notes: dict[str, Any] = msgspec.json.decode(text) if text else {}
        except msgspec.DecodeError:
            # Cut at the end of its place.
            notes = {"died": text}
        return notes

    # Progress and cancelling.

    def fresh_progress(self, number: int, index: int) -> str | None:
        """What the member said since last asked."""
        said = self.slot.progress(number, index)
        if said is None or self._told.get(index) == (number, said):
            return None
        self._told[index] = (number, said)
        return said

    def ask_to_stop(self, number: int, index: int, now: float) -> None:
        if (number, index) not in self._stop_asked:
            self._stop_asked = {key: at for key, at in self._stop_asked.items() if key[0] == number}
            self._stop_asked[number, index] = now
            self.slot.ask_to_stop(number, index)

    def ignored_stops(self, number: int, grace_s: float, now: float) -> frozenset[int]:
        """Members that were asked to stop, and did not within the grace."""
        asked = self._stop_asked.items()
        return frozenset(index for (which, index), at in asked if which == number and now - at > grace_s)

    def starves(self, doing: Execution, after_s: float, now: float) -> bool:
        """A handler that keeps the interpreter to itself: not even the child's own threads can run."""
        long = now - doing.started > after_s and now - self.slot.beat_at > after_s
        return long and self._relieved != doing.number

    def relieve(self, number: int) -> None:
        self._relieved = number
        self.slot.relieve(number)

    # Time.

    def excuse(self, seconds: float, now: float) -> None:
        """Give as much more time: the whole worker stood still that long."""
        doing = self.executing
        if doing is not None:
            before = self._excused_of(doing)
            self._excused = (doing.number, before + min(seconds, now - doing.started - before))
        self._stop_asked = {key: at + seconds for key, at in self._stop_asked.items()}
        if self._sentence is not None:
            self._sentence = self._sentence._replace(kill_at=self._sentence.kill_at + seconds)

    def lasted(self, doing: Execution, since: float, now: float) -> float:
        return now - since - self._excused_of(doing)

    def _excused_of(self, doing: Execution) -> float:
        number, seconds = self._excused
        return seconds if number == doing.number else 0.0

    # The end.

    def condemn(
        self, doing: Execution, guilty: frozenset[int], verdict: dead_workers.Verdict, kill_at: float
    ) -> None:
        self._sentence = Kill(doing.number, guilty, verdict, kill_at)
        # Now: stopped in Python code, it says on its way out that no file is parsed any more.
        self.parsed = failed_files.parsed_by(self.slot)
        self.slot.condemn(doing.number)
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)

    def execute_sentence(self, doing: Execution | None, now: float) -> None:
        """Only while it is still that execution: whoever finished in time leaves after the job it is at."""
        if self._sentence is None or doing is None:
            return
        if doing.number != self._sentence.number:
            self._sentence = None
        elif now > self._sentence.kill_at:
            self.kill()

    def dismiss(self, fault: str | None = None) -> None:
        """Killed for no fault of its jobs: what it executes is given back unspent."""
        self._dismissed = True
        self.fault = fault
        self.kill()

    def kill(self) -> None:
        """Together with whatever its handlers started."""
        self._kill_group()
        # Too young for a group of its own, perhaps.
        self.process.kill()

    def bury(self) -> dead_workers.Verdict:
        """After its death: nothing it started stays behind. Answers what becomes of each job it held."""
        self.process.join()
        self._kill_group()
        executing = self.executing
        self.parsed = self.parsed if self.condemned else failed_files.parsed_by(self.slot)
        return lambda job: self._verdict(job, executing)

    def _verdict(self, job: Job, executing: Execution | None) -> Settlement:
        if not dead_workers.was_executing(job, executing) or executing is None:
            return dead_workers.given_back(job)
        sentence = self._sentence
        if sentence and sentence.number == executing.number:
            index = [member.queue_id for member in executing.members].index(job.queue_id)
            if index in sentence.guilty:
                return sentence.verdict(job)
            return lifecycle.released(job, "its batch was stopped")
        if self._dismissed:
            return lifecycle.released(job, "worker stopped")
        run = self.slot.file_run(executing.number)
        return dead_workers.after_crash(executing, run, self.process.exitcode)(job)

    def _kill_group(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    @property
    def pid(self) -> int:
        pid = self.process.pid
        assert pid is not None
        return pid


def free_one(wards: Sequence[ChildHandle], now: float) -> ChildHandle | None:
    """The child to keep free of tasks: the first one that no long job occupies. A child that reads a large
    file cannot be it, or the others would be busy with the tasks of that file."""
    if len(wards) < 2:
        return None
    return next((ward for ward in wards if not ward.occupied(now)), None)
