"""Culprits: which jobs of an execution answer for its delay, and how they end. Pure: no clock, no signals.

A batch of files says which file it is parsing. Then that file's job answers alone, for its own time only, and
the others are released unspent.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock import lifecycle
from penstock.job import Job, Settlement
from penstock.pipeline import budget
from penstock.worker.dead_workers import Verdict
from penstock.worker.shared_state import Execution, FileRun

BACKSTOP_S = 2.0
"""CPU time beyond its budget that a file gets: before that, its own process interrupts it."""
STUCK = "its batch took too long; it runs alone now"


class Culprits(NamedTuple):
    indexes: frozenset[int]
    verdict: Verdict


def late(doing: Execution, run: FileRun | None, lasted: float, cpu_seconds: float | None) -> Culprits | None:
    """Jobs that exceeded their time. ``lasted``: seconds since ``clock_start``; ``cpu_seconds``: what the
    process has used."""
    mark = run.mark if run is not None else None
    if mark is not None and cpu_seconds is not None:
        used = cpu_seconds - mark.cpu_started
        if used > mark.seconds + BACKSTOP_S:
            return Culprits(frozenset([mark.member]), _over_budget(mark.seconds))
    found = frozenset(index for index, member in enumerate(doing.members) if lasted > member.timeout_s)
    if not found:
        return None
    if run is None or len(doing.members) == 1:
        return Culprits(found, lifecycle.timed_out)
    if mark is None:
        # Between two files, where all of them are written: alone, each shows whether it is the slow one.
        return Culprits(frozenset(range(len(doing.members))), lambda job: lifecycle.suspected(job, STUCK))
    return Culprits(frozenset([mark.member]), lifecycle.timed_out) if mark.member in found else None


def clock_start(doing: Execution, run: FileRun | None) -> float:
    """When the timeout began to count: in a batch of files, with the file or write in hand."""
    return doing.started if run is None or len(doing.members) == 1 else max(run.since, doing.started)


def _over_budget(seconds: float) -> Verdict:
    error = budget.time_exceeded(seconds)

    def verdict(job: Job) -> Settlement:
        return lifecycle.failed(job, error.code, f"{type(error).__name__}: {error.message}")

    return verdict
