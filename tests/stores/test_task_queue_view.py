"""The view ``task_queue`` of SQLite: function jobs for programs of a task queue."""

from __future__ import annotations

import json
import sqlite3
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import Penstock, config, errors
from penstock.clock import format_time
from penstock.queue import transitions
from penstock.queue.job import ClaimRequest

COLUMNS = (
    "task_id entity_type entity_id function_name payload status error_message retry_count max_retries "
    "created_at updated_at"
).split()

HOT_QUERY = """
SELECT task_id, entity_type, entity_id, function_name, payload
FROM task_queue
WHERE status = 'PENDING'
ORDER BY created_at
LIMIT 100;
"""


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Penstock]:
    settings = config.load({}, url=f"sqlite:///{tmp_path}/queue.db", state_dir=tmp_path)
    with Penstock(settings=settings) as opened:
        opened.function("plan")(lambda payload: None)
        yield opened


@pytest.fixture
def database(app: Penstock, tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(tmp_path / "queue.db", isolation_level=None)
    connection.row_factory = sqlite3.Row
    yield connection
    connection.close()


def rows(database: sqlite3.Connection) -> list[dict[str, Any]]:
    return [dict(row) for row in database.execute("SELECT * FROM task_queue ORDER BY created_at")]


def test_the_view_has_exactly_the_columns_of_a_task_queue(database: sqlite3.Connection):
    assert COLUMNS == [row["name"] for row in database.execute("PRAGMA table_info(task_queue)")]


def test_the_view_shows_what_get_task_answers(app: Penstock, database: sqlite3.Connection):
    for payload in (None, {"user_question": "Why?"}, {"long": "x" * 5000}):
        app.tasks.enqueue_task("planner", "p1", "plan", payload)

    for row in rows(database):
        task = app.tasks.get_task(row["task_id"])
        shown = row | {"payload": json.loads(row["payload"]) if row["payload"] else None}
        assert shown == task | {name: format_time(task[name]) for name in ("created_at", "updated_at")}


def test_each_status_is_shown_in_the_task_queues_word(app: Penstock, database: sqlite3.Connection):
    ids = [app.tasks.enqueue_task("planner", f"p{n}", "plan") for n in range(5)]
    claims = {claim.queue_id: claim for claim in app.queue.claim(ClaimRequest("w1", 4))}
    app.queue.settle(
        [transitions.done(claims[ids[0]]), transitions.failed(claims[ids[1]], "ERR_PARSE", "torn page")]
    )
    app.cancel(ids[4])
    app.queue.settle([transitions.released(claims[ids[2]], "worker stopped")])

    assert ["COMPLETED", "FAILED", "PENDING", "IN_PROGRESS", "FAILED"] == [
        row["status"] for row in rows(database)
    ]
    assert [None, "torn page", None, None, "Cancelled by user"] == [
        row["error_message"] for row in rows(database)
    ]


def test_jobs_that_are_no_functions_are_not_shown(app: Penstock, database: sqlite3.Connection):
    app.submit(item_type="content", op="ingest", payload={"content": "The mill runs."})

    assert [] == rows(database)


def test_a_call_without_an_entity_is_shown_without_one(app: Penstock, database: sqlite3.Connection):
    app.call("plan")

    assert [(None, None)] == [(row["entity_type"], row["entity_id"]) for row in rows(database)]


def test_the_statement_of_a_task_processor_runs_unchanged(app: Penstock, database: sqlite3.Connection):
    ids = [app.tasks.enqueue_task("worker", "w1", "plan", {"n": n}) for n in range(3)]
    app.queue.claim(ClaimRequest("w1"))

    assert ids[1:] == [row["task_id"] for row in database.execute(HOT_QUERY)]


def test_reading_only_statuses_does_not_touch_long_payloads(app: Penstock, database: sqlite3.Connection):
    plan = database.execute("EXPLAIN QUERY PLAN SELECT task_id, status FROM task_queue").fetchall()

    assert [] == [row["detail"] for row in plan if "unified_queue_payload" in row["detail"]]


def test_the_view_cannot_be_written(app: Penstock, database: sqlite3.Connection):
    app.tasks.enqueue_task("worker", "w1", "plan")

    with pytest.raises(sqlite3.OperationalError, match="view"):
        database.execute("UPDATE task_queue SET status = 'COMPLETED'")


@pytest.mark.parametrize(
    "change",
    [
        "status = 'INVALID_STATUS'",
        "retry_count = -1",
        "max_retries = -1",
        "retry_count = max_retries + 1",
        "status = 'failed', finished_at = 'now', error_message = NULL",
    ],
)
def test_the_table_below_refuses_what_no_task_may_be(
    app: Penstock, database: sqlite3.Connection, change: str
):
    app.tasks.enqueue_task("worker", "w1", "plan")

    with pytest.raises(sqlite3.IntegrityError):
        database.execute(f"UPDATE unified_queue SET {change}")


def test_ids_of_tasks_are_uuids_of_32_hex_digits_and_no_two_rows_share_one(
    app: Penstock, database: sqlite3.Connection
):
    ids = [app.tasks.enqueue_task("planner", "p1", "plan")]
    ids += app.tasks.enqueue_multiple_tasks(
        [{"entity_type": "worker", "entity_id": "w1", "function_name": "plan"}] * 2
    )
    assert ids == [uuid.UUID(hex=each, version=4).hex for each in ids]
    # A job of another door keeps its own id, by which both interfaces find it.
    job_id = app.call("plan").job_id
    assert sorted([*ids, job_id]) == sorted(row["task_id"] for row in rows(database))
    assert job_id == app.tasks.get_task(job_id)["task_id"]
    key = database.execute("SELECT name FROM pragma_table_info('unified_queue') WHERE pk = 1").fetchone()[0]
    assert "queue_id" == key
    with pytest.raises(errors.DuplicateId):
        app.tasks.enqueue_task("planner", "p1", "plan", task_id=ids[0])
    with pytest.raises(sqlite3.IntegrityError, match="queue_id"):
        database.execute("UPDATE unified_queue SET queue_id = ? WHERE queue_id = ?", (ids[0], ids[1]))
