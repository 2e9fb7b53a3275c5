"""A heap whose entries can be taken out or moved by name."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Generic, TypeVar

K = TypeVar("K")


class LiveHeap(Generic[K]):
    """Names ordered by key, smallest first. What was moved or removed is skipped when it surfaces."""

    def __init__(self) -> None:
        self._heap: list[tuple[K, str]] = []
        self._live: dict[str, K] = {}

    def __len__(self) -> int:
        return len(self._live)

    def put(self, name: str, key: K) -> None:
        self._live[name] = key
        heapq.heappush(self._heap, (key, name))

    def discard(self, name: str) -> None:
        if self._live.pop(name, None) is not None and len(self._heap) > 2 * len(self._live) + 64:
            # Dead entries below the top never surface in a heap that is always in use.
            self._heap = [(key, name) for name, key in self._live.items()]
            heapq.heapify(self._heap)

    def first(self) -> tuple[K, str] | None:
        heap, live = self._heap, self._live
        while heap:
            key, name = heap[0]
            if live.get(name) == key:
                return heap[0]
            heapq.heappop(heap)
        return None

    def ordered(self) -> Iterator[tuple[K, str]]:
        """All entries in order; what is yielded stays in. Do not change the heap meanwhile."""
        taken: list[tuple[K, str]] = []
        try:
            while (entry := self.first()) is not None:
                heapq.heappop(self._heap)
                # The same name may have been put twice with one key.
                if not taken or taken[-1] != entry:
                    taken.append(entry)
                    yield entry
        finally:
            for entry in taken:
                heapq.heappush(self._heap, entry)
