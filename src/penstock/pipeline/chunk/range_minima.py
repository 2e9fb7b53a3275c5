"""Range minima: the smallest key in a range, and the place of this key, without a scan of the whole range."""

from __future__ import annotations

from array import array
from typing import TypeAlias

_WIDTH = 64
"""Number of keys, or minima, under one minimum of the level above."""

Keys: TypeAlias = "array[int]"


class Minima:
    """Levels of minima over an array of keys: the keys, the minimum of each 64 of them, and so on.

    Without them, cutting a text with steadily rising keys takes quadratic time.
    """

    def __init__(self, keys: Keys) -> None:
        self._levels = [keys]
        while len(keys) > 2 * _WIDTH:
            keys = array("Q", (min(keys[at : at + _WIDTH]) for at in range(0, len(keys), _WIDTH)))
            self._levels.append(keys)

    def lowest(self, low: int, high: int, level: int = 0) -> int:
        """The smallest key of a range, which must not be empty."""
        keys = self._levels[level]
        if high - low <= 2 * _WIDTH:
            return min(keys[low:high])
        first, last = -(-low // _WIDTH), high // _WIDTH
        between = self.lowest(first, last, level + 1)
        return min([between, *keys[low : first * _WIDTH], *keys[last * _WIDTH : high]])

    def first(self, lowest: int, low: int, high: int, level: int = 0) -> int | None:
        """The first place of ``lowest`` in a range without smaller keys."""
        keys = self._levels[level]
        if high - low <= 2 * _WIDTH:
            return _first(keys, lowest, low, high)
        first, last = -(-low // _WIDTH), high // _WIDTH
        found = _first(keys, lowest, low, first * _WIDTH)
        if found is None:
            block = self.first(lowest, first, last, level + 1)
            start, stop = (last, high) if block is None else (block, (block + 1) * _WIDTH)
            found = _first(keys, lowest, start * _WIDTH, stop)
        return found

    def last(self, lowest: int, low: int, high: int, level: int = 0) -> int | None:
        """The last place of ``lowest`` in a range without smaller keys."""
        keys = self._levels[level]
        if high - low <= 2 * _WIDTH:
            return _last(keys, lowest, low, high)
        first, last = -(-low // _WIDTH), high // _WIDTH
        found = _last(keys, lowest, last * _WIDTH, high)
        if found is None:
            block = self.last(lowest, first, last, level + 1)
            start, stop = (low, first) if block is None else (block * _WIDTH, block + 1)
            found = _last(keys, lowest, start, stop * _WIDTH)
        return found


def _first(keys: Keys, key: int, low: int, high: int) -> int | None:
    some = keys[low:high]
    return low + some.index(key) if key in some else None


def _last(keys: Keys, key: int, low: int, high: int) -> int | None:
    some = keys[low:high][::-1]
    return high - 1 - some.index(key) if key in some else None
