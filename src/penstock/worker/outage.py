"""Outages of the store: a call is repeated until the store is available again."""

from __future__ import annotations

import logging
import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from penstock import clock
from penstock.errors import OUTAGES, InvalidText, PenstockError, SchemaMismatch, StatementRefused
from penstock.store_outage import TOLD_EVERY_S, StoreOutage, clear_outage, write_outage

OUTAGE: tuple[type[PenstockError], ...] = (*OUTAGES, SchemaMismatch, StatementRefused, InvalidText)
"""Errors of the store that a worker waits for: a switchover, a restart, a pooler, a disk, a changed right.

A statement that the server refuses is a fault of Penstock, and a value that it refuses is one of some row.
Waiting corrects neither, but other jobs go on, and the log and the status tell of it. A file of the store
that was lost or damaged ends the worker instead.
"""
T = TypeVar("T")

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 10.0
_LONGEST_OUTAGE_S = 60.0
"""After an outage this long the process ends: the outage may be its own, and a new process may recover."""

log = logging.getLogger("penstock.worker")


class OutageRetry:
    """Repeats calls of the store. A short outage costs time, not the process."""

    # Bound here, out of reach of handlers that replace them in their module and do not restore them.
    _now = staticmethod(time.monotonic)
    _sleep = staticmethod(time.sleep)

    def __init__(
        self,
        leaving: Callable[[], bool],
        told: Callable[[PenstockError | None], object] = lambda _: None,
        *,
        longest_s: float = _LONGEST_OUTAGE_S,
    ) -> None:
        """``told``: called with each error, and with None once a call succeeds again."""
        self._leaving = leaving
        self._told = told
        self._longest_s = longest_s

    def __call__(self, attempt: Callable[[], object]) -> None:
        pause, give_up_at, failed = _FIRST_PAUSE_S, self._now() + self._longest_s, False
        while True:
            try:
                attempt()
            except OUTAGE as error:
                failed = True
                self._told(error)
                if self._leaving() or self._now() > give_up_at:
                    raise
                told = (pause, error, error.code, error.remedy)
                log.warning("the store is unavailable, next attempt in %.1f s: %s (%s). %s", *told)
                self._sleep(pause * random.uniform(0.5, 1.0))
                pause = min(pause * 2, _LONGEST_PAUSE_S)
            else:
                if failed:
                    self._told(None)
                return


class OutageLog:
    """One outage of the store in the log: its beginning, a new reason, each minute, and its end.

    Many calls fail each second meanwhile. ``directory``: the workers' one, beside which the outage is written
    for ``penstock queue stats``.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self._directory = directory
        self._failing: set[object] = set()
        """The calls whose last attempt failed: the outage lasts until none is left."""
        self._told_at: dict[str, float] = {}
        """By code of the error."""
        self._since = clock.now()

    def attempt(self, run: Callable[[], T], name: object) -> T | None:
        """Make a call, or return None in an outage; leases outlast a short one. ``name`` is of the call."""
        try:
            answer = run()
        except OUTAGE as error:
            self._failed(error, name)
            return None
        if self._failing:
            self._failing.discard(name)
            if not self._failing:
                self._end()
        return answer

    def _failed(self, error: PenstockError, name: object) -> None:
        now, at = clock.now(), time.monotonic()
        if not self._failing:
            self._since = now
        self._failing.add(name)
        told_at = self._told_at.get(error.code)
        if told_at is not None and at - told_at < TOLD_EVERY_S:
            return
        self._told_at[error.code] = at
        log.warning("the store is unavailable: %s (%s). %s", error, error.code, error.remedy)
        if self._directory is not None:
            outage = StoreOutage(
                code=error.code,
                message=error.message,
                remedy=error.remedy,
                since=self._since,
                pid=os.getpid(),
            )
            write_outage(self._directory, outage)

    def _end(self) -> None:
        log.warning("the store is available again, after %.0f s", (clock.now() - self._since).total_seconds())
        self._told_at.clear()
        self.close()

    def close(self) -> None:
        """Remove what was written for ``penstock queue stats``: from here on nobody waits."""
        if self._directory is not None:
            clear_outage(self._directory)
