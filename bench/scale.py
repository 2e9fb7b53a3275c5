"""What single calls cost with a million rows, over what they cost with three thousand."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta

from bench.contenders import Engine
from bench.plan import Plan
from bench.results import Line, most
from bench.stores import fill, fresh
from penstock import config
from penstock.queue import transitions
from penstock.queue.job import ClaimRequest, JobQuery, Scope, Status
from penstock.queue.postgres.queue import PostgresQueue
from penstock.queue.protocol import Queue
from penstock.queue.sql.statements import JOB_COLUMNS
from penstock.queue.sqlite.queue import SqliteQueue
from penstock.service.jobs import Jobs

BUDGET = 3.0
CALLS = 20
"""Calls that one number is the best of."""
TENANT = Scope("tenant-00")
PENDING = frozenset({Status.PENDING})


def measure(engine: str, plan: Plan) -> Iterator[Line]:
    small, large = plan.scales[engine]
    with ExitStack() as stack:
        stores = {}
        for size in (small, large):
            contender = stack.enter_context(fresh("ours", engine, plan.directory))[0]
            if not isinstance(contender, Engine):
                raise TypeError("only our own engines have these calls")
            stores[size] = contender.queue
            copied = engine in COPIED
            fill(contender, small if copied else size)
            _age(contender.queue, (small if copied else size) // 3)
            if copied and size > small:
                COPIED[engine](contender.queue, size // small - 1)
        calls = {size: _calls(queue) for size, queue in stores.items()}
        for what in calls[small]:
            costs: dict[int, list[float]] = {small: [], large: []}
            for _ in range(plan.repetitions):
                for size, found in costs.items():
                    found.append(_cost(calls[size][what]))
            ratios = [b / a for a, b in zip(costs[small], costs[large], strict=True)]
            name = f"{what}, {small:,} to {large:,} rows ({statistics.median(costs[large]):.2f} ms)"
            yield most(engine, name, "x", ratios, [1.0] * len(ratios), budget=BUDGET)


def _age(queue: Queue, jobs: int) -> None:
    """A third of the rows have ended, and some are in progress."""
    held = queue.claim(ClaimRequest("bench", 100))
    for _ in range(jobs // 100):
        done = [transitions.done(claim) for claim in held]
        held = queue.exchange(done, ClaimRequest("bench", 100)).claims


def _copy_statement(numbers: str) -> str:
    """Every row once more for each number, under names of its own."""
    own = dict.fromkeys(("queue_id", "root_id", "idempotency_key", "lock_key", "lock_held"), "{} || '-' || n")
    own["turn"] = "CASE WHEN {} < 0 THEN {} ELSE {} + 1000 * n END"
    values = [own.get(name, "{}").replace("{}", name) for name in JOB_COLUMNS]
    into = f"INSERT INTO unified_queue ({', '.join(JOB_COLUMNS)})"
    # What is in progress is as much as workers hold, however long the queue.
    return f"{into} SELECT {', '.join(values)} FROM unified_queue, {numbers} WHERE lease_until IS NULL"


def _copy_in_sqlite(queue: Queue, times: int) -> None:
    if not isinstance(queue, SqliteQueue):
        raise TypeError("not a SQLite queue")
    with queue._connections.writing() as connection:
        counted = f"SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < {times}"
        numbers = f"(WITH RECURSIVE c(n) AS ({counted}) SELECT n FROM c)"
        connection.execute(_copy_statement(numbers))


def _copy_in_postgres(queue: Queue, times: int) -> None:
    if not isinstance(queue, PostgresQueue):
        raise TypeError("not a PostgreSQL queue")
    with queue._connections.borrowed() as connection:
        connection.execute("SET statement_timeout = 0")
        connection.execute(_copy_statement(f"generate_series(1, {times}) AS n").encode())
        # As autovacuum would, but not in the middle of what is measured.
        connection.execute("VACUUM unified_queue")


COPIED: dict[str, Callable[[Queue, int], None]] = {"sqlite": _copy_in_sqlite, "postgres": _copy_in_postgres}
"""Engines whose rows can be copied where they are: added one by one, a million takes many minutes."""


def _calls(queue: Queue) -> dict[str, Callable[[], object]]:
    service = Jobs(queue, config.load({}, url="memory://"))
    ids = [job.queue_id for job in queue.find(JobQuery(statuses=PENDING, newest_first=True, limit=1))]
    first = queue.claim(ClaimRequest("bench"))
    queue.settle([transitions.released(claim, "measured") for claim in first])
    later = queue.now() + timedelta(hours=1)
    return {
        "claim and give back": lambda: _claim(queue),
        "stats": service.stats,
        "room": service.room,
        "idle check": queue.busy,
        "expired": queue.expired,
        "expired, a hundred of them": lambda: queue.expired(now=later),
        "position of the last": lambda: queue.position(ids[0]),
        "position of the first": lambda: queue.position(first[0].queue_id),
        "pause of everything": lambda: queue.pause(Scope()),
        "claim while everything is paused": lambda: queue.claim(ClaimRequest("bench", 100)),
        "resume of everything": lambda: queue.resume(Scope()),
        "pause of a tenant": lambda: queue.pause(TENANT),
        "claim beside a paused tenant": lambda: _claim(queue),
        "pause, claim and resume of a tenant": lambda: _held_back(queue, TENANT),
        "pause, claim and resume of everything": lambda: _held_back(queue, Scope()),
        "the same beside a paused tenant": lambda: _held_back(queue, TENANT, Scope()),
    }


def _held_back(queue: Queue, *scopes: Scope) -> None:
    """Pause, claim and resume: a pause that is already there costs nothing."""
    for scope in scopes:
        queue.pause(scope)
    _claim(queue)
    for scope in scopes:
        queue.resume(scope)
    _claim(queue)


def _claim(queue: Queue) -> None:
    claims = queue.claim(ClaimRequest("bench", 100))
    queue.settle([transitions.released(claim, "measured") for claim in claims])


def _cost(call: Callable[[], object]) -> float:
    """Milliseconds of a call: the best of some, as others use the machine too."""
    return min(_timed(call) for _ in range(CALLS))


def _timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return (time.perf_counter() - start) * 1_000
