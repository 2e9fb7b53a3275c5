"""Waiting for a state of the queue, with the queue's own wake-up as the hint."""

from __future__ import annotations

import time
from collections.abc import Callable

from penstock.queue.protocol import Queue

LONGEST_SLEEP_S = 0.5
SHORTEST_PAUSE_S = 0.01


def wait_for(queue: Queue, reached: Callable[[], bool], timeout: float | None) -> bool:
    """True once ``reached``, False when ``timeout`` seconds went by before."""
    started = time.monotonic()
    while not reached():
        left = LONGEST_SLEEP_S if timeout is None else started + timeout - time.monotonic()
        if left <= 0:
            return False
        if queue.wait(min(left, LONGEST_SLEEP_S)):
            # In a busy queue the hint is true all the time; asking on every change would be a busy loop.
            time.sleep(min(left, SHORTEST_PAUSE_S))
    return True
