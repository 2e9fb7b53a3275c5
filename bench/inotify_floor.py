"""The shortest wake-up there is on Linux: inotify on a directory, for one file's writes."""

from __future__ import annotations

import ctypes
import os
import select
from pathlib import Path

_IN_MODIFY = 0x2


class Bell:
    def __init__(self, directory: Path, *, only: str) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if libc.inotify_add_watch(self._fd, os.fsencode(directory), _IN_MODIFY) < 0:
            raise OSError(ctypes.get_errno(), f"cannot watch {directory}")
        self._name = only.encode()
        self._poll = select.poll()
        self._poll.register(self._fd, select.POLLIN)

    def wait(self, timeout: float) -> None:
        while self._poll.poll(int(timeout * 1000)):
            if self._name in os.read(self._fd, 65536):
                return

    def close(self) -> None:
        os.close(self._fd)
