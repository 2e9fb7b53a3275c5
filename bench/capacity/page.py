"""``python -m bench.capacity.page REPORT...``: tables and charts of reports, in ``docs/capacity.md``.

Several reports are joined; of two runs of the same kind the later one counts.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from bench import page_section
from bench.capacity import tables
from bench.capacity.chart import LinePanel, Series, drawn
from bench.capacity.document_calls import Measured
from bench.capacity.figures import JobRun, Report, read_report, write_report

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = DOCS / "capacity.md"
REPORT = Path(__file__).with_name("report.json")
SAMPLES = 20
"""Samples of a drain that are kept in the joined report."""
DOCUMENT_CALLS = (
    ("claim 256 tasks", "settle 256 tasks", "publish an edit"),
    ("search, hybrid", "search, keyword", "status"),
)


def write(report: Report, page: Path = PAGE) -> None:
    sections = {
        "jobs": tables.jobs(report),
        "waiting": tables.waiting(report),
        "documents": tables.documents(report),
        "hosts": tables.hosts(report),
    }
    for name, text in sections.items():
        page_section.renew(f"capacity {name}", text, page)
    page_section.renew("capacity machine", report.machine.line() + ".", page)
    folder = page.parent / "charts"
    folder.mkdir(exist_ok=True)
    for name, text in charts(report).items():
        (folder / f"capacity-{name}.svg").write_text(text, encoding="utf-8")


def charts(report: Report) -> dict[str, str]:
    return {"jobs": _jobs_chart(report), "documents": _documents_chart(report), "hosts": _hosts_chart(report)}


def _jobs_chart(report: Report) -> str:
    parts = max((len(run.rates) for run in report.job_runs), default=0)
    places = [f"{(at + 1) * 100 // max(parts, 1)} %" if at % 4 == 3 else "" for at in range(parts)]
    rates = [Series(tables.NAMES[run.engine], run.rates) for run in report.job_runs]
    sizes = sorted({size for run in report.job_runs for size in run.waiting})
    claims = [
        Series(tables.NAMES[run.engine], [_claim_ms(run, size) for size in sizes]) for run in report.job_runs
    ]
    return drawn(
        "A million jobs through one queue",
        "functions that do nothing, one worker with two processes",
        [
            LinePanel("Jobs a second, by the share of jobs done", places, rates),
            LinePanel(
                "CPU ms to claim 100 jobs and give them back, by jobs that wait",
                [f"{size:,}" for size in sizes],
                claims,
            ),
        ],
    )


def _claim_ms(run: JobRun, size: int) -> float | None:
    cost = run.waiting.get(size, {}).get("claim 100, give back")
    return cost.cpu_ms if cost else None


def _documents_chart(report: Report) -> str:
    panels = []
    for engine in ("sqlite", "postgres"):
        found = sorted(
            (each for each in report.catalogs if each.engine == engine), key=lambda one: one.chunks
        )
        for calls in DOCUMENT_CALLS if found else ():
            panels.append(_panel(f"{tables.NAMES[engine]}: CPU ms of a call, by chunks", found, calls))
    return drawn("A catalog that grows", "ten chunks a document", panels)


def _panel(title: str, found: Sequence[Measured], calls: Sequence[str]) -> LinePanel:
    lines = [
        Series(name, [each.calls[name].cpu_ms if name in each.calls else None for each in found])
        for name in calls
    ]
    return LinePanel(title, [f"{each.chunks:,}" for each in found], lines)


def _hosts_chart(report: Report) -> str:
    runs = sorted(report.host_runs, key=lambda run: run.hosts)
    places = [f"{run.hosts:,}" for run in runs]
    return drawn(
        "Hosts on one PostgreSQL server",
        "a worker with one process each, all on the machine of the server",
        [
            LinePanel(
                "Transactions a second while all hosts are idle",
                places,
                [Series("transactions", [run.idle_transactions_s for run in runs])],
            ),
            LinePanel(
                "CPU µs a job while a backlog is drained",
                places,
                [
                    Series("server", [run.drain_server_us for run in runs]),
                    Series("all hosts", [run.drain_hosts_us for run in runs]),
                ],
            ),
        ],
    )


def joined(reports: Sequence[Report]) -> Report:
    first = reports[0]
    return Report(
        machine=first.machine,
        notes=[note for each in reports for note in each.notes],
        catalogs=list({(one.engine, one.chunks): one for each in reports for one in each.catalogs}.values()),
        filled=[one for each in reports for one in each.filled],
        job_runs=[
            _thinned(one) for one in {one.engine: one for each in reports for one in each.job_runs}.values()
        ],
        host_runs=list({one.hosts: one for each in reports for one in each.host_runs}.values()),
    )


def _thinned(run: JobRun) -> JobRun:
    """A drain with fewer samples; the first and the last of each run stay."""
    step = max(len(run.drained) // SAMPLES, 1)
    kept = [
        each
        for at, each in enumerate(run.drained)
        if at % step == 0
        or at + 1 == len(run.drained)
        or run.drained[at + 1].piece != each.piece
        or run.drained[at - 1].piece != each.piece
    ]
    run.drained = kept
    return run


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.capacity.page", description=__doc__)
    parser.add_argument("reports", type=Path, nargs="*", help="none: the report of the page")
    options = parser.parse_args(arguments)
    if options.reports:
        report = joined([read_report(path) for path in options.reports])
        write_report(REPORT, report)
    write(read_report(REPORT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
