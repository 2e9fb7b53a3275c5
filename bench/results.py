"""Lines of the report: both sides' medians, how they compare, and the budget."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

import msgspec

from bench.samples import Pair, Sample


class Line(msgspec.Struct, kw_only=True):
    """``compared`` is ours over the floor, ours less the floor, or ours alone, as ``how`` says.

    ``compared_by_cpu`` says the same of CPU time: blind to the disk, but steady on a busy machine.
    """

    engine: str
    what: str
    unit: str
    ours: float
    floor: float
    how: str
    compared: float
    spread: tuple[float, float]
    budget: float | None = None
    met: bool | None = None
    ours_runs: list[float]
    floor_runs: list[float]
    cpu_us_per_job: tuple[float, float] | None = None
    bytes_written_per_job: tuple[float, float] | None = None
    compared_by_cpu: float | None = None


def rates(engine: str, what: str, pair: Pair, *, budget: float | None = None) -> Line:
    line = _ratio(engine, what, "jobs/s", [s.rate for s in pair.ours], [s.rate for s in pair.floor], budget)
    line.cpu_us_per_job = _both(pair, lambda sample: sample.cpu_us)
    line.bytes_written_per_job = _both(pair, lambda sample: sample.written_per_job)
    line.compared_by_cpu = line.cpu_us_per_job[1] / line.cpu_us_per_job[0]
    return line


def kept(engine: str, what: str, short: Pair, long: Pair, *, budget: float) -> Line:
    """Which part of its rate each side keeps, and ours over the floor's."""
    ours = [b.rate / a.rate for a, b in zip(short.ours, long.ours, strict=True)]
    floor = [b.rate / a.rate for a, b in zip(short.floor, long.floor, strict=True)]
    line = _ratio(engine, what, "kept", ours, floor, budget)
    before, after = (_both(pair, lambda sample: sample.cpu_us) for pair in (short, long))
    line.compared_by_cpu = (before[0] / after[0]) / (before[1] / after[1])
    return line


def delays(engine: str, what: str, ours: Sequence[float], floor: Sequence[float], *, budget: float) -> Line:
    apart = [a - b for a, b in zip(ours, floor, strict=True)]
    middle, ground = statistics.median(ours), statistics.median(floor)
    return Line(
        engine=engine,
        what=what,
        unit="ms",
        ours=middle,
        floor=ground,
        how="less",
        compared=middle - ground,
        spread=(min(apart), max(apart)),
        budget=budget,
        met=middle - ground <= budget,
        ours_runs=list(ours),
        floor_runs=list(floor),
    )


def share(engine: str, what: str, ours: Sequence[float], floor: Sequence[float], *, budget: float) -> Line:
    middle = statistics.median(ours)
    return Line(
        engine=engine,
        what=what,
        unit="%",
        ours=middle,
        floor=statistics.median(floor),
        how="alone",
        compared=middle,
        spread=(min(ours), max(ours)),
        budget=budget,
        met=middle < budget,
        ours_runs=list(ours),
        floor_runs=list(floor),
    )


def most(
    engine: str, what: str, unit: str, ours: Sequence[float], floor: Sequence[float], *, budget: float | None
) -> Line:
    middle = statistics.median(ours)
    return Line(
        engine=engine,
        what=what,
        unit=unit,
        ours=middle,
        floor=statistics.median(floor),
        how="most",
        compared=middle,
        spread=(min(ours), max(ours)),
        budget=budget,
        met=None if budget is None else middle <= budget,
        ours_runs=list(ours),
        floor_runs=list(floor),
    )


def counted(engine: str, what: str, ours: float, floor: float) -> Line:
    return _ratio(engine, what, "", [ours], [floor], None)


def _ratio(
    engine: str, what: str, unit: str, ours: Sequence[float], floor: Sequence[float], budget: float | None
) -> Line:
    pairs = [a / b for a, b in zip(ours, floor, strict=True)]
    ratio = statistics.median(ours) / statistics.median(floor)
    return Line(
        engine=engine,
        what=what,
        unit=unit,
        ours=statistics.median(ours),
        floor=statistics.median(floor),
        how="over",
        compared=ratio,
        spread=(min(pairs), max(pairs)),
        budget=budget,
        met=None if budget is None else ratio >= budget,
        ours_runs=list(ours),
        floor_runs=list(floor),
    )


def _both(pair: Pair, of: Callable[[Sample], float]) -> tuple[float, float]:
    return statistics.median(map(of, pair.ours)), statistics.median(map(of, pair.floor))
