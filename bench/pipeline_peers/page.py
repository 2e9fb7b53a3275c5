"""The page of results and its chart."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bench.peers import chart
from bench.pipeline_peers import table
from bench.pipeline_peers.field import FIELD, FLOOR, OURS, ROOT
from bench.pipeline_peers.figures import HEADS, STEPS, Figures
from bench.pipeline_peers.report import Report

DOCS = ROOT / "docs"
PAGE, CHART = "benchmarks-pipelines.md", "pipelines-cpu-{}.svg"
TEXT = Path(__file__).with_name("page.md")
KINDS = {OURS: "ours", FLOOR: "floor"}


def write(report: Report, docs: Path = DOCS) -> None:
    (docs / "charts").mkdir(exist_ok=True)
    for name, said in report.corpora.items():
        shown = [each for each in report.figures if each.corpus == name]
        (docs / "charts" / CHART.format(name)).write_text(draw(said, shown), encoding="utf-8")
    (docs / PAGE).write_text(page(report), encoding="utf-8")


def page(report: Report) -> str:
    return TEXT.read_text(encoding="utf-8").format(
        machine=report.machine.line(),
        busy=f"{report.machine.busy:.1f}",
        notes="".join(f"- {note}\n" for note in report.notes),
        results="\n\n".join(_results(report, name) for name in report.corpora),
        setups="\n".join(_setups(report.figures)),
        troubles=_troubles(report.figures),
    )


def draw(said: str, figures: Sequence[Figures]) -> str:
    """A panel for each step. A side that is wrong afterwards is marked."""
    panels = []
    for step in STEPS:
        rows = [
            chart.Row(
                each.name + (table.WRONG if each.wrong(step) else ""),
                KINDS.get(each.name, "peer"),
                (each.cpu_s(step),),
            )
            for each in figures
        ]
        panels.append(chart.Panel(HEADS[step].capitalize(), rows))
    note = f"{said}; shorter is better; ✗: the index is not equal to the folder afterwards"
    return chart.drawn("CPU seconds of each command", note, ".2f", panels)


def _results(report: Report, name: str) -> str:
    shown = [each for each in report.figures if each.corpus == name]
    counts = sorted({len(runs) for each in shown for runs in each.steps.values()})
    times = " or ".join("once" if count == 1 else f"{count} times" for count in counts)
    wrong = table.differences(shown)
    parts = [
        f"### {report.corpora[name]}",
        f"Each step {times}; medians.",
        f"![CPU seconds of each command](charts/{CHART.format(name)})",
        table.cpu(shown),
        table.placed(shown),
        table.compared(shown),
        table.embedded(shown),
    ]
    if wrong:
        parts.append("Not equal to the folder afterwards:\n\n" + "\n".join(f"- {line}." for line in wrong))
    return "\n\n".join(parts)


def _setups(figures: Sequence[Figures]) -> list[str]:
    versions = {each.name: each.version for each in figures}
    return [
        f"| {side.name} | {versions[side.name]} | {side.setup} | {side.lacks} |"
        for side in FIELD
        if side.name in versions
    ]


def _troubles(figures: Sequence[Figures]) -> str:
    lines = [f"- {each.name}, {each.corpus} files: {each.trouble}" for each in figures if each.trouble]
    return "\n".join(lines) or "None: everything was measured."
