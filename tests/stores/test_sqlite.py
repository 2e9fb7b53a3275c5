"""SQLite only: schema, plans and the file."""

from __future__ import annotations

import multiprocessing
import os
import sqlite3
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from penstock.database import sqlite
from penstock.database.schema import Schema
from penstock.database.sqlite import (
    CONNECTION,
    NamedConnection,
    SqliteConnections,
    migrate,
    takes_numbers_for_names,
    translating_errors,
)
from penstock.errors import InvalidRequest, QueueFull, SchemaMismatch, StateDamaged, StoreUnavailable
from penstock.queue import payloads, transitions
from penstock.queue.job import ClaimRequest, Job, JobQuery, QueueLimits, Scope, Status
from penstock.queue.sqlite.queue import SqliteQueue
from penstock.queue.sqlite.rows import SPILL_OVER, SQL
from tests.stores.new_jobs import T0, new


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "queue.db"


@pytest.fixture
def queue(path: Path):
    queue = SqliteQueue(path)
    yield queue
    queue.close()


def plan(path: Path, name: str, *values: object) -> str:
    connection = sqlite3.connect(path, factory=CONNECTION)
    rows = connection.execute("EXPLAIN QUERY PLAN " + SQL[name], values).fetchall()
    connection.close()
    return " | ".join(row[3] for row in rows)


def test_the_file_is_in_wal_mode_with_full_sync(queue: SqliteQueue) -> None:
    with queue._connections.writing() as connection:
        assert ("wal",) == connection.execute("PRAGMA journal_mode").fetchone()
        assert (2,) == connection.execute("PRAGMA synchronous").fetchone()


@pytest.mark.parametrize("fields", [{}, {"lock_key": "a", "dedupe": False, "priority": 9, "metadata": "[]"}])
def test_a_job_added_alone_is_stored_like_one_of_many(
    queue: SqliteQueue, path: Path, fields: dict[str, object]
) -> None:
    queue.add([new(1, **fields)], now=T0)
    queue.add([new(2, **fields), new(3, **fields)], now=T0)
    with closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        alone, second, _ = map(dict, connection.execute("SELECT * FROM unified_queue ORDER BY queue_id"))

    own = {"queue_id", "idempotency_key", "root_id"}
    assert [alone["queue_id"]] * 2 == [alone["root_id"], "job_000001"]
    assert alone["turn"] + 1 == second["turn"]
    assert {**alone, "turn": second["turn"]}.items() - second.items() == {(name, alone[name]) for name in own}


@pytest.mark.parametrize("limits", [QueueLimits(indexing=0), QueueLimits(per_tenant=0)], ids=str)
def test_a_job_added_alone_meets_the_limits(queue: SqliteQueue, limits: QueueLimits) -> None:
    with pytest.raises(QueueFull):
        queue.add([new(1)], limits=limits)

    assert queue.find(JobQuery()) == []


def test_a_job_added_alone_during_a_pause_waits_like_one_of_many(queue: SqliteQueue) -> None:
    queue.add([new(number) for number in range(2)])
    queue.pause(Scope("t", "*"))
    queue.add([new(2)])
    assert queue.claim(ClaimRequest("w", 5)) == []
    queue.resume(Scope("t", "*"))

    assert [claim.queue_id for claim in queue.claim(ClaimRequest("w", 5))] == [
        f"job_{number:06d}" for number in range(3)
    ]


def test_only_the_owner_may_read_a_new_file(queue: SqliteQueue, path: Path) -> None:
    queue.add([new(1)])
    modes = {file.name: file.stat().st_mode & 0o777 for file in path.parent.glob("queue.db*")}

    assert {"queue.db": 0o600, "queue.db-wal": 0o600, "queue.db-shm": 0o600} == modes


def test_the_mode_of_an_existing_file_stays(path: Path) -> None:
    SqliteQueue(path).close()
    path.chmod(0o640)
    SqliteQueue(path).close()

    assert 0o640 == path.stat().st_mode & 0o777


