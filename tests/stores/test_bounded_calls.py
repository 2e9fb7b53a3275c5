"""Bounded calls: reads do not grow with the rows, by SQLite's steps and PostgreSQL's plans."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from penstock.queue import transitions
from penstock.queue.job import ClaimRequest, Held, JobQuery, Scope, Status
from penstock.queue.limits import Limit
from penstock.queue.postgres import queue
from penstock.queue.postgres.queue import PostgresQueue
from penstock.queue.postgres.rows import SQL as POSTGRES
from penstock.queue.protocol import Queue
from penstock.queue.sql import statements
from penstock.queue.sqlite.queue import SqliteQueue
from tests.servers import postgres
from tests.servers.stores import given_back
from tests.stores.new_jobs import T0, new

FEW, MANY = 3_000, 30_000
STEP = 100

CALLS: dict[str, Callable[[Queue], object]] = {
    "tally": lambda queue: queue.tally(),
    "oldest": lambda queue: queue.oldest(),
    "backlog": lambda queue: queue.backlog(functions=False, cap=100),
    "busy": lambda queue: queue.busy(),
    "expired": lambda queue: queue.expired(),
    "position of the first": lambda queue: queue.position("job_000000"),
    "position in the middle": lambda queue: queue.position("job_001500"),
    "pause": lambda queue: queue.pause(Scope()),
    "claim in a pause": lambda queue: queue.claim(ClaimRequest("w1", 10)),
    "resume": lambda queue: queue.resume(Scope()),
    "pause of a tenant": lambda queue: queue.pause(Scope("t1")),
    "claim beside a paused tenant": lambda queue: queue.claim(ClaimRequest("w1", 10)),
    "resume of a tenant": lambda queue: queue.resume(Scope("t1")),
}


def filled(queue: Queue, rows: int) -> None:
    """Jobs of ten tenants in three priorities."""
    for start in range(0, rows, 3_000):
        numbers = range(start, min(start + 3_000, rows))
        queue.add([new(n, tenant_id=f"t{n % 10}", priority=4 + n % 3) for n in numbers])


def steps_of(queue: SqliteQueue, call: Callable[[Queue], object]) -> int:
    """Count the instructions of SQLite's machine for a call, in hundreds."""
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    connections = [queue._connections.get(role) for role in ("read", "write")]
    for connection in connections:
        connection.set_progress_handler(count, STEP)
    call(queue)
    for connection in connections:
        connection.set_progress_handler(None, 0)
    return steps


def test_a_call_on_sqlite_takes_as_many_steps_with_ten_times_the_rows(tmp_path: Path) -> None:
    steps: dict[int, dict[str, int]] = {}
    for rows in (FEW, MANY):
        queue = SqliteQueue(tmp_path / f"{rows}.db", synchronous="OFF")
        filled(queue, rows)
        steps[rows] = {what: steps_of(queue, call) for what, call in CALLS.items()}
        queue.close()
    grown = {
        what: (few, steps[MANY][what]) for what, few in steps[FEW].items() if steps[MANY][what] > 2 * few + 20
    }
    assert {} == grown


def test_a_resume_of_everything_reads_no_job_that_another_pause_holds_back(tmp_path: Path) -> None:
    steps = []
    for number in (100, 1_000):
        with closing(SqliteQueue(tmp_path / f"{number}.db", synchronous="OFF")) as queue:
            queue.add([new(n, tenant_id="t1") for n in range(number)])
            queue.pause(Scope("t1"))
            while len(queue.find(JobQuery(held=Held.PAUSE, limit=number))) < number:
                assert [] == queue.claim(ClaimRequest("w1", 100))
            queue.pause(Scope())
            steps.append(steps_of(queue, lambda queue: queue.resume(Scope())))
            assert {Scope("t1")} == queue.paused()
    assert steps[1] <= steps[0] + 2


LISTS = {
    "running": JobQuery(statuses=frozenset({Status.IN_PROGRESS}), top_level=True, limit=100),
    "newest without children": JobQuery(top_level=True, newest_first=True, limit=51),
}


def test_lists_of_jobs_read_neither_children_nor_ended_jobs(tmp_path: Path) -> None:
    steps: dict[int, dict[str, int]] = {}
    for number in (200, 2_000):
        with closing(SqliteQueue(tmp_path / f"{number}.db", synchronous="OFF")) as queue:
            queue.add([new(n) for n in range(number)])
            queue.settle([transitions.done(claim) for claim in queue.claim(ClaimRequest("w1", number))])
            queue.add([new(number)])
            (parent,) = queue.claim(ClaimRequest("w1", 1))
            children = tuple(new(n) for n in range(number + 1, 2 * number))
            queue.settle([transitions.waits(parent, children=children)])
            found = {what: len(queue.find(query)) for what, query in LISTS.items()}
            assert {"running": 1, "newest without children": 51} == found
            steps[number] = {
                what: steps_of(queue, lambda queue, one=query: queue.find(one))  # type: ignore[misc]
                for what, query in LISTS.items()
            }
    grown = {what for what, few in steps[200].items() if steps[2_000][what] > 2 * few + 5}
    assert set() == grown


@pytest.mark.parametrize("newest_first", [False, True])
def test_a_page_of_one_item_type_reads_no_other_row(tmp_path: Path, newest_first: bool) -> None:
    """The rows of the type are put in order by an index alone, children too."""
    sql, values = statements.find(JobQuery(item_type="file", newest_first=newest_first), "sqlite")
    with closing(SqliteQueue(tmp_path / "queue.db")) as queue:
        plan = queue._connections.get("read").execute(f"EXPLAIN QUERY PLAN {sql}", values).fetchall()
    ways = [str(row[-1]) for row in plan if "unified_queue" in str(row[-1])]
    assert ["queue_id=?", "COVERING INDEX idx_unified_queue_item_type (item_type=?)"] == [
        re.findall(r"COVERING.*|queue_id=\?", way)[0] for way in ways
    ]


