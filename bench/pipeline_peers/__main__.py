"""``python -m bench.pipeline_peers``: measure, print the tables, write the page."""

from __future__ import annotations

import argparse
import sqlite3
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from bench.peers.machine import described
from bench.pipeline_peers import corpus, environments, measures, table
from bench.pipeline_peers.field import FIELD, NAMES, Side
from bench.pipeline_peers.figures import Figures
from bench.pipeline_peers.page import write
from bench.pipeline_peers.report import Report, joined_reports


class Corpus(msgspec.Struct, frozen=True):
    files: int
    rounds: int
    abstracts: bool


CORPORA = {
    "300": Corpus(300, 3, abstracts=False),
    "3890": Corpus(3_890, 1, abstracts=True),
    "quick": Corpus(12, 1, abstracts=False),
}


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    if options.read:
        reports = [msgspec.json.decode(path.read_bytes(), type=Report) for path in options.read]
        report = joined_reports(reports)
    else:
        report = _measure(options)
    report.notes += options.note
    print(report.machine.line())
    for name, said in report.corpora.items():
        shown = [each for each in report.figures if each.corpus == name]
        print(f"\n{said}\n\n{table.cpu(shown)}\n\n{table.compared(shown)}\n\n{table.embedded(shown)}\n")
        print("\n".join([table.placed(shown), *table.differences(shown)]))
    if options.json:
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(report)) + b"\n")
    if options.write:
        write(report)
    return 0


def _measure(options: argparse.Namespace) -> Report:
    sides = [side for side in FIELD if side.name in (options.peer or NAMES)]
    versions = {side.name: environments.prepare(side, environments.DIRECTORY) for side in sides}
    names = ["quick"] if options.quick else options.corpus or ["300", "3890"]
    rounds = {name: options.rounds or CORPORA[name].rounds for name in names}
    figures: list[Figures] = []
    corpora = {}
    with tempfile.TemporaryDirectory(dir=options.dir) as below:
        for side in sides:
            measures.warm(side, side.python(environments.DIRECTORY), Path(below))
        for name in names:
            source = Path(below, name)
            corpora[name] = corpus.write(source, CORPORA[name].files, abstracts=CORPORA[name].abstracts)
            found = [Figures(name=side.name, corpus=name, version=versions[side.name]) for side in sides]
            for _ in range(rounds[name]):
                # In turns, so that what else the machine does, it does to all of them.
                _measure_round(sides, found, source, Path(below))
            figures += found
    machine = msgspec.structs.replace(described(), servers={"SQLite": sqlite3.sqlite_version})
    return Report(machine=machine, corpora=corpora, figures=figures)


def _measure_round(sides: Sequence[Side], figures: Sequence[Figures], source: Path, below: Path) -> None:
    for side, each in zip(sides, figures, strict=True):
        print(f"{each.corpus}: {side.name} …", file=sys.stderr, flush=True)
        measures.measure(side, side.python(environments.DIRECTORY), source, below, each)
        if each.trouble:
            print(f"  {each.trouble}", file=sys.stderr, flush=True)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.pipeline_peers",
        description="Penstock beside the libraries that people index folders with.",
    )
    parser.add_argument("--quick", action="store_true", help="12 files: shows that it runs, not how fast")
    parser.add_argument("--corpus", action="append", choices=CORPORA, help="only this folder (repeatable)")
    parser.add_argument("--peer", action="append", choices=NAMES, help="only this one (repeatable)")
    parser.add_argument("--rounds", type=int, metavar="N", help="runs of each step, in turns")
    parser.add_argument(
        "--dir", type=Path, default=Path(tempfile.gettempdir()), help="where files and indexes are (a disk)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every run here as well")
    parser.add_argument(
        "--read", type=Path, metavar="FILE", action="append", help="measure nothing: join such files"
    )
    parser.add_argument("--note", action="append", default=[], help="a remark about this run, for the page")
    parser.add_argument(
        "--write", action="store_true", help="write docs/benchmarks-pipelines.md and its chart"
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
