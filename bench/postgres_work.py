"""What a drained job costs a PostgreSQL server: commits, row writes and CPU time, as it counts them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import psycopg

from bench.contenders import open_contender
from bench.drain import PLAIN_BATCH, drain
from bench.plan import Plan
from bench.postgres_server import Work, store, work
from bench.results import Line, most
from bench.samples import SIDES
from bench.stores import fill, fresh

COUNTS: tuple[tuple[str, str, float | None, Callable[[Work], float]], ...] = (
    ("commits a job", "", 0.03, lambda done: done.commits),
    ("row writes a job", "", 2.2, lambda done: done.writes),
    ("server CPU a job", "ms", None, lambda done: done.cpu_s * 1000),
)


def measure(engine: str, plan: Plan) -> Iterator[Line]:
    if engine != "postgres":
        return
    jobs = plan.drained_by_batch[PLAIN_BATCH]
    runs: dict[str, list[Work]] = {side: [] for side in SIDES}
    for _ in range(plan.repetitions):
        for side in SIDES:
            runs[side].append(_one(side, plan, jobs))
    for what, unit, budget, of in COUNTS:
        ours, floor = ([of(done) / jobs for done in runs[side]] for side in SIDES)
        yield most(engine, f"{what}, batch {PLAIN_BATCH}", unit, ours, floor, budget=budget)


def _one(side: str, plan: Plan, jobs: int) -> Work:
    with fresh(side, "postgres", plan.directory) as (contender, directory):
        fill(contender, jobs)
        contender.close()
        with psycopg.connect(store(directory), autocommit=True) as asking:
            before = _settled(asking)
            drained = open_contender(side, "postgres", directory)
            drain(drained, PLAIN_BATCH)
            drained.close()
            return _settled(asking).since(before)


def _settled(asking: psycopg.Connection[tuple[object, ...]]) -> Work:
    """Once the sessions that worked have ended, and handed in what they counted."""
    others = (
        b"SELECT count(*) FROM pg_stat_activity WHERE application_name = 'penstock' OR "
        b"(backend_type = 'client backend' AND pid <> pg_backend_pid())"
    )
    while (found := asking.execute(others).fetchone()) and found[0]:
        pass
    # The server adds up the CPU time of a session a moment after it is gone.
    time.sleep(0.2)
    return work(asking)
