"""The page of results and its charts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from bench.peers import chart, field
from bench.peers.figures import Figures, median, quantile
from bench.peers.machine import Machine
from bench.peers.places import STORES
from bench.peers.plan import PLANS
from bench.peers.table import NAMES, NOTHING, Column, best, cell, columns, ranking

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = "benchmarks-peers.md"
TEXT = Path(__file__).with_name("page.md")
KINDS = {field.OURS: "ours", field.FLOOR: "floor"}


def write(
    machine: Machine, plan: str, figures: Sequence[Figures], notes: Sequence[str], docs: Path = DOCS
) -> None:
    (docs / "charts").mkdir(exist_ok=True)
    for name, text in charts(figures).items():
        (docs / "charts" / name).write_text(text, encoding="utf-8")
    (docs / PAGE).write_text(page(machine, plan, figures, notes), encoding="utf-8")


def page(machine: Machine, plan: str, figures: Sequence[Figures], notes: Sequence[str]) -> str:
    by_store = {store: [each for each in figures if each.store == store] for store in STORES}
    return TEXT.read_text(encoding="utf-8").format(
        machine=machine.line(),
        busy=f"{machine.busy:.1f}",
        repetitions=PLANS[plan].repetitions,
        rounds=PLANS[plan].rounds,
        backlog_fill_s=f"{PLANS[plan].backlog_fill_s:g}",
        killed_s=f"{PLANS[plan].killed_s:g}",
        plan=plan,
        results="\n\n".join(_store(store, shown) for store, shown in by_store.items() if shown),
        notes="\n".join(f"- {note}" for note in notes),
        setups="\n".join(_setups(figures)),
        troubles=_troubles(figures),
    )


def charts(figures: Sequence[Figures]) -> dict[str, str]:
    drain = _panels(figures, lambda each: (median(each.drain.get(1, [])), median(each.drain.get(2, []))))
    pickup = _panels(figures, lambda each: (quantile(each.moments, 0.50),))
    return {
        "peers-drain.svg": chart.drawn(
            "No-op functions a second", "1 worker (upper bar) and 2 workers; longer is better", ",.0f", drain
        ),
        "peers-pickup.svg": chart.drawn(
            "From the call to the function, idle worker",
            "median, milliseconds; shorter is better",
            ".1f",
            pickup,
        ),
    }


def _panels(figures: Iterable[Figures], values: chart.Values) -> list[chart.Panel]:
    panels = []
    for store in STORES:
        rows = [
            chart.Row(each.name, KINDS.get(each.name, "peer"), values(each))
            for each in figures
            if each.store == store and each.trouble != field.MISSING
        ]
        series = max((row.series() for row in rows), default=0)
        if series:
            shown = [chart.Row(row.name, row.kind, row.values[:series]) for row in rows]
            panels.append(chart.Panel(NAMES[store], shown))
    return panels


def _store(store: str, shown: Sequence[Figures]) -> str:
    measured = [each for each in shown if each.trouble != field.MISSING]
    heads = columns(store, measured)
    first = {column.head: best(column, measured) for column in heads}
    lines = [
        f"### {NAMES[store]}",
        "",
        "| | " + " | ".join(column.head for column in heads) + " |",
        "|---|" + "---:|" * len(heads),
    ]
    for each in measured:
        cells = [_marked(cell(column, each), first[column.head] is each) for column in heads]
        lines.append(f"| {each.name} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", _placed(heads, measured)])


def _marked(text: str, is_best: bool) -> str:
    return f"**{text}**" if is_best and text != NOTHING else text


def _placed(heads: Sequence[Column], shown: Sequence[Figures]) -> str:
    """Where Penstock comes first, and where it does not, who does and by how much."""
    first, behind = [], []
    for column in heads:
        ranked = ranking(column, shown)
        names = [each.name for each in ranked]
        if field.OURS not in names or len(names) < 2:
            continue
        place = names.index(field.OURS)
        if place == 0:
            first.append(column.head)
        else:
            behind.append(f"{column.head} ({_behind(column, ranked, place)})")
    said = []
    if first:
        said.append(f"Penstock is first in: {', '.join(first)}.")
    if behind:
        said.append(f"**Not first** in: {', '.join(behind)}.")
    return " ".join(said)


def _behind(column: Column, ranked: Sequence[Figures], place: int) -> str:
    ours, theirs = column.value(ranked[place]) or 0.0, column.value(ranked[0]) or 0.0
    less, more = sorted((ours, theirs))
    times = f"{more / less:.1f} ×" if less else "far"
    return f"place {place + 1} of {len(ranked)}; {ranked[0].name} is {times} better"


def _setups(figures: Iterable[Figures]) -> Iterable[str]:
    versions = {each.name: each.version for each in figures}
    for contender in field.FIELD:
        if contender.name in versions:
            version = "" if contender.name == field.FLOOR else versions[contender.name] or field.MISSING
            cells = (contender.name, version, contender.workers, contender.bulk, contender.again)
            yield f"| {' | '.join(cells)} |"


def _troubles(figures: Iterable[Figures]) -> str:
    lines = [f"- {each.name}, {NAMES[each.store]}: {each.trouble}." for each in figures if each.trouble]
    return "\n".join(lines) if lines else "None: everything was measured."
