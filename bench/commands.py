"""What a job costs a server: commands, counted, as time says little on a busy machine."""

from __future__ import annotations

from collections.abc import Iterator

from bench.contenders import commands
from bench.drain import PLAIN_BATCH, drain
from bench.plan import Plan
from bench.results import Line, counted
from bench.samples import SIDES
from bench.stores import fill, fresh


def measure(engine: str, plan: Plan) -> Iterator[Line]:
    """Only of an engine that has a server."""
    jobs = plan.drained_by_batch[PLAIN_BATCH]
    sides = {side: _commands(side, engine, plan, jobs) for side in SIDES}
    if all(sides.values()):
        yield counted(engine, f"commands a job, batch {PLAIN_BATCH:,}", sides["ours"], sides["floor"])


def _commands(side: str, engine: str, plan: Plan, jobs: int) -> float:
    with fresh(side, engine, plan.directory) as (contender, directory):
        fill(contender, jobs)
        before = commands(engine, directory)
        drain(contender, PLAIN_BATCH)
        return (commands(engine, directory) - before) / jobs
