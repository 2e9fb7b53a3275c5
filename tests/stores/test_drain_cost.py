"""Cost of a drained job: statements, indexes, commits and row writes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock.queue import transitions
from penstock.queue.job import Claim, ClaimRequest, JobQuery, Settlement, Status
from penstock.queue.limits import Limit
from penstock.queue.postgres.queue import PostgresQueue
from penstock.queue.postgres.rows import SQL as POSTGRES
from penstock.queue.postgres.rows import PostgresRows, texts, times
from penstock.queue.sql.statements import load
from penstock.queue.sqlite.queue import SqliteQueue
from penstock.queue.sqlite.rows import SQL as SQLITE
from tests.stores.conftest import Own
from tests.stores.new_jobs import T0, new

TOUCHED = {"dequeue", "collection_tenant", "failed", "worker", "lease_expiry", "lock", "backlog"}
"""Indexes that a change of status, lease or lock has to look at."""
LEFT = {"idempotency", "finished", "waiting", "front"}
"""Those that the end of a job has to look at besides."""


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[SqliteQueue]:
    with closing(SqliteQueue(tmp_path / "queue.db")) as queue:
        yield queue


@pytest.mark.parametrize("batch", [1, 100])
@pytest.mark.parametrize("results", [False, True])
def test_an_exchange_on_sqlite_runs_as_many_statements_for_a_batch_as_for_one_job(
    sqlite: SqliteQueue, batch: int, results: bool
) -> None:
    sqlite.add([new(number, lock_key=f"doc:{number}") for number in range(2 * batch)])
    held = sqlite.claim(ClaimRequest("w1", batch))
    ran: list[str] = []
    connection = sqlite._connections.get("write")
    connection.set_trace_callback(ran.append)
    ended = [_done(claim) if results else transitions.done(claim) for claim in held]
    exchanged = sqlite.exchange(ended, ClaimRequest("w1", batch))
    connection.set_trace_callback(None)

    assert len(exchanged.claims) == batch
    assert [Status.DONE] * batch == exchanged.settled
    # Begin, which claims are plain, end, is anything paused or due, candidates, take, commit.
    assert len(ran) == 7, ran


@pytest.mark.parametrize(
    "result", [None, '""', '"\\u0000"', '"a\\"b"', '"é😀"', '{"a":[1,null]}', f'"{"x" * 400_000}"']
)
def test_jobs_of_a_batch_keep_each_their_own_result_on_sqlite(
    sqlite: SqliteQueue, result: str | None
) -> None:
    sqlite.add([new(number) for number in range(6)])
    held = sqlite.claim(ClaimRequest("w1", 6))
    results = [result, None, "1", result, "[]", None]
    ends = [transitions.done(claim, result_json=text) for claim, text in zip(held, results, strict=True)]

    assert [Status.DONE] * 6 == sqlite.settle(ends)
    found = [sqlite.get(claim.queue_id) for claim in held]
    assert results == [job.result_json for job in found if job is not None]


def test_jobs_of_a_batch_have_the_lease_of_their_type_on_sqlite(sqlite: SqliteQueue) -> None:
    sqlite.add([new(number, item_type="function" if number % 2 else "file") for number in range(12)])
    request = ClaimRequest("w1", 12, timedelta(seconds=10), lease_by_type={"function": timedelta(seconds=60)})
    claims = sqlite.claim(request, now=T0)

    for claim in claims:
        seconds = 60 if claim.item_type == "function" else 10
        job = sqlite.get(claim.queue_id)
        assert job is not None
        assert claim.lease_until == job.lease_until == T0 + timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("name", "indexes"),
    [
        ("take", TOUCHED),
        ("take_all", TOUCHED),
        ("finish", TOUCHED | LEFT),
        ("finish_all", TOUCHED | LEFT),
        ("finish_each", TOUCHED | LEFT),
    ],
)
def test_a_job_on_sqlite_opens_no_index_that_it_need_not(
    sqlite: SqliteQueue, name: str, indexes: set[str]
) -> None:
    connection = sqlite._connections.get("write")
    roots = dict(
        connection.execute("SELECT rootpage, name FROM sqlite_master WHERE type = 'index'").fetchall()
    )
    values = (None,) * SQLITE[name].count("?")
    steps = connection.execute(f"EXPLAIN {SQLITE[name]}", values).fetchall()
    opened = {roots[step[3]] for step in steps if step[1] == "OpenWrite" and step[3] in roots}

    assert opened == {f"idx_unified_queue_{each}" for each in indexes}


def test_only_what_is_not_plain_takes_the_long_way_on_sqlite(sqlite: SqliteQueue) -> None:
    """A lost claim and a follow-up among plain ends get answers of their own; the others end at once."""
    sqlite.add([new(number) for number in range(5)])
    held = sqlite.claim(ClaimRequest("w1", 5))
    lost, followed = held[1], held[3]
    sqlite.settle([transitions.done(lost)])
    sqlite.add([new(100, idempotency_key=f"file:c:{3:016x}", payload_json='{"newer":1}')])

    answers = sqlite.settle([_done(claim) for claim in held])

    assert answers == [Status.DONE, None, Status.DONE, Status.PENDING, Status.DONE]
    results = {
        job.queue_id: job.result_json for job in sqlite.find(JobQuery(statuses=frozenset({Status.DONE})))
    }
    plain = {claim.queue_id: f'"{claim.queue_id}"' for claim in held if claim not in (lost, followed)}
    assert results == plain | {lost.queue_id: None}


def _done(claim: Claim) -> Settlement:
    return transitions.done(claim, result_json=f'"{claim.queue_id}"')


# PostgreSQL.

BATCH = 100


@pytest.fixture
def statements(queue: PostgresQueue, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """List the statements sent by the queue, by name if known."""
    sent: list[str] = []
    names = {text: name for name, text in POSTGRES.formatted().items()}
    execute = PostgresRows.execute

    def noted(rows: PostgresRows, statement: str, values: Any) -> Any:
        sent.append(names.get(statement, statement))
        return execute(rows, statement, values)

    monkeypatch.setattr(PostgresRows, "execute", noted)
    return sent


def _drained(queue: PostgresQueue, *, locks: bool) -> int:
    """Exchanges until a thousand jobs are over."""
    own = (lambda number: f"doc:{number}") if locks else (lambda _: None)
    queue.add([new(number, lock_key=own(number)) for number in range(10 * BATCH)])
    exchanges, ended = 1, 0
    held = queue.exchange([], ClaimRequest("w1", BATCH)).claims
    while held:
        exchanges, ended = exchanges + 1, ended + len(held)
        held = queue.exchange([transitions.done(claim) for claim in held], ClaimRequest("w1", BATCH)).claims
    assert ended == 10 * BATCH
    return exchanges


@pytest.mark.parametrize("locks", [False, True])
def test_a_job_drained_from_postgres_is_written_twice_and_shares_its_commit(
    queue: PostgresQueue, own: Own, statements: list[str], locks: bool
) -> None:
    exchanges = _drained(queue, locks=locks)
    # Every statement outside a transaction is one of its own; the look after a commit at what is parked.
    commits = statements.count("COMMIT") + statements.count("any_parked")
    written = _written(queue, own)

    # One commit is of the add.
    assert commits <= 2 * exchanges + 1 <= 0.03 * 10 * BATCH
    assert written == 2 * 10 * BATCH


def _written(queue: PostgresQueue, own: Own) -> int:
    """Count the rows changed by the queue's sessions, reported at their end."""
    sessions = [connection.info.backend_pid for connection in queue._connections._idle]
    queue.close()
    while own.execute("SELECT 1 FROM pg_stat_activity WHERE pid = ANY(%s)", (sessions,)).fetchall():
        own.execute("SELECT pg_sleep(0.01), pg_stat_clear_snapshot()")
    ((changed,),) = own.execute(
        """SELECT n_tup_upd + n_tup_del FROM pg_stat_user_tables
        WHERE relname = 'unified_queue' AND schemaname = current_schema()"""
    ).fetchall()
    return int(changed)


