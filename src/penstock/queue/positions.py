"""Positions of several jobs, and additions with their positions, for engines without a batch read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from penstock.job import AddResult, NewJob, Position, QueueLimits
from penstock.queue.protocol import NO_LIMITS


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
