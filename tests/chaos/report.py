"""The report of a chaos run: faults by kind and engine, what was checked, and every violation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tests.chaos.attack import FAULTS, KILLS
from tests.chaos.checks import Result

SHOWN = 20


def text(results: Sequence[Result], seed: int) -> str:
    engines = [result.engine for result in results]
    strikes = [
        [what, *(str(result.strikes.get(what, 0)) for result in results)] for what in (*KILLS, *FAULTS)
    ]
    kills = ["kills", *(str(sum(result.strikes.get(what, 0) for what in KILLS)) for result in results)]
    names = list(dict.fromkeys(name for result in results for name in result.counts))
    counts = [[name, *(f"{result.counts.get(name, 0):,}" for result in results)] for name in names]
    calls = sorted({name for result in results for name in result.stuck})
    stuck = [[name, *(_stuck(result, name) for result in results)] for name in calls]
    parts = [
        *_table(["faults", *engines], [*strikes, kills]),
        "",
        *_table(["checked", *engines], [*counts, ["seconds", *(f"{one.seconds:.0f}" for one in results)]]),
        "",
        *_table(["stuck in native code", *engines], stuck),
        "",
        *_violations(results),
        f"seed {seed}",
    ]
    return "\n".join(parts)


def _stuck(result: Result, name: str) -> str:
    if name not in result.stuck:
        return "-"
    right, asked, middle, longest = result.stuck[name]
    return f"{right} of {asked}, {middle:.1f} s, {longest:.1f} s"


def _violations(results: Iterable[Result]) -> list[str]:
    lines = []
    for result in results:
        lines += [f"VIOLATION on {result.engine}: {each}" for each in result.violations[:SHOWN]]
        if len(result.violations) > SHOWN:
            lines.append(f"VIOLATION on {result.engine}: and {len(result.violations) - SHOWN} more")
    return lines or ["no violation"]


def _table(head: list[str], rows: list[list[str]]) -> list[str]:
    widths = [max(len(row[at]) for row in (head, *rows)) for at in range(len(head))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in (head, *rows)]  # fmt: skip
