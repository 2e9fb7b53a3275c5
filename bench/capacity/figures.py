"""The report of a measurement: a JSON file that later runs continue and ``page`` reads."""

from __future__ import annotations

from pathlib import Path

import msgspec

from bench.capacity.call_cost import Cost
from bench.capacity.document_calls import Measured
from bench.peers.machine import Machine, described


class Filled(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a fill: ``added`` chunks up to ``chunks``."""

    engine: str
    chunks: int
    added: int
    seconds: float
    cpu_s: float


class Adding(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a fill: ``added`` jobs up to ``jobs``, and the store after it."""

    jobs: int
    added: int
    seconds: float
    client_cpu_s: float
    server_cpu_s: float
    server_mb: float
    disk_mb: float


class Drained(msgspec.Struct, frozen=True, kw_only=True):
    """A sample of a drain; times of different runs (``piece``) are not compared."""

    piece: int
    at_s: float
    jobs: int
    worker_cpu_s: float
    server_cpu_s: float
    worker_mb: float
    server_mb: float
    disk_mb: float


class JobRun(msgspec.Struct, kw_only=True):
    """Jobs through one engine."""

    engine: str
    jobs: int
    processes: int
    adding: list[Adding] = []
    waiting: dict[int, dict[str, Cost]] = {}
    """Calls by the number of jobs that wait."""
    drained: list[Drained] = []
    rates: list[float] = []
    """Jobs a second in each twentieth of the drain."""


class HostRun(msgspec.Struct, kw_only=True):
    """Hosts on one PostgreSQL server. CPU time of the hosts is that of the load generator."""

    hosts: int
    connections: int
    namespace: bool = False
    """Bytes are those of hosts and server alone."""
    idle_transactions_s: float = 0.0
    idle_server_cpu: float = 0.0
    idle_hosts_cpu: float = 0.0
    """Cores."""
    idle_bytes_s: float = 0.0
    pickup_ms: list[float] = []
    single_transactions: float = 0.0
    single_server_ms: float = 0.0
    single_hosts_ms: float = 0.0
    """Of one added job, without the cost of idle hosts."""
    drain_jobs_s: float = 0.0
    drain_server_us: float = 0.0
    drain_hosts_us: float = 0.0
    drain_transactions: float = 0.0
    drain_bytes: float = 0.0
    """Of one job."""
    drain_hosts: int = 0
    """Processes that ran a job."""
    waits: dict[str, float] = {}
    """Share of the samples of active sessions, by what they waited for."""
    host_mb: float = 0.0
    server_mb: float = 0.0


class Report(msgspec.Struct, kw_only=True):
    machine: Machine
    notes: list[str] = []
    """Remarks for the reader: how the figures came about."""
    catalogs: list[Measured] = []
    filled: list[Filled] = []
    job_runs: list[JobRun] = []
    host_runs: list[HostRun] = []


def read_report(path: Path) -> Report:
    """Read a report; a missing one is new."""
    if path.exists():
        return msgspec.json.decode(path.read_bytes(), type=Report)
    return Report(machine=described())


def write_report(path: Path, report: Report) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(report)) + b"\n")
