"""Rows that other programs insert and read by SQL: the views of the SQL engines."""

from __future__ import annotations

import json
import re
import sqlite3
import types
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner

from penstock import Penstock, clock, config
from penstock.cli.main import cli
from penstock.errors import StateDamaged
from penstock.queue import transitions
from penstock.queue.job import ClaimRequest, Status
from penstock.queue.postgres.queue import PostgresQueue
from penstock.queue.retry import Classification
from penstock.queue.sql.statements import JOB_COLUMNS
from tests.servers.stores import given_back, store_url

Sql = Callable[[str], list[tuple[Any, ...]]]
LONG = "x" * 5_000


@pytest.fixture(params=["sqlite", "postgres"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Penstock]:
    url = store_url(request.param, tmp_path)
    with Penstock(settings=config.load({}, url=url, state_dir=tmp_path)) as opened:
        opened.function("plan")(lambda payload: payload)
        yield opened
    given_back(tmp_path)


@pytest.fixture
def sql(app: Penstock, tmp_path: Path) -> Iterator[Sql]:
    """Run a statement as another program does."""
    if not isinstance(app.queue, PostgresQueue):
        lite = sqlite3.connect(tmp_path / "queue.db", isolation_level=None)
        yield lambda text: lite.execute(text).fetchall()
        lite.close()
        return
    with app.queue._connections.borrowed() as connection:

        def run(text: str) -> list[tuple[Any, ...]]:
            cursor = connection.execute(text.encode())
            return cursor.fetchall() if cursor.description else []

        yield run


def field(app: Penstock, path: str) -> str:
    """A field of the payload, in the words of the dialect."""
    if isinstance(app.queue, PostgresQueue):
        return f"payload_json::json #>> '{{{path.replace('.', ',')}}}'"
    return f"json_extract(payload_json, '$.{path}')"


def test_every_payload_is_json_and_whole_in_the_view(app: Penstock, sql: Sql):
    short = app.call("plan", {"n": "short"}).job_id
    long = app.call("plan", {"n": LONG}).job_id

    found = sql(f"SELECT queue_id, {field(app, 'payload.n')} FROM unified_queue_jobs ORDER BY queue_id")
    assert [(short, "short"), (long, LONG)] == found
    # The table can be read so, too; on SQLite, a long payload is beside it.
    of_table = sql(f"SELECT {field(app, 'payload.n')} FROM unified_queue ORDER BY queue_id")
    assert [("short",), (LONG if isinstance(app.queue, PostgresQueue) else None,)] == of_table
    assert {"plan"} == {one for (one,) in sql("SELECT function_name FROM task_queue")}


def test_the_view_has_all_columns(app: Penstock, sql: Sql):
    app.call("plan", {"n": LONG})
    names = ", ".join(JOB_COLUMNS)
    (row,) = sql(f"SELECT {names} FROM unified_queue_jobs")
    (of_table,) = sql(f"SELECT {names} FROM unified_queue")
    at = JOB_COLUMNS.index("payload_json")
    assert (*of_table[:at], *of_table[at + 1 :]) == (*row[:at], *row[at + 1 :])
    assert json.loads(row[at]) == app.jobs()[0].payload


def test_an_inserted_task_is_a_call(app: Penstock, sql: Sql):
    called = app.call("plan", {"n": 0}).job_id
    own = "(task_id, entity_type, entity_id, function_name, payload, max_retries)"
    sql(f"""INSERT INTO task_queue {own} VALUES ('t1', 'planner', 'p1', 'plan', '{{"n": 1}}', 1)""")
    sql(f"""INSERT INTO task_queue {own} VALUES ('t2', 'planner', 'p1', 'plan', NULL, 0)""")
    sql(f"""INSERT INTO task_queue (function_name, payload) VALUES ('plan', '{{"n": "{LONG}"}}')""")

    (unnamed,) = {job.queue_id for job in app.jobs()} - {called, "t1", "t2"}
    assert re.fullmatch("[0-9a-f]{32}", unnamed)
    task = app.tasks.get_task("t1")
    assert ("PENDING", {"n": 1}, 0, 1) == tuple(
        task[name] for name in ("status", "payload", "retry_count", "max_retries")
    )
    assert ("planner", "p1", None) == (task["entity_type"], task["entity_id"], task["error_message"])
    # The calls of an entity run one at a time, and all in the order of arrival.
    claims = app.queue.claim(ClaimRequest("w1", 10))
    assert [called, "t1", unnamed] == [claim.queue_id for claim in claims]
    app.queue.settle([transitions.released(claim, "shutdown") for claim in claims])
    with app.worker_thread():
        results = [app.wait(job_id, timeout=30).result for job_id in ("t1", "t2", unnamed)]
    assert [{"n": 1}, {}, {"n": LONG}] == results
    assert "COMPLETED" == app.tasks.get_task("t2")["status"]
    assert 4 == len(sql("SELECT 1 FROM task_queue WHERE status = 'COMPLETED'"))


@pytest.mark.parametrize(
    ("refused", "because"),
    [
        ("(payload) VALUES (NULL)", "function_name"),
        ("(function_name, entity_type) VALUES ('plan', 'planner')", "both or neither"),
        ("(function_name, entity_type, entity_id) VALUES ('plan', 'a:b', 'c')", "colon"),
        ("(function_name, payload) VALUES ('plan', '[1]')", "JSON object"),
        ("(function_name, payload) VALUES ('plan', '{')", "JSON object|invalid input syntax"),
        ("(function_name, status) VALUES ('plan', 'COMPLETED')", "PENDING"),
        ("(function_name, retry_count) VALUES ('plan', 1)", "retries"),
        ("(function_name, task_id) VALUES ('plan', 'a b')", "task_id"),
        ("(function_name, task_id) VALUES ('plan', '')", "task_id"),
        ("(function_name, max_retries) VALUES ('plan', -1)", "chk_max_retries_positive"),
        ("(function_name, max_retries) VALUES ('plan', 'x')", "max_retries must be|invalid input syntax"),
        ("(function_name, created_at) VALUES ('plan', 'soon')", "created_at|invalid input syntax"),
    ],
)
def test_what_is_no_new_task_is_refused(app: Penstock, sql: Sql, refused: str, because: str):
    with pytest.raises((sqlite3.IntegrityError, psycopg.Error), match=because):
        sql(f"INSERT INTO task_queue {refused}")
    assert [] == app.jobs()


def test_a_task_cannot_be_changed_by_the_view(app: Penstock, sql: Sql):
    app.call("plan")
    with pytest.raises((sqlite3.OperationalError, psycopg.Error), match="view"):
        sql("UPDATE task_queue SET status = 'COMPLETED'")


def test_a_long_payload_inserted_by_hand_survives_what_happens_to_its_row(app: Penstock, sql: Sql):
    at = "'2026-01-31T12:00:00.000000Z'"
    body = json.dumps({"function_name": "plan", "payload": {"n": LONG}})
    sql(
        "INSERT INTO unified_queue (queue_id, item_type, op, tenant_id, collection, created_at, updated_at,"
        " idempotency_key, payload_json) VALUES"
        f" ('job_hand', 'function', 'run', 'default', 'default', {at}, {at}, 'function:default:1', '{body}')"
    )
    (claim,) = app.queue.claim(ClaimRequest("w1"))
    failure = Classification("transient", "ERR_NETWORK")
    app.queue.settle([transitions.failed_attempt(claim, failure, "the line is down")])
    app.cancel("job_hand")
    app.retry("job_hand")

    job = app.job("job_hand")
    assert (Status.PENDING, {"n": LONG}) == (job.status, job.payload["payload"])
    assert [LONG] == [one for (one,) in sql(f"SELECT {field(app, 'payload.n')} FROM unified_queue_jobs")]


TIMES = [name for name in JOB_COLUMNS if name.endswith(("_at", "_until"))]


@pytest.fixture
def lite(tmp_path: Path) -> Iterator[tuple[Penstock, sqlite3.Connection]]:
    with Penstock(settings=config.load({}, url=f"sqlite:///{tmp_path}/queue.db", state_dir=tmp_path)) as app:
        connection = sqlite3.connect(tmp_path / "queue.db", isolation_level=None)
        yield app, connection
        connection.close()


def test_times_as_sqlite_writes_them_are_read(lite: tuple[Penstock, sqlite3.Connection]):
    app, connection = lite
    for text in ("later", "waiting", "taken", "ended"):
        delay = 60 if text == "later" else None
        app.submit(item_type="content", op="ingest", payload={"content": text}, delay=delay)
    first, *_ = app.queue.claim(ClaimRequest("w1", 2))
    app.queue.settle([transitions.failed(first, "ERR_PARSE", "torn page")])
    with pytest.raises(sqlite3.IntegrityError, match="chk_run_at_sorts"):
        connection.execute("UPDATE unified_queue SET run_at = datetime('now') WHERE run_at IS NOT NULL")
    for name in set(TIMES) - {"run_at"}:
        connection.execute(f"UPDATE unified_queue SET {name} = datetime('now') WHERE {name} IS NOT NULL")

    jobs = app.jobs()
    assert 4 == len(jobs)
    for job in jobs:
        for name in TIMES:
            moment = getattr(job, name)
            assert moment is None or moment.utcoffset() == timedelta(0)
        app.details(job.queue_id)
    assert app.stats().oldest_pending_age_s is not None
    assert [] != app.queue.expired(now=clock.now() + timedelta(days=1))
    assert app.queue.claim(ClaimRequest("w1", 9))
    app.retry(first.queue_id)


def test_a_row_inserted_with_such_times_is_run_like_any_other(lite: tuple[Penstock, sqlite3.Connection]):
    app, connection = lite
    columns = "queue_id, item_type, op, tenant_id, collection, created_at, updated_at, idempotency_key, "
    connection.execute(
        f"INSERT INTO unified_queue ({columns}payload_json) VALUES"
        " ('job_hand', 'function', 'run', 'default', 'default', datetime('now'), datetime('now'),"
        """ 'function:default:1', '{"function_name": "plan"}')"""
    )
    app.function("plan")(lambda payload: 7)

    (shown,) = app.jobs()
    assert abs(clock.now() - shown.created_at) < timedelta(minutes=5)
    with app.worker_thread():
        assert 7 == app.wait("job_hand", timeout=30).result


@pytest.mark.parametrize("text", ["soon", "1767225600", "2461000.5", ""])
def test_what_is_no_time_is_named(lite: tuple[Penstock, sqlite3.Connection], text: str):
    app, connection = lite
    app.submit(item_type="content", op="ingest", payload={"content": "one"})
    connection.execute("UPDATE unified_queue SET last_error_at = ?", [text])

    with pytest.raises(StateDamaged, match=re.escape(repr(text))):
        app.jobs()
    for column in ("created_at", "updated_at"):
        with pytest.raises(sqlite3.IntegrityError, match=f"chk_{column}_is_time"):
            connection.execute(f"UPDATE unified_queue SET {column} = ?", [text])


@pytest.mark.parametrize(
    ("column", "text"), [("payload_json", "[1]"), ("payload_json", "{torn"), ("metadata", "{torn")]
)
def test_a_row_that_cannot_be_read_costs_the_jobs_beside_it_nothing(
    app: Penstock, sql: Sql, tmp_path: Path, column: str, text: str
):
    for name in ("one.md", "two.md", "torn.md"):
        (tmp_path / name).write_text(f"The mill {name} grinds.")
    first, torn, last = (
        app.submit(item_type="file", op="ingest", payload={"file_path": str(tmp_path / name)}).job_id
        for name in ("one.md", "torn.md", "two.md")
    )
    call = app.call("plan").job_id
    sql(f"UPDATE unified_queue SET {column} = '{text}' WHERE queue_id IN ('{torn}', '{call}')")

    with app.worker_thread():
        assert ["done", "done"] == [app.wait(one, timeout=30).status for one in (first, last)]
        for one in (torn, call):
            ended = app.wait(one, timeout=30)
            assert ("ERR_STATE_DAMAGED", 0) == (ended.error_code, ended.retry_count)
    if column == "payload_json":
        with pytest.raises(StateDamaged, match=f"{torn}.*{column}"):
            assert app.job(torn).payload


@pytest.mark.parametrize("column", ["payload_json", "metadata", "progress_json", "result_json"])
@pytest.mark.parametrize("words", [["jobs"], ["--json", "jobs"], ["jobs", "{}"], ["--json", "jobs", "{}"]])
def test_commands_name_the_job_that_cannot_be_read(
    lite: tuple[Penstock, sqlite3.Connection], tmp_path: Path, words: list[str], column: str
):
    app, connection = lite
    job_id = app.submit(item_type="content", op="ingest", payload={"content": "one"}).job_id
    connection.execute(f"UPDATE unified_queue SET {column} = '{{torn'")

    url = f"sqlite:///{tmp_path}/queue.db"
    done = CliRunner().invoke(cli, ["--url", url, *(word.format(job_id) for word in words)])
    assert isinstance(done.exception, SystemExit | types.NoneType)
    assert job_id in done.output
    assert 0 == done.exit_code or ("ERR_STATE_DAMAGED" in done.output and column != "payload_json")
