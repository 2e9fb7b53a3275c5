"""Tables of another queue in a PostgreSQL database, read in one snapshot without changing it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from psycopg import sql

from penstock.database.postgres import Connection, PostgresConnections, translate_error
from penstock.errors import ImportRefused
from penstock.legacy.mappings import RETIRED, LegacyRow
from penstock.store_url import StoreUrl

_FETCHED = 500
_TIMEOUT_S = 600
"""Longest time of one statement: the first one sorts a whole table."""
_OURS = "penstock_migration"
_TIMES = ("created_at", "queued_timestamp", "queued_at", "enqueued_at", "marked_for_deletion_at", "timestamp")
_KEYS = """
SELECT a.attname FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey)
WHERE i.indrelid = to_regclass(%s) AND i.indisprimary ORDER BY array_position(i.indkey::int2[], a.attnum)
"""
_COLUMNS = """
SELECT attname FROM pg_attribute
WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""
_TABLE = "SELECT 1 FROM pg_class WHERE oid = to_regclass(%s) AND relkind IN ('r', 'p', 'f')"

_SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


class PostgresSource:
    """Rows of some tables of the schema in the search path. ``?schema=NAME`` in the URL names another."""

    def __init__(self, url: str, tables: Sequence[str], *, what: str) -> None:
        """``what``: the name of the tables in messages."""
        self._connections = PostgresConnections(url, size=1, pooled=False, timeout_s=_TIMEOUT_S, plans={})
        self._wanted = tables
        self.shown = StoreUrl(url).masked
        self._connection = self._connections.connect()
        try:
            with self._errors():
                self.identity = self._address()
                self._connection.execute(_SNAPSHOT)
                self._tables = self._found_tables(what)
        except BaseException:
            self.close()
            raise

    def _address(self) -> str:
        """Host, port, database and schema: the same for all users and spellings of the URL."""
        info = self._connection.info
        ((schema,),) = self._connection.execute("SELECT coalesce(current_schema(), '')").fetchall()
        return f"postgresql://{info.host}:{info.port}/{info.dbname}?schema={schema}"

    def _found_tables(self, what: str) -> dict[str, str]:
        if self._has(_OURS):
            raise ImportRefused(
                f"{self._connections.name} is a store of Penstock",
                remedy="Name the store of another program.",
            )
        found = {
            table: name for table in self._wanted for name in (f"{table}{RETIRED}", table) if self._has(name)
        }
        if not found:
            raise ImportRefused(
                f"{self._connections.name} has no {what}: expected a table {' or '.join(self._wanted)}",
                remedy="Check the kind, the database and its schema (?schema=NAME): docs/guides/import.md.",
            )
        return found

    def _has(self, name: str) -> bool:
        return bool(self._connection.execute(_TABLE, (f'"{name}"',)).fetchall())

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            raise translate_error(error, self._connections.name) from error

    def count(self) -> int:
        with self._errors():
            return sum(self._count(name) for name in self._tables.values())

    def _count(self, name: str) -> int:
        statement = sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(name))
        ((number,),) = self._connection.execute(statement).fetchall()
        return int(number)

    def rows(self) -> Iterator[LegacyRow]:
        for table, name in self._tables.items():
            with self._errors():
                names = [found for (found,) in self._connection.execute(_COLUMNS, (f'"{name}"',))]
                keys = [found for (found,) in self._connection.execute(_KEYS, (f'"{name}"',))]
            keys = keys or [each for each in ("id", "queue_id", "task_id") if each in names][:1] or names
            order = [each for each in _TIMES if each in names][:1] + keys
            statement = sql.SQL("SELECT * FROM {} ORDER BY {}").format(
                sql.Identifier(name), sql.SQL(", ").join(map(sql.Identifier, order))
            )
            for values in self._read(statement):
                row = dict(zip(names, values, strict=True))
                yield LegacyRow(table, ":".join(str(row[key]) for key in keys), row)

    def parts(self, table: str, column: str, values: Sequence[Any]) -> Iterator[Mapping[str, Any]]:
        name = self._tables.get(table)
        if name is None:
            return
        with self._errors():
            names = [found for (found,) in self._connection.execute(_COLUMNS, (f'"{name}"',))]
            if column not in names:
                return
            statement = sql.SQL("SELECT * FROM {} WHERE {} = ANY(%s)").format(
                sql.Identifier(name), sql.Identifier(column)
            )
            for row in self._connection.execute(statement, (list(values),)):
                yield dict(zip(names, row, strict=True))

    def _read(self, statement: sql.Composed) -> Iterator[tuple[Any, ...]]:
        with self._errors():
            cursor = psycopg.ServerCursor(self._connection, "penstock_import")
            cursor.itersize = _FETCHED
            try:
                yield from cursor.execute(statement)
            finally:
                with suppress(psycopg.Error):
                    cursor.close()

    def retire(self) -> list[str]:
        waiting = [table for table, name in self._tables.items() if name == table]
        rename = sql.SQL("ALTER TABLE {} RENAME TO {}")
        self._change([rename.format(*map(sql.Identifier, (table, table + RETIRED))) for table in waiting])
        self._tables |= {table: f"{table}{RETIRED}" for table in waiting}
        return list(self._tables.values())

    def drop(self) -> list[str]:
        # In the reverse order: parts refer to the rows that they belong to.
        gone = list(self._tables.values())[::-1]
        self._change([sql.SQL("DROP TABLE {}").format(sql.Identifier(name)) for name in gone])
        return gone

    def _change(self, statements: Sequence[sql.Composed]) -> None:
        with self._errors():
            # The snapshot has to end: its lock on the tables would keep this connection out, too.
            self._connection.execute("COMMIT")
            connection: Connection = self._connection
            with connection.transaction():
                connection.execute("SET LOCAL lock_timeout = '10s'")
                for statement in statements:
                    connection.execute(statement)
            # A new one, with what other programs have written meanwhile.
            connection.execute(_SNAPSHOT)

    def close(self) -> None:
        with suppress(psycopg.Error):
            self._connection.close()
