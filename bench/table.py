"""The report as an aligned table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bench.results import Line

HEAD = tuple("engine|what|ours|floor|unit|compared|spread|budget||by CPU|CPU µs a job|bytes a job".split("|"))
_LEFT = frozenset({0, 1, 4, 8})
_BOUND = {"over": "≥ {:.2f}", "less": "≤ +{:g} ms", "alone": "< {:g} %", "most": "≤ {:g}"}


def rendered(lines: Iterable[Line]) -> str:
    cells = [HEAD, *(_cells(line) for line in lines)]
    widths = [max(len(row[at]) for row in cells) for at in range(len(HEAD))]
    return "\n".join(_aligned(row, widths) for row in cells)


def _aligned(row: Sequence[str], widths: Sequence[int]) -> str:
    parts = [
        text.ljust(width) if at in _LEFT else text.rjust(width)
        for at, (text, width) in enumerate(zip(row, widths, strict=True))
    ]
    return "  ".join(parts).rstrip()


def _cells(line: Line) -> tuple[str, ...]:
    return (
        line.engine,
        line.what,
        _number(line.ours, line.unit),
        _number(line.floor, line.unit),
        line.unit,
        _compared(line, line.compared),
        "–".join(_compared(line, end) for end in line.spread),
        "" if line.budget is None else _BOUND[line.how].format(line.budget),
        {None: "", True: "met", False: "MISSED"}[line.met],
        "" if line.compared_by_cpu is None else f"{line.compared_by_cpu:.2f}",
        _two(line.cpu_us_per_job, ".1f"),
        _two(line.bytes_written_per_job, ",.0f"),
    )


def _number(value: float, unit: str) -> str:
    return f"{value:,.0f}" if unit == "jobs/s" else f"{value:.3f}" if unit == "" else f"{value:.2f}"


def _compared(line: Line, value: float) -> str:
    return f"{value:+.2f}" if line.how == "less" else f"{value:.3f}" if line.unit == "" else f"{value:.2f}"


def _two(values: tuple[float, float] | None, form: str) -> str:
    return "" if values is None else f"{values[0]:{form}} / {values[1]:{form}}"
