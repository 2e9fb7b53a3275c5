"""Bringing a SQLite database to this version's schema, whoever else is doing the same."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import NamedTuple

from penstock.clock import format_time, now
from penstock.errors import SchemaMismatch, StoreDenied
from penstock.queue.sql.connections import Connections
from penstock.queue.sql.statements import migrations


class Schema(NamedTuple):
    """Numbered scripts, oldest first, and the table that says which of them a file has had."""

    ledger: str
    scripts: list[tuple[int, str]]

    @property
    def newest(self) -> int:
        return self.scripts[-1][0]


QUEUE = Schema("penstock_migration", migrations("sqlite"))


def migrate(connections: Connections, path: Path, schema: Schema = QUEUE) -> None:
    _make_directory(path.parent)
    if _applied(connections.get("write"), path, schema) >= schema.newest:
        # Also the way in for a file that may be read but not written.
        return
    with connections.writing() as connection:
        connection.execute(
            f"CREATE TABLE IF NOT EXISTS {schema.ledger}"
            " (number INTEGER NOT NULL PRIMARY KEY, applied_at TEXT NOT NULL)"
        )
        applied = _applied(connection, path, schema)
        for number, script in schema.scripts:
            if number > applied:
                for statement in _statements(script):
                    connection.execute(statement)
                connection.execute(f"INSERT INTO {schema.ledger} VALUES (?, ?)", (number, format_time(now())))


def verify(connection: sqlite3.Connection, path: Path, schema: Schema = QUEUE) -> None:
    applied = _applied(connection, path, schema)
    if applied < schema.newest:
        raise SchemaMismatch(
            f"{path} has schema {applied}, this version needs {schema.newest}",
            remedy="Open it once with a user that may write to it.",
        )


def _applied(connection: sqlite3.Connection, path: Path, schema: Schema) -> int:
    ledger = connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (schema.ledger,)).fetchone()
    if ledger is None:
        return 0
    applied: int = connection.execute(f"SELECT coalesce(max(number), 0) FROM {schema.ledger}").fetchone()[0]
    if applied > schema.newest:
        raise SchemaMismatch(f"{path} has schema {applied}, this version knows up to {schema.newest}")
    return applied


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
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (PermissionError, NotADirectoryError, FileExistsError) as error:
        raise StoreDenied(f"{directory} cannot be made ({error.strerror})") from error
