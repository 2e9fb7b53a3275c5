"""PostgreSQL only: schema, plans, the clock of the server, joined transactions."""

from __future__ import annotations

import os
import re
import resource
import threading
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta

import psycopg
import pytest

from penstock import clock
from penstock.queue import payloads, transitions
from penstock.queue.job import Beat, ClaimRequest, JobQuery, Scope, Status
from penstock.queue.postgres.queue import PostgresQueue
from penstock.queue.postgres.rows import SQL, PostgresRows, transact
from tests.servers import postgres, run
from tests.stores.conftest import Opener, Own
from tests.stores.new_jobs import T0, new

# The schema.


def test_the_indexes_have_the_names_of_the_schema_document(own: Own) -> None:
    found = own.execute("SELECT indexname FROM pg_indexes WHERE schemaname = current_schema()").fetchall()
    expected = "dequeue idempotency lease_expiry collection_tenant item_type failed worker".split()

    assert {f"idx_unified_queue_{name}" for name in expected} <= {name for (name,) in found}


def test_ids_and_keys_compare_by_their_bytes(queue: PostgresQueue) -> None:
    ids = ["job_B", "job_a", "job_é", "job_Z", "job__"]
    queue.add([new(n, queue_id=queue_id) for n, queue_id in enumerate(ids)], now=T0)

    assert sorted(ids) == [job.queue_id for job in queue.find(JobQuery())]


@pytest.mark.parametrize(("item_type", "op"), [(t, ops[0]) for t, ops in payloads.MATRIX.items()])
def test_every_item_type_of_the_matrix_fits_the_table(queue: PostgresQueue, item_type: str, op: str) -> None:
    queue.add([new(1, item_type=item_type, op=op)], now=T0)

    assert [item_type] == [job.item_type for job in queue.find(JobQuery())]


def test_two_holders_of_one_lock_are_refused_by_the_database(queue: PostgresQueue, own: Own) -> None:
    queue.add([new(1, lock_key="a"), new(2, lock_key="a")], now=T0)
    queue.claim(ClaimRequest("w"), now=T0)

    with pytest.raises(psycopg.errors.UniqueViolation, match="lock"):
        own.execute("UPDATE unified_queue SET lock_held = 'a' WHERE queue_id = 'job_000002'")


def test_openers_that_come_together_find_one_schema(url: str) -> None:
    start = threading.Barrier(8)

    def open_one(_: int) -> int:
        start.wait()
        queue = PostgresQueue(url)
        queue.add([new(os.getpid(), queue_id=clock.new_id(), dedupe=False)])
        queue.close()
        return 1

    with ThreadPoolExecutor(8) as pool:
        assert 8 == sum(pool.map(open_one, range(8)))
    queue = PostgresQueue(url)
    assert {(): 8} == queue.count(JobQuery())
    queue.close()


def test_function_jobs_can_be_read_as_a_task_queue(queue: PostgresQueue, own: Own) -> None:
    asked = '{"entity_type":"invoice","entity_id":"7","function_name":"send","payload":{"to":"ann"}}'
    queue.add([new(1, item_type="function", op="run", payload_json=asked), new(2)], now=T0)
    columns = (
        "task_id, entity_type, entity_id, function_name, payload ->> 'to', status, retry_count, created_at"
    )

    assert [("job_000001", "invoice", "7", "send", "ann", "PENDING", 0, T0)] == own.execute(
        f"SELECT {columns} FROM task_queue".encode()
    ).fetchall()


# Plans, on a table the server knows nothing of.


@pytest.mark.parametrize("backlog", [1_000, 100_000])
@pytest.mark.parametrize("plans", ["force_custom_plan", "force_generic_plan"])
@pytest.mark.parametrize("name", ["candidates", "take_plain"])
def test_a_claim_reads_the_claim_index_in_its_own_order(backlog: int, plans: str, name: str) -> None:
    with _planned(backlog) as connection:
        connection.execute(f"SET plan_cache_mode = {plans}".encode())
        connection.prepare_threshold = 0
        found = _plan(connection, name, **HOT["take_plain"])

    assert "Index Scan using idx_unified_queue_dequeue" in found
    assert "Sort" not in found
    assert "Seq Scan" not in found


