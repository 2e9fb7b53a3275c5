"""The process pool: starts children, collects the dead and settles the jobs they held.

``ChildHandle`` is the supervisor's view of a child; ``main`` is what a child process runs.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from multiprocessing import context, resource_tracker, spawn, util
from multiprocessing.connection import wait as wait_for_any
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import msgspec

from penstock import clock, traces
from penstock.catalog.protocol import Catalog
from penstock.catalog.values import Phase
from penstock.errors import DiskFull, PenstockError
from penstock.handlers.context import Registry
from penstock.handlers.source_files import NO_FILES, SourceFiles
from penstock.interpreter import WithoutCollections, inherited_path
from penstock.pipeline.vectors.directory import CacheDirectory
from penstock.queue import transitions
from penstock.queue.job import Job, Settlement
from penstock.queue.protocol import Queue
from penstock.vocabulary import how_many
from penstock.worker import orphans
from penstock.worker.child import Child, ChildOptions
from penstock.worker.executor import error_text
from penstock.worker.lanes import DocumentTools, settle_dead_tasks
from penstock.worker.liveness_lock import LivenessLock, state_path
from penstock.worker.process_guard import ProcessGuard
from penstock.worker.shared_state import Execution, SharedState
from penstock.worker.store_keeper import StoreKeeper

OCCUPIED_S = 0.25
"""A job that has run for longer is not a small one."""
STARVING_AFTER_S = 2.0
LOOK_AGAIN_S = 10.0
"""Interval at which jobs behind a slow one are looked for: the store may have committed a claim late, or its
response was lost."""


class Kill(msgspec.Struct, frozen=True):
    """A pending kill of a process, because some jobs (``culprits``) of the execution have to be stopped."""

    number: int
    culprits: frozenset[int]
    resolve: orphans.Resolve
    kill_at: float


class ChildHandle:
    """The supervisor's handle on one child: process, shared state, pending kill, outcome of the jobs."""

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
            kill_at = self._pending_kill.kill_at + seconds
            self._pending_kill = msgspec.structs.replace(self._pending_kill, kill_at=kill_at)

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
            return transitions.released(job, "its batch was stopped")
        if self._terminated:
            stopped = transitions.released(job, "worker stopped")
            return transitions.with_first_start(stopped, job, job.started_at, clock.now())
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


log = logging.getLogger("penstock.worker")


def main(
    options: ChildOptions,
    open_queue: Callable[[], Queue],
    registry: Callable[[], Registry],
    open_documents: Callable[[Registry], DocumentTools] | None = None,
) -> None:
    """Run a child process from start to exit. Queue, handlers and catalog are opened here."""
    state = _open_state(options.state_path)
    code = 1
    try:
        guard = ProcessGuard(state, options.parent_pid)
        guard.set_up()
        with WithoutCollections():
            handlers = registry()
            documents = open_documents(handlers) if open_documents is not None else None
            child = Child(open_queue(), handlers, guard, state, options, documents)
        child.run()
        code = 0
    except BaseException as error:  # the supervisor reports it
        state.write_message(msgspec.json.encode({"died": error_text(error)}).decode())
        state.set_leaving(time.monotonic())
        if isinstance(error, PenstockError):
            log.warning("a worker process ends: %s", error)
        else:
            log.exception("a worker process ends")
    finally:
        _end_process(state, code)


def _open_state(path: str) -> SharedState:
    """Open the state that the supervisor made for this process; end the process if it is gone.

    Another worker removes it after a supervisor that died meanwhile. This process has no claims yet.
    """
    try:
        return SharedState(Path(path))
    except FileNotFoundError:
        log.warning("a worker process ends at its start: %s is gone, its worker died", path)
        raise SystemExit(1) from None


def _end_process(state: SharedState, code: int) -> None:
    """Exit at once. Returning from ``main`` would wait for threads left running by a handler."""
    try:
        # From now on the supervisor waits only briefly: a full pipe, or a lock that is never released, would
        # keep this process for ever.
        state.set_leaving(time.monotonic())
        for shut_down in (traces.flush, logging.shutdown):
            with suppress(BaseException):
                shut_down()
        for stream in (sys.stdout, sys.stderr):
            with suppress(BaseException):
                stream.flush()
    finally:
        os._exit(code)


