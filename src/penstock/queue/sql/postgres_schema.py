"""Bringing a PostgreSQL database to this version's schema, whoever else is doing the same."""

from __future__ import annotations

from penstock.errors import SchemaMismatch
from penstock.queue.sql.postgres_connections import Connection
from penstock.queue.sql.statements import JOB_COLUMNS, migrations

_LOCK = b"SELECT pg_advisory_xact_lock(hashtextextended('penstock migration in ' || current_schema(), 0))"
_LEDGER = b"""
CREATE TABLE IF NOT EXISTS penstock_migration (
    number      integer     NOT NULL PRIMARY KEY,
    applied_at  timestamptz NOT NULL DEFAULT clock_timestamp()
)
"""
# Read from the catalog's table: to_regclass may answer from before the lock was waited for.
_LEDGER_THERE = b"""
SELECT 1 FROM pg_catalog.pg_tables
WHERE tablename = 'penstock_migration' AND schemaname = ANY(current_schemas(false))
"""
_PROBE = f"SELECT {', '.join(JOB_COLUMNS)} FROM unified_queue LIMIT 0".encode()


def migrate(connection: Connection, name: str) -> None:
    known = migrations("postgres")
    if _applied(connection, name) >= known[-1][0]:
        # Also the way in for a replica, which may be read but not written.
        return
    with connection.transaction():
        connection.execute(b"SET LOCAL statement_timeout = 0")
        connection.execute(_LOCK)
        applied = _applied(connection, name)
        if applied == 0:
            connection.execute(_LEDGER)
        for number, script in known:
            if number > applied:
                connection.execute(script.encode())
                connection.execute(b"INSERT INTO penstock_migration (number) VALUES (%s)", (number,))


def verify(connection: Connection, name: str) -> None:
    expected, applied = migrations("postgres")[-1][0], _applied(connection, name)
    if applied < expected:
        raise SchemaMismatch(
            f"{name} has schema {applied}, this version needs {expected}",
            remedy="Open it once with a user that may create tables.",
        )
    connection.execute(_PROBE)


def channel(connection: Connection) -> str:
    """Where news of this queue are told: each schema of a database can hold one."""
    found = connection.execute(b"SELECT current_schema(), 'penstock_' || md5(current_schema())").fetchone()
    if found is None or found[0] is None:
        remedy = "Create the schema named in search_path."
        raise SchemaMismatch("there is no schema to work in", remedy=remedy)
    return str(found[1])


def _applied(connection: Connection, name: str) -> int:
    if connection.execute(_LEDGER_THERE).fetchone() is None:
        return 0
    latest = connection.execute(b"SELECT coalesce(max(number), 0) FROM penstock_migration").fetchone()
    applied = int(latest[0]) if latest else 0
    newest = migrations("postgres")[-1][0]
    if applied > newest:
        raise SchemaMismatch(f"{name} has schema {applied}, this version knows up to {newest}")
    return applied