HOT: dict[str, dict[str, object]] = {
    "finish": {"ids": "{job_1}", "numbers": "{1}", "results": "{NULL}", "now": T0},
    "finish_and_wake": {"ids": "{job_1}", "numbers": "{1}", "results": "{NULL}", "now": T0},
    "take": {
        "ids": "{job_1}",
        "leases": "{}",
        "until": T0,
        "keys": "{a}",
        "now": T0,
        "worker_id": "w",
        "oldest": None,
    },
    "take_plain": {"limit": 10, "locks": 200, "now": T0, "until": T0, "worker_id": "w", "most_bytes": 1_000},
    "promote": {"now": T0, "limit": 100},
    "renew": {"ids": "{job_1}", "numbers": "{1}", "leases": "{NULL}", "progress": "{NULL}", "now": T0},
    "lock_rows": {"ids": "{job_1}"},
    "live": {"tenants": "{t}", "branches": "{main}", "keys": "{a}"},
    "first_parked": {"keys": "{a}"},
    "parked_rows": {"tenant_id": "t", "collection": "*", "limit": 10},
    "wake": {"keys": "{a}", "channel": "c"},
    "wake_one": {"key": "a", "channel": "c"},
    "flow_turns": {"ids": "{job_1}", "tenants": "{t}", "priorities": "{5}"},
    "expired": {"now": T0, "limit": 10},
    **{
        name: dict.fromkeys(re.findall(r"%\((\w+)\)s", SQL[name]))
        for name in ("add_plain", "add_plain_limited", "add_alike")
    },
}


@pytest.mark.parametrize("name", HOT)
@pytest.mark.parametrize("backlog", [0, 20_000])
def test_no_statement_of_the_hot_path_scans_the_table(name: str, backlog: int) -> None:
    with _planned(backlog, *([] if backlog else ["VACUUM unified_queue"])) as connection:
        found = _plan(connection, name, **HOT[name])

    assert "Seq Scan on unified_queue" not in found


@pytest.mark.parametrize("backlog", [0, 20_000])
@pytest.mark.parametrize("plans", ["force_custom_plan", "force_generic_plan"])
@pytest.mark.parametrize("name", ["take", "first_parked", "finish_and_wake", "wake", "wake_one"])
def test_the_line_of_a_lock_is_read_from_its_index(backlog: int, plans: str, name: str) -> None:
    with _planned(backlog) as connection:
        connection.execute(f"SET plan_cache_mode = {plans}".encode())
        found = _plan(connection, name, **HOT[name])

    assert "using idx_unified_queue_line" in found
    # The rows that were found, at most one of each lock.
    assert "Sort" not in found or name == "first_parked"
    assert "Seq Scan on unified_queue" not in found


@pytest.mark.parametrize("name", ["finish", "finish_and_wake", "renew", "take", "take_plain", "update"])
def test_what_a_worker_holds_is_looked_up_by_its_id(name: str) -> None:
    held = "UPDATE unified_queue SET status = 'in_progress', worker_id = 'w', lease_until = now()"
    values = HOT.get(name) or dict.fromkeys(re.findall(r"%\((\w+)\)s", SQL[name]))
    with _planned(5_000, held) as connection:
        found = _plan(connection, name, **values)

    assert "Index Scan using pk_unified_queue on unified_queue q" in found
    assert "Join Filter" not in found


@contextmanager
def _planned(backlog: int, *then: str) -> Iterator[Own]:
    """Yield a queue's session on a filled table. It is filled once a run: plans change nothing."""
    note = run.place() / f"plans-{backlog}-{zlib.crc32(repr(then).encode())}"
    with run.alone("plans"):
        if not note.exists():
            note.write_text(_filled(backlog, then))
    queue = PostgresQueue(note.read_text())
    with queue._connections.borrowed() as connection:
        yield connection
        # A session with settings of this test.
        connection.close()
    queue.close()


def _filled(backlog: int, then: Sequence[str]) -> str:
    url = postgres.fresh_store()
    PostgresQueue(url).close()
    with psycopg.connect(url, autocommit=True) as own:
        own.execute("ALTER TABLE unified_queue SET (autovacuum_enabled = off)")
        _backlog(own, backlog)
        for statement in then:
            own.execute(statement.encode())
    return url


def _backlog(own: Own, count: int) -> None:
    own.execute(
        """
        INSERT INTO unified_queue (queue_id, item_type, op, tenant_id, collection, created_at, updated_at,
                                   idempotency_key, payload_json, priority, turn, lock_key)
        SELECT 'job_' || n, 'file', 'ingest', 't' || n %% 20, 'c', now(), now(), 'k' || n, '{}', n %% 3,
               n / 20, 'lock' || n
        FROM generate_series(1, %s) AS n
        """,
        (count,),
    )


def _plan(own: Own, name: str, **values: object) -> str:
    rows = own.execute(f"EXPLAIN {SQL[name]}".encode(), values).fetchall()
    return "\n".join(str(line) for (line,) in rows)


# The server's clock.


@pytest.mark.parametrize("minutes", [-10, 10])
def test_a_machine_whose_clock_is_wrong_neither_steals_nor_starves(
    opened: Opener, monkeypatch: pytest.MonkeyPatch, minutes: int
) -> None:
    right = opened()
    right.add([new(1), new(2), new(3, run_at=clock.now() + timedelta(minutes=5))])
    right.claim(ClaimRequest("right", lease=timedelta(minutes=5)))
    really = clock.now
    monkeypatch.setattr(clock, "now", lambda: really() + timedelta(minutes=minutes))

    wrong = opened()
    (claim,) = wrong.claim(ClaimRequest("wrong", limit=10, lease=timedelta(minutes=5)))
    wrong.renew([Beat(claim.queue_id, claim.claim_number, lease=timedelta(minutes=5))])
    job = wrong.get(claim.queue_id)

    assert "job_000002" == claim.queue_id
    assert [] == wrong.expired()
    assert [] == right.expired()
    assert job is not None
    assert job.lease_until is not None
    assert timedelta(minutes=4) < job.lease_until - really() < timedelta(minutes=6)


