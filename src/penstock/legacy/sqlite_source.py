"""Tables of another queue in a SQLite file, read without changing it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from penstock.errors import ImportRefused, PathNotFound, StoreError
from penstock.legacy.mappings import RETIRED, LegacyRow

BUSY_S = 10.0
_TIMES = ("created_at", "queued_timestamp", "queued_at", "enqueued_at", "marked_for_deletion_at", "timestamp")
_OURS = "penstock_migration"
"""A table of every Penstock store in SQLite."""


class SqliteSource:
    """Rows of some tables of a file. A table that was set aside is read under its new name."""

    def __init__(self, path: Path, tables: Sequence[str], *, what: str) -> None:
        """``what``: the name of the tables in messages."""
        self._path = path.absolute()
        self._wanted = tables
        self.identity = f"sqlite:///{self._path.resolve()}"
        self.shown = str(path)
        _refuse_unreadable(self._path)
        self._connection = self._open()
        try:
            self._tables = self._found_tables(what)
        except BaseException:
            self._connection.close()
            raise

    def _open(self) -> sqlite3.Connection:
        try:
            connection = _connected(self._path, "mode=ro")
            try:
                connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
            except sqlite3.OperationalError:
                connection.close()
                if os.access(self._path.parent, os.W_OK) or _log_of(self._path).exists():
                    raise
                # WAL needs a file beside the database, which cannot be made here; without a log there is
                # nothing in it.
                connection = _connected(self._path, "mode=ro&immutable=1")
                connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
        except sqlite3.Error as error:
            raise self._refusal(error) from error
        return connection

    def _refusal(self, error: sqlite3.Error) -> Exception:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
            return ImportRefused(
                f"{self.shown} is not an SQLite database, or is damaged ({error})",
                remedy="Name the database file of the other queue.",
            )
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return StoreError(
                f"{self.shown} is locked by another program",
                remedy="Stop the program that uses the file, then try again.",
            )
        return StoreError(
            f"{self.shown}: {error}", remedy="Check that this user may read and write the file."
        )

    def _found_tables(self, what: str) -> dict[str, str]:
        """Tables by the name used in rows, with the name in the file."""
        try:
            present = {name for (name,) in self._connection.execute(_TABLES)}
        except sqlite3.Error as error:
            raise self._refusal(error) from error
        if _OURS in present:
            raise ImportRefused(
                f"{self.shown} is a store of Penstock",
                remedy="Name the store of another program.",
            )
        found = {
            table: name for table in self._wanted for name in (f"{table}{RETIRED}", table) if name in present
        }
        if not found:
            raise ImportRefused(
                f"{self.shown} has no {what}: expected a table {' or '.join(self._wanted)}",
                remedy="Check the kind and the file; see docs/guides/import.md.",
            )
        return found

    def count(self) -> int:
        counts = (self._read(f"SELECT count(*) FROM {_name(name)}") for name in self._tables.values())
        return sum(next(one)[0] for one in counts)

    def rows(self) -> Iterator[LegacyRow]:
        for table, name in self._tables.items():
            columns = list(self._read(f"PRAGMA table_info({_name(name)})"))
            names = [column[1] for column in columns]
            keys = [column[1] for column in sorted(columns, key=lambda each: each[5]) if column[5]]
            # A number of the row is its last resort: VACUUM may change it.
            number = "" if keys else "rowid, "
            order = [_name(each) for each in _TIMES if each in names][:1]
            order += [_name(key) for key in keys] or ["rowid"]
            for values in self._read(f"SELECT {number}* FROM {_name(name)} ORDER BY {', '.join(order)}"):
                row = dict(zip(names, values[-len(names) :], strict=True))
                row_id = ":".join(str(row[key]) for key in keys) if keys else str(values[0])
                yield LegacyRow(table, row_id, row)

    def parts(self, table: str, column: str, values: Sequence[Any]) -> Iterator[Mapping[str, Any]]:
        name = self._tables.get(table)
        names = [each[1] for each in self._read(f"PRAGMA table_info({_name(name)})")] if name else []
        if name is None or column not in names:
            return
        marks = ", ".join("?" * len(values))
        statement = f"SELECT * FROM {_name(name)} WHERE {_name(column)} IN ({marks})"
        for row in self._read(statement, values):
            yield dict(zip(names, row, strict=True))

    def _read(self, statement: str, values: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        try:
            yield from self._connection.execute(statement, values)
        except sqlite3.Error as error:
            raise self._refusal(error) from error

    def retire(self) -> list[str]:
        waiting = [table for table, name in self._tables.items() if name == table]
        self._change([f"ALTER TABLE {_name(table)} RENAME TO {_name(table + RETIRED)}" for table in waiting])
        self._tables |= {table: f"{table}{RETIRED}" for table in waiting}
        return list(self._tables.values())

    def drop(self) -> list[str]:
        gone = list(self._tables.values())
        self._change([f"DROP TABLE {_name(name)}" for name in gone])
        return gone

    def _change(self, statements: Sequence[str]) -> None:
        try:
            connection = _connected(self._path, "mode=rw")
            try:
                connection.execute("BEGIN IMMEDIATE")
                for statement in statements:
                    connection.execute(statement)
                connection.execute("COMMIT")
            finally:
                connection.close()
        except sqlite3.Error as error:
            raise self._refusal(error) from error

    def close(self) -> None:
        self._connection.close()


_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table'"


def _connected(path: Path, options: str) -> sqlite3.Connection:
    address = f"file:{quote(str(path))}?{options}"
    connection = sqlite3.connect(address, uri=True, timeout=BUSY_S, isolation_level=None)
    connection.text_factory = _decoded
    return connection


_decoded: Callable[[bytes], str] = lambda raw: raw.decode("utf-8", "surrogateescape")  # noqa: E731


def _log_of(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _refuse_unreadable(path: Path) -> None:
    if not os.path.exists(path):  # noqa: PTH110 - it never raises
        raise PathNotFound(f"{path} does not exist", remedy="Name the database file of the other queue.")
    if not path.is_file():
        raise ImportRefused(f"{path} is not a file", remedy="Name the database file of the other queue.")
    if not os.access(path, os.R_OK):
        raise StoreError(f"{path}: this user may not read the file", remedy="Run as a user that may read it.")
