"""Bringing a PostgreSQL database to this version's schema, whoever else is doing the same."""

from __future__ import annotations

from typing import NamedTuple

from penstock.errors import SchemaMismatch
from penstock.queue.sql.postgres_connections import Connection
from penstock.queue.sql.statements import JOB_COLUMNS, migrations


class Schema(NamedTuple):
    """Numbered scripts, oldest first, the table that says which of them a database has had, and a statement
    that fails where something else has their names."""

    ledger: str
    scripts: list[tuple[int, str]]
    probe: str

    @property
    def newest(self) -> int:
        return self.scripts[-1][0]


_LOCK = b"SELECT pg_advisory_xact_lock(hashtextextended('penstock migration in ' || current_schema(), 0))"
_LEDGER = """
CREATE TABLE IF NOT EXISTS {} (
    number      integer     NOT NULL PRIMARY KEY,
    applied_at  timestamptz NOT NULL DEFAULT clock_timestamp()
)
"""
# Read from the catalog's table: to_regclass may answer from before the lock was waited for.
_LEDGER_THERE = b"""
SELECT 1 FROM pg_catalog.pg_tables
WHERE tablename = %s AND schemaname = ANY(current_schemas(false))
"""
QUEUE = Schema(
    "penstock_migration",
    migrations("postgres"),
    f"SELECT {', '.join(JOB_COLUMNS)} FROM unified_queue LIMIT 0",
)


def migrate(connection: Connection, name: str, schema: Schema = QUEUE) -> None:
    if _applied(connection, name, schema) >= schema.newest:
        # Also the way in for a replica, which may be read but not written.
        return
    with connection.transaction():
        connection.execute(b"SET LOCAL statement_timeout = 0")
        connection.execute(_LOCK)
        applied = _applied(connection, name, schema)
        if applied == 0:
            connection.execute(_LEDGER.format(schema.ledger).encode())
        for number, script in schema.scripts:
            if number > applied:
                connection.execute(script.encode())
                entry = f"INSERT INTO {schema.ledger} (number) VALUES (%s)"
                connection.execute(entry.encode(), (number,))


def verify(connection: Connection, name: str, schema: Schema = QUEUE) -> None:
    applied = _applied(connection, name, schema)
    if applied < schema.newest:
        raise SchemaMismatch(
            f"{name} has schema {applied}, this version needs {schema.newest}",
            remedy="Open it once with a user that may create tables.",
        )
    connection.execute(schema.probe.encode())


def channel(connection: Connection) -> str:
    """Where news of this queue are told: each schema of a database can hold one."""
    found = connection.execute(b"SELECT current_schema(), 'penstock_' || md5(current_schema())").fetchone()
    if found is None or found[0] is None:
        remedy = "Create the schema named in search_path."
        raise SchemaMismatch("there is no schema to work in", remedy=remedy)
    return str(found[1])


def _applied(connection: Connection, name: str, schema: Schema) -> int:
    if connection.execute(_LEDGER_THERE, (schema.ledger,)).fetchone() is None:
        return 0
    asked = f"SELECT coalesce(max(number), 0) FROM {schema.ledger}"
    latest = connection.execute(asked.encode()).fetchone()
    applied = int(latest[0]) if latest else 0
    if applied > schema.newest:
        raise SchemaMismatch(f"{name} has schema {applied}, this version knows up to {schema.newest}")
    return applied
