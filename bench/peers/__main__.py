"""``python -m bench.peers``: measure, print the tables, write the page."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

import msgspec

from bench.peers import field, measures, places
from bench.peers.figures import Figures, joined
from bench.peers.machine import Machine, described
from bench.peers.page import write
from bench.peers.plan import PLANS, Plan
from bench.peers.table import rendered
from bench.stores import fresh_directory


class Report(msgspec.Struct, kw_only=True):
    machine: Machine
    plan: str
    figures: list[Figures]
    notes: list[str] = []
    """What a reader has to know of how it came about."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    # Whoever ends this ends its servers and workers too.
    signal.signal(signal.SIGTERM, _leave)
    if options.read:
        report = _joined([msgspec.json.decode(path.read_bytes(), type=Report) for path in options.read])
    else:
        report = _measured(options)
    report.notes += options.note
    print(report.machine.line())
    for store in places.STORES:
        shown = [each for each in report.figures if each.store == store]
        if shown:
            print(f"\n{rendered(store, shown)}")
    if options.json:
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(report)) + b"\n")
    if options.write:
        write(report.machine, report.plan, report.figures, report.notes)
    return 0


def _leave(number: int, _frame: FrameType | None) -> None:
    sys.exit(128 + number)


def _joined(reports: Sequence[Report]) -> Report:
    found: dict[tuple[str, str], Figures] = {}
    for each in (each for report in reports for each in report.figures):
        key = (each.store, each.name)
        found[key] = joined(found[key], each) if key in found else each
    busiest = max(reports, key=lambda report: report.machine.busy)
    notes = [note for report in reports for note in report.notes]
    if len(reports) > 1:
        notes.insert(
            0, f"Joined from {len(reports)} runs one after the other; the busiest hour is named above."
        )
    return msgspec.structs.replace(busiest, figures=list(found.values()), notes=notes)


def _measured(options: argparse.Namespace) -> Report:
    name = "quick" if options.quick else "long" if options.long else "full"
    plan = PLANS[name]
    if options.repetitions:
        plan = msgspec.structs.replace(plan, repetitions=options.repetitions)
    figures: list[Figures] = []
    for store in options.store or places.STORES:
        below = places.MEMORY if store.endswith(places.IN_MEMORY) else options.dir
        if below.is_dir():
            figures += _on(store, options, plan, below)
    return Report(machine=described(), plan=name, figures=figures)


def _on(store: str, options: argparse.Namespace, plan: Plan, below: Path) -> list[Figures]:
    found = []
    entered: measures.Entered = []
    for contender in field.on(store, options.peer or ()):
        version = field.version(contender)
        figures = Figures(name=contender.name, store=store, version=version or "")
        if version is None:
            figures.trouble = field.MISSING
        else:
            entered.append((contender, figures))
        found.append(figures)
    with fresh_directory(below) as directory, places.opened(store, directory) as opened:
        for part in options.only or measures.PARTS:
            if part not in measures.NOT_ON.get(store, ()):
                measures.measure(part, entered, opened, directory, plan)
    return found


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.peers", description="Penstock beside the queues people use today."
    )
    names = [contender.name for contender in field.FIELD]
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="seconds: shows that it runs, not how fast")
    size.add_argument("--long", action="store_true", help="hours: with a backlog of a million jobs")
    parser.add_argument("--only", action="append", choices=measures.PARTS, help="only this part (repeatable)")
    parser.add_argument("--peer", action="append", choices=names, help="only this one (repeatable)")
    parser.add_argument(
        "--store", action="append", choices=places.STORES, help="only on this store (repeatable)"
    )
    parser.add_argument("--repetitions", type=int, metavar="N", help="runs of each, in turns")
    parser.add_argument(
        "--dir", type=Path, default=Path(tempfile.gettempdir()), help="where the stores are made (a disk)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every run here as well")
    parser.add_argument(
        "--read", type=Path, metavar="FILE", action="append", help="measure nothing: show such files"
    )
    parser.add_argument("--note", action="append", default=[], help="what the page has to say of this run")
    parser.add_argument("--write", action="store_true", help="write docs/benchmarks-peers.md and its charts")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
