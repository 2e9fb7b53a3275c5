"""Whose turn it is: a supervisor's duties, each with its own rhythm."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable

from penstock.errors import DiskFull, StoreUnavailable

log = logging.getLogger("penstock.worker")

AWAY = (StoreUnavailable, DiskFull)
"""What passes by itself. Any other error of the store stops the worker."""


class _Duty:
    def __init__(self, every_s: float, do: Callable[[], bool | None], spread: float) -> None:
        self.every_s = every_s
        self.do = do
        self.spread = spread
        self.due_at = 0.0


class Schedule:
    def __init__(self) -> None:
        self._duties: list[_Duty] = []

    def add(self, every_s: float, do: Callable[[], bool | None], *, spread: float = 0.0) -> None:
        """``do`` answers True when there is more to do at once. ``spread`` keeps many workers apart."""
        self._duties.append(_Duty(every_s, do, spread))

    def run_due(self, now: float) -> None:
        for duty in self._duties:
            if now >= duty.due_at:
                duty.due_at = now + duty.every_s * random.uniform(1 - duty.spread, 1 + duty.spread)
                if patiently(duty.do):
                    duty.due_at = now


def patiently(do: Callable[[], bool | None]) -> bool | None:
    """A store that is away fails a duty, not the supervisor; leases outlast a short absence."""
    try:
        return do()
    except AWAY as error:
        log.warning("the store is away: %s", error)
        return None
