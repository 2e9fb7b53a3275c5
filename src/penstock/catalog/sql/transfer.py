"""All rows of a catalog in a form common to both dialects, table by table.

The form is that of SQLite: documents, pages and chunks are known by numbers, times are text, and truth values
are 0 or 1. Tables and columns come from the store itself, so that a new one is transferred without a change
here. Keyword indexes are made again from the texts.
"""

from __future__ import annotations

import sqlite3
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from penstock.catalog.parts import CatalogRows, PortableTable
from penstock.catalog.rules.publication import RestoredRows
from penstock.catalog.rules.words import keyword_text
from penstock.catalog.sql.statements import SqliteStatements, Statements, load
from penstock.database import sqlite
from penstock.database.schema import Schema
from penstock.database.sqlite import SqliteConnections
from penstock.errors import SchemaMismatch

if TYPE_CHECKING:
    from penstock.catalog.sql.catalog import SqlCatalog

C = TypeVar("C")

READ_AT_ONCE = 500
_WORDS_IN_MEMORY, _USUAL_WORDS_IN_MEMORY = 32 << 20, 1 << 20
"""Bytes of words that FTS5 keeps before it writes a part of the index: in a restore, and by default.

Parts are merged later, which costs as much as writing them."""
_NOT_TRANSFERRED = frozenset({"catalog_sequence", "catalog_keyword", "catalog_gone"})
"""Numbers, which are kept apart; words, made of the texts; gone sources, for caches of the other store."""
ORDERS: Mapping[str, tuple[str, ...]] = {
    "catalog_vector_cache": ("tenant_id", "space_id", "text_hash"),
    "catalog_walk": ("tenant_id", "collection", "branch", "root", "rules"),
}
"""Orders of tables whose primary key is another one in each dialect."""
_UNNUMBERED = frozenset({"catalog_vector_cache"})
"""Tables whose number means nothing and exists in one dialect only."""


class SqlTransfer(ABC, Generic[C]):
    """The rows of one catalog; see ``catalog.parts.CatalogTransfer``."""

    def __init__(self, catalog: SqlCatalog, connections: C, schema: Schema) -> None:
        self._catalog = catalog
        self._connections = connections
        self._schema = schema
        self.tables = [name for name in schema.tables() if name not in _NOT_TRANSFERRED]

    @abstractmethod
    def reading(self) -> AbstractContextManager[CatalogRows]: ...

    @abstractmethod
    def begin_restore(self) -> None: ...

    @abstractmethod
    def end_restore(self, numbers: Mapping[str, int]) -> None: ...

    @abstractmethod
    def restore_unfinished(self) -> bool: ...

    @abstractmethod
    def _own_columns(self, table: str) -> list[str]:
        """The portable columns of a table in this store."""

    @abstractmethod
    def _insert(self, table: PortableTable, rows: Sequence[Sequence[Any]]) -> None: ...

    def is_empty(self) -> bool:
        with self._catalog.snapshot() as snapshot:
            return not snapshot.rows.value("any_source")

    def restore(self, table: PortableTable, rows: Sequence[Sequence[Any]]) -> None:
        self.refuse_unknown(table)
        self._insert(table, RestoredRows(table.name, table.columns).apply(rows))

    def refuse_unknown(self, table: PortableTable) -> None:
        unknown = "" if table.name in self.tables else f"a table {table.name}"
        if not unknown and (more := set(table.columns) - set(self._own_columns(table.name))):
            unknown = f"a column {min(more)} in {table.name}"
        if unknown:
            raise SchemaMismatch(f"the backup has {unknown}, which this version does not know")


def add_keywords(rows: Statements, table: PortableTable, values: Sequence[Sequence[Any]]) -> None:
    """Add the words of new texts to the index."""
    if table.name == "catalog_content":
        number, text = table.columns.index("id"), table.columns.index("text")
        rows.many("add_keyword", [(row[number], keyword_text(row[text])) for row in values])


def continue_numbers(rows: Statements, numbers: Mapping[str, int]) -> None:
    """Go on with the numbers of the other catalog, or of this one before the restore if they are larger."""
    rows.send("continue_rows", numbers["row"])
    rows.send("continue_changes", numbers["change"])
    rows.send("forget_changes")


