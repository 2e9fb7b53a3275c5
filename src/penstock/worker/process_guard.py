"""The guard of a child process against its handlers, and the reasons to replace the process.

After each job the guard repairs what the worker itself needs to live: signal handlers, timers, streams, the
working directory. Other changes, such as of the environment, are not undone: ``Isolation`` compares the
process with its recorded state before another function runs and before more jobs are claimed, not after
every job, so that many calls of one function in a row cost nothing. A changed process is replaced.

An application sets up its process when its module is imported; ``ProcessState`` records the result.
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
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

import msgspec

from penstock.queue.job import Claim
from penstock.vocabulary import how_many
from penstock.worker.executor import Executor, Stopped, function_name
from penstock.worker.shared_state import SharedState

log = logging.getLogger("penstock.worker")

_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
_OWN = (os.getpid, time.monotonic, time.sleep)
"""Functions that the worker calls between two jobs, and that handlers sometimes replace."""

# Bound here, out of reach of handlers that replace them in their module.
_getpid, _getppid, _exit = os.getpid, os.getppid, os._exit
_fstat, _fchdir, _umask = os.fstat, os.fchdir, os.umask
_environ = cast("Any", os.environ)
_getsignal, _sigmask, _set_timer = _signal.getsignal, _signal.pthread_sigmask, _signal.setitimer
_PR_SET_PDEATHSIG = 1


# What functions change in their process, and other functions rely on. A process that a function changed is
# replaced (docs/decisions/0078-a-process-that-a-function-changed-is-replaced.md).


_SIGNALS = tuple(number for number in range(1, 32) if number not in (signal.SIGKILL, signal.SIGSTOP))
_LIMITS = tuple(
    getattr(resource, name)
    for name in ("RLIMIT_AS", "RLIMIT_CPU", "RLIMIT_DATA", "RLIMIT_FSIZE", "RLIMIT_NOFILE", "RLIMIT_STACK")
)
_REPLACED = tuple(
    (vars(owner), name)
    for owner, names in (
        (os, "_exit environ fstat getcwd getppid kill stat"),
        (time, "clock_gettime perf_counter process_time time time_ns"),
        (signal, "setitimer signal"),
        (builtins, "__import__ open print"),
        (random, "random uniform"),
        (socket, "create_connection getaddrinfo socket"),
        (subprocess, "Popen"),
    )
    for name in names.split()
)
"""Attributes that handlers sometimes replace in their module."""


def _general_filters() -> list[Any]:
    """The warning filters for all code. Many libraries add one for their own warnings when imported."""
    return [
        (action, category)
        for action, message, category, module, _ in warnings.filters
        if message is None and module is None and category.__module__ == "builtins"
    ]


_PARTS: tuple[tuple[str, Callable[[], Any]], ...] = (
    ("functions of the standard library", lambda: [names.get(name) for names, name in _REPLACED]),
    ("signal handlers", lambda: list(map(_getsignal, _SIGNALS))),
    ("blocked signals", partial(_sigmask, signal.SIG_BLOCK, ())),
    ("environment variables", lambda: _environ._data.copy()),
    ("sys.path", lambda: list(sys.path)),
    ("warning filters", _general_filters),
    ("the locale", partial(_locale.setlocale, _locale.LC_ALL, None)),
    ("resource limits", lambda: list(map(resource.getrlimit, _LIMITS))),
    ("the socket timeout", socket.getdefaulttimeout),
    ("the recursion limit", sys.getrecursionlimit),
    ("the switch interval", sys.getswitchinterval),
    ("the trace function", sys.gettrace),
    ("the profile function", sys.getprofile),
    ("garbage collection", gc.isenabled),
    ("the root logger", lambda: (logging.root.level, logging.root.manager.disable, logging.root.handlers[:])),
    ("the priority", partial(os.getpriority, os.PRIO_PROCESS, 0)),
)
"""Parts of the state of a process, each with a function that reads it."""


class ProcessState:
    """The recorded state of the process, such as after the application was loaded."""

    def __init__(self) -> None:
        self._mask = _umask(0o077)
        _umask(self._mask)
        self._parts = [(name, read, read()) for name, read in _PARTS]
        # Import finders that a library adds behind the others are no change to other code.
        self._finders = list(sys.meta_path)
        self._decimal = _decimal_context()

    def change(self) -> str | None:
        """Name a part of the state that differs from the recorded one."""
        if self._decimal is not None:
            # Each function begins with the recorded one: calculations alone leave flags in it.
            sys.modules["decimal"].setcontext(self._decimal.copy())
        if _umask(self._mask) != self._mask:
            return "the umask"
        if sys.meta_path[: len(self._finders)] != self._finders:
            return "sys.meta_path"
        return next((name for name, read, recorded in self._parts if read() != recorded), None)


def _decimal_context() -> Any:
    """The decimal context shared by all jobs; before ``decimal`` is loaded, each job makes one."""
    loaded = sys.modules.get("decimal")
    return loaded.getcontext().copy() if loaded is not None else None


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
        """Record the state of this process: once the application is loaded, and after Penstock's own work."""
        if not self._streams:
            self._streams = {1: sys.stdout, 2: sys.stderr}
            self._repair_streams()
        self._recorded = ProcessState()

    def change(self) -> str | None:
        """Name a change since the state was recorded."""
        try:
            return self._recorded.change() if self._recorded is not None else None
        except Exception as error:  # noqa: BLE001 - whatever a handler did, a new process is clean
            return f"its state in a way that cannot be read ({type(error).__name__})"

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
        """Run a handler in this block: the supervisor can stop it, and the worker can live on after it."""
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
        if (os.getpid, time.monotonic, time.sleep) != _OWN:
            os.getpid, time.monotonic, time.sleep = _OWN
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


