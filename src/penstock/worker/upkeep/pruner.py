"""Removes jobs that ended long ago, each status after its own time."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from penstock.job import Status
from penstock.queue.protocol import Queue


class Pruner:
    def __init__(self, queue: Queue, retention: Mapping[str, timedelta]) -> None:
        self._queue = queue
        self._retention = {Status(status): kept for status, kept in retention.items()}

    def step(self) -> bool:
        """One batch. A status without a retention time is kept for ever."""
        if not self._retention:
            return False
        now = self._queue.now()
        return self._queue.prune({status: now - kept for status, kept in self._retention.items()}) > 0
