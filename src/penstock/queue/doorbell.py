"""Waking a process when a directory's files change, on one machine, without a server.

The bell only says "look again": ``changed`` decides whether anything happened. Linux's inotify rings it at
once; elsewhere it is a poll that slows down while nothing happens.
"""

from __future__ import annotations

import ctypes
import os
import select
import sys
import time
from collections.abc import Callable
from pathlib import Path

_MODIFY, _MOVED_TO, _CREATE = 0x2, 0x80, 0x100
_NONBLOCK_CLOEXEC = os.O_NONBLOCK | getattr(os, "O_CLOEXEC", 0)
FASTEST_POLL_S, SLOWEST_POLL_S = 0.002, 0.025


class Doorbell:
    def __init__(self, directory: Path, changed: Callable[[], bool]) -> None:
        self._directory = directory
        self._changed = changed
        self._fd: int | None = None
        self._pid = 0

    def wait(self, timeout: float) -> bool:
        """Whether something changed before the time was up."""
        deadline = time.monotonic() + timeout
        # Armed before the first look, so that nothing can happen between looking and waiting.
        fd = self._armed()
        pause = FASTEST_POLL_S
        while not self._changed():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            if fd is None:
                time.sleep(min(pause, left))
                pause = min(pause * 1.2, SLOWEST_POLL_S)
            else:
                self._listen(fd, left)
        return True

    def _listen(self, fd: int, left: float) -> None:
        ready = select.poll()
        ready.register(fd, select.POLLIN)
        if ready.poll(left * 1000):
            try:
                os.read(fd, 65536)
            except BlockingIOError:
                return

    def _armed(self) -> int | None:
        if self._pid != os.getpid():
            # A forked child must not eat its parent's events.
            self._pid, self._fd = os.getpid(), _inotify(self._directory)
        return self._fd

    def close(self) -> None:
        if self._fd is not None and self._pid == os.getpid():
            os.close(self._fd)
        self._fd, self._pid = None, 0


def _inotify(directory: Path) -> int | None:
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    fd: int = libc.inotify_init1(_NONBLOCK_CLOEXEC)
    if fd < 0:
        return None
    mask = _MODIFY | _MOVED_TO | _CREATE
    if libc.inotify_add_watch(fd, os.fsencode(directory), ctypes.c_uint32(mask)) < 0:
        os.close(fd)
        return None
    return fd
