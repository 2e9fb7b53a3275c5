"""Whole workers: functions per second next to a peer, pick-up delay, and CPU of an idle worker."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

from bench import pickup
from bench.plan import Plan
from bench.processes import cpu_seconds
from bench.results import Line, delays, rates, share
from bench.samples import Sample, in_turns
from bench.stores import fresh_directory
from penstock import Penstock, config

CHECK_S = 0.02
TIMEOUT_S = 300.0
SETTLED_S = 1.5
"""Pause after the first job of a worker, before the idle measurement."""

_OURS = (sys.executable, "-m", "penstock", "worker", "--app", "bench.apps.ours:app", "--processes")
_HUEY = (sys.executable, "-m", "huey.bin.huey_consumer", "bench.apps.with_huey.huey", "-qkprocess", "-w")


def measure(engine: str, plan: Plan) -> Iterator[Line]:
    if engine == "sqlite":
        for processes in (1, 2):
            run = partial(_drain, processes=processes, plan=plan)
            number = f"{processes} process{'es' if processes > 1 else ''}"
            pair = in_turns(plan.repetitions, run)
            yield rates(engine, f"no-op functions, {number}; floor: huey", pair, budget=1.0)
    yield from _idle_and_pickup(engine, plan)


# Throughput.


def _drain(side: str, *, processes: int, plan: Plan) -> Sample:
    prepare = {"ours": _fill_ours, "floor": _fill_huey}[side]
    command = {"ours": _OURS, "floor": _HUEY}[side]
    with fresh_directory(plan.directory) as directory:
        environment, done = prepare(directory, plan.function_calls)
        with _running((*command, str(processes)), environment) as worker:
            _wait_for(lambda: done() > 0)
            begun, start = done(), time.perf_counter()
            _wait_for(lambda: done() == plan.function_calls)
            wall = time.perf_counter() - start
            cpu = cpu_seconds(worker.pid)
    share_timed = (plan.function_calls - begun) / plan.function_calls
    # Jobs done before the first check are not in the time, so they are not counted either.
    return Sample(jobs=plan.function_calls - begun, wall_s=wall, cpu_s=cpu * share_timed)


def _fill_ours(directory: Path, calls: int) -> tuple[dict[str, str], Callable[[], int]]:
    environment, app = _ours("sqlite", directory)
    with app:
        for start in range(0, calls, 1_000):
            numbers = range(start, min(start + 1_000, calls))
            app.call_many([{"name": "noop", "payload": {"number": number}} for number in numbers])
    query = "SELECT count(*) FROM unified_queue WHERE finished_at IS NULL"
    return environment, lambda: calls - _number(directory / "queue.db", query)


def _fill_huey(directory: Path, calls: int) -> tuple[dict[str, str], Callable[[], int]]:
    environment = {"BENCH_HUEY": str(directory / "huey.db")}
    fill = f"from bench.apps.with_huey import noop\nfor n in range({calls}): noop({{'number': n}})"
    subprocess.run([sys.executable, "-c", fill], env=os.environ | environment, check=True)
    return environment, lambda: _number(directory / "huey.db", "SELECT count(*) FROM kv")


def _number(path: Path, query: str) -> int:
    with closing(sqlite3.connect(path)) as connection:
        number: int = connection.execute(query).fetchone()[0]
        return number


# Pick-up and idling.


def _idle_and_pickup(engine: str, plan: Plan) -> Iterator[Line]:
    idle, waits = [], []
    floors = [pickup.one_round("floor", engine, plan) for _ in range(plan.pickup_rounds)]
    for _ in range(plan.pickup_rounds):
        cpu, pickups = _one_round(engine, plan)
        idle.append(cpu)
        waits.append(pickups)
    for name, part, budget in (("p50", 0.50, 1.5), ("p99", 0.99, 10.0)):
        ours = [pickup.quantile(values, part) for values in waits]
        floor = [pickup.quantile(values, part) for _, values in floors]
        yield delays(engine, f"call to function, {name}", ours, floor, budget=budget)
    yield share(engine, "idle worker, whole tree", idle, [cpu for cpu, _ in floors], budget=1.0)


def _one_round(engine: str, plan: Plan) -> tuple[float, list[float]]:
    """Return percent of a core while idle, and milliseconds from ``call`` to the start of the function."""
    with fresh_directory(plan.directory) as directory:
        environment, app = _ours(engine, directory)
        with app, _running((*_OURS, "1"), environment) as worker:
            app.wait(app.call("moment", {}).job_id, timeout=TIMEOUT_S)
            time.sleep(SETTLED_S)
            before, start = cpu_seconds(worker.pid), time.monotonic()
            time.sleep(plan.idle_s)
            cpu = (cpu_seconds(worker.pid) - before) / (time.monotonic() - start) * 100
            pickups = []
            for _ in range(plan.pickups):
                # A random pause, not in step with timers of the worker.
                time.sleep(random.uniform(0.005, 0.025))
                start = time.monotonic()
                receipt = app.call("moment", {})
                app.wait(receipt.job_id, timeout=TIMEOUT_S)
                pickups.append((app.result(receipt.job_id) - start) * 1000)
    return cpu, pickups


def _ours(engine: str, directory: Path) -> tuple[dict[str, str], Penstock]:
    url = {"sqlite": f"sqlite:///{directory}/queue.db", "jsonl": f"jsonl://{directory}/queue"}[engine]
    environment = {"PENSTOCK_URL": url, "PENSTOCK_STATE": str(directory / "state")}
    app = Penstock(settings=config.load(environment))
    for name in ("noop", "moment"):
        app.function(name)(lambda payload: payload)
    return environment, app


# Processes.


@contextmanager
def _running(command: tuple[str, ...], environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    worker = subprocess.Popen(command, env=os.environ | environment, stdout=subprocess.DEVNULL)
    try:
        yield worker
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.wait(timeout=60)


def _wait_for(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not reached():
        if time.monotonic() > deadline:
            raise RuntimeError(f"a worker did not finish within {TIMEOUT_S:g} s")
        time.sleep(CHECK_S)
