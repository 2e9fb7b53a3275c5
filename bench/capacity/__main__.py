"""``python -m bench.capacity``: all measurements of capacity, one after the other, and their tables.

It takes about an hour and 12 GB of disk; ``--quick`` is a smoke test of a minute. ``--write`` renews
``docs/capacity.md`` and its charts.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.capacity import documents, hosts, jobs, page, tables
from bench.capacity.figures import read_report
from bench.capacity.kept_store import ENGINES

PARTS = ("jobs", "documents", "hosts")
QUICK = {
    "jobs": ("--jobs=2000",),
    "documents": ("--embedded=50", "--chunks", "1000"),
    "hosts": ("--hosts", "1", "--jobs=200", "--singles=2", "--idle-s=1"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.capacity", description=__doc__)
    parser.add_argument("--only", choices=PARTS, action="append", help="may be repeated")
    parser.add_argument("--engine", choices=ENGINES, action="append", help="may be repeated")
    parser.add_argument("--quick", action="store_true", help="small numbers")
    parser.add_argument("--dir", type=Path, default=Path(tempfile.gettempdir()) / "penstock-capacity")
    parser.add_argument("--json", type=Path, help="the report, continued if it exists")
    parser.add_argument("--write", action="store_true", help="renew docs/capacity.md")
    options = parser.parse_args(arguments)
    engines = options.engine or ENGINES
    options.dir.mkdir(parents=True, exist_ok=True)
    report = options.json or options.dir / "report.json"
    where = [f"--dir={options.dir}", f"--json={report}"]
    for part in options.only or PARTS:
        small = QUICK[part] if options.quick else ()
        if part == "jobs":
            for engine in engines:
                jobs.main([engine, *small, *where])
        elif part == "documents":
            for engine in (each for each in engines if each != "redis"):
                documents.main([engine, *where, *small])
        elif "postgres" in engines:
            hosts.main([*small, *where])
    _print(report)
    if options.write:
        page.main([str(report)])
    return 0


def _print(path: Path) -> None:
    report = read_report(path)
    shown = {
        tables.jobs: report.job_runs,
        tables.waiting: report.job_runs,
        tables.documents: report.catalogs,
        tables.hosts: report.host_runs,
    }
    for drawn, found in shown.items():
        if found:
            print(f"{drawn(report)}\n")


if __name__ == "__main__":
    sys.exit(main())
