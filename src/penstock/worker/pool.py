"""Starts children, notices their deaths, and sees to it that the jobs they held go on."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from multiprocessing.connection import wait as wait_for_any
from multiprocessing.process import BaseProcess
from pathlib import Path

import msgspec

from penstock.catalog.protocol import Catalog
from penstock.catalog.values import Phase
from penstock.errors import DiskFull
from penstock.handlers.registry import Registry
from penstock.pipeline.vectors.cache_directory import CacheDirectory
from penstock.queue.protocol import Queue
from penstock.worker import child, dead_workers
from penstock.worker.child_handle import ChildHandle
from penstock.worker.lanes import DocumentTools, settle_dead
from penstock.worker.liveness_lock import LivenessLock, slot_path
from penstock.worker.shared_state import SharedState
from penstock.worker.spawn import start_context

CRASH_PAUSE_S = 0.2
LONGEST_CRASH_PAUSE_S = 10.0
FALSE_ALARM_S = 0.02

log = logging.getLogger("penstock.worker")


class WorkerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker runs. ``open_queue`` and ``registry`` are called again in every child."""

    open_queue: Callable[[], Queue]
    registry: Callable[[], Registry]
    directory: Path
    processes: int = 1
    lease: timedelta = timedelta(seconds=300)
    lease_by_type: dict[str, timedelta] = {}
    task_lease: timedelta = timedelta(seconds=120)
    heartbeat_s: float = 30.0
    poll_s: float = 1.0
    upkeep_s: float = 60.0
    retention: dict[str, timedelta] = {}
    grace_s: float = 10.0
    shutdown_grace_s: float = 30.0
    silence_s: float = 30.0
    """A child without a job that shows no sign of life for so long hangs."""
    leaving_s: float = 10.0
    """How long a child may take to end, once all its jobs are settled."""
    until_idle: bool = False
    until_job: str | None = None
    recycle_after: int | None = None
    recycle_growth_mb: int | None = 512
    start_method: str = "spawn"
    open_catalog: Callable[[], Catalog] | None = None
    open_documents: Callable[[Registry], DocumentTools] | None = None
    shelf: CacheDirectory | None = None
    takes_jobs: bool = True
    lanes: tuple[Phase, ...] = ()
    one_host: bool = False
    """The catalog is a file of this host, the queue is not."""


class ExitCounts(msgspec.Struct):
    """What became of the children so far; those that live count for themselves."""

    executed: int = 0
    refused: int = 0
    deaths: int = 0
    stillborn: int = 0
    """Children in a row that died before they had done anything."""
    last_death: str | None = None


