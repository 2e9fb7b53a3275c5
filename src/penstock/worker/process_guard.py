"""The state of a child process, protected from handlers: signals, forks, directories, streams, globals.

An application sets up its process when its module is imported; ``ProcessState`` records the result. Changes
made by a function last as long as its job. A change that cannot be undone ends the process.
"""

from __future__ import annotations

import _locale
import _signal  # type: ignore[import-not-found]  # without the enums that signal makes
import builtins
import ctypes
import fcntl
import gc
import logging
import os
import random
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, cast

import msgspec

from penstock import traces
from penstock.queue.job import Claim
from penstock.vocabulary import how_many
from penstock.worker.executor import Stopped, function_name
from penstock.worker.shared_state import SharedState

log = logging.getLogger("penstock.worker")

_SIGNALS = tuple(number for number in range(1, 32) if number not in (signal.SIGKILL, signal.SIGSTOP))
_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
_LIMITS = tuple(
    getattr(resource, name)
    for name in ("RLIMIT_AS", "RLIMIT_CPU", "RLIMIT_DATA", "RLIMIT_FSIZE", "RLIMIT_NOFILE", "RLIMIT_STACK")
)
_OWN = (os.getpid, time.monotonic, time.sleep)
"""Functions that the worker calls between two jobs, and that handlers sometimes replace."""
_REPLACED: tuple[tuple[Any, str], ...] = (
    (os, "_exit environ fstat getcwd getppid kill stat"),
    (time, "clock_gettime perf_counter process_time time time_ns"),
    (signal, "setitimer signal"),
    (builtins, "__import__ open print"),
    (random, "random uniform"),
    (socket, "create_connection getaddrinfo socket"),
    (subprocess, "Popen"),
)
"""Attributes that handlers sometimes replace in their module, and that other code relies on."""

# Bound here: a handler may have replaced them in their modules.
_getsignal, _sigmask = _signal.getsignal, _signal.pthread_sigmask
_umask, _environ = os.umask, cast("Any", os.environ)
_set_handler, _set_timer = signal.signal, _signal.setitimer
_limit, _set_limit = resource.getrlimit, resource.setrlimit


def _set_collection(enabled: bool) -> None:
    (gc.enable if enabled else gc.disable)()


_VALUES: tuple[tuple[Callable[[], Any], Callable[[Any], Any]], ...] = (
    (socket.getdefaulttimeout, socket.setdefaulttimeout),
    (sys.getrecursionlimit, sys.setrecursionlimit),
    (sys.getswitchinterval, sys.setswitchinterval),
    (sys.gettrace, sys.settrace),
    (sys.getprofile, sys.setprofile),
    (gc.isenabled, _set_collection),
    (lambda: logging.root.level, logging.root.setLevel),
    (lambda: logging.root.manager.disable, logging.disable),
    (partial(os.getpriority, os.PRIO_PROCESS, 0), partial(os.setpriority, os.PRIO_PROCESS, 0)),
)
"""Pairs of a getter and a setter."""


