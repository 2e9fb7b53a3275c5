"""Plans of a claim with limits, dependencies, locks and pauses in use: the same as in an empty store."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock.queue.job import ClaimRequest, Held, JobQuery
from penstock.queue.limits import Limit
from penstock.queue.postgres.queue import PostgresQueue
from penstock.queue.postgres.rows import SQL as POSTGRES
from penstock.queue.sqlite.queue import SqliteQueue
from penstock.queue.sqlite.rows import SQL as SQLITE
from tests.conformance.conftest import T0, at
from tests.servers.stores import given_back, store_url

SIZES = [2_000, pytest.param(1_000_000, marks=pytest.mark.chaos)]
PLAIN_STATEMENTS = Path("src/penstock/queue/sql/queries/sqlite/claim.sql")

# One row in ten each: claimable, later, parked, paused, after another, waiting for a limit, with a slot,
# running, done, and counted by its key.
FILL = """
INSERT INTO unified_queue (
    queue_id, root_id, item_type, op, tenant_id, collection, priority, idempotency_key, dedupe, turn,
    payload_json, created_at, updated_at, status, held, run_at, lock_key, lease_until, worker_id,
    finished_at, after_json, limit_key, limit_at, backlog_key, result_ttl_s)
SELECT 'job_' || (10000000 + i), 'job_' || (10000000 + i), 'function', 'run', 'tenant' || (i % 50), 'docs',
    i % 11, 'key' || i, {false}, i, '{{}}', {past}, {past},
    CASE WHEN i % 10 = 7 THEN 'in_progress' WHEN i % 10 = 8 THEN 'done' ELSE 'pending' END,
    CASE i % 10 WHEN 1 THEN 'time' WHEN 2 THEN 'lock' WHEN 3 THEN 'pause' WHEN 4 THEN 'after'
                WHEN 5 THEN 'limit' END,
    CASE WHEN i % 10 = 1 THEN {later} END,
    CASE WHEN i % 10 = 2 THEN 'lock' || (i % 100) END,
    CASE WHEN i % 10 = 7 THEN {later} END, CASE WHEN i % 10 = 7 THEN 'w1' END,
    CASE WHEN i % 10 = 8 THEN {past} END,
    CASE WHEN i % 10 = 4 THEN '{{"after":["job_10000001"]}}' END,
    CASE WHEN i % 10 IN (5, 6) THEN 'api' || (i % 3) END, CASE WHEN i % 10 = 6 THEN {past} END,
    CASE WHEN i % 10 = 9 THEN 'mail' END, CASE WHEN i % 10 = 8 THEN 60 END
FROM {numbers}
"""
DEPENDENCIES = """
INSERT INTO queue_dependency (after_id, queue_id)
SELECT 'job_10000001', queue_id FROM unified_queue WHERE held = 'after'
"""
VALUES: dict[str, Any] = {
    "limit": 100,
    "locks": 100,
    "now": T0,
    "until": T0,
    "worker_id": "w1",
    "most_bytes": 1_000,
    "oldest": None,
    "ids": "{job_10000010}",
    "numbers": "{1}",
    "results": "{}",
    "leases": "{}",
    "keys": "{NULL}",
}
CLAIMS = ("before_claim", "promote", "candidates", "take_plain", "finish", "take", "finish_and_wake")


def limits(queue: Any) -> None:
    for number in range(3):
        queue.put_limit(Limit(key=f"api{number}", concurrent=1_000, starts=60, period_s=60), now=T0)


@pytest.fixture
def postgres(tmp_path: Path) -> Iterator[PostgresQueue]:
    queue = PostgresQueue(store_url("postgres", tmp_path))
    yield queue
    queue.close()
    given_back(tmp_path)


def postgres_plans(queue: PostgresQueue) -> dict[str, str]:
    with queue._reading() as rows:
        return {
            name: "\n".join(
                line for (line,) in rows.execute(f"EXPLAIN (COSTS OFF) {POSTGRES[name]}", VALUES).fetchall()
            )
            for name in CLAIMS
        }


@pytest.mark.parametrize("size", SIZES)
def test_postgres_plans_a_claim_alike(postgres: PostgresQueue, size: int):
    limits(postgres)
    before = postgres_plans(postgres)
    times = {"past": f"timestamptz '{T0.isoformat()}'", "later": f"timestamptz '{at(86_400).isoformat()}'"}
    fill = FILL.format(**times, false="false", numbers=f"generate_series(1, {size}) AS n(i)")
    with postgres._reading() as rows:
        rows.execute("SET statement_timeout = 0", {})
        # The server would count the new rows by itself, some time between the two looks at the plans.
        rows.execute("ALTER TABLE unified_queue SET (autovacuum_enabled = false)", {})
        for statement in (fill, DEPENDENCIES):
            rows.connection.execute(statement.encode())
    after = postgres_plans(postgres)
    # Only the order of the filters of a take may depend on the size.
    assert {"take"} >= {name for name in CLAIMS if before[name] != after[name]}
    with postgres._reading() as rows:
        rows.execute("ANALYZE unified_queue", {})
    for plans in (before, after, postgres_plans(postgres)):
        for name in ("candidates", "take_plain"):
            assert "idx_unified_queue_dequeue" in plans[name]
        assert [] == [
            plan for plan in plans.values() if "Seq Scan on unified_queue" in plan or "Sort" in plan
        ]
    assert 100 == len(postgres.claim(ClaimRequest("w2", 100, timedelta(hours=1)), now=at(1)))
    assert postgres.rows_read <= 101
    assert size // 10 == sum(postgres.count(JobQuery(held=Held.LIMIT)).values())


def sqlite_plans(queue: SqliteQueue) -> dict[str, list[str]]:
    names = re.findall(r"^-- name: (\w+)$", PLAIN_STATEMENTS.read_text(encoding="utf-8"), re.MULTILINE)
    found = {}
    with queue._reading() as rows:
        for name in (*names, "plain_claims", "plain_claim", "finish"):
            statement = SQLITE[name]
            values = [None] * max([int(number) for number in re.findall(r"\?(\d+)", statement)], default=0)
            plan = rows.cursor.execute(f"EXPLAIN QUERY PLAN {statement}", values).fetchall()
            found[name] = [row[3] for row in plan]
    return found


@pytest.mark.parametrize("size", SIZES)
def test_sqlite_plans_a_claim_alike(tmp_path: Path, size: int):
    queue = SqliteQueue(tmp_path / "queue.db", synchronous="OFF")
    limits(queue)
    before = sqlite_plans(queue)
    assert "idx_unified_queue_dequeue" in "\n".join(before["candidates"])
    times = {"past": f"'{T0.isoformat()}'", "later": f"'{at(86_400).isoformat()}'"}
    numbers = (
        f"(WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {size}) SELECT i FROM n)"
    )
    with queue._writing("fill") as rows:
        rows.cursor.execute(FILL.format(**times, false="0", numbers=numbers))
        rows.cursor.execute(DEPENDENCIES)
    assert before == sqlite_plans(queue)
    with queue._writing("analyze") as rows:
        rows.cursor.execute("ANALYZE")
    assert before == sqlite_plans(queue)
    assert not [line for plan in before.values() for line in plan if line == "SCAN unified_queue"]
    assert 100 == len(queue.claim(ClaimRequest("w2", 100, timedelta(hours=1)), now=at(1)))
    assert queue.rows_read <= 101
    assert size // 10 == sum(queue.count(JobQuery(held=Held.LIMIT)).values())
    queue.close()
