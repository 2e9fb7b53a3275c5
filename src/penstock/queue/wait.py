"""Waiting: for a state of a queue, and for events shared by several threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from penstock.queue.protocol import Queue

LONGEST_SLEEP_S = 0.5
SHORTEST_PAUSE_S = 0.01


def wait_for(queue: Queue, is_reached: Callable[[], bool], timeout: float | None) -> bool:
    """Wait until ``is_reached``; False after ``timeout`` seconds."""
    started = time.monotonic()
    while not is_reached():
        left = LONGEST_SLEEP_S if timeout is None else started + timeout - time.monotonic()
        if left <= 0:
            return False
        if queue.wait(min(left, LONGEST_SLEEP_S)):
            # In a busy queue every wait returns at once; checking on every change would be a busy loop.
            time.sleep(min(left, SHORTEST_PAUSE_S))
    return True


class SharedWait:
    """Event counter for threads with one source of events: one thread watches and wakes the others.

    A caller passes the count it has seen, so that no event is missed between two waits.
    """

    def __init__(self) -> None:
        self._turn = threading.Condition()
        self._watched = False
        self.events = 0

    def wait(self, seen: int, timeout: float, watch: Callable[[float], bool]) -> bool:
        """Wait until there are other events than ``seen``, at most ``timeout`` seconds.

        ``watch`` blocks for at most the given seconds and returns whether an event came. One thread at a time
        runs it; when that one returns, another takes its place.
        """
        deadline = time.monotonic() + timeout
        with self._turn:
            self._turn.wait_for(lambda: self.events != seen or not self._watched, timeout)
            if self.events != seen or self._watched:
                if not self._watched:
                    # This thread may be the one that was woken to watch.
                    self._turn.notify()
                return self.events != seen
            self._watched = True
        happened = False
        try:
            happened = watch(max(0.0, deadline - time.monotonic()))
        finally:
            with self._turn:
                self._watched = False
                if happened:
                    self.events += 1
                    self._turn.notify_all()
                else:
                    self._turn.notify()
        return happened

    def add_event(self) -> None:
        """Count an external event, and wake all waiting threads."""
        with self._turn:
            self.events += 1
            self._turn.notify_all()
