"""Figures of each side: every run of every step, and the medians."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable

import msgspec

STEPS = ("first", "unchanged", "edited", "renamed", "deleted", "killed")
HEADS = {
    "first": "first index",
    "unchanged": "unchanged re-run",
    "edited": "one edited file",
    "renamed": "renamed folder",
    "deleted": "deleted file",
    "killed": "killed at half, run again",
}


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a step. ``wrong``: the difference between index and folder afterwards, or nothing."""

    cpu_s: float
    wall_s: float
    memory_mb: float
    embedded: int
    wrong: str


class Figures(msgspec.Struct, kw_only=True):
    name: str
    corpus: str
    version: str = ""
    chunks: int = 0
    """Chunks in the index after the first run."""
    steps: dict[str, list[Run]] = {}
    trouble: str = ""
    """The reason why not everything was measured."""

    def median(self, step: str, value: Callable[[Run], float]) -> float | None:
        runs = self.steps.get(step, [])
        return statistics.median(map(value, runs)) if runs else None

    def cpu_s(self, step: str) -> float | None:
        return self.median(step, lambda run: run.cpu_s)

    def embedded(self, step: str) -> float | None:
        return self.median(step, lambda run: run.embedded)

    def wrong(self, step: str) -> str:
        return next((run.wrong for run in self.steps.get(step, []) if run.wrong), "")

    def memory_mb(self) -> float | None:
        """The most memory of any step that was not killed."""
        runs = [run for step, some in self.steps.items() if step != "killed" for run in some]
        return max((run.memory_mb for run in runs), default=None)


def joined(figures: Iterable[Figures]) -> list[Figures]:
    """Join figures of several runs: the later run of a step replaces the earlier one."""
    found: dict[tuple[str, str], Figures] = {}
    for each in figures:
        key = (each.corpus, each.name)
        if key in found:
            steps = found[key].steps | each.steps
            each = msgspec.structs.replace(each, steps=steps, chunks=each.chunks or found[key].chunks)
        found[key] = each
    return list(found.values())