class ProcessState:
    """The recorded state of the process after the application was loaded."""

    def __init__(self) -> None:
        self._replaced = _attributes(_REPLACED)
        self._mask = _umask(0o077)
        _umask(self._mask)
        self._handlers = [(number, _getsignal(number)) for number in _SIGNALS]
        self._blocked = _sigmask(signal.SIG_BLOCK, ())
        self._variables = dict(_environ._data)
        self._lists = [(owner, list(owner)) for owner in _lists()]
        self._locale = _locale.setlocale(_locale.LC_ALL, None)
        self._limits = [(which, _limit(which)) for which in _LIMITS]
        self._values = [(read, write, read()) for read, write in _VALUES]
        self._decimal = _decimal_context()

    def restore(self) -> str | None:
        """Undo changes; return the reason to end this process where a change cannot be undone."""
        try:
            self._restore_interpreter()
            self._restore_signals()
            _umask(self._mask)
            if _locale.setlocale(_locale.LC_ALL, None) != self._locale:
                _locale.setlocale(_locale.LC_ALL, self._locale)
            for which, limits in self._limits:
                if _limit(which) != limits:
                    _set_limit(which, limits)
        except Exception as error:  # noqa: BLE001 - whatever a handler did, a new process is clean
            return f"its state cannot be restored ({type(error).__name__})"
        return None

    def restore_own(self) -> None:
        """Restore the functions needed by the worker itself; called after every job."""
        if (os.getpid, time.monotonic, time.sleep) != _OWN:
            os.getpid, time.monotonic, time.sleep = _OWN

    def _restore_interpreter(self) -> None:
        self.restore_own()
        for owner, name, value in self._replaced:
            if owner.get(name) is not value:
                owner[name] = value
        if _environ._data != self._variables:
            self._restore_environment()
        for found, (recorded, values) in zip(_lists(), self._lists, strict=True):
            if found is not recorded or found != values:
                self._restore_lists()
                break
        for read, write, value in self._values:
            if read() != value:
                write(value)
        if self._decimal is not None:
            sys.modules["decimal"].setcontext(self._decimal.copy())

    def _restore_environment(self) -> None:
        for name in _environ._data.keys() - self._variables.keys():
            del _environ[os.fsdecode(name)]
        for name, value in self._variables.items():
            if _environ._data.get(name) != value:
                _environ[os.fsdecode(name)] = os.fsdecode(value)
        time.tzset()

    def _restore_lists(self) -> None:
        (sys.path, path), (sys.meta_path, finders), (filters, shown), (handlers, written) = self._lists
        sys.path[:], sys.meta_path[:] = path, finders
        warnings.filters = filters
        filters[:], handlers[:] = shown, written
        logging.root.handlers = handlers
        warnings._filters_mutated()  # type: ignore[attr-defined]

    def _restore_signals(self) -> None:
        for timer in _TIMERS:
            # A timer left running would kill the process of the next job.
            _set_timer(timer, 0)
        for number, handler in self._handlers:
            if _getsignal(number) != handler:
                _set_handler(number, handler)
        if _sigmask(signal.SIG_BLOCK, ()) != self._blocked:
            _sigmask(signal.SIG_SETMASK, self._blocked)


def _attributes(places: tuple[tuple[Any, str], ...]) -> list[tuple[dict[str, Any], str, Any]]:
    return [(vars(owner), name, vars(owner)[name]) for owner, names in places for name in names.split()]


def _lists() -> tuple[list[Any], ...]:
    return sys.path, sys.meta_path, cast("list[Any]", warnings.filters), logging.root.handlers


def _decimal_context() -> Any:
    """The decimal context shared by all jobs; before ``decimal`` is loaded, each job makes one."""
    loaded = sys.modules.get("decimal")
    return loaded.getcontext().copy() if loaded is not None else None


# Bound here, out of reach of handlers that replace them in their module and do not restore them.
_getpid, _getppid, _exit = os.getpid, os.getppid, os._exit
_fstat, _fchdir = os.fstat, os.fchdir
_PR_SET_PDEATHSIG = 1


