"""Pick-up delay of an idle worker, and CPU of waiting."""

from __future__ import annotations

import multiprocessing
import random
import statistics
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

from bench.contenders import Contender, open_contender
from bench.jobs import new_jobs
from bench.plan import Plan
from bench.results import Line, delays, share
from bench.stores import fresh

WORKER_SLEEP_S = 1.0
QUIET_S = 0.5
"""Pause before the idle measurement."""
TIMEOUT_S = 30


def measure(engine: str, plan: Plan) -> Iterator[Line]:
    waits: dict[str, list[list[float]]] = {"ours": [], "floor": []}
    idle: dict[str, list[float]] = {"ours": [], "floor": []}
    for _ in range(plan.pickup_rounds):
        for side in waits:
            cpu, pickups = one_round(side, engine, plan)
            idle[side].append(cpu)
            waits[side].append(pickups)
    for name, part, budget in (("p50", 0.50, 1.5), ("p99", 0.99, 10.0)):
        ours, floor = ([quantile(pickups, part) for pickups in waits[side]] for side in ("ours", "floor"))
        yield delays(engine, f"pick-up {name}", ours, floor, budget=budget)
    yield share(engine, "idle worker, of a core", idle["ours"], idle["floor"], budget=1.0)


def one_round(side: str, engine: str, plan: Plan) -> tuple[float, list[float]]:
    """Return percent of a core while idle, and milliseconds from ``add`` to the return of the claim."""
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe()
    with fresh(side, engine, plan.directory) as (producer, directory):
        worker = context.Process(target=_work, args=(side, engine, directory, theirs, plan))
        worker.start()
        try:
            cpu: float = _receive(mine)
            pickups: list[float] = []
            for _ in range(plan.pickups):
                # A random pause, not in step with timers of the worker.
                time.sleep(random.uniform(0.005, 0.025))
                job = producer.prepare(new_jobs(1))
                start = time.monotonic()
                producer.add(job)
                pickups.append((_receive(mine) - start) * 1000)
        finally:
            worker.join(timeout=TIMEOUT_S)
            worker.kill()
    return cpu, pickups


def _receive(pipe: Connection) -> float:
    if not pipe.poll(TIMEOUT_S):
        raise RuntimeError(f"the worker did not answer within {TIMEOUT_S} s")
    moment: float = pipe.recv()
    return moment


def _work(side: str, engine: str, directory: Path, pipe: Connection, plan: Plan) -> None:
    contender = open_contender(side, engine, directory)
    try:
        _idle(contender, QUIET_S)
        cpu = time.process_time()
        _idle(contender, plan.idle_s)
        pipe.send((time.process_time() - cpu) / plan.idle_s * 100)
        left = plan.pickups
        held = contender.exchange([], 1)
        while left:
            if held:
                pipe.send(time.monotonic())
                left -= 1
            else:
                contender.wait(WORKER_SLEEP_S)
            held = contender.exchange(held, 1)
    finally:
        contender.close()


def _idle(contender: Contender, seconds: float) -> None:
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        contender.exchange([], 1)
        contender.wait(min(left, WORKER_SLEEP_S))


def quantile(values: list[float], part: float) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[round(part * 100) - 1]
