"""Bringing a SQLite database to this version's schema, whoever else is doing the same."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from penstock.clock import format_time, now
from penstock.errors import SchemaMismatch, StoreDenied
from penstock.queue.sql.connections import Connections
from penstock.queue.sql.statements import migrations

_LEDGER = """
CREATE TABLE IF NOT EXISTS penstock_migration (
    number      INTEGER NOT NULL PRIMARY KEY,
    applied_at  TEXT    NOT NULL
)
"""


def migrate(connections: Connections, path: Path) -> None:
    _make_directory(path.parent)
    known = migrations("sqlite")
    if _applied(connections.get("write"), path) >= known[-1][0]:
        # Also the way in for a file that may be read but not written.
        return
    with connections.writing() as connection:
        connection.execute(_LEDGER)
        applied = _applied(connection, path)
        for number, script in known:
            if number > applied:
                for statement in _statements(script):
                    connection.execute(statement)
                connection.execute(
                    "INSERT INTO penstock_migration VALUES (?, ?)", (number, format_time(now()))
                )


def verify(connection: sqlite3.Connection, path: Path) -> None:
    expected = migrations("sqlite")[-1][0]
    applied = _applied(connection, path)
    if applied < expected:
        raise SchemaMismatch(
            f"{path} has schema {applied}, this version needs {expected}",
            remedy="Open it once with a user that may write to it.",
        )


def _applied(connection: sqlite3.Connection, path: Path) -> int:
    tables = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'penstock_migration'").fetchone()
    if tables is None:
        return 0
    applied: int = connection.execute("SELECT coalesce(max(number), 0) FROM penstock_migration").fetchone()[0]
    newest = migrations("sqlite")[-1][0]
    if applied > newest:
        raise SchemaMismatch(f"{path} has schema {applied}, this version knows up to {newest}")
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
