"""Tables of a report in Markdown."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bench.capacity.call_cost import Cost
from bench.capacity.document_calls import Measured
from bench.capacity.figures import Drained, HostRun, JobRun, Report
from bench.page_section import table
from bench.peers.figures import quantile

NAMES = {"sqlite": "SQLite", "postgres": "PostgreSQL", "redis": "Redis"}
NOTHING = "–"


def jobs(report: Report) -> str:
    header = [
        "engine",
        "add 1,000 a call: CPU µs a job, client + server",
        "drain: jobs a second",
        "last tenth / first",
        "CPU µs a job, worker + server",
        "worker, MB",
        "server, MB",
        "disk with all waiting, MB",
        "disk after, MB",
    ]
    return table(header, [_job_row(run) for run in report.job_runs])


def _job_row(run: JobRun) -> list[str]:
    added = sum(each.added for each in run.adding)
    client, server = (
        sum(getattr(each, name) for each in run.adding) / added * 1e6
        for name in ("client_cpu_s", "server_cpu_s")
    )
    worker_us, server_us = drain_cpu_us(run)
    last = run.drained[-1] if run.drained else None
    tenth = max(len(run.rates) // 10, 1)
    kept = sum(run.rates[-tenth:]) / sum(run.rates[:tenth]) if run.rates else 0.0
    return [
        f"{NAMES[run.engine]}, {_extent(run)}",
        f"{client:.0f} + {server:.0f}",
        f"{_middle(run.rates):,.0f}" if run.rates else NOTHING,
        f"{kept:.2f}" if run.rates else NOTHING,
        f"{worker_us:.0f} + {server_us:.0f}",
        f"{max((each.worker_mb for each in run.drained), default=0):.0f}",
        f"{max((each.server_mb for each in run.drained), default=0):,.0f}" if server else NOTHING,
        f"{run.adding[-1].disk_mb:,.0f}",
        f"{last.disk_mb:,.0f}" if last else NOTHING,
    ]


def _extent(run: JobRun) -> str:
    done = run.drained[-1].jobs if run.drained else 0
    return f"{run.jobs:,} jobs" + (f", {done:,} of them drained" if done < run.jobs else "")


def drain_cpu_us(run: JobRun) -> tuple[float, float]:
    """CPU time a job of workers and server, in the runs that were sampled."""
    pieces: dict[int, list[Drained]] = {}
    for each in run.drained:
        pieces.setdefault(each.piece, []).append(each)
    jobs = sum(some[-1].jobs - some[0].jobs for some in pieces.values())
    if not jobs:
        return 0.0, 0.0
    worker = sum(some[-1].worker_cpu_s - some[0].worker_cpu_s for some in pieces.values())
    server = sum(some[-1].server_cpu_s - some[0].server_cpu_s for some in pieces.values())
    return worker / jobs * 1e6, server / jobs * 1e6


def waiting(report: Report) -> str:
    sizes = sorted({size for run in report.job_runs for size in run.waiting})
    header = ["CPU ms of a call, jobs that wait", *(f"{size:,}" for size in sizes)]
    rows = []
    for run in report.job_runs:
        for name in _names(list(run.waiting.values())):
            costs = [run.waiting.get(size, {}).get(name) for size in sizes]
            rows.append([f"{NAMES[run.engine]}: {name}", *(_milliseconds(cost) for cost in costs)])
    return table(header, rows)


def documents(report: Report) -> str:
    parts = []
    for engine in ("sqlite", "postgres"):
        found = sorted(
            (each for each in report.catalogs if each.engine == engine), key=lambda one: one.chunks
        )
        if found:
            header = [f"{NAMES[engine]}: CPU ms of a call", *(f"{each.chunks:,} chunks" for each in found)]
            rows = [
                [name, *(_milliseconds(each.calls.get(name)) for each in found)]
                for name in _names([each.calls for each in found])
            ]
            parts.append(table(header, rows + [_row(found, *line) for line in SIZES]))
    return "\n\n".join(parts)


SIZES: Sequence[tuple[str, Callable[[Measured], float]]] = (
    ("tasks that wait while tasks are claimed", lambda one: one.waiting),
    ("memory of a process that searches, own MB", lambda one: one.own_mb),
    ("the same, shared through files, MB", lambda one: one.shared_mb),
    ("memory of the server, MB", lambda one: one.server_mb),
    ("disk of the catalog, MB", lambda one: one.disk_mb),
    ("disk of the copies of vectors, MB", lambda one: one.cache_mb),
    ("findings of the audit", lambda one: one.problems),
)


def _row(found: Sequence[Measured], name: str, value: Callable[[Measured], float]) -> list[str]:
    return [name, *(f"{value(each):,.0f}" for each in found)]


HOST_ROWS: Sequence[tuple[str, Callable[[HostRun], str]]] = (
    ("connections", lambda run: f"{run.connections:,}"),
    ("idle: transactions a second", lambda run: f"{run.idle_transactions_s:,.0f}"),
    ("idle: cores of the server", lambda run: f"{run.idle_server_cpu:.3f}"),
    ("idle: cores of all hosts", lambda run: f"{run.idle_hosts_cpu:.2f}"),
    ("idle: KB a second on the network", lambda run: f"{run.idle_bytes_s / 1e3:,.0f}"),
    ("one added job: transactions", lambda run: _above_idle(run.single_transactions, ",.0f")),
    ("one added job: CPU ms of the server", lambda run: _above_idle(run.single_server_ms, ".1f")),
    ("one added job: CPU ms of all hosts", lambda run: _above_idle(run.single_hosts_ms, ".0f")),
    ("one added job: ms to its function, median", lambda run: f"{quantile(run.pickup_ms, 0.5) or 0:.0f}"),
    ("drain: jobs a second on this machine", lambda run: f"{run.drain_jobs_s:,.0f}"),
    ("drain: processes that ran jobs", lambda run: f"{run.drain_hosts:,}"),
    ("drain: CPU µs of the server a job", lambda run: f"{run.drain_server_us:,.0f}"),
    ("drain: CPU µs of the hosts a job", lambda run: f"{run.drain_hosts_us:,.0f}"),
    ("drain: transactions a job", lambda run: f"{run.drain_transactions:.3f}"),
    ("drain: bytes a job on the network", lambda run: f"{run.drain_bytes:,.0f}"),
    ("drain: active sessions that wait for a lock", lambda run: f"{_lock_waits(run):.0%}"),
    ("memory of one host, MB", lambda run: f"{run.host_mb:.0f}"),
    ("memory of the server, MB", lambda run: f"{run.server_mb:,.0f}"),
)


def hosts(report: Report) -> str:
    runs = sorted(report.host_runs, key=lambda run: run.hosts)
    header = ["hosts", *(f"{run.hosts:,}" for run in runs)]
    return table(header, [[name, *(shown(run) for run in runs)] for name, shown in HOST_ROWS])


def _above_idle(value: float, form: str) -> str:
    """A cost above that of idle hosts; no figure where it is below what these vary by."""
    return f"{value:{form}}" if value > 0 else NOTHING


def _lock_waits(run: HostRun) -> float:
    return sum(share for name, share in run.waits.items() if name.startswith(("Lock", "LWLock")))


def _names(calls: Sequence[dict[str, Cost]]) -> list[str]:
    return list(dict.fromkeys(name for each in calls for name in each))


def _milliseconds(cost: Cost | None) -> str:
    if cost is None:
        return NOTHING
    return f"{cost.cpu_ms:,.0f}" if cost.cpu_ms >= 100 else f"{cost.cpu_ms:.2g}"


def _middle(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]