def test_an_older_file_gets_only_the_later_scripts(path: Path) -> None:
    scripts = [(1, "CREATE TABLE first (a);\n"), (2, "CREATE TABLE second (b);\n")]
    connections = SqliteConnections(path, synchronous="FULL", busy_timeout_s=1)
    migrate(connections, path, Schema("ledger", scripts[:1]))
    migrate(connections, path, Schema("ledger", scripts))
    with connections.reading() as connection:
        applied = connection.execute("SELECT number FROM ledger").fetchall()
        assert [] == connection.execute("SELECT b FROM second").fetchall()
    connections.close()

    assert [(1,), (2,)] == applied


def test_a_file_with_half_of_a_later_script_is_refused(path: Path) -> None:
    scripts = [(1, "CREATE TABLE first (a);\n"), (2, "CREATE TABLE second (b);\n")]
    connections = SqliteConnections(path, synchronous="FULL", busy_timeout_s=1)
    migrate(connections, path, Schema("ledger", scripts[:1]))
    with connections.writing() as connection:
        connection.execute("CREATE TABLE second (b)")

    with pytest.raises(
        SchemaMismatch, match="has second of a later schema than 1, the last that was recorded"
    ):
        migrate(connections, path, Schema("ledger", scripts))
    connections.close()


def test_normal_sync_is_a_setting(path: Path) -> None:
    queue = SqliteQueue(path, synchronous="NORMAL")
    with queue._connections.writing() as connection:
        assert (1,) == connection.execute("PRAGMA synchronous").fetchone()
    queue.close()


def test_the_indexes_have_the_names_of_the_schema_document(queue: SqliteQueue, path: Path) -> None:
    connection = sqlite3.connect(path)
    names = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'index'")}
    connection.close()
    expected = "dequeue idempotency lease_expiry collection_tenant item_type failed worker".split()

    assert {f"idx_unified_queue_{name}" for name in expected} <= names


@pytest.mark.parametrize("backlog", [0, 1_000, 20_000])
def test_a_claim_reads_the_claim_index_in_its_own_order(queue: SqliteQueue, path: Path, backlog: int) -> None:
    queue.add([new(n) for n in range(backlog)], now=T0)

    found = plan(path, "candidates", 10)

    assert "USING INDEX idx_unified_queue_dequeue" in found
    assert "TEMP B-TREE" not in found


HOT = "promote plain_claims plain_claim finish finish_all finish_each take take_all get first_parked expired"


@pytest.mark.parametrize("name", HOT.split())
def test_no_statement_of_the_hot_path_scans_the_table(queue: SqliteQueue, path: Path, name: str) -> None:
    values: list[object] = ["x"] * SQL[name].count("?")
    if name == "promote":
        values = ["x", 100]

    assert "SCAN unified_queue" not in plan(path, name, *values).replace("SCAN unified_queue USING", "")


@pytest.mark.parametrize(("item_type", "op"), [(t, ops[0]) for t, ops in payloads.MATRIX.items()])
def test_every_item_type_of_the_matrix_fits_the_table(queue: SqliteQueue, item_type: str, op: str) -> None:
    queue.add([new(1, item_type=item_type, op=op)], now=T0)

    assert item_type == job(queue).item_type


def test_two_holders_of_one_lock_are_refused_by_the_database(queue: SqliteQueue, path: Path) -> None:
    queue.add([new(1, lock_key="a"), new(2, lock_key="a")], now=T0)
    queue.claim(ClaimRequest("w"), now=T0)
    connection = sqlite3.connect(path)

    with pytest.raises(sqlite3.IntegrityError, match="lock_held"):
        connection.execute("UPDATE unified_queue SET lock_held = 'a' WHERE queue_id = 'job_000002'")
    connection.close()


def test_a_long_payload_lives_beside_the_row_and_comes_back_whole(queue: SqliteQueue, path: Path) -> None:
    text = '{"content":"' + "x" * SPILL_OVER + '"}'
    queue.add([new(1, payload_json=text), new(2)], now=T0)
    connection = sqlite3.connect(path)
    stored = connection.execute("SELECT payload_json FROM unified_queue ORDER BY queue_id").fetchall()
    connection.close()

    assert [("null",), ("{}",)] == stored
    assert text == job(queue).payload_json
    assert [text, "{}"] == [c.payload_json for c in queue.claim(ClaimRequest("w", 2), now=T0)]


