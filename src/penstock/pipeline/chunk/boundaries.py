"""Content-defined boundaries: cuts are chosen by the text around them, not by counting from the start.

A text is a sequence of units (paragraphs, headings, lines …), none longer than a chunk. The start of each
unit is a possible cut. Its key is a rank (how good a place it is) and a hash of the words there. A start
becomes a cut if its key is the smallest within reach on both sides. So a cut depends only on the text within
reach: an edit moves cuts near it and no others. Stretches that are still too long are split in two, again at
the smallest key.
"""

from __future__ import annotations

import bisect
import zlib
from array import array
from collections import deque
from collections.abc import Iterable
from typing import TypeAlias

from penstock.pipeline.chunk.range_minima import Keys, Minima

VERSION = "1"
"""Version of every chunker: all share the rule above. Changes when the same text may be cut elsewhere."""

REACH = 0.3
"""Share of the chunk size. A larger reach makes chunks fuller, but an edit moves cuts further away."""

HASHED = 64
"""Characters of a unit that its key depends on. A change after them moves no cut."""

HEADING = 0
"""Ranks: a smaller rank is a better place to cut. A heading of level n has rank n - 1."""
PARAGRAPH = 8
LINE = 10
SENTENCE = 11
WORD = 12
AFTER_HEADING = 13
"""A poor place: a heading should not end a chunk."""
ANYWHERE = 14


_SCANNED = 256
"""Up to this many units, the best one is found by a plain scan."""

Starts: TypeAlias = "array[int]"


class Units:
    """Places where a text may be cut, in rising order. Each unit ends at the start of the next.

    Two arrays instead of an object per unit: a file of short lines has tens of millions of units.
    """

    __slots__ = ("ranks", "starts")

    def __init__(self, places: Iterable[tuple[int, int]] = ()) -> None:
        self.starts: Starts = array("I")
        self.ranks = bytearray()
        """Rank of each start as a place to cut."""
        for start, rank in places:
            self.add(start, rank)

    def add(self, start: int, rank: int) -> None:
        self.starts.append(start)
        self.ranks.append(rank)

    def __len__(self) -> int:
        return len(self.ranks)


def cuts(text: str, units: Units, size: int) -> list[int]:
    """Offsets where chunks begin, including the start of the first unit."""
    if not units:
        return []
    if len(text) - units.starts[0] <= size:
        return [units.starts[0]]
    starts = array("I", units.starts)
    starts.append(len(text))
    crc32 = zlib.crc32
    keys = array(
        "Q",
        (
            rank << 32 | crc32(text[start : start + HASHED].encode("utf-8", "surrogatepass"))
            for start, rank in zip(units.starts, units.ranks, strict=True)
        ),
    )
    chosen = _lowest_within_reach(starts, keys, int(size * REACH))
    return [starts[index] for index in _split_long(starts, keys, chosen, size)]


def _lowest_within_reach(starts: Starts, keys: Keys, reach: int) -> list[int]:
    """Indexes of units with no smaller key within ``reach``. Of equal keys, the first counts as smaller.

    Both ends of the text count as smaller than every key, so that no sliver is cut off there.
    """
    free = _lowest_to_the_right(starts, keys, reach)
    chosen = [0]
    lower: deque[int] = deque()
    for index, key in enumerate(keys):
        start = starts[index]
        while lower and keys[lower[-1]] > key:
            lower.pop()
        # Units out of reach no longer matter.
        while lower and start - starts[lower[0]] >= reach:
            lower.popleft()
        if index and free[index] and not lower and start - starts[0] >= reach:
            chosen.append(index)
        lower.append(index)
    return chosen


def _lowest_to_the_right(starts: Starts, keys: Keys, reach: int) -> bytearray:
    """1 for each unit without a smaller key in the next ``reach`` characters."""
    free = bytearray(len(keys))
    waiting: deque[int] = deque()
    for index, key in enumerate(keys):
        start = starts[index]
        while waiting and start - starts[waiting[0]] >= reach:
            free[waiting.popleft()] = 1
        while waiting and keys[waiting[-1]] > key:
            waiting.pop()
        waiting.append(index)
    for index in waiting:
        free[index] = starts[len(keys)] - starts[index] >= reach
    return free


def _split_long(starts: Starts, keys: Keys, chosen: list[int], size: int) -> list[int]:
    """Add cuts to the chosen ones until every chunk is within ``size``."""
    margin = int(size * REACH / 2)
    found = []
    best = _SplitPoint(starts, keys, margin)
    spans = list(zip(chosen, [*chosen[1:], len(keys)], strict=True))[::-1]
    while spans:
        first, last = spans.pop()
        if last - first == 1 or starts[last] - starts[first] <= size:
            found.append(first)
            continue
        middle = best.between(first, last)
        spans += [(middle, last), (first, middle)]
    return found


class _SplitPoint:
    """Finds where to split a stretch: the smallest key not too near an end; of equal keys, the middle one."""

    def __init__(self, starts: Starts, keys: Keys, margin: int) -> None:
        self._starts = starts
        self._keys = keys
        self._margin = margin
        self._minima: Minima | None = None

    def between(self, first: int, last: int) -> int:
        starts = self._starts
        low = bisect.bisect_left(starts, starts[first] + self._margin, first + 1, last)
        high = bisect.bisect_right(starts, starts[last] - self._margin, low, last)
        if low == high:
            low, high = first + 1, last
        centre = bisect.bisect_left(starts, (starts[first] + starts[last]) // 2, low, high)
        # Repetitive text has many equal keys: preferring one side would cut sliver after sliver.
        before, after = self._nearest(low, centre, high)
        if before is not None and (after is None or centre - before < after - centre):
            return before
        return centre if after is None else after

    def _nearest(self, low: int, centre: int, high: int) -> tuple[int | None, int | None]:
        """Nearest places of the smallest key: the last one before ``centre`` and the first one after."""
        if high - low > _SCANNED:
            minima = self._minima = self._minima or Minima(self._keys)
            lowest = minima.lowest(low, high)
            return minima.last(lowest, low, centre), minima.first(lowest, centre, high)
        before, after = self._keys[low:centre][::-1], self._keys[centre:high]
        lowest = min(self._keys[low:high])
        return (
            centre - 1 - before.index(lowest) if lowest in before else None,
            centre + after.index(lowest) if lowest in after else None,
        )
