"""``python -m bench``: measure, print the table, write the JSON."""

from __future__ import annotations

import argparse
import os
import platform
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from bench import (
    backlog,
    beside,
    commands,
    drain,
    enqueue,
    long_pdf,
    pickup,
    pipeline,
    postgres_work,
    scale,
    unchanged,
    workers,
)
from bench import plan as plans
from bench.contenders import ENGINES
from bench.plan import Plan
from bench.results import Line
from bench.stores import fresh_directory
from bench.table import rendered

PARTS: dict[str, Callable[[str, Plan], Iterator[Line]]] = {
    "enqueue": enqueue.measure,
    "drain": drain.measure,
    "two": drain.measure_two,
    "pickup": pickup.measure,
    "backlog": backlog.measure,
    "scale": scale.measure,
    "workers": workers.measure,
    "beside": beside.measure,
    "work": postgres_work.measure,
    "commands": commands.measure,
    "pipeline": pipeline.measure,
    "long_pdf": long_pdf.measure,
    "unchanged": unchanged.measure,
}


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    below = Path("/dev/shm") if options.memory else options.dir
    make = plans.quick if options.quick else plans.full
    lines: list[Line] = []
    with fresh_directory(below) as directory:
        plan = make(directory, options.repetitions)
        for engine in options.engine or ENGINES:
            for part in options.only or PARTS:
                print(f"{engine}: {part} …", file=sys.stderr, flush=True)
                lines += PARTS[part](engine, plan)
    machine = _machine(below)
    print(", ".join(f"{name} {value}" for name, value in machine.items()))
    print(rendered(lines))
    if options.json:
        report = {"machine": machine, "quick": options.quick, "lines": lines}
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(report)) + b"\n")
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="Engines next to hand-written floors."
    )
    parser.add_argument(
        "--quick", action="store_true", help="small numbers: shows that it runs, not how fast"
    )
    parser.add_argument("--engine", action="append", choices=ENGINES, help="only this engine (repeatable)")
    parser.add_argument("--only", action="append", choices=PARTS, help="only this part (repeatable)")
    parser.add_argument("--repetitions", type=_positive, metavar="N", help="runs of each side, in turns")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every run here as well")
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--dir", type=Path, default=Path(tempfile.gettempdir()), help="where the stores are made (a disk)"
    )
    where.add_argument("--memory", action="store_true", help="make them in /dev/shm: no cost of syncing")
    return parser.parse_args(arguments)


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return value


def _machine(below: Path) -> dict[str, Any]:
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "stores": str(below),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "msgspec": msgspec.__version__,
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
    }


if __name__ == "__main__":
    sys.exit(main())
