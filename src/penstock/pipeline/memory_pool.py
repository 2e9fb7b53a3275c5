"""Memory for large files and for OCR, shared by the processes of a worker through file locks.

The pool is divided into equal pieces, each with a lock of its own. A large file takes all pieces; a page to
be recognized takes as many as it needs. The system releases the locks of a process that dies.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable
from contextlib import suppress

from penstock import clock

PIECE_BYTES = 32 << 20
WAIT_S = 3.0
"""Longest wait for pieces. A file or page that does not get them is released, so others can be read."""
POLL_S = 0.02


class MemoryInUse(Exception):
    """Raised while other processes of this worker use the memory; a later attempt may succeed."""


class MemoryPool:
    """The pieces held by one process.

    A process that waits for pieces holds a further lock, the turn, and no other takes pieces meanwhile. So
    many small requests cannot starve a large one, nor the other way round.
    """

    def __init__(self, path: str, total_bytes: int) -> None:
        self._path = path
        self.pieces = max(total_bytes // PIECE_BYTES, 1)
        self._turn = self._pages = -1
        self._locks: list[int] = []
        self._held: list[int] = []
        self._on_release: Callable[[], None] | None = None

    def take(self, pieces: int | None = None, on_release: Callable[[], None] | None = None) -> None:
        """Take pieces, all of them by default. Raises ``MemoryInUse`` after some seconds.

        ``on_release``: frees the memory in use. With it, the pieces stay with this process after
        ``pause``, for the next request of the same kind.
        """
        wanted = self.pieces if pieces is None else min(pieces, self.pieces)
        if self._keeps(wanted, on_release):
            return
        self.release()
        self._open()
        self._wait_for(wanted, on_release)

    def take_for_pages(self, on_release: Callable[[], None]) -> None:
        """Take all pieces as ``take`` does, for pages of a large document, which stays open.

        Raises ``MemoryInUse`` at once if another process reads such pages. If both waited for each other,
        each would open its document again for every few pages.
        """
        if self._keeps(self.pieces, on_release):
            return
        self.release()
        self._open()
        if not _acquired([self._pages], 1, 0.0):
            raise MemoryInUse("another process of this worker reads pages of a large document")
        try:
            self._wait_for(self.pieces, on_release)
        except BaseException:
            fcntl.flock(self._pages, fcntl.LOCK_UN)
            raise

    def _keeps(self, wanted: int, on_release: Callable[[], None] | None) -> bool:
        return bool(self._held) and on_release is not None and len(self._held) >= wanted

    def _wait_for(self, wanted: int, on_release: Callable[[], None] | None) -> None:
        until = clock.elapsed_s() + WAIT_S
        if not _acquired([self._turn], 1, until):
            raise MemoryInUse("another file waits for memory of this worker")
        try:
            self._held = _acquired(self._locks, wanted, until)
        finally:
            fcntl.flock(self._turn, fcntl.LOCK_UN)
        if not self._held:
            raise MemoryInUse("another process of this worker is parsing a large file")
        self._on_release = on_release

    def pause(self) -> None:
        """Release the pieces, if another process waits for some."""
        if self._held:
            if _acquired([self._turn], 1, 0.0):
                fcntl.flock(self._turn, fcntl.LOCK_UN)
            else:
                self.release()

    def release(self) -> None:
        """Release the pieces, after the memory was freed."""
        on_release, self._on_release = self._on_release, None
        if on_release is not None:
            on_release()
        if self._held:
            for lock in (*self._held, self._pages):
                fcntl.flock(lock, fcntl.LOCK_UN)
        self._held = []

    def _open(self) -> None:
        # Not before they are needed: a forked process must not share the locks of its parent.
        if self._turn < 0:
            self._turn = _opened(f"{self._path}.turn")
            self._pages = _opened(f"{self._path}.pages")
            self._locks = [_opened(self._path)]
            self._locks += [_opened(f"{self._path}.{number}") for number in range(1, self.pieces)]

    def close(self) -> None:
        """Release the pieces and close the lock files."""
        self.release()
        for lock in (self._turn, self._pages, *self._locks):
            if lock >= 0:
                os.close(lock)
        self._turn, self._pages, self._locks = -1, -1, []


def _opened(path: str) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _acquired(locks: list[int], wanted: int, until: float) -> list[int]:
    """Acquire this many of the locks; none if not possible in time."""
    held: list[int] = []
    while True:
        for lock in locks:
            if lock not in held and len(held) < wanted:
                with suppress(BlockingIOError):
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    held.append(lock)
        if len(held) == wanted:
            return held
        if clock.elapsed_s() >= until:
            for lock in held:
                fcntl.flock(lock, fcntl.LOCK_UN)
            return []
        time.sleep(POLL_S)
