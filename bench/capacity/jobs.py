"""``python -m bench.capacity.jobs``: a million jobs, added in bulk and drained by ``penstock worker``.

The function does nothing. With 10,000, 100,000 and all jobs waiting, claims are measured. While workers drain
the queue, CPU time, memory and disk are sampled each second; each job marks when it ran.

A long run is made in pieces: ``--seconds`` ends a run early, and the next one with the same ``--dir``
continues. ``--keep`` leaves the store for it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from bench.capacity.call_cost import Cost, cost_of
from bench.capacity.figures import Adding, Drained, JobRun, Report, read_report, write_report
from bench.capacity.kept_store import ENGINES, KeptStore, kept_store
from bench.capacity.process_memory import tree_mb
from bench.peers.marks import MARKS_VARIABLE, Marks, Times
from bench.processes import cpu_seconds
from penstock import Penstock
from penstock.queue import transitions
from penstock.queue.job import ClaimRequest

JOBS = 1_000_000
A_CALL = 1_000
A_STEP = 50_000
"""Jobs between two records of a fill."""
SIZES = (10_000, 100_000)
REPEATED = 30
LATER_S = 3_000_000
"""Delay of the jobs that are added to be measured: none runs."""
SAMPLED_S = 1.0
PARTS = 20
PAUSE_S = 2.0
"""A time without jobs that long lies between two runs."""
UNFINISHED = 3
"""Exit code: more to do."""
WORKER = (sys.executable, "-m", "penstock", "worker", "--app", "bench.capacity.functions:app", "--processes")


class JobCapacity:
    """One engine: fill, measure, drain; each continues where the report ends."""

    def __init__(self, store: KeptStore, options: argparse.Namespace, report: Report) -> None:
        self._store = store
        self._options = options
        self._report = report
        self._deadline = time.monotonic() + options.seconds
        self._run = next((each for each in report.job_runs if each.engine == store.engine), None) or JobRun(
            engine=store.engine, jobs=options.jobs, processes=options.processes
        )
        if self._run not in report.job_runs:
            report.job_runs.append(self._run)

    def complete(self) -> bool:
        """Do what is left; False: the time was too short."""
        with Penstock(settings=self._store.settings()) as app:
            app.function("noop")(lambda payload: payload)
            for size in sorted({*(size for size in SIZES if size < self._run.jobs), self._run.jobs}):
                if self._added() < size and not self._add(app, size):
                    return False
                if size not in self._run.waiting and not self._run.drained:
                    self._run.waiting[size] = dict(self._calls(app))
                    self._write()
        return self._drain()

    def _added(self) -> int:
        return self._run.adding[-1].jobs if self._run.adding else 0

    def _add(self, app: Penstock, size: int) -> bool:
        while (start := self._added()) < size:
            if time.monotonic() > self._deadline:
                return False
            stop = min(start + A_STEP, size)
            client, server, began = time.process_time(), self._store.server_cpu_s(), time.monotonic()
            for number in range(start, stop, A_CALL):
                numbers = range(number, min(number + A_CALL, stop))
                app.call_many([{"name": "noop", "payload": {"number": each}} for each in numbers])
            self._run.adding.append(
                Adding(
                    jobs=stop,
                    added=stop - start,
                    seconds=time.monotonic() - began,
                    client_cpu_s=time.process_time() - client,
                    server_cpu_s=self._store.server_cpu_s() - server,
                    server_mb=self._store.server_mb(),
                    disk_mb=self._store.disk_mb(),
                )
            )
            self._write()
        return True

    def _calls(self, app: Penstock) -> Iterator[tuple[str, Cost]]:
        def cost(call: Callable[[], object]) -> Cost:
            return cost_of(self._store, [call] * REPEATED)

        yield "claim 1, give back", cost(lambda: _claim(app, 1))
        yield "claim 100, give back", cost(lambda: _claim(app, 100))
        yield "add one job", cost(lambda: app.call("noop", {"number": 0}, delay=LATER_S))
        yield "queue stats", cost(app.stats)

    # The drain.

    def _drain(self) -> bool:
        marks = self._marks()
        if marks.done() < self._run.jobs and time.monotonic() < self._deadline:
            piece = self._run.drained[-1].piece + 1 if self._run.drained else 0
            with self._workers() as worker:
                while marks.done() < self._run.jobs and time.monotonic() < self._deadline:
                    self._run.drained.append(self._sample(piece, worker.pid, marks))
                    time.sleep(SAMPLED_S)
                    if worker.poll() is not None:
                        raise RuntimeError("the worker has ended")
                self._run.drained.append(self._sample(piece, worker.pid, marks))
        self._run.rates = rates(marks.times)
        self._write()
        return marks.done() >= self._run.jobs

    @contextmanager
    def _workers(self) -> Iterator[subprocess.Popen[bytes]]:
        environment = os.environ | self._store.environment | {MARKS_VARIABLE: str(self._store.directory)}
        command = (*WORKER, str(self._run.processes))
        worker = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
        try:
            yield worker
        finally:
            worker.send_signal(signal.SIGTERM)
            worker.wait(timeout=60)

    def _marks(self) -> Marks:
        made = (self._store.directory / "marks").exists()
        return Marks(self._store.directory, None if made else self._run.jobs)

    def _sample(self, piece: int, worker: int, marks: Marks) -> Drained:
        return Drained(
            piece=piece,
            at_s=time.monotonic(),
            jobs=marks.done(),
            worker_cpu_s=cpu_seconds(worker, ended=True),
            server_cpu_s=self._store.server_cpu_s(),
            worker_mb=tree_mb(worker),
            server_mb=self._store.server_mb(),
            disk_mb=self._store.disk_mb(),
        )

    def _write(self) -> None:
        write_report(self._options.json, self._report)


def _claim(app: Penstock, limit: int) -> None:
    claims = app.queue.claim(ClaimRequest("capacity", limit))
    app.queue.settle([transitions.released(claim, "measured") for claim in claims])


def rates(times: Times) -> list[float]:
    """Jobs a second in each part of a drain, by the times at which jobs ran."""
    ran = np.sort(times[times > 0])
    steps = np.diff(ran)
    steps[steps > PAUSE_S] = 0.0
    parts = [part for part in np.array_split(steps, PARTS) if len(part)]
    return [float(len(part) / part.sum()) for part in parts if part.sum() > 0]


def run(options: argparse.Namespace) -> bool:
    directory = options.dir / f"jobs-{options.engine}"
    report = read_report(options.json)
    if not directory.exists():
        # Figures of a store that is gone cannot be continued: its jobs would be waited for, and never come.
        report.job_runs[:] = [each for each in report.job_runs if each.engine != options.engine]
    with kept_store(options.engine, directory) as store:
        complete = JobCapacity(store, options, report).complete()
    if complete and not options.keep:
        shutil.rmtree(directory)
    return complete


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.capacity.jobs", description=__doc__)
    parser.add_argument("engine", choices=ENGINES)
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--processes", type=int, default=2, help="processes of the worker")
    parser.add_argument("--dir", type=Path, default=Path(tempfile.gettempdir()) / "penstock-capacity")
    parser.add_argument("--json", type=Path, required=True, help="the report, continued if it exists")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin nothing more after this time")
    parser.add_argument("--keep", action="store_true", help="leave the store in DIR")
    return 0 if run(parser.parse_args(arguments)) else UNFINISHED


if __name__ == "__main__":
    sys.exit(main())
