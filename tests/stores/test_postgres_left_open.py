"""An open transaction of another program: the server cannot remove dead rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from penstock.queue import transitions
from penstock.queue.job import ClaimRequest
from penstock.queue.postgres import queue as engine
from penstock.queue.postgres.queue import PostgresQueue
from penstock.queue.postgres.rows import SQL
from penstock.queue.sql.statements import LOCK_CAP
from tests.servers import postgres
from tests.stores.new_jobs import new
from tests.worker.worker_processes import until

JOBS = 2_000
AT_ONCE = 100


@pytest.fixture
def url() -> str:
    return postgres.fresh_store()


@pytest.fixture
def queue(url: str) -> Iterator[PostgresQueue]:
    # One connection, on which the claim is planned once and looked at afterwards.
    queue = PostgresQueue(url, pool_size=1)
    with psycopg.connect(url, autocommit=True) as own:
        own.execute("ALTER TABLE unified_queue SET (autovacuum_enabled = off)")
    yield queue
    queue.close()


@pytest.fixture
def left_open(url: str) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
    with psycopg.connect(url) as connection:
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        yield connection


def work_off(queue: PostgresQueue) -> None:
    claims = queue.claim(ClaimRequest("w", AT_ONCE))
    while claims:
        ended = [transitions.done(claim) for claim in claims]
        claims = queue.exchange(ended, ClaimRequest("w", AT_ONCE)).claims


def look(queue: PostgresQueue) -> tuple[int, str]:
    """Return the pages read by a claim, and the plan."""
    with queue._connections.borrowed() as connection:
        statement = SQL["candidates"].replace("%(limit)s", "$1").replace("%(locks)s", str(LOCK_CAP))
        connection.execute(f"PREPARE look(int) AS {statement}".encode())
        ((found,),) = connection.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE look({AT_ONCE})")
        connection.execute("DEALLOCATE look")
    plan = found[0]["Plan"]
    return plan["Shared Hit Blocks"] + plan["Shared Read Blocks"], str(plan)


def pages(own: psycopg.Connection[tuple[Any, ...]], name: str) -> int:
    ((size,),) = own.execute("SELECT pg_relation_size(%s::regclass) / 8192", (name,)).fetchall()
    return int(size)


def test_a_claim_reads_no_page_twice_and_recovers(
    queue: PostgresQueue, url: str, left_open: psycopg.Connection[tuple[Any, ...]]
) -> None:
    queue.add([new(number) for number in range(JOBS)])
    left_open.execute("SELECT count(*) FROM unified_queue")
    work_off(queue)
    with psycopg.connect(url, autocommit=True) as own:
        held, plan = look(queue)
        most = pages(own, "unified_queue") + pages(own, "idx_unified_queue_dequeue")
        left_open.rollback()

        def recovered() -> bool:
            # Other tests have transactions open here, too: what ended since then cannot be removed yet.
            own.execute("VACUUM unified_queue")
            return look(queue)[0] <= 5

        until(recovered)

    assert "idx_unified_queue_dequeue" in plan
    assert "'Node Type': 'Sort'" not in plan
    assert held <= most


def test_it_is_told(
    queue: PostgresQueue,
    left_open: psycopg.Connection[tuple[Any, ...]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    left_open.execute("SELECT 1 FROM unified_queue")
    process = f"(process {left_open.info.backend_pid})"
    assert not any(process in warning for warning in queue.check())

    # The oldest is told, and others have theirs open here.
    monkeypatch.setattr(engine, "OPEN_TOO_LONG_S", 0)

    assert any("has a transaction open for 0 minutes (process " in warning for warning in queue.check())