_PAYLOAD_START = '{"function_name":'
_LOOK_EVERY_S = 1.0
_THREADS, _DESCRIPTORS = 64, 1_024
"""Threads and descriptors a child may have beyond those at its start. Pools of functions need fewer."""


class RecyclePolicy:
    """Limits after which a process is replaced. ``most_jobs``, ``growth_mb``: None is no limit."""

    def __init__(self, most_jobs: int | None, growth_mb: int | None) -> None:
        self._jobs = most_jobs
        self._growth = growth_mb
        self._memory_at_start = _resident_mb()
        self._peak = _peak_mb()
        self._threads = threading.active_count() + _THREADS
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
        self._look_at = time.monotonic() + _LOOK_EVERY_S
        return self._growth_reason()

    def leak_reason(self) -> str | None:
        """Reason to replace this process after a function, found by cheap checks only."""
        if threading.active_count() - self.threads_beside() > self._threads:
            return f"more than {_THREADS} threads were left running in it"
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
    return used + max(min(jobs_left // 2, _DESCRIPTORS), 4)


def _lowest_free_descriptor() -> int:
    """Approximate number of open descriptors: the kernel assigns the lowest free number."""
    try:
        number = fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, 0)
    except OSError:
        return 1 << 30  # no descriptor is free, or standard input was closed, which the guard repairs
    os.close(number)
    return number


class Isolation:
    """Decides when to replace the process, so that no function runs in one that another has changed."""

    def __init__(self, guard: ProcessGuard, policy: RecyclePolicy, executor: Executor) -> None:
        self._executor = executor
        self.beside = False
        """The last job may run in a thread. Asked once for many calls of one function in a row."""
        self._guard = guard
        self._policy = policy
        self._last_function: str | None = None
        """Function, or kind of job, that ran since the process was last compared with its recorded state."""
        self._own_work_ran = False
        """Tasks or jobs of Penstock itself ran since the state was recorded, and may have changed it."""
        self._runs_own = False
        """What ran last is a job of Penstock itself."""
        self._kind = ("", "")
        self._payload_start = ""
        self._reason: str | None = None

    def jobs_left(self, jobs: int) -> int | None:
        """Number of jobs this process may still run; None: no limit."""
        return self._policy.jobs_left(jobs)

    def may_claim(self, jobs: int) -> bool:
        """True if this process may claim more after so many jobs."""
        self._reason = self._reason or self._change() or self._policy.reason(jobs)
        return self._reason is None

    def log_replacement(self) -> None:
        """Log why the process is replaced, after all is settled: a function may hold the lock of the log."""
        if self._reason is not None:
            log.info("this process is replaced: %s", self._reason)

    def record_own_work(self) -> None:
        """Record that tasks ran: what Penstock itself changes is no reason to replace the process."""
        self._own_work_ran = True

    def may_run(self, claim: Claim) -> bool:
        """True if this job may run here, after the functions run before."""
        # The payload starts with the name. Comparing text is cheap; decoding would cost more than the rest.
        if claim.payload_json.startswith(self._payload_start) and (claim.item_type, claim.op) == self._kind:
            return True
        self.beside = self._executor.runs_beside(claim)
        function = function_name(claim)
        if self._last_function not in (None, function):
            self._reason = self._change()
        self._runs_own = self._executor.runs_own(claim)
        if self._runs_own:
            self.record_own_work()
        elif self._own_work_ran and self._last_function is None:
            self._guard.record_state()
            self._own_work_ran = False
        self._last_function, self._kind = function, (claim.item_type, claim.op)
        self._payload_start = (
            _PAYLOAD_START + msgspec.json.encode(function).decode() if claim.item_type == "function" else ""
        )
        return self._reason is None

    def _change(self) -> str | None:
        """Return the reason to replace the process after what ran last."""
        last_function, self._last_function, self._kind = self._last_function, None, ("", "")
        if last_function is None:
            return None
        change = None if self._runs_own else self._guard.change()
        reason = f"a function changed {change}" if change else self._policy.leak_reason()
        return f"{reason} (last ran: {last_function[:80]!a})" if reason else None
