"""Claimable rows of a memory queue, in claim order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from penstock.job import Job
from penstock.queue.memory.lazy_heap import LazyHeap, Order, order


class ClaimableRows:
    """Heaps in claim order: for each priority the rows with a turn below zero, then those with a number.

    Only the heaps in use exist, as each claim looks at all of them.
    """

    def __init__(self, rows: Mapping[str, Job]) -> None:
        self._rows = rows
        self._heaps: dict[tuple[int, bool], LazyHeap[Order]] = {}

    def put(self, job: Job) -> None:
        place = -job.priority, job.turn >= 0
        heap = self._heaps.get(place)
        if heap is None:
            heap = self._heaps[place] = LazyHeap(self._rows, order)
            self._heaps = dict(sorted(self._heaps.items()))
        heap.put(job)

    def first(self, number: int) -> list[Job]:
        """Return the first rows, at most this number."""
        found: list[Job] = []
        for heap in self._heaps.values():
            found += heap.smallest(number - len(found))
            if len(found) == number:
                break
        return found

    def ordered(self) -> Iterator[Job]:
        """Yield all rows in order. Do not change rows while reading."""
        for heap in self._heaps.values():
            yield from heap.ordered()

    def heads(self) -> Iterator[Job]:
        """Yield the first row of each priority."""
        seen: int | None = None
        for (priority, _), heap in self._heaps.items():
            head = heap.first() if priority != seen else None
            if head is not None:
                seen = priority
                yield head

    def head_turn(self, priority: int) -> int | None:
        """Return the smallest number among the turns of a priority."""
        heap = self._heaps.get((-priority, True))
        head = heap.first() if heap else None
        return head.turn if head else None
