"""Figures as columns, the same for the terminal and for the page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from bench.peers.field import FLOOR, MISSING
from bench.peers.figures import Figures, kept, median, quantile, short_of

NAMES = {
    "postgres": "PostgreSQL, files on disk",
    "postgres-memory": "PostgreSQL, files in memory",
    "redis": "Redis",
    "sqlite": "SQLite, files on disk",
    "sqlite-memory": "SQLite, files in memory",
}
NOTHING = "–"


class Column(msgspec.Struct, frozen=True):
    head: str
    value: Callable[[Figures], float | None]
    form: str
    more_is_better: bool
    stores: str = ""
    """Only on stores whose name begins so."""
    behind: int = 0


COLUMNS = (
    Column("enqueue one /s", lambda each: median(each.one), ",.0f", True),
    Column("bulk /s", lambda each: median(each.many), ",.0f", True),
    Column("drain, 1 worker /s", lambda each: median(each.drain.get(1, [])), ",.0f", True),
    Column("2 workers /s", lambda each: median(each.drain.get(2, [])), ",.0f", True),
    Column("worker CPU ms a job", lambda each: median(each.cpu_ms), ".3f", False),
    Column("pick-up p50 ms", lambda each: quantile(each.moments, 0.50), ".1f", False),
    Column("p99 ms", lambda each: quantile(each.moments, 0.99), ".1f", False),
    Column("kept, 100k behind", lambda each: kept(each, 100_000), ".2f", True, behind=100_000),
    Column("kept, 1M behind", lambda each: kept(each, 1_000_000), ".2f", True, behind=1_000_000),
    Column("commits a job", lambda each: _counted(each, "commits"), ".3f", False, "postgres"),
    Column("row writes a job", lambda each: _counted(each, "row writes"), ".2f", False, "postgres"),
    Column("commands a job", lambda each: _counted(each, "commands"), ".2f", False, "redis"),
    Column("killed: again after s", lambda each: each.again_s, ".1f", False),
)


def _counted(figures: Figures, name: str) -> float | None:
    return median(figures.counted.get(name, []))


def columns(store: str, shown: Iterable[Figures]) -> list[Column]:
    """Those in which somebody has something."""
    shown = list(shown)
    fitting = [column for column in COLUMNS if store.startswith(column.stores)]
    return [column for column in fitting if any(cell(column, each) not in ("", NOTHING) for each in shown)]


def cell(column: Column, figures: Figures) -> str:
    value = column.value(figures)
    if value is not None:
        short = short_of(figures, column.behind)
        return f"{value:{column.form}}" + (f" ({short / 1000:.0f}k)" if short is not None else "")
    if column.head.startswith("killed") and figures.waited_s:
        return f"> {figures.waited_s:.0f}"
    return NOTHING


def best(column: Column, shown: Iterable[Figures]) -> Figures | None:
    """Of the queues; the floor is none."""
    ranked = ranking(column, shown)
    return ranked[0] if ranked else None


def ranking(column: Column, shown: Iterable[Figures]) -> list[Figures]:
    measured = [each for each in shown if each.name != FLOOR and column.value(each) is not None]
    return sorted(measured, key=lambda each: column.value(each) or 0.0, reverse=column.more_is_better)


def rendered(store: str, shown: Sequence[Figures]) -> str:
    """Aligned, for a terminal."""
    measured = [each for each in shown if each.trouble != MISSING]
    heads = columns(store, measured)
    rows = [[NAMES[store], *(column.head for column in heads)]]
    rows += [[each.name, *(cell(column, each) for column in heads)] for each in measured]
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines = [
        "  ".join(
            text.rjust(width) if at else text.ljust(width)
            for at, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    return "\n".join([*lines, *(f"{each.name}: {each.trouble}" for each in shown if each.trouble)])
