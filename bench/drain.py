"""Claim and settle until the queue is empty: one process, then two, at several batch sizes."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from threading import Barrier
from typing import Any

from bench.contenders import Contender, open_contender, server_cpu_s
from bench.plan import Plan
from bench.results import Line, rates
from bench.samples import Sample, in_turns, timed
from bench.stores import fill, fresh

# A worker process's own; set once by the pool.
_together: Barrier | None = None

PLAIN_BATCH = 100
BUDGETS = {"sqlite": 0.6, "jsonl": 0.5, "postgres": 0.5, "redis": 0.5}


def measure(engine: str, plan: Plan) -> Iterator[Line]:
    for batch, jobs in plan.drained_by_batch.items():
        pair = in_turns(plan.repetitions, partial(_alone, engine=engine, plan=plan, jobs=jobs, batch=batch))
        yield rates(engine, f"drain, batch {batch:,}", pair, budget=BUDGETS[engine])
    jobs = plan.drained_by_batch[PLAIN_BATCH]
    run = partial(_alone, engine=engine, plan=plan, jobs=jobs, batch=PLAIN_BATCH, locks=False)
    pair = in_turns(plan.repetitions, run)
    yield rates(engine, f"drain, batch {PLAIN_BATCH:,}, no locks", pair, budget=BUDGETS[engine])


def measure_two(engine: str, plan: Plan) -> Iterator[Line]:
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(2)
    with ProcessPoolExecutor(2, mp_context=context, initializer=_meet_at, initargs=(barrier,)) as pool:
        for batch in plan.two_process_batches:
            jobs = plan.drained_by_batch[batch]
            run = partial(_shared, engine=engine, plan=plan, jobs=jobs, batch=batch, pool=pool)
            yield rates(engine, f"drain, batch {batch:,}, 2 processes", in_turns(plan.repetitions, run))


def drain(contender: Contender, batch: int) -> int:
    """Until nothing is left for this process; answers how many jobs it ended."""
    count = 0
    held = contender.exchange([], batch)
    while held:
        count += len(held)
        held = contender.exchange(held, batch)
    return count


def _alone(side: str, *, engine: str, plan: Plan, jobs: int, batch: int, locks: bool = True) -> Sample:
    with fresh(side, engine, plan.directory) as (contender, directory):
        fill(contender, jobs, locks=locks)
        with timed(jobs, partial(server_cpu_s, engine, directory)) as sample:
            drained = drain(contender, batch)
    if drained != jobs:
        raise RuntimeError(f"{side} of {engine} drained {drained} of {jobs} jobs")
    return sample


def _shared(
    side: str, *, engine: str, plan: Plan, jobs: int, batch: int, pool: ProcessPoolExecutor
) -> Sample:
    with fresh(side, engine, plan.directory) as (contender, directory):
        fill(contender, jobs)
        # Each share waits for the other before it starts, so the pool must give them to two processes.
        shares = [pool.submit(_share, side, engine, directory, batch) for _ in range(2)]
        spans = [share.result() for share in shares]
    drained = sum(sample.jobs for _, _, sample in spans)
    if drained != jobs:
        raise RuntimeError(f"two {side} of {engine} drained {drained} of {jobs} jobs")
    return Sample(
        jobs=jobs,
        wall_s=max(end for _, end, _ in spans) - min(start for start, _, _ in spans),
        cpu_s=sum(sample.cpu_s for _, _, sample in spans),
        written=sum(sample.written for _, _, sample in spans),
    )


def _meet_at(barrier: Any) -> None:
    global _together
    _together = barrier


def _share(side: str, engine: str, directory: Path, batch: int) -> tuple[float, float, Sample]:
    """In a worker process. Its start and end are readings of a clock all processes share."""
    contender = open_contender(side, engine, directory)
    try:
        if _together is not None:
            _together.wait(timeout=60)
        start = time.monotonic()
        with timed(0) as sample:
            sample.jobs = drain(contender, batch)
        return start, time.monotonic(), sample
    finally:
        contender.close()
