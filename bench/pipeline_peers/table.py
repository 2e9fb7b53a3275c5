"""Tables of the figures, the same for the terminal and for the page."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bench.pipeline_peers.field import FLOOR, OURS
from bench.pipeline_peers.figures import HEADS, STEPS, Figures

NOTHING = "–"
WRONG = " ✗"
"""Marks a step after which the index is not equal to the folder."""

Value = Callable[[Figures, str], float | None]


def cpu(figures: Sequence[Figures]) -> str:
    """CPU seconds and memory. Bold: the least of a step among those that are right, without the bare loop."""
    rows = []
    for each in figures:
        cells = [_cpu_cell(each, step, figures) for step in STEPS]
        rows.append([each.name, *cells, _number(each.memory_mb(), ",.0f")])
    return _table(["CPU seconds", *(HEADS[step] for step in STEPS), "peak memory, MB"], rows)


def compared(figures: Sequence[Figures]) -> str:
    """CPU time of each side divided by Penstock's."""
    ours = next((each for each in figures if each.name == OURS), None)
    rows = []
    for each in figures:
        if ours is not None and each is not ours:
            rows.append([each.name, *(_ratio(each.cpu_s(step), ours.cpu_s(step)) for step in STEPS)])
    return _table(["CPU, divided by Penstock's", *(HEADS[step] for step in STEPS)], rows)


def embedded(figures: Sequence[Figures]) -> str:
    rows = [
        [each.name, f"{each.chunks:,}", *(_number(each.embedded(step), ",.0f") for step in STEPS)]
        for each in figures
    ]
    return _table(["texts embedded", "chunks in the index", *(HEADS[step] for step in STEPS)], rows)


def placed(figures: Sequence[Figures]) -> str:
    """Say in which steps Penstock is the cheapest of those that are right, and in which it is not."""
    first, behind = [], []
    for step in STEPS:
        ranked = ranking(figures, step)
        names = [each.name for each in ranked]
        if OURS not in names or len(figures) < 2:
            continue
        if names[0] == OURS:
            first.append(HEADS[step])
        else:
            times = _ratio(ranked[names.index(OURS)].cpu_s(step), ranked[0].cpu_s(step))
            behind.append(f"{HEADS[step]} ({names[0]} takes 1/{times.removesuffix(' ×')} of its CPU time)")
    said = [f"Penstock takes the least CPU time in: {', '.join(first)}."] if first else []
    said += [f"**Not the least** in: {', '.join(behind)}."] if behind else []
    return " ".join(said)


def ranking(figures: Sequence[Figures], step: str) -> list[Figures]:
    """Sides that are right after a step, the cheapest first, without the bare loop."""
    right = [each for each in figures if each.name != FLOOR and each.steps.get(step) and not each.wrong(step)]
    return sorted(right, key=lambda each: each.cpu_s(step) or 0.0)


def differences(figures: Sequence[Figures]) -> list[str]:
    """Say what is wrong after which step, for each side."""
    lines = []
    for each in figures:
        found = [f"{HEADS[step]} ({each.wrong(step)})" for step in STEPS if each.wrong(step)]
        if found:
            lines.append(f"{each.name}: {'; '.join(found)}")
    return lines


def _cpu_cell(each: Figures, step: str, figures: Sequence[Figures]) -> str:
    text = _number(each.cpu_s(step), ".2f")
    if each.wrong(step):
        return text + WRONG
    ranked = ranking(figures, step)
    return f"**{text}**" if ranked and ranked[0] is each else text


def _number(value: float | None, form: str) -> str:
    return NOTHING if value is None else f"{value:{form}}"


def _ratio(value: float | None, ground: float | None) -> str:
    return f"{value / ground:.1f} ×" if value is not None and ground else NOTHING


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(heads) + " |", "|---|" + "---:|" * (len(heads) - 1)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])