def test_an_exchange_on_postgres_sends_a_fixed_number_of_statements(
    queue: PostgresQueue, statements: list[str]
) -> None:
    exchanges = _drained(queue, locks=True)
    usual = ["BEGIN", "finish_and_wake", "before_claim", "candidates", "take", "COMMIT", "any_parked"]
    last = [name for name in usual if name != "take"]

    assert statements[-len(last) :] == last
    assert statements[: -len(last)][-len(usual) * (exchanges - 3) :] == usual * (exchanges - 3)


def test_the_key_of_a_row_that_is_taken_is_looked_up_once_in_each_index(
    queue: PostgresQueue, own: Own
) -> None:
    """Evaluated twice, as part of a larger condition, the check was a tenth of the cost of a claim."""
    queue.add([new(number, lock_key=f"doc:{number}") for number in range(10)])
    values = dict.fromkeys(re.findall(r"%\((\w+)\)s", POSTGRES["take"]))
    ids, keys = (texts(form.format(number) for number in range(10)) for form in ("job_{:06d}", "doc:{}"))
    values |= {"ids": ids, "keys": keys, "leases": times([T0] * 10), "now": T0, "worker_id": "w1"}
    with queue._connections.borrowed() as connection:
        statement = "EXPLAIN (ANALYZE, COSTS off, TIMING off, FORMAT JSON) " + POSTGRES["take"]
        ((plan,),) = connection.execute(statement.encode(), values).fetchall()
    loops = [(node.get("Index Name"), node["Actual Loops"]) for node in _nodes(plan[0]["Plan"])]

    assert ("idx_unified_queue_lock", 10) in loops
    assert ("idx_unified_queue_line", 10) in loops
    assert ("queue_pause_pkey", 10) not in loops


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for below in plan.get("Plans", ()):
        yield from _nodes(below)


def test_no_index_on_postgres_is_there_for_one_question_that_another_can_answer(own: Own) -> None:
    """Each is opened by every statement that changes a row. The last one finds rows by their limit key."""
    found = own.execute(
        b"SELECT count(*) FROM pg_indexes WHERE tablename = 'unified_queue' AND schemaname = current_schema()"
    ).fetchall()
    assert found == [(18,)]


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
def test_a_claim_reads_nothing_about_limits(dialect: str) -> None:
    """Rows that wait for a limit are in none of its indexes."""
    statements = load(dialect).formatted()
    names = {"before_claim", "candidates", "take", "take_plain", "priority_head"} & statements.keys()
    assert [] == [name for name in names if "limit_" in statements[name] or "'limit'" in statements[name]]


def test_a_claim_on_sqlite_has_the_same_plan_with_waiting_rows(tmp_path: Path) -> None:
    queue = SqliteQueue(tmp_path / "queue.db", synchronous="OFF")
    plans = []
    for number in (0, 2_000):
        queue.put_limit(Limit(key="api", concurrent=1))
        queue.add([new(each, limit_key="api") for each in range(number)])
        with queue._reading() as rows:
            plans.append(rows.cursor.execute("EXPLAIN QUERY PLAN " + SQLITE["candidates"], (10,)).fetchall())
        assert len(queue.claim(ClaimRequest("w1", 10))) == min(number, 1)
        assert queue.rows_read <= 1
    queue.close()
    assert plans[0] == plans[1]
