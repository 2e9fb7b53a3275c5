"""All rows of a catalog in PostgreSQL, in the portable form of ``transfer``.

There documents, pages and chunks have UUIDs beside their numbers. They are left out of the portable rows, and
a restore makes new ones.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any

import psycopg

from penstock import clock
from penstock.catalog.parts import CatalogRows, PortableTable
from penstock.catalog.sql.postgres_rows import PostgresStatements
from penstock.catalog.sql.transfer import (
    ORDERS,
    READ_AT_ONCE,
    SqlTransfer,
    add_keywords,
    continue_numbers,
    new_uuid,
)
from penstock.database import postgres_schema
from penstock.database.postgres_connections import Connection, PostgresConnections
from penstock.named_tuple import NamedTuple

_REFERRED = {"document_id": "documents", "page_id": "task_queue_page"}
"""Columns with a UUID, and the table that it is in."""
_PORTABLE = {"document_key": "document_id", "page_key": "page_id"}
"""Portable names of columns with a number."""
_SORTING = (
    b"SET LOCAL enable_seqscan = on",
    b"SET LOCAL enable_hashjoin = on",
    b"SET LOCAL enable_sort = on",
)


class StoredColumn(NamedTuple):
    """A column of a table. ``name`` is the portable one."""

    name: str
    stored_as: str
    key: int
    uuid: bool
    truth: bool


def columns_of(connection: Connection, table: str) -> list[StoredColumn]:
    """The columns of a table by portable name. The UUID of a row itself has the name ``""``."""
    found = PostgresStatements(connection).all("stored_columns", table)
    numbered = any(name == "id" and is_uuid for name, _, is_uuid, _ in found)
    columns = []
    for name, key, is_uuid, truth in found:
        portable = _PORTABLE.get(str(name), str(name))
        if numbered and name == "key":
            portable = "id"
        elif numbered and name == "id":
            portable = ""
        columns.append(StoredColumn(portable, name, key, is_uuid, truth))
    return sorted(columns)


class PostgresTransfer(SqlTransfer[PostgresConnections]):
    @contextmanager
    def reading(self) -> Iterator[CatalogRows]:
        with self._connections.own_snapshot() as connection:
            whole = PostgresStatements(connection).whole_tables()
            with whole:
                yield _PostgresRows(self, connection)

    def _own_columns(self, table: str) -> list[str]:
        return [column.name for column in self._columns(table) if column.name]

    def _columns(self, table: str) -> list[StoredColumn]:
        if table not in self._known:
            with self._connections.session() as connection:
                self._known[table] = columns_of(connection, table)
        return self._known[table]

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._known: dict[str, list[StoredColumn]] = {}
        self._namespace = uuid.uuid5(uuid.NAMESPACE_URL, clock.new_task_id())

    def begin_restore(self) -> None:
        with self._connections.session() as connection, connection.transaction():
            emptied = [*self.tables, "catalog_gone", "catalog_keyword"]
            postgres_schema.begin_restore(connection, emptied, self._schema)

    def end_restore(self, numbers: Mapping[str, int]) -> None:
        with self._connections.session() as connection, connection.transaction():
            continue_numbers(PostgresStatements(connection), numbers)
            postgres_schema.end_restore(connection, self._schema)

    def restore_unfinished(self) -> bool:
        with self._connections.session() as connection:
            return postgres_schema.is_marked(connection, self._schema)

    def _insert(self, table: PortableTable, rows: Sequence[Sequence[Any]]) -> None:
        place = {name: number for number, name in enumerate(table.columns)}
        columns = [column for column in self._columns(table.name) if (column.name or "id") in place]
        sources = [(place[column.name or "id"], column.uuid) for column in columns]
        names = ", ".join(column.stored_as for column in columns)
        statement = f"COPY {table.name} ({names}) FROM STDIN"
        namespace = self._namespace
        with self._connections.session() as connection, connection.transaction():
            # The end of the restore is synced, and with it all before.
            connection.execute(b"SET LOCAL synchronous_commit = off")
            with connection.cursor() as cursor, cursor.copy(statement.encode()) as copy:
                for row in rows:
                    copy.write_row(
                        [new_uuid(namespace, row[at]) if is_uuid else row[at] for at, is_uuid in sources]
                    )
            add_keywords(PostgresStatements(connection), table, rows)


class _PostgresRows:
    """Rows of one snapshot of a PostgreSQL schema."""

    def __init__(self, transfer: PostgresTransfer, connection: Connection) -> None:
        self._transfer = transfer
        self._connection = connection
        self._cursors = count(1)
        self._known = {name: columns_of(connection, name) for name in transfer.tables}
        self.numbers: Mapping[str, int] = dict(PostgresStatements(connection).all("last_numbers"))

    def tables(self) -> list[PortableTable]:
        return [
            PortableTable(name, tuple(column.name for column in columns if column.name))
            for name, columns in self._known.items()
        ]

    def rows(self, table: PortableTable) -> Iterator[Sequence[Sequence[Any]]]:
        columns = {column.name: column for column in self._known[table.name]}
        joins, selected = "", []
        for name in table.columns:
            column = columns[name]
            if column.uuid:
                joins += f" JOIN {_REFERRED[name]} {name}_of ON {name}_of.id = t.{column.stored_as}"
                selected.append(f"{name}_of.key")
            else:
                selected.append(f"t.{column.stored_as}" + ("::int" if column.truth else ""))
        order = ORDERS.get(table.name) or self._key(table)
        statement = (
            f"SELECT {', '.join(selected)} FROM {table.name} t{joins}"
            f" ORDER BY {', '.join(f't.{name}' for name in order)}"
        )
        with psycopg.RawServerCursor(self._connection, f"transfer_{next(self._cursors)}") as cursor:
            cursor.execute(statement.encode(), binary=True)
            while batch := cursor.fetchmany(READ_AT_ONCE):
                yield batch

    def count(self, table: PortableTable) -> int:
        found = self._connection.execute(f"SELECT count(*) FROM {table.name}".encode()).fetchone()
        return int(found[0]) if found is not None else 0

    def _key(self, table: PortableTable) -> list[str]:
        found = sorted((column.key, column) for column in self._known[table.name] if column.key)
        return ["key" if column.uuid else column.stored_as for _, column in found]