class ProcessPool:
    def __init__(self, queue: Queue, catalog: Catalog | None, terms: WorkerOptions, name: str) -> None:
        self._queue = queue
        self._catalog = catalog
        self._terms = terms
        self._name = name
        self._context = start_context(terms.start_method)
        self._life = LivenessLock(terms.directory, name)
        self._unsettled: list[tuple[ChildHandle, dead_workers.Verdict]] = []
        self._home = Path("/")
        with suppress(FileNotFoundError):
            self._home = Path.cwd()
        self._born = 0
        self._start_at = 0.0
        self.lock = threading.Lock()
        """Held by whoever changes the wards, reaps them or signals them: a number is theirs until reaped."""
        self.wards: list[ChildHandle] = []
        self.tally = ExitCounts()

    def fill_up(self, now: float) -> None:
        while len(self.wards) < self._terms.processes and now >= self._start_at:
            with self.lock:
                try:
                    self.wards.append(self._bear())
                except (OSError, DiskFull) as error:
                    # No room, no memory, no more processes: that may pass, and others are at work.
                    self._could_not_start(error)
                    return

    def _could_not_start(self, error: OSError | DiskFull) -> None:
        self.tally.last_death = f"could not be started: {error}"
        log.warning("a process %s", self.tally.last_death)
        self._pause_starts(stillborn=True)

    def _bear(self) -> ChildHandle:
        self._stand_somewhere()
        self._born += 1
        worker_id = f"{self._name}-{self._born}"
        self._life.adopt(worker_id)
        slot = SharedState.create(slot_path(self._terms.directory, worker_id))
        try:
            process = self._start(worker_id, slot)
        except BaseException:
            slot.close(remove=True)
            raise
        ward = ChildHandle(worker_id, slot, process)
        with suppress(OSError):  # without it, it is only harder to clean up after us
            self._life.identify(worker_id, ward.pid)
        return ward

    def _start(self, worker_id: str, slot: SharedState) -> BaseProcess:
        terms = child.ChildOptions(
            worker_id=worker_id,
            slot_path=str(slot.path),
            parent_pid=os.getpid(),
            lease=self._terms.lease,
            lease_by_type=self._terms.lease_by_type,
            poll_s=self._terms.poll_s,
            recycle_after=self._terms.recycle_after,
            recycle_growth_mb=self._terms.recycle_growth_mb,
            takes_jobs=self._terms.takes_jobs,
            lanes=self._terms.lanes,
        )
        process: BaseProcess = self._context.Process(  # type: ignore[attr-defined]
            target=child.main,
            args=(terms, self._terms.open_queue, self._terms.registry, self._terms.open_documents),
        )
        process.start()
        return process

    def _stand_somewhere(self) -> None:
        """A new process is told where its parent stands; in a directory that was removed nobody can say."""
        try:
            Path.cwd()
        except FileNotFoundError:
            log.warning("the directory this worker was started in is gone")
            os.chdir(self._home if self._home.is_dir() else "/")

    def wait(self, seconds: float) -> None:
        """Sleep, but not longer than until the next death."""
        if not self.wards:
            time.sleep(seconds)
            return
        told = wait_for_any([ward.process.sentinel for ward in self.wards], seconds)
        with self.lock:
            lives = any(ward.process.is_alive() for ward in self.wards if ward.process.sentinel in told)
        if lives:
            # It closed the descriptor that tells of its death, and would be told of without end.
            time.sleep(FALSE_ALARM_S)

    def bury(self) -> None:
        with self.lock:
            for ward in [ward for ward in self.wards if not ward.process.is_alive()]:
                self.wards.remove(ward)
                self._unsettled.append((ward, ward.bury()))
                self._count(ward)

    @property
    def unsettled(self) -> bool:
        return bool(self._unsettled)

    def settle(self) -> None:
        """End what the dead held. A store that is away is asked again; until then nothing is forgotten."""
        while self._unsettled:
            ward, verdict = self._unsettled[0]
            held = dead_workers.settle_dead(
                self._queue,
                ward.worker_id,
                ward.slot.results(),
                verdict,
                catalog=self._catalog,
                parsed=ward.parsed,
            )
            if self._catalog is not None:
                held += settle_dead(self._catalog, ward.worker_id, lost=ward.lost_tasks)
            if held and ward.process.exitcode:
                log.warning("%d jobs of a dead process were settled", held)
            ward.slot.close(remove=True)
            self._life.forget(ward.worker_id)
            del self._unsettled[0]

    def _count(self, ward: ChildHandle) -> None:
        tally, slot = self.tally, ward.slot
        tally.executed += slot.executed
        tally.refused += slot.refused
        if not ward.process.exitcode or ward.stopped:
            tally.stillborn = 0
            return
        tally.deaths += 1
        tally.last_death = ward.notes().get("died") or ward.fault or _exit_reason(ward.process.exitcode)
        log.warning("process %s died: %s", ward.worker_id, tally.last_death)
        unused = slot.executed == 0 and ward.executing is None
        # Killed later than at its start it says nothing about the next one.
        self._pause_starts(stillborn=unused and (not slot.ready or ward.process.exitcode > 0))

    def _pause_starts(self, *, stillborn: bool) -> None:
        """A child that dies before it did anything may do so for ever; do not spend the machine on it."""
        self.tally.stillborn = self.tally.stillborn + 1 if stillborn else 0
        if self.tally.stillborn:
            pause = min(CRASH_PAUSE_S * 2 ** min(self.tally.stillborn, 10), LONGEST_CRASH_PAUSE_S)
            self._start_at = time.monotonic() + pause

    def dismiss(self) -> None:
        """No more waiting: kill what lives."""
        for ward in self.wards:
            ward.dismiss()
        for ward in self.wards:
            ward.process.join()
        self.bury()

    def close(self) -> None:
        """With jobs still unsettled, the next worker on this host finds the file and does it."""
        self._life.close(remove=not self._unsettled)


def _exit_reason(code: int) -> str:
    return f"killed by signal {-code}" if code < 0 else f"exit code {code}"