def test_a_long_payload_goes_with_its_row(queue: SqliteQueue, path: Path) -> None:
    queue.add([new(1, payload_json='"' + "x" * SPILL_OVER + '"')], now=T0)
    queue.settle([transitions.done(c) for c in queue.claim(ClaimRequest("w"), now=T0)], now=T0)
    queue.prune({Status.DONE: T0 + timedelta(seconds=1)})
    connection = sqlite3.connect(path)

    assert (0,) == connection.execute("SELECT count(*) FROM unified_queue_payload").fetchone()
    connection.close()


@pytest.mark.parametrize("lengths", [(10, 5_000), (5_000, 10), (5_000, 6_000)])
def test_a_payload_replaced_by_a_newer_request_is_the_newer_one(
    queue: SqliteQueue, lengths: tuple[int, int]
) -> None:
    first, second = ('"' + str(i) + "x" * length + '"' for i, length in enumerate(lengths))
    queue.add([new(1, payload_json=first)], now=T0)
    queue.add([new(2, payload_json=second, idempotency_key=new(1).idempotency_key)], now=T0)

    assert second == job(queue).payload_json


def test_a_job_joins_the_callers_transaction(queue: SqliteQueue, path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.row_factory = sqlite3.Row
    queue.add([new(1, dedupe=False)], connection=connection, now=T0)
    assert queue.get("job_000001") is None
    connection.commit()

    assert queue.get("job_000001") is not None
    connection.close()


def test_a_job_goes_with_the_callers_rollback(queue: SqliteQueue, path: Path) -> None:
    connection = sqlite3.connect(path)
    queue.add([new(1, dedupe=False)], connection=connection, now=T0)
    connection.rollback()
    connection.close()

    assert queue.get("job_000001") is None


def test_only_rows_of_their_own_join_a_transaction(queue: SqliteQueue, path: Path) -> None:
    connection = sqlite3.connect(path)
    with pytest.raises(InvalidRequest, match="dedupe=False"):
        queue.add([new(1)], connection=connection, now=T0)
    with pytest.raises(InvalidRequest, match=r"sqlite3\.Connection"):
        queue.add([new(1, dedupe=False)], connection=object(), now=T0)
    connection.close()


def test_a_database_of_a_newer_schema_is_refused_and_left_alone(path: Path) -> None:
    SqliteQueue(path).close()
    connection = sqlite3.connect(path)
    connection.execute("INSERT INTO penstock_migration VALUES (9999, '')")
    connection.commit()
    connection.close()

    with pytest.raises(SchemaMismatch, match="9999"):
        SqliteQueue(path)


def test_a_file_that_is_no_database_is_refused_and_left_alone(path: Path) -> None:
    path.write_bytes(b"this is not a database, but it is long enough to be looked at" * 20)
    before = path.read_bytes()

    with pytest.raises(StateDamaged, match=r"queue\.db"):
        SqliteQueue(path)
    assert before == path.read_bytes()


def test_the_queue_lives_beside_an_applications_own_tables(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE orders (id INTEGER)")
    connection.commit()
    connection.close()
    queue = SqliteQueue(path)
    queue.add([new(1)], now=T0)

    assert Status.PENDING is job(queue).status
    queue.close()


def _open_and_add(path: str, number: int) -> None:
    queue = SqliteQueue(path)
    queue.add([new(number)])
    queue.close()


def test_many_processes_may_open_a_fresh_file_at_once(path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_open_and_add, args=(str(path), n)) for n in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)

    assert [0] * 4 == [process.exitcode for process in processes]
    queue = SqliteQueue(path)
    assert {(): 4} == queue.count(JobQuery())
    queue.close()


def test_a_forked_child_uses_connections_of_its_own(queue: SqliteQueue) -> None:
    queue.add([new(1)], now=T0)
    child = os.fork()
    if child == 0:
        queue.add([new(2)], now=T0)
        os._exit(0 if queue.get("job_000001") is not None else 1)

    assert 0 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    queue.add([new(3)], now=T0)
    assert {(): 3} == queue.count(JobQuery())


def job(queue: SqliteQueue) -> Job:
    return queue.find(JobQuery())[0]


def test_a_connection_to_another_file_or_none_is_refused(path: Path, tmp_path: Path):
    """Another queue, for one: the job would be added there without a word."""
    queue, other = SqliteQueue(path), SqliteQueue(tmp_path / "other.db")
    foreign, own = sqlite3.connect(tmp_path / "other.db"), sqlite3.connect(path)
    memory, closed = sqlite3.connect(":memory:"), sqlite3.connect(path)
    closed.close()
    for connection in (foreign, memory, closed, "queue.db"):
        with pytest.raises(InvalidRequest, match=r"connection="):
            queue.add([new(1, dedupe=False)], connection=connection)
    (tmp_path / "link.db").symlink_to(path)
    linked = sqlite3.connect(tmp_path / "link.db")
    linked.row_factory = lambda cursor, row: dict(enumerate(row))
    for number, connection in enumerate((own, linked), 1):
        queue.add([new(number, dedupe=False)], connection=connection)
        connection.commit()

    assert (2, 0) == (len(queue.find(JobQuery())), len(other.find(JobQuery())))
    for opened in (foreign, memory, own, linked, queue, other):
        opened.close()


def test_a_file_that_cannot_be_locked_is_a_store_that_is_away(path: Path):
    """SQLite's error after its descriptors were closed by other code."""
    error = sqlite3.OperationalError("locking protocol")
    error.sqlite_errorcode = sqlite3.SQLITE_PROTOCOL

    with (
        pytest.raises(StoreUnavailable, match=r"could not be locked \(locking protocol\)"),
        translating_errors(path),
    ):
        raise error


def test_a_read_does_not_wait_for_a_long_one(queue: SqliteQueue) -> None:
    queue.add([new(1)])
    with queue._reading() as rows, ThreadPoolExecutor(1) as others:
        rows.scalar("oldest")
        assert others.submit(queue.get, "job_000001").result(60) is not None


@pytest.mark.parametrize(
    ("python", "fault"), [((3, 11, 9), False), ((3, 12, 0), True), ((3, 12, 3), True), ((3, 12, 4), False)]
)
def test_only_four_versions_of_python_take_a_number_for_a_name(python: tuple[int, ...], fault: bool) -> None:
    assert fault is takes_numbers_for_names(python)


def test_numbers_bound_by_name_reach_the_same_places(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bind, bound = sqlite._by_name, list[object]()

    def seen(values: Sequence[object]) -> dict[str, object]:
        bound.append(values)
        return bind(values)

    monkeypatch.setattr(sqlite, "_by_name", seen)
    with closing(sqlite3.connect(path, factory=NamedConnection)) as connection:
        connection.execute("CREATE TABLE t (a, b)")
        connection.executemany("INSERT INTO t VALUES (?3, ?1)", [("x", "unused", "y")])
        connection.execute("INSERT INTO t VALUES (?, ?)", ("?1", "plain"))

        assert [("y", "x")] == connection.execute(
            "SELECT * FROM t WHERE b = ?1 AND ?1 < a", ("x",)
        ).fetchall()
        assert ("?1", "plain") == connection.execute("SELECT * FROM t WHERE a = ?", ("?1",)).fetchone()
    assert [("x", "unused", "y"), ("x",)] == bound


def test_a_queue_works_with_names_for_numbers(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "CONNECTION", NamedConnection)
    with closing(SqliteQueue(path)) as queue:
        queue.add([new(number) for number in range(1, 4)], now=T0)
        claimed = queue.claim(ClaimRequest("w", limit=2), now=T0)

        assert ["job_000001", "job_000002"] == [job.queue_id for job in claimed]
        assert 1 == queue.count(JobQuery(statuses=frozenset({Status.PENDING})))[()]
