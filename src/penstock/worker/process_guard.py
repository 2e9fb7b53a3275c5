"""What keeps a child whole whatever a handler does to its process: signals, forks, directories, stdin."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # without the enums that signal makes
import ctypes
import os
import select
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from penstock.worker.process_state import ProcessState
from penstock.worker.shared_state import SharedState

# Bound here, out of reach of handlers that replace them in their module and forget to put them back.
_getpid, _getppid, _exit = os.getpid, os.getppid, os._exit
_fstat, _fchdir = os.fstat, os.fchdir
_setitimer, _getsignal = _signal.setitimer, _signal.getsignal
_PR_SET_PDEATHSIG = 1
_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)


class Stopped(BaseException):
    """The supervisor stops this execution, and says what becomes of its jobs. Not an error: nobody's."""


class ProcessGuard:
    def __init__(self, slot: SharedState, parent_pid: int) -> None:
        self._slot = slot
        self._parent_pid = parent_pid
        self._pid = os.getpid()
        # Held open, it can be returned to whatever became of its name.
        self._home = os.open(".", getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC)
        self._home_is = _identity(os.fstat(self._home))
        self._number = 0
        self._stopped = False
        self._listener = self._heard
        self._streams: dict[int, Any] = {}
        self._state: ProcessState | None = None
        self._outputs = select.poll()
        for fd in (1, 2):
            self._outputs.register(fd, 0)
        self.asked_to_leave = False
        self.robbed = False
        """A handler closed the descriptors of this process; the store's are among them."""

    def settle_in(self) -> None:
        """Make this process the child of its supervisor and nobody else's."""
        if os.getpid() != os.getpgrp():
            # What a handler starts belongs to its group, and goes when the child goes.
            os.setpgid(0, 0)
        if sys.platform.startswith("linux"):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        self.leave_with_parent()
        # The supervisor decides when to stop; a terminal's Ctrl-C, or its end, may reach everybody.
        self._listen()
        os.register_at_fork(after_in_child=_forget_signals)
        self._mend_stdin()
        self.mend_output()

    def take_stock(self) -> None:
        """Remember what this process is like and prints to, once the application is loaded."""
        self._streams = {1: sys.stdout, 2: sys.stderr}
        self._mend_streams()
        self._state = ProcessState()

    def restore(self) -> str | None:
        """Make the process fit for another function; the reason to end it where that is not possible."""
        return self._state.restore() if self._state is not None else None

    def _listen(self) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, self._listener)

    def leave_with_parent(self) -> None:
        if _getppid() != self._parent_pid:
            _exit(1)

    def _heard(self, _number: int, _frame: object) -> None:
        """The supervisor's SIGTERM is for one execution; anybody else's asks the whole child to finish."""
        if self._number and self._slot.condemned(self._number):
            self._stopped = True
            raise Stopped
        self.asked_to_leave = True

    @contextmanager
    def around(self, number: int) -> Iterator[None]:
        """A handler runs in here: it can be stopped, and what it did to the process is mended after it."""
        try:
            self._number = number
            yield
        finally:
            self._number = 0
            if _getpid() != self._pid:
                # The handler forked and both came back. One of them must not go on claiming.
                _exit(0)
            self._mend()
        if self._stopped:
            # The handler swallowed it; it does not get to say how the job ended.
            raise Stopped

    def intact(self) -> bool:
        """Whether the descriptors are still those of this process: one of them stands for all."""
        try:
            return _identity(_fstat(self._home)) == self._home_is
        except OSError:
            return False

    def _mend(self) -> None:
        if self._state is not None:
            self._state.restore_own()
        if not self.intact():
            self.robbed = True
            return
        for timer in _TIMERS:
            # Left running, it would kill the next job's process.
            _setitimer(timer, 0)
        listening = _getsignal(signal.SIGTERM) is self._listener
        if not listening or _getsignal(signal.SIGINT) != signal.SIG_IGN:
            self._listen()
        # Without a look at where it stands: that costs more.
        _fchdir(self._home)
        if sys.stdin is None or sys.stdin.closed:
            self._mend_stdin()
        out, err = self._streams[1], self._streams[2]
        if sys.stdout is not out or sys.stderr is not err or out.closed or err.closed:
            self._mend_streams()

    def _mend_stdin(self) -> None:
        _lead_nowhere(0, os.O_RDONLY)
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 - for the life of the process

    def mend_output(self) -> None:
        """Where nobody reads any more, or what was closed: printing must not fail a job, nor hit a file that
        was given the number.
        """
        for fd, _ in self._outputs.poll(0):
            _lead_nowhere(fd, os.O_WRONLY)

    def _mend_streams(self) -> None:
        self.mend_output()
        for fd, stream in self._streams.items():
            if getattr(stream, "closed", True):
                self._streams[fd] = open(fd, "w", errors="backslashreplace", closefd=False)  # noqa: SIM115
        sys.stdout, sys.stderr = self._streams[1], self._streams[2]


def _lead_nowhere(fd: int, flags: int) -> None:
    nowhere = os.open(os.devnull, flags)
    if nowhere != fd:
        os.dup2(nowhere, fd)
        os.close(nowhere)


def _identity(file: os.stat_result) -> tuple[int, int]:
    return file.st_dev, file.st_ino


def _forget_signals() -> None:
    # Whoever sends SIGTERM to a process that a handler forked means to end it.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
