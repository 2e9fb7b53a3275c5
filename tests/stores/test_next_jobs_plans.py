"""Plans of the next jobs: read from the claim index, without a sort, and only the needed rows."""

from __future__ import annotations

from pathlib import Path

from penstock.queue.job import NewJob
from penstock.queue.postgres.queue import PostgresQueue
from penstock.queue.postgres.rows import SQL as STATEMENTS
from penstock.queue.sqlite import rows as sqlite_rows
from penstock.queue.sqlite.queue import SqliteQueue
from tests.servers.stores import given_back, store_url

ROWS = 3_000


def tasks() -> list[NewJob]:
    return [
        NewJob(
            queue_id=f"{number * 7919 % ROWS:032x}",
            item_type="function",
            op="run",
            tenant_id="acme",
            collection="docs",
            idempotency_key=f"k{number}",
            lock_key=f"entity {number}",
            payload_json="{}",
        )
        for number in range(ROWS)
    ]


def test_sqlite_reads_them_in_claim_order(tmp_path: Path):
    queue = SqliteQueue(tmp_path / "queue.db", synchronous="NORMAL")
    queue.add(tasks())
    with queue._reading() as rows:
        statement = f"EXPLAIN QUERY PLAN {sqlite_rows.SQL['upcoming']}"
        plan = [row[3] for row in rows.cursor.execute(statement, ("function", 200, 0))]
        connection = rows.cursor.connection
    steps: list[None] = []
    connection.set_progress_handler(lambda: steps.append(None), 1_000)
    found = queue.upcoming(item_type="function")
    queue.close()

    assert "idx_unified_queue_dequeue" in plan[0]
    assert [] == [line for line in plan if "TEMP B-TREE" in line]
    assert [job.queue_id for job in tasks()[:100]] == [job.queue_id for job in found]
    # Reading all rows takes some 200 of them.
    assert len(steps) < 50


def test_postgres_reads_them_in_claim_order_without_statistics(tmp_path: Path):
    queue = PostgresQueue(store_url("postgres", tmp_path))
    queue.add(tasks())
    with queue._reading() as rows:
        asked = {"item_type": "function", "limit": 200, "start": 0}
        statement = f"EXPLAIN (ANALYZE, COSTS OFF) {STATEMENTS['upcoming']}"
        rows.execute("SET enable_sort = off", {})  # as upcoming does for its own transaction
        plan = "\n".join(row[0] for row in rows.execute(statement, asked).fetchall())
    found = queue.upcoming(item_type="function")
    queue.close()
    given_back(tmp_path)

    assert "idx_unified_queue_dequeue" in plan
    assert "Sort" not in plan
    assert [job.queue_id for job in tasks()[:100]] == [job.queue_id for job in found]
