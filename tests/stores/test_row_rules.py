"""Rules of a row: the database itself refuses what breaks one, and names the rule."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from penstock.queue import sql
from penstock.queue.postgres.queue import PostgresQueue
from penstock.queue.sqlite.queue import SqliteQueue
from tests.stores.conftest import Own
from tests.stores.new_jobs import T0, new

MIGRATIONS = Path(sql.__file__).parent / "migrations"

# The change that breaks a rule; {} is a time.
BROKEN = {
    "chk_item_type": "item_type = 'video'",
    "chk_op": "op = 'explode'",
    "chk_priority": "priority = 11",
    "chk_status": "status = 'stuck'",
    "chk_retry_count_positive": "retry_count = -1",
    "chk_max_retries_positive": "retry_count = 0, max_retries = -1",
    "chk_retry_count_within_max": "retry_count = 4",
    "chk_timeout_s": "timeout_s = 0",
    "chk_run": "run = 0",
    "chk_claim_number": "claim_number = -1",
    "chk_turn": "turn = -3",
    "chk_lost_count": "lost_count = -1",
    "chk_children_open": "children_open = -1",
    "chk_children_failed": "children_failed = -1",
    "chk_total_chunks": "total_chunks = -1",
    "chk_result_ttl_s": "result_ttl_s = 0",
    "chk_error_message_on_failure": "status = 'failed', finished_at = {}",
    "chk_finished_at_means_ended": "finished_at = {}",
    "chk_ended_has_finished_at": "status = 'done'",
    "chk_in_progress_has_lease": "status = 'in_progress'",
    "chk_lease_means_in_progress": "lease_until = {}",
    "chk_held": "held = 'mood'",
    "chk_held_means_pending": "status = 'in_progress', lease_until = {}, held = 'pause'",
    "chk_held_time_has_run_at": "held = 'time'",
    "chk_run_at_means_held": "run_at = {}",
    "chk_held_after_has_jobs": "held = 'after'",
    "chk_held_lock_has_key": "held = 'lock'",
    "chk_held_limit_has_key": "held = 'limit'",
    "chk_lock_held_is_lock_key": "lock_held = 'b'",
    "chk_parent_has_run": "parent_id = 'job_0'",
}
# Truth values are numbers in SQLite only.
SQLITE_ONLY = {
    "chk_dedupe": "dedupe = 2",
    "chk_awaited": "awaited = 2",
    "chk_cancel_requested": "cancel_requested = 2",
    # Times are texts in SQLite only.
    "chk_created_at_is_time": "created_at = 1769860800",
    "chk_updated_at_is_time": "updated_at = 'noon'",
    "chk_run_at_sorts": "held = 'time', run_at = datetime('now')",
}
A_TIME = "'2026-01-31T12:00:00.000000Z'"


def test_sqlite_names_the_broken_rule(tmp_path: Path) -> None:
    path, found = tmp_path / "queue.db", {}
    queue = SqliteQueue(path)
    queue.add([new(1)], now=T0)
    with closing(sqlite3.connect(path)) as connection:
        for rule, change in (BROKEN | SQLITE_ONLY).items():
            with pytest.raises(sqlite3.IntegrityError) as refused:
                connection.execute(f"UPDATE unified_queue SET {change.format(A_TIME)}")
            found[rule] = str(refused.value)
    queue.close()

    assert {rule: f"CHECK constraint failed: {rule}" for rule in found} == found


def test_postgresql_names_the_broken_rule(queue: PostgresQueue, own: Own) -> None:
    queue.add([new(1)], now=T0)
    found = {}
    for rule, change in BROKEN.items():
        with pytest.raises(psycopg.errors.CheckViolation) as refused:
            own.execute(f"UPDATE unified_queue SET {change.format(A_TIME)}".encode())
        found[rule] = (refused.value.diag.table_name, refused.value.diag.constraint_name)

    assert {rule: ("unified_queue", rule) for rule in found} == found


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
def test_every_rule_of_the_queue_has_a_name(dialect: str) -> None:
    text = "\n".join(path.read_text("utf-8") for path in sorted((MIGRATIONS / dialect).glob("*.sql")))
    statements = re.sub(r"--.*", "", text)

    assert statements.count("CHECK (") == len(re.findall(r"CONSTRAINT \w+\s+CHECK \(", statements))
    named = set(re.findall(r"\bchk_\w+", statements)) - {"chk_queue_pause_phase"}
    assert set(BROKEN) | (set(SQLITE_ONLY) if dialect == "sqlite" else set()) == named
