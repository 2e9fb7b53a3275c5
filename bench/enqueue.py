"""Enqueue: one job a call, and a thousand a call."""

from __future__ import annotations

from collections.abc import Iterator

from bench.jobs import new_jobs
from bench.plan import BULK, Plan
from bench.results import Line, rates
from bench.samples import Sample, in_turns, timed
from bench.stores import fresh

GUARANTEED = {"floor": "guaranteed"}


def measure(engine: str, plan: Plan) -> Iterator[Line]:
    singles = in_turns(plan.repetitions, lambda side: _add(side, engine, plan, plan.singles, 1))
    yield rates(engine, "enqueue one by one", singles)
    bulks = in_turns(plan.repetitions, lambda side: _add(side, engine, plan, plan.bulks, BULK))
    yield rates(engine, f"enqueue {BULK:,} a call", bulks)
    if engine == "sqlite":
        yield from _beside_guarantees(engine, plan)


def _beside_guarantees(engine: str, plan: Plan) -> Iterator[Line]:
    """Lines beside a floor with the same guarantees: no engine can save what its rows and indexes cost."""
    for calls, size, name in ((plan.singles, 1, "one by one"), (plan.bulks, BULK, f"{BULK:,} a call")):

        def run(side: str, calls: int = calls, size: int = size) -> Sample:
            return _add(GUARANTEED.get(side, side), engine, plan, calls, size)

        yield rates(engine, f"enqueue {name}, same guarantees", in_turns(plan.repetitions, run))


def _add(side: str, engine: str, plan: Plan, calls: int, size: int) -> Sample:
    with fresh(side, engine, plan.directory) as (contender, _):
        batches = [contender.prepare(new_jobs(size)) for _ in range(calls)]
        with timed(calls * size) as sample:
            for batch in batches:
                contender.add(batch)
    return sample
