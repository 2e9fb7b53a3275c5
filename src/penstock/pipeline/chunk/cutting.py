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
from typing import NamedTuple

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


class Unit(NamedTuple):
    """From ``start`` to the next unit's start; ``rank`` says how good a place for a cut its start is."""

    start: int
    rank: int


def cuts(text: str, units: list[Unit], size: int) -> list[int]:
    """The offsets where chunks begin, the first unit's included."""
    if not units:
        return []
    starts = [unit.start for unit in units]
    starts.append(len(text))
    if starts[-1] - starts[0] <= size:
        return starts[:1]
    keys = [_key(text, unit) for unit in units]
    chosen = _lowest_within_reach(starts, keys, int(size * REACH))
    return [starts[index] for index in _halved(starts, keys, chosen, size)]


def _key(text: str, unit: Unit) -> int:
    words = text[unit.start : unit.start + HASHED].encode("utf-8", "surrogatepass")
    return unit.rank << 32 | zlib.crc32(words)


def _lowest_within_reach(starts: list[int], keys: list[int], reach: int) -> list[int]:
    """Indexes of units with no smaller key nearer than ``reach``; of equal ones the first counts as smaller.

    Both ends of the text count as smaller than everything: no sliver is cut off there.
    """
    count = len(keys)
    free_to_the_right = [False] * count
    waiting: list[int] = []
    for index in range(count):
        while waiting and keys[waiting[-1]] > keys[index]:
            passed = waiting.pop()
            free_to_the_right[passed] = starts[index] - starts[passed] >= reach
        waiting.append(index)
    for index in waiting:
        free_to_the_right[index] = starts[count] - starts[index] >= reach
    chosen = [0]
    lower: list[int] = []
    for index in range(count):
        while lower and keys[lower[-1]] > keys[index]:
            lower.pop()
        before = lower[-1] if lower else 0
        if index and free_to_the_right[index] and starts[index] - starts[before] >= reach:
            chosen.append(index)
        lower.append(index)
    return chosen


def _halved(starts: list[int], keys: list[int], chosen: list[int], size: int) -> list[int]:
    """The chosen cuts and as many more as it takes to keep every chunk within ``size``."""
    margin = int(size * REACH / 2)
    found = []
    open_ends = list(zip(chosen, [*chosen[1:], len(keys)], strict=True))[::-1]
    while open_ends:
        first, last = open_ends.pop()
        if last - first == 1 or starts[last] - starts[first] <= size:
            found.append(first)
            continue
        middle = _best(starts, keys, first, last, margin)
        open_ends += [(middle, last), (first, middle)]
    return found


def _best(starts: list[int], keys: list[int], first: int, last: int, margin: int) -> int:
    """The smallest key not too near an end; of equal ones that nearest the middle."""
    low = bisect.bisect_left(starts, starts[first] + margin, first + 1, last)
    high = bisect.bisect_right(starts, starts[last] - margin, low, last)
    if low == high:
        low, high = first + 1, last
    centre = bisect.bisect_left(starts, (starts[first] + starts[last]) // 2, low, high)
    lowest = min(keys[low:high])
    # Text that repeats itself has many of them: leaning to one side would make one sliver after another.
    before, after = keys[low:centre][::-1], keys[centre:high]
    steps_back = before.index(lowest) + 1 if lowest in before else high
    steps_on = after.index(lowest) if lowest in after else high
    return centre - steps_back if steps_back < steps_on else centre + steps_on
