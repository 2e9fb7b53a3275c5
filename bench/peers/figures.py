"""What was measured of one contender on one store, and the numbers made of it."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import msgspec


class Behind(msgspec.Struct, frozen=True):
    rate: float
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
    """The part of its rate that is left with so many jobs behind."""
    least = min(figures.backlog, default=0)
    if behind not in figures.backlog or behind == least or not figures.backlog[least].rate:
        return None
    return figures.backlog[behind].rate / figures.backlog[least].rate


def short_of(figures: Figures, behind: int) -> int | None:
    """How many were behind, where it were fewer than wanted."""
    found = figures.backlog.get(behind)
    return found.jobs if found is not None and found.jobs < behind else None
