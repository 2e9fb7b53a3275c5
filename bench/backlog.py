"""Whether a long queue is a slow one: the same number of jobs drained with little and much waiting behind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

from bench.contenders import Contender
from bench.plan import Plan
from bench.results import Line, kept, rates
from bench.samples import SIDES, Pair, Sample, timed
from bench.stores import fill, fresh

BATCH = 100


def measure(engine: str, plan: Plan) -> Iterator[Line]:
    sizes = plan.backlogs[engine]
    pairs = {size: Pair([], []) for size in sizes}
    with ExitStack() as stack:
        stores = {
            (size, side): stack.enter_context(fresh(side, engine, plan.directory))[0]
            for size in sizes
            for side in SIDES
        }
        for (size, _), contender in stores.items():
            fill(contender, size)
        for _ in range(plan.repetitions):
            for (size, side), contender in stores.items():
                samples = pairs[size].ours if side == "ours" else pairs[size].floor
                samples.append(_drain_some(contender, plan.backlog_drained))
    shortest = sizes[0]
    for size in sizes:
        yield rates(engine, f"drain with {size:,} behind", pairs[size])
        if size != shortest:
            yield kept(engine, f"kept, {shortest:,} to {size:,}", pairs[shortest], pairs[size], budget=0.9)


def _drain_some(contender: Contender, jobs: int) -> Sample:
    """As many as are drained are added before, so that every repetition finds the same backlog."""
    fill(contender, jobs)
    with timed(jobs) as sample:
        held = contender.exchange([], BATCH)
        for _ in range(jobs // BATCH - 1):
            held = contender.exchange(held, BATCH)
        contender.settle(held)
    return sample
