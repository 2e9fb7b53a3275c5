"""Outages of the store: a call is repeated until the store is available again."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable

from penstock.worker.outbox import OUTAGE

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 10.0
LONGEST_OUTAGE_S = 60.0
"""After an outage this long the process ends: the outage may be its own, and a new process may recover."""

log = logging.getLogger("penstock.worker")


class OutageRetry:
    """Repeats calls of the store. A short outage costs time, not the process."""

    # Bound here, out of reach of handlers that replace them in their module and do not restore them.
    _now = staticmethod(time.monotonic)
    _sleep = staticmethod(time.sleep)

    def __init__(self, leaving: Callable[[], bool]) -> None:
        self._leaving = leaving

    def __call__(self, attempt: Callable[[], object]) -> None:
        pause, give_up_at = FIRST_PAUSE_S, self._now() + LONGEST_OUTAGE_S
        while True:
            try:
                attempt()
                return
            except OUTAGE as error:
                if self._leaving() or self._now() > give_up_at:
                    raise
                log.warning("the store is unavailable, next attempt in %.1f s: %s", pause, error)
                self._sleep(pause * random.uniform(0.5, 1.0))
                pause = min(pause * 2, LONGEST_PAUSE_S)
