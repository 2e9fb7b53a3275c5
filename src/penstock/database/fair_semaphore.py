"""Fair semaphore: threads are served in order of arrival.

``threading.Semaphore`` lets a thread that releases acquire again before the one it woke: under steady use
some threads never get their turn.
"""

from __future__ import annotations

import threading
from collections import deque


class FairSemaphore:
    """A semaphore with a queue of waiting threads."""

    def __init__(self, value: int) -> None:
        self._free = value
        self._lock = threading.Lock()
        self._waiting: deque[threading.Event] = deque()

    def acquire(self, timeout: float | None = None) -> bool:
        """Wait for a turn; ``timeout`` None: for ever. False: timeout."""
        with self._lock:
            if self._free:
                self._free -= 1
                return True
            turn = threading.Event()
            self._waiting.append(turn)
        try:
            given = turn.wait(timeout)
        except BaseException:
            # A signal's handler raised. A turn that came meanwhile goes to the next thread.
            if not self._leave(turn):
                self.release()
            raise
        # It may have come just after the time was over.
        return given or not self._leave(turn)

    def _leave(self, turn: threading.Event) -> bool:
        with self._lock:
            if turn in self._waiting:
                self._waiting.remove(turn)
                return True
        return False

    def has_waiting(self) -> bool:
        return bool(self._waiting)

    def release(self) -> None:
        with self._lock:
            if self._waiting:
                self._waiting.popleft().set()
            else:
                self._free += 1