class ProcessGuard:
    """Keeps the process usable after each handler, and ends the process with the supervisor."""

    def __init__(self, state: SharedState, parent_pid: int) -> None:
        self._state = state
        self._parent_pid = parent_pid
        self._pid = os.getpid()
        # Kept open, so that the process can return to the directory even after a rename.
        self._directory = os.open(".", getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC)
        self._directory_identity = _identity(os.fstat(self._directory))
        self._number = 0
        self._stopped = False
        self._sigterm_handler = self._on_sigterm
        self._streams: dict[int, Any] = {}
        self._recorded: ProcessState | None = None
        self._outputs = select.poll()
        for fd in (1, 2):
            self._outputs.register(fd, 0)
        self.exit_requested = False
        self.descriptors_lost = False
        """A handler closed descriptors of this process, which may include the store's."""

    def set_up(self) -> None:
        """Give this process a group and signal handlers, and tie its life to the supervisor's."""
        if os.getpid() != os.getpgrp():
            # Processes that a handler starts belong to this group and are killed with it.
            os.setpgid(0, 0)
        if sys.platform.startswith("linux"):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        self.exit_with_parent()
        # The supervisor decides when to stop; a Ctrl-C of the terminal, or its end, reaches all processes.
        self._install_handlers()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        os.register_at_fork(after_in_child=_reset_signals)
        self._repair_stdin()
        self.repair_output()

    def record_state(self) -> None:
        """Record state and output streams of this process, once the application is loaded."""
        self._streams = {1: sys.stdout, 2: sys.stderr}
        self._repair_streams()
        self._recorded = ProcessState()

    def restore(self) -> str | None:
        """Restore the process for another function; return the reason to end the process where impossible."""
        return self._recorded.restore() if self._recorded is not None else None

    def _install_handlers(self) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, self._sigterm_handler)

    def exit_with_parent(self) -> None:
        if _getppid() != self._parent_pid:
            _exit(1)

    def _on_sigterm(self, _number: int, _frame: object) -> None:
        """Stop the execution on the supervisor's request; any other SIGTERM asks the child to finish."""
        if self._number and self._state.being_killed(self._number):
            self._stopped = True
            raise Stopped
        self.exit_requested = True

    @contextmanager
    def execution(self, number: int) -> Iterator[None]:
        """Run a handler in this block: the supervisor can stop it, and changes to the process are undone."""
        try:
            self._number = number
            yield
        finally:
            self._number = 0
            if _getpid() != self._pid:
                # The handler forked and both processes returned. Only one may go on claiming.
                _exit(0)
            self._repair()
        if self._stopped:
            # The handler caught the exception. The supervisor still decides how the job ends.
            raise Stopped

    def descriptors_intact(self) -> bool:
        """True if the descriptors still belong to this process; one of them is checked for all."""
        try:
            return _identity(_fstat(self._directory)) == self._directory_identity
        except OSError:
            return False

    def _repair(self) -> None:
        if self._recorded is not None:
            self._recorded.restore_own()
        if not self.descriptors_intact():
            self.descriptors_lost = True
            return
        for timer in _TIMERS:
            # A timer left running would kill the process of the next job.
            _set_timer(timer, 0)
        listening = _getsignal(signal.SIGTERM) is self._sigterm_handler
        if not listening or _getsignal(signal.SIGINT) != signal.SIG_IGN:
            self._install_handlers()
        # Always: finding out where the process stands costs more.
        _fchdir(self._directory)
        if sys.stdin is None or sys.stdin.closed:
            self._repair_stdin()
        out, err = self._streams[1], self._streams[2]
        if sys.stdout is not out or sys.stderr is not err or out.closed or err.closed:
            self._repair_streams()

    def _repair_stdin(self) -> None:
        _redirect_to_null(0, os.O_RDONLY)
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 - for the life of the process

    def repair_output(self) -> None:
        """Redirect closed output and pipes without a reader to /dev/null: printing must not fail a job.

        Without this, a file that got the free descriptor would receive the output.
        """
        for fd, _ in self._outputs.poll(0):
            _redirect_to_null(fd, os.O_WRONLY)

    def _repair_streams(self) -> None:
        self.repair_output()
        for fd, stream in self._streams.items():
            if getattr(stream, "closed", True):
                self._streams[fd] = open(fd, "w", errors="backslashreplace", closefd=False)  # noqa: SIM115
        sys.stdout, sys.stderr = self._streams[1], self._streams[2]


def _redirect_to_null(fd: int, flags: int) -> None:
    null = os.open(os.devnull, flags)
    if null != fd:
        os.dup2(null, fd)
        os.close(null)


def _identity(file: os.stat_result) -> tuple[int, int]:
    return file.st_dev, file.st_ino


def _reset_signals() -> None:
    # A SIGTERM to a process that a handler forked is meant to end it.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def open_state(path: str) -> SharedState:
    """Open the state that the supervisor made for this process; end the process if it is gone.

    Another worker removes it after a supervisor that died meanwhile. This process has no claims yet.
    """
    try:
        return SharedState(Path(path))
    except FileNotFoundError:
        log.warning("a worker process ends at its start: %s is gone, its worker died", path)
        raise SystemExit(1) from None


def end_process(state: SharedState, code: int) -> None:
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


# Isolation between the functions of one child process, and the reasons to replace the process.
#
# The process is restored before another function runs and before more jobs are claimed, not after every job:
# many calls of one function in a row cost nothing.


REPLACED = "its process was replaced"
_PAYLOAD_START = '{"function_name":'
LOOK_EVERY_S = 1.0
THREADS, DESCRIPTORS = 64, 1_024
"""Threads and descriptors a child may have beyond those at its start. Pools of functions need fewer."""


