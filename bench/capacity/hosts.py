"""``python -m bench.capacity.hosts``: many hosts on one PostgreSQL server.

Each host is a ``penstock worker`` with its own state directory, supervisor, child process and connections. On
this machine they share the cores with the server, so CPU time of hosts and server is counted apart. For each
number of hosts: the cost of idle hosts, of one added job, and of a backlog that they drain.

``--namespace`` (root only) runs everything in an empty network namespace, so that the bytes on its loopback
interface are those of the hosts and the server alone.
"""

from __future__ import annotations

import argparse
import ctypes
import fcntl
import os
import signal
import socket
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import psycopg

from bench.capacity.figures import HostRun, Report, read_report, write_report
from bench.capacity.host_server import (
    CONNECTIONS,
    TRANSACTIONS,
    Waits,
    loopback_bytes,
    number,
    wait_for_reports,
)
from bench.capacity.kept_store import KeptStore, kept_store
from bench.capacity.process_memory import tree_mb
from bench.peers.marks import MARKS_VARIABLE, Marks
from bench.processes import cpu_seconds
from bench.stores import fresh_directory
from penstock import Penstock

HOSTS = (1, 10, 100)
COMMAND = (
    sys.executable,
    "-m",
    "penstock",
    "worker",
    "--app",
    "bench.capacity.functions:app",
    "--processes",
    "1",
)
PATIENCE_S = 280.0
STARTED_TOGETHER = 10
"""Hosts that start at the same time: of a hundred at once on two cores, some would not be ready in time."""
LOOK_S = 0.1
CALM_S = 3.0
CALM_CORES = 0.02
"""Cores of an idle host, at most."""
A_CALL = 1_000
TENANT = "default"
NEW_NETWORK = 0x40000000
SET_FLAGS, UP = 0x8914, 0x1


class Used(NamedTuple):
    """Seconds by the clock and of CPU time, transactions and bytes, since a start or between two."""

    seconds: float
    hosts_cpu_s: float
    server_cpu_s: float
    transactions: float
    sent_bytes: float

    def since(self, before: Used) -> Used:
        return Used(*(after - first for after, first in zip(self, before, strict=True)))


class Hosts:
    def __init__(self, store: KeptStore, app: Penstock, watch: psycopg.Connection[Any]) -> None:
        self._store = store
        self._app = app
        self._watch = watch
        self._workers: list[subprocess.Popen[bytes]] = []

    def start(self, count: int) -> None:
        """Start hosts up to a number, some at a time, and wait until all of them are known and idle."""
        while len(self._workers) < count:
            self._start_some(min(count, len(self._workers) + STARTED_TOGETHER))
        wait_until(self._calm)

    def _start_some(self, count: int) -> None:
        for host in range(len(self._workers), count):
            place = self._store.directory / f"host-{host}"
            environment = self._store.environment | {"PENSTOCK_STATE": str(place)}
            environment[MARKS_VARIABLE] = str(self._store.directory)
            self._workers.append(
                subprocess.Popen(COMMAND, env=os.environ | environment, stderr=subprocess.DEVNULL)
            )
        wait_until(lambda: len(self._app.stats().workers) >= count)

    def _calm(self) -> bool:
        """Check whether all processes have started: starting costs a hundred times as much as being idle."""
        before, began = self._hosts_cpu_s(), time.monotonic()
        time.sleep(CALM_S)
        return (self._hosts_cpu_s() - before) / (time.monotonic() - began) < CALM_CORES * len(self._workers)

    def _hosts_cpu_s(self) -> float:
        return sum(cpu_seconds(worker.pid) for worker in self._workers)

    def stop(self) -> None:
        for worker in self._workers:
            worker.send_signal(signal.SIGTERM)
        for worker in self._workers:
            worker.wait(PATIENCE_S)

    def used(self) -> Used:
        wait_for_reports()
        return Used(
            time.monotonic(),
            self._hosts_cpu_s(),
            self._store.server_cpu_s(),
            number(self._watch, TRANSACTIONS),
            loopback_bytes(),
        )

    def measure(self, options: argparse.Namespace) -> HostRun:
        run = HostRun(hosts=len(self._workers), connections=number(self._watch, CONNECTIONS) - 1)
        self._idle(run, options.idle_s)
        self._single(run, options.singles)
        self._drain(run, options.jobs)
        run.host_mb = statistics.median(tree_mb(worker.pid) for worker in self._workers[:5])
        run.server_mb = self._store.server_mb()
        return run

    def _idle(self, run: HostRun, seconds: float) -> None:
        before = self.used()
        time.sleep(seconds)
        used = self.used().since(before)
        run.idle_transactions_s = used.transactions / used.seconds
        run.idle_server_cpu = used.server_cpu_s / used.seconds
        run.idle_hosts_cpu = used.hosts_cpu_s / used.seconds
        run.idle_bytes_s = used.sent_bytes / used.seconds

    def _single(self, run: HostRun, count: int) -> None:
        """Single jobs for idle hosts: all hosts are notified, one gets the job."""
        before = self.used()
        for _ in range(count):
            began = time.monotonic()
            receipt = self._app.call("moment", {})
            self._app.wait(receipt.job_id, timeout=PATIENCE_S)
            run.pickup_ms.append((self._app.result(receipt.job_id) - began) * 1e3)
            time.sleep(LOOK_S)
        used = self.used().since(before)
        idle_s = used.seconds
        run.single_transactions = (used.transactions - run.idle_transactions_s * idle_s) / count
        run.single_server_ms = (used.server_cpu_s - run.idle_server_cpu * idle_s) / count * 1e3
        run.single_hosts_ms = (used.hosts_cpu_s - run.idle_hosts_cpu * idle_s) / count * 1e3

    def _drain(self, run: HostRun, jobs: int) -> None:
        marks = Marks(self._store.directory, jobs)
        self._app.pause(tenant_id=TENANT)
        for start in range(0, jobs, A_CALL):
            numbers = range(start, min(start + A_CALL, jobs))
            self._app.call_many([{"name": "noop", "payload": {"number": each}} for each in numbers])
        before = self.used()
        with Waits(self._store.url) as waits:
            self._app.resume(tenant_id=TENANT)
            began = time.monotonic()
            wait_until(lambda: marks.done() == jobs)
            run.drain_jobs_s = jobs / (time.monotonic() - began)
        used = self.used().since(before)
        run.drain_server_us = used.server_cpu_s / jobs * 1e6
        run.drain_hosts_us = used.hosts_cpu_s / jobs * 1e6
        run.drain_transactions = used.transactions / jobs
        run.drain_bytes = used.sent_bytes / jobs
        run.waits = waits.shares()
        run.drain_hosts = len(set(marks.processes.tolist()))


