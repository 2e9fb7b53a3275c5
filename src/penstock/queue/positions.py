"""Positions of several jobs, and additions with their positions, for engines without a batch read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from penstock.job import AddResult, NewJob, Position, QueueLimits
from penstock.named_tuple import NamedTuple
from penstock.queue.protocol import NO_LIMITS


class Lengths(NamedTuple):
    """Numbers of pending jobs and of pending requests, both up to a bound."""

    jobs: int
    requests: int

    def position(
        self, jobs_ahead: int, is_request: bool, requests_ahead: Callable[[], int], cap: int
    ) -> Position:
        """The position of a pending job. ``requests_ahead`` is called only if other jobs wait as well."""
        if not is_request:
            return Position(jobs_ahead, self.jobs, jobs_ahead)
        if not jobs_ahead or self.jobs == self.requests or self.requests >= cap:
            return Position(jobs_ahead, self.requests, jobs_ahead)
        return Position(requests_ahead(), self.requests, jobs_ahead)


class CountedAdditions(ABC):
    """Methods of a queue on top of ``add`` and ``position``."""

    @abstractmethod
    def add(
        self,
        new: Sequence[NewJob],
        *,
        limits: QueueLimits = NO_LIMITS,
        connection: Any = None,
        now: datetime | None = None,
    ) -> list[AddResult]: ...

    @abstractmethod
    def position(self, queue_id: str) -> Position | None: ...

    def positions(self, ids: Sequence[str]) -> list[Position | None]:
        return [self.position(queue_id) for queue_id in ids]

    def add_counted(
        self, new: Sequence[NewJob], *, limits: QueueLimits = NO_LIMITS
    ) -> list[tuple[AddResult, Position | None]]:
        added = self.add(new, limits=limits)
        return list(zip(added, self.positions([one.queue_id for one in added]), strict=True))