class RecyclePolicy:
    """Limits after which a process is replaced. ``most_jobs``, ``growth_mb``: None is no limit."""

    def __init__(self, most_jobs: int | None, growth_mb: int | None) -> None:
        self._jobs = most_jobs
        self._growth = growth_mb
        self._memory_at_start = _resident_mb()
        self._peak = _peak_mb()
        self._threads = threading.active_count() + THREADS
        self._descriptors = _descriptor_limit()
        self._look_at = 0.0
        self.threads_beside: Callable[[], int] = lambda: 0
        """Number of threads of the worker itself that come and go."""

    def jobs_left(self, jobs: int) -> int | None:
        return None if self._jobs is None else self._jobs - jobs

    def reason(self, jobs: int) -> str | None:
        """Reason to replace this process after so many jobs; memory is checked once a second."""
        if self._jobs is not None and jobs >= self._jobs:
            return f"it ran {how_many(jobs, 'job')}"
        if time.monotonic() < self._look_at:
            return None
        self._look_at = time.monotonic() + LOOK_EVERY_S
        return self._growth_reason()

    def leak_reason(self) -> str | None:
        """Reason to replace this process after a function, found by cheap checks only."""
        if threading.active_count() - self.threads_beside() > self._threads:
            return f"more than {THREADS} threads were left running in it"
        if _lowest_free_descriptor() > self._descriptors:
            return "too many descriptors were left open in it"
        peak = _peak_mb()
        if peak > self._peak:
            self._peak = peak
            return self._growth_reason()
        return None

    def _growth_reason(self) -> str | None:
        if self._growth is None or _resident_mb() - self._memory_at_start <= self._growth:
            return None
        return f"its memory grew by more than {self._growth} MB"


def _resident_mb() -> float:
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def _descriptor_limit() -> int:
    """Half of the descriptors left at the start: settling and exiting need some."""
    used = _lowest_free_descriptor()
    jobs_left = resource.getrlimit(resource.RLIMIT_NOFILE)[0] - used
    return used + max(min(jobs_left // 2, DESCRIPTORS), 4)


def _lowest_free_descriptor() -> int:
    """Approximate number of open descriptors: the kernel assigns the lowest free number."""
    try:
        number = fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, 0)
    except OSError:
        return 1 << 30  # no descriptor is free, or standard input was closed, which the guard repairs
    os.close(number)
    return number


class Isolation:
    """Restores the process between two functions, and decides when to replace the process."""

    def __init__(
        self, guard: ProcessGuard, policy: RecyclePolicy, runs_beside: Callable[[Claim], bool]
    ) -> None:
        self._runs_beside = runs_beside
        self.beside = False
        """The last job may run in a thread. Asked once for many calls of one function in a row."""
        self._guard = guard
        self._policy = policy
        self._last_function: str | None = None
        """Function, or kind of job, that ran since the process was last restored."""
        self._kind = ("", "")
        self._payload_start = ""
        self._reason: str | None = None

    def jobs_left(self, jobs: int) -> int | None:
        """Number of jobs this process may still run; None: no limit."""
        return self._policy.jobs_left(jobs)

    def may_claim(self, jobs: int) -> bool:
        """True if this process may claim more after so many jobs."""
        self._reason = self._reason or self._restore() or self._policy.reason(jobs)
        return self._reason is None

    def log_replacement(self) -> None:
        """Log why the process is replaced, after all is settled: a function may hold the lock of the log."""
        if self._reason is not None:
            log.info("this process is replaced: %s", self._reason)

    def may_run(self, claim: Claim) -> bool:
        """True if this job may run here, after the functions run before."""
        # The payload starts with the name. Comparing text is cheap; decoding would cost more than the rest.
        if claim.payload_json.startswith(self._payload_start) and (claim.item_type, claim.op) == self._kind:
            return True
        self.beside = self._runs_beside(claim)
        function = function_name(claim)
        if self._last_function not in (None, function):
            self._reason = self._restore()
        self._last_function, self._kind = function, (claim.item_type, claim.op)
        self._payload_start = (
            _PAYLOAD_START + msgspec.json.encode(function).decode() if claim.item_type == "function" else ""
        )
        return self._reason is None

    def _restore(self) -> str | None:
        last_function, self._last_function, self._kind = self._last_function, None, ("", "")
        if last_function is None:
            return None
        reason = self._guard.restore() or self._policy.leak_reason()
        return f"{reason} (last ran: {last_function[:80]!a})" if reason else None