_CRASH_PAUSE_S = 0.2
_LONGEST_CRASH_PAUSE_S = 10.0
_FALSE_ALARM_S = 0.02
_LATE_CLAIM_S = 2.0
"""Time after which the claims of a dead child are looked for once more: a server still works on what was sent
to it before."""
_lock = threading.Lock()


@contextmanager
def _safe_path() -> Iterator[None]:
    """Pass ``-P`` and the inherited path to interpreters started by ``multiprocessing`` in this block.

    ``multiprocessing`` starts a child as ``python -c``, which puts the working directory in front of the
    import path until the child has received its parent's path. The same holds for its resource tracker. The
    variable PYTHONSAFEPATH is no substitute: ``-E`` ignores it, and processes of a job would inherit it.
    """
    flags, data = "_args_from_interpreter_flags", "get_preparation_data"
    with _lock:
        given_flags, given_data = getattr(util, flags), getattr(spawn, data)
        more = [] if sys.flags.safe_path else ["-P"]
        setattr(util, flags, lambda: [*given_flags(), *more])
        setattr(spawn, data, lambda name: given_data(name) | {"sys_path": inherited_path()})
        try:
            yield
        finally:
            setattr(util, flags, given_flags)
            setattr(spawn, data, given_data)


@contextmanager
def _interrupt_blocked() -> Iterator[None]:
    """Block SIGINT in this thread, and in interpreters started in this block.

    Ctrl-C reaches all processes of a terminal. An interpreter without handlers yet would print a traceback,
    so it begins with the signal blocked. Its target unblocks it.
    """
    resource_tracker.ensure_running()  # its start unblocks the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class SafeProcess(context.SpawnProcess):
    """A spawned process with a safe import path; SIGINT is blocked until the target function unblocks it."""

    @staticmethod
    def _Popen(process_obj: BaseProcess) -> Any:  # noqa: N802 - its name in the library
        with _safe_path(), _interrupt_blocked():
            return context.SpawnProcess._Popen(process_obj)


class _SafeSpawn(context.SpawnContext):
    Process = SafeProcess


def start_context(method: str) -> BaseContext:
    """The ``multiprocessing`` context for ``spawn`` or ``fork``. A forked child keeps the parent's path."""
    return _SafeSpawn() if method == "spawn" else multiprocessing.get_context(method)


class WorkerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a worker. ``open_queue`` and ``registry`` are called again in every child."""

    open_queue: Callable[[], Queue]
    registry: Callable[[], Registry]
    directory: Path
    lease: timedelta
    task_lease: timedelta
    heartbeat_s: float
    poll_s: float
    upkeep_s: float
    grace_s: float
    shutdown_grace_s: float
    recycle_after: int | None
    recycle_growth_mb: int | None
    processes: int = 1
    lease_by_type: dict[str, timedelta] = {}
    retention: dict[str, timedelta] = {}
    silence_s: float = 30.0
    """A child without a job and without a heartbeat for this long counts as hung."""
    lock_holder: Callable[[], int | None] = lambda: None
    """Finds the process that keeps all others from writing to the store, without opening the store."""
    row_locks: bool = False
    """The store locks rows for a transaction, which no process can see: any call may hold some."""
    lock_silence_s: float = 90.0
    """A child that blocks the interpreter for this long and has the lock of the store is stopped. Longer than
    the busy timeout: a thread that waits for the store has no heartbeat either."""
    leaving_s: float = 10.0
    """Time for a child to exit after all its jobs are settled."""
    until_idle: bool = False
    linger_s: float = 0.0
    """Time without work after which a worker with ``until_idle`` ends."""
    until_job: str | None = None
    start_method: str = "spawn"
    open_catalog: Callable[[], Catalog] | None = None
    open_documents: Callable[[Registry], DocumentTools] | None = None
    cache_directory: CacheDirectory | None = None
    takes_jobs: bool = True
    lanes: tuple[Phase, ...] = ()
    ocr_workers: int = 1
    """Children that recognize text in pictures at the same time."""
    niceness: int = 0
    """Added to that of this process, for the children; see ``nice``."""
    background_lanes: tuple[Phase, ...] = ()
    """Lanes whose tasks are run beside jobs; a slow job does not hold them up."""
    keep_stores: Callable[[Catalog], list[StoreKeeper]] | None = None
    """Starts the upkeep of stores outside the catalog."""
    source_files: SourceFiles = NO_FILES
    one_host: bool = False
    """The catalog is a file of this host, but the queue is not."""

    @property
    def leases(self) -> list[timedelta]:
        return [self.lease, *self.lease_by_type.values()]

    def lease_of(self, item_type: str) -> timedelta:
        return self.lease_by_type.get(item_type, self.lease)


class ExitCounts(msgspec.Struct):
    """Totals of the children already ended. Living children have their own counts."""

    executed: int = 0
    counters: Counter[str] = msgspec.field(default_factory=Counter)
    refused: int = 0
    deaths: int = 0
    failed_starts: int = 0
    """Children in a row that died before they ran a job."""
    last_death: str | None = None


class ProcessPool:
    """The children of one supervisor."""

    def __init__(self, queue: Queue, catalog: Catalog | None, options: WorkerOptions, name: str) -> None:
        self._queue = queue
        self._catalog = catalog
        self._options = options
        self._name = name
        self._context = start_context(options.start_method)
        self._liveness = LivenessLock(options.directory, name)
        self._unsettled: list[tuple[ChildHandle, orphans.Resolve]] = []
        self._late: deque[tuple[float, str]] = deque()
        """Dead children that may have sent a claim which the store committed later, and when to look."""
        self._start_directory = Path("/")
        with suppress(FileNotFoundError):
            self._start_directory = Path.cwd()
        self._spawned = 0
        self._start_at = 0.0
        self.lock = threading.Lock()
        """Held while children are added, collected or signalled: a process id is valid until collected."""
        self.children: list[ChildHandle] = []
        self.exit_counts = ExitCounts()

    def fill(self, now: float) -> None:
        while len(self.children) < self._options.processes and now >= self._start_at:
            with self.lock:
                try:
                    self.children.append(self._spawn())
                except (OSError, DiskFull) as error:
                    # No disk space, memory or process left: that may pass, and the other children go on.
                    self._record_failed_start(error)
                    return

    def _record_failed_start(self, error: OSError | DiskFull) -> None:
        self.exit_counts.last_death = f"could not be started: {error}"
        log.warning("a process %s", self.exit_counts.last_death)
        self._pause_starts(failed=True)

    def _spawn(self) -> ChildHandle:
        self._ensure_working_directory()
        self._spawned += 1
        worker_id = f"{self._name}-{self._spawned}"
        self._liveness.add_child(worker_id)
        state = SharedState.create(state_path(self._options.directory, worker_id))
        recognizes = sum(child.recognizes for child in self.children) < self._options.ocr_workers
        try:
            process = self._start(worker_id, state, recognizes=recognizes)
        except BaseException:
            state.close(remove=True)
            raise
        child = ChildHandle(worker_id, state, process, recognizes=recognizes)
        with suppress(OSError):  # only the clean-up after a crash of this supervisor needs it
            self._liveness.record_process(worker_id, child.pid)
        return child

    def _start(self, worker_id: str, state: SharedState, *, recognizes: bool) -> BaseProcess:
        options = ChildOptions(
            worker_id=worker_id,
            state_path=str(state.path),
            parent_pid=os.getpid(),
            lease=self._options.lease,
            lease_by_type=self._options.lease_by_type,
            poll_s=self._options.poll_s,
            recycle_after=self._options.recycle_after,
            recycle_growth_mb=self._options.recycle_growth_mb,
            takes_jobs=self._options.takes_jobs,
            lanes=self._options.lanes,
            recognizes=recognizes,
        )
        process: BaseProcess = self._context.Process(  # type: ignore[attr-defined]
            target=main,
            args=(options, self._options.open_queue, self._options.registry, self._options.open_documents),
        )
        process.start()
        if self._options.niceness and process.pid is not None:
            # Before it starts anything itself. It may have ended already.
            with suppress(OSError):
                niceness = os.getpriority(os.PRIO_PROCESS, 0) + self._options.niceness
                os.setpriority(os.PRIO_PROCESS, process.pid, niceness)
        return process

    def _ensure_working_directory(self) -> None:
        """Leave a removed working directory: a new process reads the parent's, and would fail."""
        try:
            Path.cwd()
        except FileNotFoundError:
            log.warning("the directory this worker was started in is gone")
            os.chdir(self._start_directory if self._start_directory.is_dir() else "/")

    def record_renewal(self, start: float, end: float) -> None:
        """Tell the children that the leases of their claims were renewed."""
        shortest = min(self._options.leases).total_seconds()
        for child in self.children:
            child.record_renewal(start, end, shortest)

    def wait(self, seconds: float) -> None:
        """Sleep, but not beyond the next death of a child."""
        if not self.children:
            time.sleep(seconds)
            return
        ready = wait_for_any([child.process.sentinel for child in self.children], seconds)
        with self.lock:
            alive = any(
                child.process.is_alive() for child in self.children if child.process.sentinel in ready
            )
        if alive:
            # A living child closed its sentinel, which would be reported without end.
            time.sleep(_FALSE_ALARM_S)

    def collect_dead(self) -> None:
        with self.lock:
            for child in [child for child in self.children if not child.process.is_alive()]:
                self.children.remove(child)
                self._unsettled.append((child, child.collect()))
                self._count_exit(child)

    @property
    def unsettled(self) -> bool:
        return bool(self._unsettled)

    def work_counts(self) -> dict[str, Any]:
        """Work of this worker since the start, and the current work of the children, for the report."""
        counters, executed = Counter(self.exit_counts.counters), self.exit_counts.executed
        for child in self.children:
            counters.update(child.state.counters())
            executed += child.state.executed
        counters["lost"] = self.exit_counts.refused + sum(child.state.refused for child in self.children)
        jobs = sum(one is not None and not one.runs_tasks for one in (c.executing for c in self.children))
        jobs += sum(len(child.state.beside()) for child in self.children)
        lanes = [*(["jobs"] if self._options.takes_jobs else []), *map(str, self._options.lanes)]
        return {"executed": executed, "counters": counters, "running": jobs, "lanes": lanes}

    def settle_dead(self) -> None:
        """Settle the jobs of dead children. During an outage of the store they are kept for the next call."""
        while self._unsettled:
            child, resolve = self._unsettled[0]
            held = orphans.settle_dead_jobs(
                self._queue,
                child.worker_id,
                child.state.results(),
                resolve,
                catalog=self._catalog,
                parsed_file=child.parsed_file,
            )
            if self._catalog is not None:
                held += settle_dead_tasks(self._catalog, child.worker_id, lost=child.lost_tasks)
            if held and child.process.exitcode:
                log.warning("settled %s of a dead process", how_many(held, "job"))
            child.state.close(remove=True)
            self._liveness.remove_child(child.worker_id)
            del self._unsettled[0]
            if child.process.exitcode:
                self._late.append((time.monotonic() + _LATE_CLAIM_S, child.worker_id))
        self._release_late_claims()

    def _release_late_claims(self) -> None:
        while self._late and self._late[0][0] <= time.monotonic():
            orphans.settle_dead_jobs(self._queue, self._late[0][1], [], orphans.released)
            self._late.popleft()

    def _count_exit(self, child: ChildHandle) -> None:
        counts, state = self.exit_counts, child.state
        counts.executed += state.executed
        counts.counters.update(state.counters())
        counts.refused += state.refused
        if not child.process.exitcode or child.stopped:
            counts.failed_starts = 0
            return
        counts.deaths += 1
        counts.last_death = child.message().get("died") or child.fault or _exit_reason(child.process.exitcode)
        log.warning("process %s died: %s", child.worker_id, counts.last_death)
        unused = state.executed == 0 and child.executing is None
        # A child killed after its start says nothing about the next one.
        self._pause_starts(failed=unused and (not state.ready or child.process.exitcode > 0))

    def _pause_starts(self, *, failed: bool) -> None:
        """Delay the next start after failed ones: the cause may last for ever."""
        self.exit_counts.failed_starts = self.exit_counts.failed_starts + 1 if failed else 0
        if self.exit_counts.failed_starts:
            pause = min(_CRASH_PAUSE_S * 2 ** min(self.exit_counts.failed_starts, 10), _LONGEST_CRASH_PAUSE_S)
            self._start_at = time.monotonic() + pause

    def terminate_all(self) -> None:
        """Kill all living children."""
        for child in self.children:
            child.terminate()
        for child in self.children:
            child.process.join()
        self.collect_dead()

    def close(self) -> None:
        """Release the liveness lock. With unsettled jobs the file stays, for the next worker on this host."""
        self._liveness.close(remove=not self._unsettled)


def _exit_reason(code: int) -> str:
    return f"killed by signal {-code}" if code < 0 else f"exit code {code}"
