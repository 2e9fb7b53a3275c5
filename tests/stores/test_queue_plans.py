"""Plans of all queue statements on PostgreSQL: the same, whatever the server last counted in the table.

The server counts rows now and then. In between, a plan may be made for a table that was counted as empty or
as large, and a prepared statement keeps it until the next count. So no statement may have a second way to its
rows: it reads each table by the same index and the same conditions in every state.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any, NamedTuple

import pytest

from penstock.database.postgres import Connection
from penstock.queue.postgres.queue import PostgresQueue
from penstock.queue.postgres.rows import SQL
from tests.conformance.conftest import T0, at
from tests.servers import postgres
from tests.stores.test_claim_plans import DEPENDENCIES, FILL

SIZE = 2_000
GROWING = ("queue_dependency", "queue_result", "unified_queue")
PLACE = re.compile(r"%\((\w+)\)s")
NOT_BY_INDEX = {"tally_all", "tally_sample"}
ENTIRE_INDEX = {
    # The first rows of an index, in its order.
    *("ahead_rows", "any_claimable", "any_leased", "any_parked", "candidates", "idle_locks", "oldest"),
    *("finish_and_wake", "lengths", "parked_rows", "take_plain", "upcoming", "wake"),
    *("any_limited", "any_reserved", "tally_bounded"),
    # The few rows of parents that wait.
    *("any_waiting", "doubtful_parents"),
}
"""Statements that read an index without a condition on its first column, but never once for each row."""
Plan = dict[str, Any]
State = Callable[[Connection], None]


class Access(NamedTuple):
    table: str
    alias: str
    by: str
    condition: str
    repeated: bool


def fill(connection: Connection, first: int, last: int) -> None:
    times = {"past": f"timestamptz '{T0.isoformat()}'", "later": f"timestamptz '{at(86_400).isoformat()}'"}
    numbers = f"generate_series({first}, {last}) AS n(i)"
    connection.execute(FILL.format(**times, false="false", numbers=numbers).encode())
    connection.execute(f"{DEPENDENCIES} ON CONFLICT DO NOTHING".encode())


def clear(connection: Connection, after: int = 0) -> None:
    for table in ("unified_queue", "queue_dependency"):
        connection.execute(f"DELETE FROM {table} WHERE queue_id > 'job_{10_000_000 + after}'".encode())


def count(connection: Connection) -> None:
    for table in GROWING:
        connection.execute(f"ANALYZE {table}".encode())


def never_counted(connection: Connection) -> None:
    fill(connection, 1, SIZE)


def counted_when_empty(connection: Connection) -> None:
    count(connection)
    fill(connection, 1, SIZE)


def counted_when_emptied(connection: Connection) -> None:
    """No rows in many pages: also the count during a transaction that adds rows."""
    fill(connection, 1, SIZE)
    clear(connection)
    count(connection)
    fill(connection, 1, SIZE)


def counted_with_one_row(connection: Connection) -> None:
    fill(connection, 1, 1)
    count(connection)
    fill(connection, 2, SIZE)


def counted_now(connection: Connection) -> None:
    fill(connection, 1, SIZE)
    count(connection)


def counted_when_large(connection: Connection) -> None:
    fill(connection, 1, 10 * SIZE)
    count(connection)
    clear(connection, after=100)


def counted_when_all_were_done(connection: Connection) -> None:
    fill(connection, 1, SIZE)
    connection.execute(
        b"UPDATE unified_queue SET status = 'done', held = NULL, run_at = NULL, lease_until = NULL, "
        b"lock_held = NULL, finished_at = now(), limit_at = NULL"
    )
    count(connection)
    clear(connection)
    fill(connection, 1, SIZE)


def counted_when_all_were_claimable(connection: Connection) -> None:
    connection.execute(
        b"INSERT INTO unified_queue (queue_id, root_id, item_type, op, tenant_id, collection, "
        b"idempotency_key, turn, payload_json, created_at, updated_at) SELECT 'job_1' || i, 'job_1' || i, "
        b"'function', 'run', 't', 'c', 'k' || i, i, '{}', now(), now() FROM generate_series(1, 2000) AS n(i)"
    )
    count(connection)
    clear(connection)
    fill(connection, 1, SIZE)


def counted_as(pages: int, rows: int) -> State:
    def state(connection: Connection) -> None:
        fill(connection, 1, SIZE)
        connection.execute(
            b"UPDATE pg_class SET relpages = %s, reltuples = %s WHERE oid = 'unified_queue'::regclass "
            b"OR oid IN (SELECT indexrelid FROM pg_index WHERE indrelid = 'unified_queue'::regclass)",
            (pages, rows),
        )

    return state


STATES = {
    "counted when empty": counted_when_empty,
    "counted when emptied": counted_when_emptied,
    "counted with one row": counted_with_one_row,
    "counted now": counted_now,
    "counted when large": counted_when_large,
    "counted when all were done": counted_when_all_were_done,
    "counted when all were claimable": counted_when_all_were_claimable,
    "no rows in a page": counted_as(1, 0),
    "no rows in 100 pages": counted_as(100, 0),
    "one row in 100,000 pages": counted_as(100_000, 1),
    "one row in a page": counted_as(1, 1),
    "100,000 rows in a page": counted_as(1, 100_000),
    "a billion rows": counted_as(10, 1_000_000_000),
}


def accesses(plan: Plan, *, repeated: bool = False) -> Iterator[Access]:
    """All reads of tables that grow, and whether they are done once for each row of something else."""
    if plan.get("Relation Name") in GROWING and plan["Node Type"] != "ModifyTable":
        by: str = plan.get("Index Name") or plan["Node Type"]
        condition: str = plan.get("Index Cond") or plan.get("TID Cond") or ""
        yield Access(plan["Relation Name"], plan["Alias"], by, condition, repeated)
    for part in plan.get("Plans", []):
        relation = part["Parent Relationship"]
        inner = plan["Node Type"] == "Nested Loop" and relation == "Inner"
        yield from accesses(part, repeated=repeated or inner or relation == "SubPlan")


def numbered(statement: str) -> str:
    """The statement with numbers for its parameters, as a generic plan needs them."""
    names = list(dict.fromkeys(PLACE.findall(statement)))
    return PLACE.sub(lambda found: f"${names.index(found[1]) + 1}", statement)


def plans(connection: Connection) -> dict[str, list[Access]]:
    found = {}
    for name, statement in SQL.formatted().items():
        # The queue sets this for the only statement that needs it.
        connection.execute(f"SET enable_sort = {'off' if name == 'upcoming' else 'on'}".encode())
        explain = f"EXPLAIN (GENERIC_PLAN, FORMAT JSON) {numbered(statement)}"
        ((plan,),) = connection.execute(explain.encode()).fetchall()
        found[name] = sorted(accesses(plan[0]["Plan"]))
    return found


@contextmanager
def store_in(state: State) -> Iterator[Connection]:
    # Not a store that other tests have used: the server remembers how full its tables were.
    with (
        closing(PostgresQueue(postgres.fresh_store("plans"))) as queue,
        queue._connections.borrowed() as connection,
    ):
        # Nor may the server count the rows by itself meanwhile.
        connection.execute(b"ALTER TABLE unified_queue SET (autovacuum_enabled = false)")
        state(connection)
        yield connection


@pytest.fixture(scope="module")
def usual() -> dict[str, list[Access]]:
    with store_in(never_counted) as connection:
        return plans(connection)


@pytest.mark.parametrize("state", STATES)
def test_every_statement_reads_by_the_same_indexes(usual: dict[str, list[Access]], state: str) -> None:
    with store_in(STATES[state]) as connection:
        found = plans(connection)

    assert {} == {name: reads for name, reads in found.items() if reads != usual[name]}


def test_every_statement_looks_rows_up_by_the_first_column_of_an_index() -> None:
    """Or it reads an index from its begin, once, and says how far."""
    with store_in(never_counted) as connection:
        found = plans(connection)
        first = dict(
            connection.execute(
                b"SELECT relname, pg_get_indexdef(indexrelid, 1, true) FROM pg_index JOIN pg_class "
                b"ON pg_class.oid = indexrelid WHERE relnamespace = current_schema()::regnamespace"
            ).fetchall()
        )
    unlike = {
        (name, read.by)
        for name, reads in found.items()
        for read in reads
        if not re.search(rf"\b{first.get(read.by, 'ctid')} (=|<|>|IS)", read.condition)
        and (read.repeated or name not in ENTIRE_INDEX | NOT_BY_INDEX)
    }
    assert set() == unlike
    whole = {name for name, reads in found.items() if any("Scan" in each.by for each in reads)}
    assert NOT_BY_INDEX == whole - {"drop_dependencies"}  # by the place of its rows
