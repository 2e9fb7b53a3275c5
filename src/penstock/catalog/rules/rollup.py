"""Rollup: the status of a page or document, from the states of the parts. Pure.

Per phase: any part processing → processing; else any pending or failed with retries left → pending; else any
failed for good → failed; else any completed → completed; else (all skipped, or there are none) → skipped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from penstock.catalog.values import TaskStatus
from penstock.named_tuple import NamedTuple

PROCESSING, WAITING, FAILED, COMPLETED, SKIPPED = range(5)
"""Counters of the states of parts. A parent keeps the number of parts in each but the last."""

WORDS = ("processing", "pending", "failed", "completed", "skipped")
"""The status of a part that counts so (one that failed with retries left waits, but says ``failed``)."""

_BY_STATUS: dict[str, int] = {
    TaskStatus.PROCESSING: PROCESSING,
    TaskStatus.PENDING: WAITING,
    TaskStatus.COMPLETED: COMPLETED,
    TaskStatus.SKIPPED: SKIPPED,
}


class PartCounts(NamedTuple):
    processing: int = 0
    waiting: int = 0
    failed: int = 0
    completed: int = 0

    def changed(self, delta: Iterable[int]) -> PartCounts:
        return PartCounts(*(count + change for count, change in zip(self, delta, strict=True)))

    @property
    def kind(self) -> int:
        """The counter in which the parent is counted."""
        if self.processing:
            return PROCESSING
        if self.waiting:
            return WAITING
        if self.failed:
            return FAILED
        return COMPLETED if self.completed else SKIPPED

    @property
    def status(self) -> TaskStatus:
        return TaskStatus(WORDS[self.kind])


def kind(status: str, retries_left: bool = False) -> int:
    """The counter in which a part, page or document of this ``status`` is counted."""
    if status == TaskStatus.FAILED:
        return WAITING if retries_left else FAILED
    return _BY_STATUS[status]


_ONE = tuple(PartCounts(*(int(kind == part) for kind in range(4))) for part in range(5))


class PartChanges:
    """Changes of parts, added up per parent."""

    def __init__(self) -> None:
        self._deltas: dict[int, list[int]] = {}

    def move(self, parent: int, before: int, after: int) -> None:
        if before != after:
            delta = self._deltas.setdefault(parent, [0, 0, 0, 0, 0])
            delta[before] -= 1
            delta[after] += 1

    def items(self) -> list[tuple[int, list[int]]]:
        """Parents with the changes of their counts; parents without a change are left out."""
        return [(parent, delta[:4]) for parent, delta in self._deltas.items() if any(delta)]


def counted(parts: Sequence[int]) -> PartCounts:
    if len(parts) == 1:
        return _ONE[parts[0]]
    return PartCounts(
        parts.count(PROCESSING), parts.count(WAITING), parts.count(FAILED), parts.count(COMPLETED)
    )