# Behind a pooler in transaction mode: another session for every transaction, and nothing kept in one.


@pytest.fixture
def pooled(opened: Opener) -> PostgresQueue:
    queue = opened(pooled=True)
    queue._connections._return = _left_clean  # type: ignore[method-assign]
    return queue


def _left_clean(connection: Own) -> None:
    assert (0,) == connection.execute("SELECT count(*)::int FROM pg_prepared_statements").fetchone()
    assert ("0",) == connection.execute("SHOW statement_timeout").fetchone()
    assert ("on",) == connection.execute("SHOW enable_seqscan").fetchone()
    assert [] == connection.execute("SELECT 1 FROM pg_listening_channels()").fetchall()
    held = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()"
    assert [] == connection.execute(held.encode()).fetchall()
    connection.close()


def test_everything_works_where_each_transaction_has_another_session(pooled: PostgresQueue) -> None:
    for start in range(0, 60, 10):
        pooled.add([new(start + n, lock_key=f"lock-{n % 3}") for n in range(10)])
    pooled.pause(Scope("nobody"))
    done: list[str] = []
    claims = pooled.claim(ClaimRequest("w", 10))
    while claims:
        done += [claim.queue_id for claim in claims]
        endings = [transitions.done(claim) for claim in claims]
        claims = pooled.exchange(endings, ClaimRequest("w", 10)).claims

    assert [f"job_{number:06d}" for number in range(60)] == sorted(done)
    assert {(Status.DONE,): 60} == pooled.count(JobQuery(), by=("status",))


def test_a_transaction_behind_a_pooler_is_planned_like_any_other(pooled: PostgresQueue) -> None:
    """Without statistics a claim must not read and sort all pending rows."""

    def look(rows: PostgresRows) -> list[tuple[object, ...]]:
        return [
            rows.execute(f"SHOW {name}", {}).fetchone() or ()
            for name in ("enable_seqscan", "statement_timeout")
        ]

    assert [("off",), ("1min",)] == transact(pooled._connections, "news", PostgresRows, look)


def test_waiting_behind_a_pooler_looks_now_and_then(pooled: PostgresQueue) -> None:
    assert not pooled.wait(0.01)
    timer = threading.Timer(0.05, lambda: pooled.add([new(1)]))
    timer.start()
    assert pooled.wait(120)
    timer.join()


# Processes and sessions.


def test_a_forked_child_has_sessions_of_its_own(queue: PostgresQueue) -> None:
    queue.add([new(1)])
    queue.wait(0)
    pid = os.fork()
    if pid == 0:
        try:
            queue.add([new(2)])
            queue.wait(0)
            os._exit(0 if len(queue.claim(ClaimRequest("child", 10))) == 2 else 1)
        finally:
            os._exit(2)

    assert 0 == os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert queue.wait(120)
    queue.add([new(3)])
    assert queue.wait(120)
    assert ["job_000003"] == [claim.queue_id for claim in queue.claim(ClaimRequest("parent", 10))]


def test_sessions_that_ended_while_idle_are_replaced(queue: PostgresQueue) -> None:
    queue.add([new(1)])
    queue.wait(0)
    _end_sessions(queue)

    queue.add([new(2)])
    assert queue.wait(120)
    assert 2 == len(queue.claim(ClaimRequest("w", 10)))


def _end_sessions(queue: PostgresQueue) -> None:
    """Only sessions of this test: others run on the same server."""
    listener = queue._listener
    assert listener is not None
    assert listener._connection is not None
    connections = [*queue._connections._idle, listener._connection]
    pids = [connection.info.backend_pid for connection in connections]
    with psycopg.connect(postgres.shared_url(), autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(pid, 5000) FROM unnest(%s::int[]) AS p(pid)", (pids,))


def test_waiting_costs_next_to_nothing(queue: PostgresQueue) -> None:
    queue.wait(0)
    before = _times_asleep()
    assert not queue.wait(1.0)
    assert _times_asleep() - before < 50


def _times_asleep() -> int:
    """Count wake-ups of all threads: one per second of sleep, also on a busy host."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw


def test_more_threads_than_connections_take_turns(opened: Opener) -> None:
    queue = opened(pool_size=1)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: queue.add([new(n)]), range(40)))

    assert {(): 40} == queue.count(JobQuery())
    assert 1 == len(queue._connections._idle)