class SqliteTransfer(SqlTransfer[SqliteConnections]):
    _EXPRESSIONS: ClassVar[Mapping[str, Mapping[str, str]]] = {
        "catalog_vector": {"content_id": "id >> 8", "space_id": "id & 255", "vector": "vector"}
    }

    @contextmanager
    def reading(self) -> Iterator[CatalogRows]:
        with self._connections.own_snapshot() as connection:
            yield _SqliteRows(self, connection)

    def read_columns(self, connection: sqlite3.Connection, table: str) -> dict[str, str]:
        """Expressions by portable column."""
        if table in self._EXPRESSIONS:
            return dict(self._EXPRESSIONS[table])
        found = [name for name, _ in self.statements(connection).all("stored_columns", table)]
        return {name: name for name in sorted(found) if name != "id" or table not in _UNNUMBERED}

    def _own_columns(self, table: str) -> list[str]:
        with self._connections.reading() as connection:
            return list(self.read_columns(connection, table))

    def begin_restore(self) -> None:
        with self._connections.writing() as connection:
            self.statements(connection).send("forget_words")
            self.statements(connection).send("buffer_words", _WORDS_IN_MEMORY)
            emptied = [*self.tables, "catalog_gone"]
            sqlite.begin_restore(connection, reversed(emptied), self._schema)

    def end_restore(self, numbers: Mapping[str, int]) -> None:
        with self._connections.writing() as connection:
            continue_numbers(self.statements(connection), numbers)
            self.statements(connection).send("buffer_words", _USUAL_WORDS_IN_MEMORY)
            sqlite.end_restore(connection, self._schema)

    def statements(self, connection: sqlite3.Connection) -> SqliteStatements:
        return SqliteStatements(connection, load("sqlite"))

    def restore_unfinished(self) -> bool:
        with self._connections.reading() as connection:
            return sqlite.is_marked(connection, self._schema)

    def _insert(self, table: PortableTable, rows: Sequence[Sequence[Any]]) -> None:
        columns: Sequence[str] = table.columns
        if table.name == "catalog_vector":
            at = {name: number for number, name in enumerate(columns)}
            rows = [(row[at["content_id"]] << 8 | row[at["space_id"]], row[at["vector"]]) for row in rows]
            columns = ("id", "vector")
        marks = ", ".join("?" * len(columns))
        statement = f"INSERT INTO {table.name} ({', '.join(columns)}) VALUES ({marks})"

        with self._connections.writing(synced=False) as connection:
            connection.executemany(statement, rows)
            add_keywords(self.statements(connection), table, rows)


class _SqliteRows:
    """Rows of one snapshot of a SQLite file."""

    def __init__(self, transfer: SqliteTransfer, connection: sqlite3.Connection) -> None:
        self._transfer = transfer
        self._connection = connection
        self.numbers: Mapping[str, int] = dict(transfer.statements(connection).all("last_numbers"))

    def tables(self) -> list[PortableTable]:
        names = self._transfer.tables
        return [
            PortableTable(name, tuple(self._transfer.read_columns(self._connection, name))) for name in names
        ]

    def rows(self, table: PortableTable) -> Iterator[Sequence[Sequence[Any]]]:
        expressions = self._transfer.read_columns(self._connection, table.name)
        selected = ", ".join(expressions[name] for name in table.columns)
        keys = self._transfer.statements(self._connection).all("stored_columns", table.name)
        order = ORDERS.get(table.name) or [
            name for place, name in sorted((at, name) for name, at in keys) if place
        ]
        cursor = self._connection.execute(f"SELECT {selected} FROM {table.name} ORDER BY {', '.join(order)}")
        while batch := cursor.fetchmany(READ_AT_ONCE):
            yield batch

    def count(self, table: PortableTable) -> int:
        (number,) = self._connection.execute(f"SELECT count(*) FROM {table.name}").fetchone()
        return int(number)


def new_uuid(namespace: uuid.UUID, key: int) -> uuid.UUID:
    """The UUID of a row with a numeric id: the same throughout this restore."""
    return uuid.uuid5(namespace, str(key))
