"""Enqueue: one job a call, and a thousand a call."""

from __future__ import annotations

from collections.abc import Iterator

from bench.jobs import new_jobs
from bench.plan import BULK, Plan
from bench.results import Line, rates
from bench.samples import Sample, in_turns, timed
from bench.stores import fresh


def measure(engine: str, plan: Plan) -> Iterator[Line]:
    singles = in_turns(plan.repetitions, lambda side: _add(side, engine, plan, plan.singles, 1))
    yield rates(engine, "enqueue one by one", singles)
    bulks = in_turns(plan.repetitions, lambda side: _add(side, engine, plan, plan.bulks, BULK))
    yield rates(engine, f"enqueue {BULK:,} a call", bulks)


def _add(side: str, engine: str, plan: Plan, calls: int, size: int) -> Sample:
    with fresh(side, engine, plan.directory) as (contender, _):
        batches = [contender.prepare(new_jobs(size)) for _ in range(calls)]
        with timed(calls * size) as sample:
            for batch in batches:
                contender.add(batch)
    return sample
