"""Migration of a PostgreSQL database, safe with concurrent migrations."""

from __future__ import annotations

from collections.abc import Iterable

from psycopg import sql

from penstock.database.postgres_connections import Connection
from penstock.database.postgres_errors import OWN_SCHEMA, RESTORE
from penstock.database.schema import RESTORING, Schema
from penstock.errors import SchemaMismatch
from penstock.queue.sql.statements import JOB_COLUMNS, migrations

_LOCK = b"SELECT pg_advisory_xact_lock(hashtextextended('penstock migration in ' || current_schema(), 0))"
_CREATE_LOCK = b"SELECT pg_advisory_xact_lock(hashtextextended('penstock schema ' || %s::text, 0))"
_EXISTS = b"SELECT to_regnamespace(%s::text) IS NOT NULL"
_LEDGER = """
CREATE TABLE IF NOT EXISTS {} (
    number      integer     NOT NULL PRIMARY KEY,
    applied_at  timestamptz NOT NULL DEFAULT clock_timestamp()
)
"""
# From the system table: to_regclass may use a snapshot from before the lock.
_LEDGER_IS_OURS = b"""
SELECT attribute.atttypid = 'integer'::regtype
FROM pg_catalog.pg_class AS relation
JOIN pg_catalog.pg_namespace AS place ON place.oid = relation.relnamespace
LEFT JOIN pg_catalog.pg_attribute AS attribute
    ON attribute.attrelid = relation.oid AND attribute.attname = 'number' AND NOT attribute.attisdropped
WHERE relation.relname = %s AND place.nspname = ANY(current_schemas(false))
ORDER BY array_position(current_schemas(false), place.nspname)
LIMIT 1
"""
QUEUE = Schema(
    "penstock_migration",
    migrations("postgres"),
    f"SELECT {', '.join(JOB_COLUMNS)} FROM unified_queue LIMIT 0",
)


def migrate(connection: Connection, name: str, schema: Schema = QUEUE) -> None:
    if _applied(connection, name, schema) >= schema.newest:
        # A replica, which can only be read, is opened here.
        _refuse_incomplete(connection, name, schema)
        return
    with connection.transaction():
        connection.execute(b"SET LOCAL statement_timeout = 0")
        connection.execute(_LOCK)
        applied = _applied(connection, name, schema)
        if applied == 0:
            connection.execute(_LEDGER.format(schema.ledger).encode())
        _refuse_foreign(connection, name, schema, applied)
        for number, script in schema.after(applied):
            connection.execute(script.encode())
            entry = f"INSERT INTO {schema.ledger} (number) VALUES (%s)"
            connection.execute(entry.encode(), (number,))


_PRESENT = """
WITH place AS (SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = ANY({}))
SELECT relname, CASE relkind WHEN 'v' THEN 'a view' WHEN 'm' THEN 'a view' WHEN 'i' THEN 'an index'
                             WHEN 'S' THEN 'a sequence' WHEN 'c' THEN 'a type' ELSE 'a table' END
FROM pg_catalog.pg_class JOIN place ON place.oid = relnamespace WHERE relname = ANY(%(names)s)
UNION ALL
SELECT typname, 'a type' FROM pg_catalog.pg_type JOIN place ON place.oid = typnamespace
WHERE typrelid = 0 AND typname = ANY(%(names)s)
UNION ALL
SELECT proname, 'a function' FROM pg_catalog.pg_proc JOIN place ON place.oid = pronamespace
WHERE proname = ANY(%(names)s)
UNION ALL
SELECT cfgname, 'a text search configuration' FROM pg_catalog.pg_ts_config
JOIN place ON place.oid = cfgnamespace WHERE cfgname = ANY(%(names)s)
UNION ALL
SELECT dictname, 'a text search dictionary' FROM pg_catalog.pg_ts_dict
JOIN place ON place.oid = dictnamespace WHERE dictname = ANY(%(names)s)
"""
_PRESENT_IN_CURRENT = _PRESENT.format("ARRAY[current_schema()]").encode()
_PRESENT_IN_PATH = _PRESENT.format("current_schemas(false)").encode()


def _refuse_foreign(connection: Connection, name: str, schema: Schema, applied: int) -> None:
    """Refuse existing names before the first CREATE: another program's, or half a migration."""
    names = schema.created_names(applied)
    present: dict[str, str] = dict(connection.execute(_PRESENT_IN_CURRENT, {"names": names}).fetchall())
    taken = next((each for each in names if each in present), None)
    if taken is None:
        return
    reason = "is not Penstock's" if not applied else f"is of a later schema than {applied}, the last recorded"
    message = f"{name} already has {present[taken]} named {taken} that {reason}"
    raise SchemaMismatch(message, remedy=OWN_SCHEMA)


def _refuse_incomplete(connection: Connection, name: str, schema: Schema) -> None:
    names = schema.created_names()
    present: dict[str, str] = dict(connection.execute(_PRESENT_IN_PATH, {"names": names}).fetchall())
    missing = next((each for each in names if each not in present), None)
    if missing is not None:
        raise schema.lacks(name, missing, remedy=RESTORE)


def create(connection: Connection, namespace: str | None) -> None:
    """Create a missing schema named in the URL, one process at a time."""
    if namespace is None or connection.execute(_EXISTS, (namespace,)).fetchone() == (True,):
        return
    with connection.transaction():
        connection.execute(_CREATE_LOCK, (namespace,))
        connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(namespace)))


def verify(connection: Connection, name: str, schema: Schema = QUEUE) -> None:
    applied = _applied(connection, name, schema)
    schema.refuse_older(name, applied, remedy="Open it once with a user that may create tables.")
    connection.execute(schema.probe.encode())
    _refuse_incomplete(connection, name, schema)


def begin_restore(connection: Connection, tables: Iterable[str], schema: Schema = QUEUE) -> None:
    """Delete all rows of these tables, and mark the schema: others cannot open it until the restore ends."""
    connection.execute(f"TRUNCATE {', '.join(tables)}".encode())
    mark = f"INSERT INTO {schema.ledger} (number) VALUES (%s) ON CONFLICT DO NOTHING"
    connection.execute(mark.encode(), (RESTORING,))


def end_restore(connection: Connection, schema: Schema = QUEUE) -> None:
    """Remove the restore mark of a schema."""
    connection.execute(f"DELETE FROM {schema.ledger} WHERE number = %s".encode(), (RESTORING,))


def is_marked(connection: Connection, schema: Schema = QUEUE) -> bool:
    """Check whether a restore of this schema was not finished."""
    statement = f"SELECT 1 FROM {schema.ledger} WHERE number = %s"
    return connection.execute(statement.encode(), (RESTORING,)).fetchone() is not None


def channel(connection: Connection) -> str:
    """Return the channel of notifications: each schema of a database can hold one queue."""
    found = connection.execute(b"SELECT current_schema(), 'penstock_' || md5(current_schema())").fetchone()
    if found is None or found[0] is None:
        remedy = "Create the schema named in search_path."
        raise SchemaMismatch("there is no schema to work in", remedy=remedy)
    return str(found[1])


def _applied(connection: Connection, name: str, schema: Schema) -> int:
    ledger = connection.execute(_LEDGER_IS_OURS, (schema.ledger,)).fetchone()
    if ledger is None:
        return 0
    if ledger == (False,):
        message = f"{name} already has a table named {schema.ledger} that is not Penstock's"
        raise SchemaMismatch(message, remedy=OWN_SCHEMA)
    latest = connection.execute(schema.applied_statement.encode()).fetchone()
    applied = int(latest[0]) if latest else 0
    schema.refuse_newer(name, applied)
    return applied