def test_a_limit_of_calls_reads_no_ended_calls(tmp_path: Path) -> None:
    """Of all calls only the pending ones are counted, up to the limit."""
    steps = []
    with closing(SqliteQueue(tmp_path / "queue.db", synchronous="OFF")) as queue:
        for start in (0, 1_000, 2_000):
            queue.add([new(n, item_type="function", op="run") for n in range(start, start + 1_000)])
            steps.append(steps_of(queue, lambda queue: queue.backlog(functions=True, cap=100)))
            queue.settle([transitions.done(claim) for claim in queue.claim(ClaimRequest("w1", 1_000))])
        queue.add([new(3_000, item_type="function", op="run")])
        steps.append(steps_of(queue, lambda queue: queue.backlog(functions=True, cap=100)))
    assert max(steps) < 2 * steps[0] + 20


def scheduled_and_limited(queue: Queue, number: int) -> None:
    """Paused jobs that wait for a limit, and jobs for later; none has a start given by its limit."""
    queue.put_limit(Limit(key="api", concurrent=1))
    queue.add([new(n, limit_key="api") for n in range(number)])
    queue.settle([transitions.done(claim) for claim in queue.claim(ClaimRequest("w1", 1))])
    queue.add([new(number + n, run_at=T0 + timedelta(days=36_500)) for n in range(number)])
    queue.pause(Scope())


def test_an_idle_check_on_sqlite_reads_neither_scheduled_nor_limited_jobs(tmp_path: Path) -> None:
    with closing(SqliteQueue(tmp_path / "queue.db", synchronous="OFF")) as queue:
        scheduled_and_limited(queue, 2_000)
        assert steps_of(queue, lambda queue: queue.busy()) < 20


def test_an_idle_check_on_postgres_reads_neither_scheduled_nor_limited_jobs(tmp_path: Path) -> None:
    with closing(PostgresQueue(postgres.store_at(tmp_path))) as queue:
        scheduled_and_limited(queue, 2_000)
        with queue._reading() as rows:
            explain = "EXPLAIN (ANALYZE, COSTS off, TIMING off) "
            found = rows.execute(explain + POSTGRES["any_reserved"], {}).fetchall()
    given_back(tmp_path)
    plan = "\n".join(line for (line,) in found)
    read = re.findall(r"(?:rows=|Removed by Filter: )([\d.]+)", plan)
    assert max(float(number) for number in read) <= 2


@pytest.fixture(scope="module")
def many_on_postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresQueue]:
    place = tmp_path_factory.mktemp("many")
    queue = PostgresQueue(postgres.store_at(place))
    filled(queue, MANY)
    yield queue
    queue.close()
    given_back(place)


PLANNED: dict[str, dict[str, object]] = {
    "ahead_above": {"priority": 5, "cap": 1_000},
    "ahead_within": {
        "priority": 5,
        "turn": 10,
        "created_at": "2026-01-01T00:00:00Z",
        "queue_id": "job_0",
        "cap": 1_000,
    },
    "lengths": {"cap": 1_000},
    "requests_ahead": {
        "priority": 5,
        "turn": 10,
        "created_at": "2026-01-01T00:00:00Z",
        "queue_id": "job_0",
        "cap": 1_000,
    },
    "backlog_indexing": {"cap": 101},
    "backlog_functions": {"cap": 101},
    "any_claimable": {},
    "any_leased": {},
    "any_waiting": {},
    "any_returning": {"now": "2026-01-01T00:00:00Z"},
    "expired": {"now": "2026-01-01T00:00:00Z", "limit": 100},
    "oldest": {},
    "tally_bounded": {"cap": 1_000},
    "paused_below": {"priority": 11, "limit": 1_000},
    "claimable_below": {"priority": 11, "limit": 1_000},
    "claimable_from": {
        "priority": 5,
        "turn": 10,
        "created_at": "2026-01-01T00:00:00Z",
        "queue_id": "job_0",
        "limit": 1_000,
    },
}


@pytest.mark.parametrize("name", PLANNED)
@pytest.mark.parametrize("analyzed", [False, True])
def test_a_statement_on_postgres_reads_a_bounded_part(
    many_on_postgres: PostgresQueue, name: str, analyzed: bool
) -> None:
    """With or without statistics, and of 30,000 rows never more than the bound the statement is given."""
    values = PLANNED[name]
    with many_on_postgres._reading() as rows, rows.connection.transaction(force_rollback=True):
        if analyzed:
            rows.execute("ANALYZE unified_queue", {})
        found = rows.execute("EXPLAIN (ANALYZE, COSTS off, TIMING off) " + POSTGRES[name], values).fetchall()
    plan = "\n".join(line for (line,) in found)
    read = [float(number) for number in re.findall(r"rows=([\d.]+)", plan)]
    left_out = [int(number) for number in re.findall(r"Rows Removed by Filter: (\d+)", plan)]
    assert "Seq Scan on unified_queue" not in plan
    assert max(read, default=0) <= 1_000
    assert max(left_out, default=0) <= 1_000


def test_a_large_table_is_estimated_and_a_small_part_of_it_counted(
    many_on_postgres: PostgresQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "FEW_PAGES", 100)
    many_on_postgres.claim(ClaimRequest("w1", 50))
    tally = many_on_postgres.tally()
    running = sum(number for (status, _, _), number in tally.counts.items() if status == "in_progress")
    pending = sum(number for (status, _, _), number in tally.counts.items() if status == "pending")
    assert (False, 50) == (tally.exact, running)
    assert MANY * 0.5 < pending < MANY * 1.5