def wait_until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not reached():
        if time.monotonic() > deadline:
            raise RuntimeError(f"hosts were not ready within {PATIENCE_S:g} s")
        time.sleep(LOOK_S)


def enter_namespace() -> None:
    """Move this process to a new network namespace, in which only the loopback interface is up."""
    library = ctypes.CDLL(None, use_errno=True)
    if library.unshare(NEW_NETWORK):
        raise OSError(ctypes.get_errno(), "no network namespace: root is needed")
    with socket.socket() as some:
        fcntl.ioctl(some, SET_FLAGS, struct.pack("16sH14s", b"lo", UP, b""))


def run(options: argparse.Namespace, report: Report) -> None:
    with (
        fresh_directory(options.dir) as directory,
        kept_store("postgres", directory) as store,
        Penstock(settings=store.settings()) as app,
        psycopg.connect(store.url, autocommit=True) as watch,
    ):
        app.function("noop")(lambda payload: payload)
        app.function("moment")(lambda payload: payload)
        app.stats()
        hosts = Hosts(store, app, watch)
        try:
            for count in sorted(options.hosts):
                hosts.start(count)
                measured = hosts.measure(options)
                measured.namespace = options.namespace
                report.host_runs = [each for each in report.host_runs if each.hosts != count] + [measured]
                write_report(options.json, report)
                print(measured, flush=True)
        finally:
            hosts.stop()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.capacity.hosts", description=__doc__)
    parser.add_argument("--hosts", type=int, nargs="+", default=HOSTS)
    parser.add_argument("--jobs", type=int, default=20_000, help="jobs that the hosts drain")
    parser.add_argument("--singles", type=int, default=20, help="jobs added one by one to idle hosts")
    parser.add_argument("--idle-s", type=float, default=15.0)
    parser.add_argument("--namespace", action="store_true", help="use a separate network namespace")
    parser.add_argument("--dir", type=Path, default=Path("/tmp"))
    parser.add_argument("--json", type=Path, required=True, help="the report, continued if it exists")
    options = parser.parse_args(arguments)
    if options.namespace:
        enter_namespace()
    run(options, read_report(options.json))
    return 0


if __name__ == "__main__":
    sys.exit(main())
