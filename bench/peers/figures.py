"""What was measured of one contender on one store, and the numbers made of it."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import msgspec

MORE = 5
"""Times the shortest backlog, from which on it says something how a longer one compares."""


class Behind(msgspec.Struct, frozen=True):
    rates: list[float]
    jobs: int
    """How many could be added in the time there was."""


class Figures(msgspec.Struct, kw_only=True):
    """Every run, not only the medians. An empty list: not measured."""

    name: str
    store: str
    version: str = ""
    trouble: str = ""
    """Why nothing, or not everything, was measured."""
    one: list[float] = []
    many: list[float] = []
    drain: dict[int, list[float]] = {}
    cpu_ms: list[float] = []
    moments: list[float] = []
    counted: dict[str, list[float]] = {}
    backlog: dict[int, Behind] = {}
    """By the number that was wanted."""
    again_s: float | None = None
    waited_s: float | None = None
    """How long it was waited for in vain."""


def median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def quantile(values: Sequence[float], part: float) -> float | None:
    """The smallest value that at least this part of them does not exceed."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[max(0, -int(-part * len(ordered) // 1) - 1)]


def kept(figures: Figures, behind: int) -> float | None:
    """The part of its rate that is left with so many jobs behind.

    The best runs are compared: what else the machine does only ever slows one down, and two numbers that are
    minutes apart do not share it.
    """
    least, found = figures.backlog.get(min(figures.backlog, default=0)), figures.backlog.get(behind)
    if least is None or found is None or found.jobs < MORE * least.jobs:
        return None
    return max(found.rates) / max(least.rates)


def short_of(figures: Figures, behind: int) -> int | None:
    """How many were behind, where it were fewer than wanted."""
    found = figures.backlog.get(behind)
    return found.jobs if found is not None and found.jobs < behind else None


def joined(earlier: Figures, later: Figures) -> Figures:
    """What the later one has measured counts."""
    changes = {}
    for name in later.__struct_fields__:
        value = getattr(later, name)
        if isinstance(value, dict):
            changes[name] = getattr(earlier, name) | value
        elif value:
            changes[name] = value
    return msgspec.structs.replace(earlier, **changes)
