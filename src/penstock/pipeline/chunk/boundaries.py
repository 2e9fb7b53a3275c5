"""Where to cut: at places chosen by what stands there, not by counting from the start.

A text is a row of units (paragraphs, headings, lines …), none longer than a chunk may be. Each unit's start
is a possible cut with a key: how good a place it is, then a hash of the words there. A start is cut when its
key is the smallest within reach on both sides. So whether there is a cut depends on the text within reach
alone: an edit moves cuts near itself, and further on all is as before. What is still too long between two
such cuts is halved, again at the smallest key.
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
"""Of every chunker, since all share the rule above: changes whenever the same text may be cut elsewhere."""

REACH = 0.3
"""Share of the chunk size. Larger makes chunks fuller and lets an edit move cuts further away."""

HASHED = 64
"""Characters of a unit that its key is made from. A change after them moves no cut."""

HEADING = 0
"""Ranks: smaller is a better place. A heading of level n has rank n - 1."""
PARAGRAPH = 8
LINE = 10
SENTENCE = 11
WORD = 12
AFTER_HEADING = 13
"""A heading should not be the end of a chunk."""
ANYWHERE = 14


_FEW = 256
"""Units among which the best is found by looking at each of them."""

Starts: TypeAlias = "array[int]"


class Units:
    """Places where a text may be cut, in rising order; each unit reaches to the next one's start.

    Two arrays and no object a unit: a file of short lines has tens of millions of them.
    """

    __slots__ = ("ranks", "starts")

    def __init__(self, places: Iterable[tuple[int, int]] = ()) -> None:
        self.starts: Starts = array("I")
        self.ranks = bytearray()
        """How good a place for a cut each start is."""
        for start, rank in places:
            self.add(start, rank)

    def add(self, start: int, rank: int) -> None:
        self.starts.append(start)
        self.ranks.append(rank)

    def __len__(self) -> int:
        return len(self.ranks)


def cuts(text: str, units: Units, size: int) -> list[int]:
    """The offsets where chunks begin, the first unit's included."""
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
    return [starts[index] for index in _halved(starts, keys, chosen, size)]


def _lowest_within_reach(starts: Starts, keys: Keys, reach: int) -> list[int]:
    """Indexes of units with no smaller key nearer than ``reach``; of equal ones the first counts as smaller.

    Both ends of the text count as smaller than everything: no sliver is cut off there.
    """
    free = _free_to_the_right(starts, keys, reach)
    chosen = [0]
    lower: deque[int] = deque()
    for index, key in enumerate(keys):
        start = starts[index]
        while lower and keys[lower[-1]] > key:
            lower.pop()
        # What is out of reach decides nothing any more.
        while lower and start - starts[lower[0]] >= reach:
            lower.popleft()
        if index and free[index] and not lower and start - starts[0] >= reach:
            chosen.append(index)
        lower.append(index)
    return chosen


def _free_to_the_right(starts: Starts, keys: Keys, reach: int) -> bytearray:
    """1 for each unit with no smaller key within ``reach`` after it."""
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


def _halved(starts: Starts, keys: Keys, chosen: list[int], size: int) -> list[int]:
    """The chosen cuts and as many more as it takes to keep every chunk within ``size``."""
    margin = int(size * REACH / 2)
    found = []
    best = _Best(starts, keys, margin)
    open_ends = list(zip(chosen, [*chosen[1:], len(keys)], strict=True))[::-1]
    while open_ends:
        first, last = open_ends.pop()
        if last - first == 1 or starts[last] - starts[first] <= size:
            found.append(first)
            continue
        middle = best.between(first, last)
        open_ends += [(middle, last), (first, middle)]
    return found


class _Best:
    """The smallest key not too near an end; of equal ones that nearest the middle."""

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
        # Text that repeats itself has many of them: leaning to one side would make one sliver after another.
        before, after = self._nearest(low, centre, high)
        if before is not None and (after is None or centre - before < after - centre):
            return before
        return centre if after is None else after

    def _nearest(self, low: int, centre: int, high: int) -> tuple[int | None, int | None]:
        """The places of the smallest key next to ``centre``: the last before it, the first after."""
        if high - low > _FEW:
            minima = self._minima = self._minima or Minima(self._keys)
            lowest = minima.lowest(low, high)
            return minima.last(lowest, low, centre), minima.first(lowest, centre, high)
        before, after = self._keys[low:centre][::-1], self._keys[centre:high]
        lowest = min(self._keys[low:high])
        return (
            centre - 1 - before.index(lowest) if lowest in before else None,
            centre + after.index(lowest) if lowest in after else None,
        )
