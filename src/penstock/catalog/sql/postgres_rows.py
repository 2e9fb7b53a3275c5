"""The named statements inside one transaction on PostgreSQL.

In a pipeline, what needs no answer does not wait for one. Many rows go as one array a column. Times are text
on the way in and out, as they are in SQLite, so that the rules compare the same things.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, TypeAlias

import psycopg
from psycopg import pq
from psycopg.adapt import Buffer, Dumper, Loader

from penstock.catalog.rules.query_terms import searchable
from penstock.catalog.sql.row_types import Row
from penstock.catalog.sql.statements import load
from penstock.clock import format_time
from penstock.database.postgres_connections import Connection, PostgresConnections
from penstock.queue.postgres.values import numbers, texts

SQL = load("postgres")
ROWS_AT_ONCE = 1_000
NUMBERS_AT_ONCE = 32
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_OF_MANY = frozenset(name for name, statement in SQL.items() if "unnest($1" in statement)
Cursor: TypeAlias = psycopg.Cursor[Row]
_WHOLE_TABLES = {
    "enable_nestloop": "off",
    "enable_seqscan": "on",
    "enable_hashjoin": "on",
    "enable_mergejoin": "on",
    "statement_timeout": "0",
}
"""A nested loop over whole tables costs the product of their sizes where an estimate is wrong. Reading all of
a large catalog takes longer than the time limit of a statement that follows an index."""


class TimeLoader(Loader):
    """Times as text, in the format of every catalog."""

    format = pq.Format.BINARY

    def load(self, data: Buffer) -> str:
        return format_time(_EPOCH + timedelta(microseconds=int.from_bytes(data, "big", signed=True)))


class NameLoader(Loader):
    """Values of types unknown to the driver, such as a status, as text."""

    format = pq.Format.BINARY

    def load(self, data: Buffer) -> str:
        return bytes(data).decode()


class NumberDumper(Dumper):
    """Numbers without a type: the server infers the type, as for text."""

    def dump(self, obj: int) -> Buffer:
        return str(int(obj)).encode()

    def quote(self, obj: int) -> Buffer:
        return self.dump(obj)


class CatalogConnections(PostgresConnections):
    def connect(self) -> Connection:
        connection = super().connect()
        connection.adapters.register_loader("timestamptz", TimeLoader)
        connection.adapters.register_loader(0, NameLoader)
        connection.adapters.register_dumper(int, NumberDumper)
        return connection


class PostgresStatements:
    references_checked_late = True

    def __init__(self, connection: Connection) -> None:
        self.statements: Mapping[str, str] = SQL
        self.news = False
        self.to_wake: set[str] = set()
        self._connection = connection
        self._free: list[int] = []
        self._cursors = count(1)

    # Methods for the transaction.

    def execute(self, statement: str, values: Mapping[str, object]) -> Cursor:
        return self._connection.cursor().execute(statement.encode(), values or None)

    def flush(self) -> None:
        pass

    # Methods for the rules.

    def _ask(self, statement: str, values: Sequence[object]) -> Cursor:
        return psycopg.RawCursor(self._connection).execute(statement.encode(), values, binary=True)

    def _named(self, name: str, values: Sequence[object]) -> Cursor:
        if name in _OF_MANY:
            values = [_column([value]) for value in values]
        return self._ask(SQL[name], values)

    def run(self, name: str, *values: object) -> int:
        # A count alone does not wait for the answer in a pipeline.
        return len(self._ask(f"{SQL[name]}\nRETURNING 1", values).fetchall())

    def send(self, name: str, *values: object) -> None:
        self._named(name, values)

    def many(self, name: str, rows: Sequence[Sequence[Any]]) -> None:
        for start in range(0, len(rows), ROWS_AT_ONCE):
            self._ask(SQL[name], _columns(name, rows[start : start + ROWS_AT_ONCE]))

    def answers(self, name: str, rows: Sequence[Sequence[Any]]) -> list[Row]:
        """The result of a statement over many rows."""
        return self._ask(SQL[name], _columns(name, rows)).fetchall()

    def one(self, name: str, *values: object) -> Row | None:
        return self._named(name, values).fetchone()

    def all(self, name: str, *values: object) -> list[Row]:
        return self._named(name, values).fetchall()

    def value(self, name: str, *values: object) -> Any:
        found = self.one(name, *values)
        return next(iter(found)) if found else None

    def joined(self, columns: str, where: str, *values: object) -> list[Row]:
        return self._ask(f"{SQL[columns]}\n{SQL[where]}", values).fetchall()

    def batches(self, name: str, size: int, *values: object) -> Iterator[list[Row]]:
        with psycopg.RawServerCursor(self._connection, f"batches_{next(self._cursors)}") as cursor:
            cursor.execute(SQL[name].encode(), values, binary=True)
            while batch := cursor.fetchmany(size):
                yield batch

    def numbers(self, name: str, count: int) -> Sequence[int]:
        if name == "change":
            # Drawn by the statement that makes the change; here they are only counted.
            return range(count)
        if len(self._free) < count:
            more = self.all("next_rows", max(count, NUMBERS_AT_ONCE))
            self._free += [number for (number,) in more]
        given, self._free = self._free[:count], self._free[count:]
        return given

    def hold(self, name: str, *values: object) -> None:
        self._ask(SQL[f"hold_{name}"], values)

    def notify(self) -> None:
        self.news = True

    @contextmanager
    def whole_tables(self) -> Iterator[None]:
        before = self._configure(_WHOLE_TABLES)
        yield
        # Not after an error: the settings end with the transaction.
        self._configure(before)

    def _configure(self, settings: Mapping[str, str]) -> dict[str, str]:
        """Change settings until the end of the transaction. Returns their previous values."""
        asked = ", ".join(
            f"current_setting('{name}'), set_config('{name}', '{value}', true)"
            for name, value in settings.items()
        )
        (row,) = self._ask(f"SELECT {asked}", ()).fetchall()
        return dict(zip(settings, row[::2], strict=True))


def _columns(name: str, rows: Sequence[Sequence[Any]]) -> list[str]:
    prepare = _PREPARED.get(name)
    if prepare is not None:
        rows = [prepare(row) for row in rows]
    return [_column(values) for values in zip(*rows, strict=True)]


def _column(values: Sequence[Any]) -> str:
    known = next((value for value in values if value is not None), None)
    if isinstance(known, bytes):
        written = ["NULL" if value is None else f'"\\\\x{value.hex()}"' for value in values]
        return "{" + ",".join(written) + "}"
    if isinstance(known, float):
        return "{" + ",".join(["NULL" if value is None else repr(value) for value in values]) + "}"
    return numbers(values) if isinstance(known, int) else texts(values)


def _searchable(row: Sequence[Any]) -> Sequence[Any]:
    content_id, text = row
    words = searchable(text)
    return content_id, words, len(words.split())


_PREPARED: dict[str, Callable[[Sequence[Any]], Sequence[Any]]] = {
    "add_keyword": _searchable,
}
