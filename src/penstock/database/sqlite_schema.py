"""Migration of a SQLite file, safe with concurrent migrations."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from pathlib import Path

from penstock.clock import format_time, now
from penstock.database.schema import RESTORING, Schema
from penstock.database.sqlite_connections import SqliteConnections
from penstock.errors import SchemaMismatch, StoreDenied
from penstock.queue.sql.statements import migrations
from penstock.state_directory import make_private

QUEUE = Schema("penstock_migration", migrations("sqlite"))


def migrate(
    connections: SqliteConnections, path: Path, schema: Schema = QUEUE, *, reader: str | None = None
) -> None:
    """Apply missing changes of the schema. ``reader``: the role of the connection that looks for them."""
    _make_directory(path.parent)
    with connections.reading() if reader is None else connections.snapshot(reader) as connection:
        if _applied(connection, path, schema) >= schema.newest:
            # A file that can only be read is opened here.
            _refuse_incomplete(connection, path, schema)
            return
    with connections.writing() as connection:
        connection.execute(
            f"CREATE TABLE IF NOT EXISTS {schema.ledger}"
            " (number INTEGER NOT NULL PRIMARY KEY, applied_at TEXT NOT NULL)"
        )
        applied = _applied(connection, path, schema)
        _refuse_foreign(connection, path, schema, applied)
        for number, script in schema.after(applied):
            for statement in _statements(script):
                connection.execute(statement)
            connection.execute(f"INSERT INTO {schema.ledger} VALUES (?, ?)", (number, format_time(now())))


def verify(connection: sqlite3.Connection, path: Path, schema: Schema = QUEUE) -> None:
    applied = _applied(connection, path, schema)
    schema.refuse_older(path, applied, remedy="Open it once with a user that may write to it.")
    _refuse_incomplete(connection, path, schema)


def begin_restore(connection: sqlite3.Connection, tables: Iterable[str], schema: Schema = QUEUE) -> None:
    """Delete all rows of these tables, and mark the file: others cannot open it until the restore ends."""
    for name in tables:
        connection.execute(f"DELETE FROM {name}")
    values = (RESTORING, format_time(now()))
    connection.execute(f"INSERT OR REPLACE INTO {schema.ledger} VALUES (?, ?)", values)


def end_restore(connection: sqlite3.Connection, schema: Schema = QUEUE) -> None:
    """Remove the restore mark of a file."""
    connection.execute(f"DELETE FROM {schema.ledger} WHERE number = ?", (RESTORING,))


def is_marked(connection: sqlite3.Connection, schema: Schema = QUEUE) -> bool:
    """Check whether a restore of this file was not finished."""
    found = connection.execute(f"SELECT 1 FROM {schema.ledger} WHERE number = ?", (RESTORING,)).fetchall()
    return bool(found)


def _applied(connection: sqlite3.Connection, path: Path, schema: Schema) -> int:
    ledger = connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (schema.ledger,)).fetchall()
    if not ledger:
        return 0
    ((applied,),) = connection.execute(schema.applied_statement).fetchall()
    if not isinstance(applied, int):
        raise SchemaMismatch(
            f"{path} has a table {schema.ledger} that is not Penstock's", remedy=_ANOTHER_FILE
        )
    schema.refuse_newer(path, applied)
    return applied


_ANOTHER_FILE = "Name another file in its URL (PENSTOCK_URL; for the catalog PENSTOCK_CATALOG_URL)."
_RESTORE = "Restore the file from a backup, or name another file in its URL."


def _refuse_foreign(connection: sqlite3.Connection, path: Path, schema: Schema, applied: int) -> None:
    """Refuse existing names before the first CREATE: another program's, or half a migration."""
    present = _present(connection)
    taken = [name for name in schema.created_names(applied) if name in present]
    if taken and applied:
        raise SchemaMismatch(
            f"{path} has {taken[0]} of a later schema than {applied}, the last that was recorded",
            remedy=_RESTORE,
        )
    if taken:
        kind = "an index" if present[taken[0]] == "index" else f"a {present[taken[0]]}"
        raise SchemaMismatch(
            f"{path} already has {kind} named {taken[0]} that is not Penstock's", remedy=_ANOTHER_FILE
        )


def _refuse_incomplete(connection: sqlite3.Connection, path: Path, schema: Schema) -> None:
    present = _present(connection)
    missing = [name for name in schema.created_names() if name not in present]
    if missing:
        raise schema.lacks(path, missing[0], remedy=_RESTORE)


def _present(connection: sqlite3.Connection) -> dict[str, str]:
    return dict(connection.execute("SELECT name, type FROM sqlite_master").fetchall())


def _statements(script: str) -> list[str]:
    statements: list[str] = []
    part = ""
    for line in script.splitlines(keepends=True):
        part += line
        if sqlite3.complete_statement(part):
            statements.append(part)
            part = ""
    return statements


def _make_directory(directory: Path) -> None:
    try:
        make_private(directory)
    except (PermissionError, NotADirectoryError, FileExistsError) as error:
        raise StoreDenied(f"{directory} cannot be made ({error.strerror})") from error
