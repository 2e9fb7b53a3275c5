"""The catalog in PostgreSQL, by default beside the queue: many hosts, one server."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, TypeAlias, TypeVar

import msgspec
import psycopg
from psycopg import pq, sql
from psycopg.adapt import Buffer, Dumper, Loader

from penstock import clock
from penstock.catalog import protocol
from penstock.catalog.parts import CatalogRows, PortableTable
from penstock.catalog.protocol import BATCH
from penstock.catalog.rules.words import as_term, as_terms, phrases, quoted_phrases, searchable
from penstock.catalog.sql.catalog import SqlCatalog
from penstock.catalog.sql.search import OVERFETCH
from penstock.catalog.sql.snapshot import SqlSnapshot
from penstock.catalog.sql.statements import Row, Statements, column, listed, load, migrations
from penstock.catalog.sql.transfer import (
    ORDERS,
    READ_AT_ONCE,
    SqlTransfer,
    add_keywords,
    continue_numbers,
    new_uuid,
)
from penstock.catalog.values import Filters, HeldTask, Phase, Task
from penstock.clock import format_time
from penstock.database import postgres
from penstock.database.postgres import Connection, PostgresConnections, ServerClock, translate_error
from penstock.database.schema import Schema
from penstock.errors import InvalidText, StoreError
from penstock.queue.postgres.queue import PostgresListener
from penstock.queue.postgres.rows import numbers, texts, transact

SQL = load("postgres")
_ROWS_AT_ONCE = 1_000
_NUMBERS_AT_ONCE = 32
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
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


class _TimeLoader(Loader):
    """Times as text, in the format of every catalog."""

    format = pq.Format.BINARY

    def load(self, data: Buffer) -> str:
        return format_time(_EPOCH + timedelta(microseconds=int.from_bytes(data, "big", signed=True)))


class _NameLoader(Loader):
    """Values of types unknown to the driver, such as a status, as text."""

    format = pq.Format.BINARY

    def load(self, data: Buffer) -> str:
        return bytes(data).decode()


class _NumberDumper(Dumper):
    """Numbers without a type: the server infers the type, as for text."""

    def dump(self, obj: int) -> Buffer:
        return str(int(obj)).encode()

    def quote(self, obj: int) -> Buffer:
        return self.dump(obj)


class _CatalogConnections(PostgresConnections):
    def connect(self) -> Connection:
        connection = super().connect()
        connection.adapters.register_loader("timestamptz", _TimeLoader)
        connection.adapters.register_loader(0, _NameLoader)
        connection.adapters.register_dumper(int, _NumberDumper)
        return connection


class PostgresStatements:
    """The named statements inside one transaction.

    In a pipeline, what needs no answer does not wait for one. Many rows go as one array a column. Times are
    text on the way in and out, as they are in SQLite, so that the rules compare the same things.
    """

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
        statement = SQL[name]
        if "unnest($1" in statement:
            values = [_column([value]) for value in values]
        return self._ask(statement, values)

    def run(self, name: str, *values: object) -> int:
        # A count alone does not wait for the answer in a pipeline.
        return len(self._ask(f"{SQL[name]}\nRETURNING 1", values).fetchall())

    def send(self, name: str, *values: object) -> None:
        self._named(name, values)

    def many(self, name: str, rows: Sequence[Sequence[Any]]) -> None:
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            self._ask(SQL[name], _columns(name, rows[start : start + _ROWS_AT_ONCE]))

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
            more = self.all("next_rows", max(count, _NUMBERS_AT_ONCE))
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


_REFERRED = {"document_id": "documents", "page_id": "task_queue_page"}
"""Columns with a UUID, and the table that it is in."""
_PORTABLE = {"document_key": "document_id", "page_key": "page_id"}
"""Portable names of columns with a number."""
_SORTING = (
    b"SET LOCAL enable_seqscan = on",
    b"SET LOCAL enable_hashjoin = on",
    b"SET LOCAL enable_sort = on",
)


class _StoredColumn(msgspec.Struct, frozen=True, order=True):
    """A column of a table. ``name`` is the portable one."""

    name: str
    stored_as: str
    key: int
    uuid: bool
    truth: bool


def _columns_of(connection: Connection, table: str) -> list[_StoredColumn]:
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
        columns.append(_StoredColumn(portable, name, key, is_uuid, truth))
    return sorted(columns)


class PostgresTransfer(SqlTransfer[PostgresConnections]):
    """The rows of a catalog in PostgreSQL.

    There documents, pages and chunks have UUIDs beside their numbers. They are left out of the portable rows,
    and a restore makes new ones.
    """

    @contextmanager
    def reading(self) -> Iterator[CatalogRows]:
        with self._connections.own_snapshot() as connection:
            whole = PostgresStatements(connection).whole_tables()
            with whole:
                yield _PostgresRows(self, connection)

    def _own_columns(self, table: str) -> list[str]:
        return [column.name for column in self._columns(table) if column.name]

    def _columns(self, table: str) -> list[_StoredColumn]:
        if table not in self._known:
            with self._connections.session() as connection:
                self._known[table] = _columns_of(connection, table)
        return self._known[table]

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._known: dict[str, list[_StoredColumn]] = {}
        self._namespace = uuid.uuid5(uuid.NAMESPACE_URL, clock.new_task_id())

    def begin_restore(self) -> None:
        with self._connections.session() as connection, connection.transaction():
            emptied = [*self.tables, "catalog_gone", "catalog_keyword"]
            postgres.begin_restore(connection, emptied, self._schema)

    def end_restore(self, numbers: Mapping[str, int]) -> None:
        with self._connections.session() as connection, connection.transaction():
            continue_numbers(PostgresStatements(connection), numbers)
            postgres.end_restore(connection, self._schema)

    def restore_unfinished(self) -> bool:
        with self._connections.session() as connection:
            return postgres.is_marked(connection, self._schema)

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
        self._known = {name: _columns_of(connection, name) for name in transfer.tables}
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


T = TypeVar("T")

SCHEMA = Schema(
    "catalog_migration",
    migrations("postgres"),
    "SELECT p.key, c.key FROM task_queue_page p JOIN task_queue_chunk c ON c.page_id = p.id LIMIT 0",
)
_READING = {
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_material": "off",
    "random_page_cost": "0.001",
    "seq_page_cost": "0.001",
    "cpu_index_tuple_cost": "0.01",
    "cpu_operator_cost": "0.00001",
    "jit": "off",
}
"""Every join follows an index. A plan made while a table was small, or from statistics of that time, must
not read all of it later: the planner counts rows, not pages, so that a few lookups cost
less than a small table."""
_WRITING = _READING | {"enable_bitmapscan": "off", "penstock.catalog": "on"}
"""Claimed tasks are read in index order, which a bitmap scan would lose; word search needs bitmaps.
``penstock.catalog`` marks sessions that keep the counters of pages and documents themselves. For all other
sessions triggers do."""
_SNAPSHOT = b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_MARKS = ("\ue000", "\ue001")
_SNIPPET = f"StartSel={_MARKS[0]}, StopSel={_MARKS[1]}, MaxWords=24, MinWords=16, ShortWord=0"


class PostgresSnapshot(SqlSnapshot):
    def _filters(self, filters: Filters) -> tuple[str | None, ...]:
        tenant_id, collection, branch, path, *others = super()._filters(filters)
        return (
            tenant_id,
            collection,
            branch,
            None if path is None else protocol.posix_expression(path),
            *others,
        )

    def _match(self, query: str) -> str:
        wanted = as_terms(phrases(query))
        required = self._all_of(quoted_phrases(query))
        return msgspec.json.encode({"any": wanted, "all": required}).decode() if wanted else ""

    def _all_of(self, terms: Sequence[str]) -> str:
        return " & ".join(filter(None, map(as_term, terms)))

    def _ranked(self, words: str, filters: Filters, limit: int, most: int) -> tuple[list[Row], bool]:
        # Two statements: joined, the planner reads the tables of the catalog before it knows the ranks.
        # With a filter many of the first ranks are of others, and to rank again costs as much as before.
        most *= OVERFETCH if self._narrowed(filters) else 1
        ranked = self._rows.all("ranked", words, most)
        seen = self.visible(filters, column(ranked))
        hits = [(number, rank) for number, rank in ranked if number in seen]
        return hits, len(hits) < limit and len(ranked) == most

    def _snippets(self, words: str, marks: tuple[str, str], ids: list[int]) -> dict[int, str]:
        found = self._rows.all("snippets", words, _SNIPPET, listed(ids))
        return {number: _marked(shown, text, marks) for number, shown, text in found}


def _marked(shown: str, text: str, marks: tuple[str, str]) -> str:
    plain = shown.replace(_MARKS[0], "").replace(_MARKS[1], "")
    before = "" if text.lstrip().startswith(plain.lstrip()) else "…"
    after = "" if text.rstrip().endswith(plain.rstrip()) else "…"
    return before + shown.replace(_MARKS[0], marks[0]).replace(_MARKS[1], marks[1]) + after


class PostgresCatalog(SqlCatalog):
    def __init__(
        self,
        url: str,
        *,
        pool_size: int = 4,
        pooled: bool = False,
        timeout_s: float = 60,
        restoring: bool = False,
    ) -> None:
        """``restoring``: open a schema even if the last restore was not finished."""
        self._schema = msgspec.structs.replace(SCHEMA, restoring=restoring)
        # Separate pools: a thread that writes while reading must not wait for its own connection.
        self._writers = _CatalogConnections(
            url, size=pool_size, pooled=pooled, timeout_s=timeout_s, plans=_WRITING
        )
        self._readers = _CatalogConnections(
            url, size=pool_size, pooled=pooled, timeout_s=timeout_s, plans=_READING
        )
        self._clock = ServerClock(self._writers)
        self._channel = ""
        self._listener = PostgresListener(self._readers, lambda: self._channel, self._anything)
        try:
            self.migrate()
        except StoreError:
            self.close()
            raise

    def _now(self) -> datetime:
        return self._clock.now()

    def _write(
        self, work: Callable[[Statements, datetime], T], now: datetime | None = None, *, synced: bool = True
    ) -> T:
        # Every commit is synced: writers do not wait for each other's here.
        del synced
        moment = now or self._now()
        return transact(self._writers, self._channel, PostgresStatements, lambda rows: work(rows, moment))

    @contextmanager
    def snapshot(self) -> Iterator[PostgresSnapshot]:
        with self._readers.borrowed() as connection:
            try:
                connection.execute(_SNAPSHOT)
                if self._readers.pooled:
                    connection.execute(self._readers.session_settings.encode())
                yield PostgresSnapshot(PostgresStatements(connection))
            except psycopg.Error as error:
                raise translate_error(error, self._readers.name) from error
            except UnicodeEncodeError:
                raise InvalidText("a text that is asked for holds a lone surrogate") from None
            finally:
                with suppress(psycopg.Error):
                    connection.execute(b"ROLLBACK")

    @property
    def transfer(self) -> PostgresTransfer:
        return PostgresTransfer(self, self._writers, self._schema)

    def _renewed(self, rows: Statements, claims: Sequence[HeldTask | Task], at: str) -> list[bool]:
        assert isinstance(rows, PostgresStatements)
        held: set[tuple[Phase, int, int]] = set()
        for lane in Phase:
            mine = sorted((at, claim.task_id, claim.claim_number) for claim in claims if claim.lane is lane)
            if mine:
                held |= {(lane, *found) for found in rows.answers(f"renew_{lane}", mine)}
        return [(claim.lane, claim.task_id, claim.claim_number) in held for claim in claims]

    def wait(self, timeout: float) -> bool:
        return self._listener.wait(timeout)

    def _anything(self) -> bool:
        with self._writers.session() as connection:
            return bool(PostgresStatements(connection).value("any_waiting"))

    def sweep(self, before: datetime, *, limit: int = BATCH) -> int:
        self._count_again()
        return super().sweep(before, limit=limit)

    def _count_again(self) -> None:
        """Count tables that were counted as empty: until then statements may read them in full."""
        with self._writers.session() as connection:
            for (table,) in PostgresStatements(connection).all("counted_as_empty"):
                connection.execute(sql.SQL("ANALYZE {}").format(sql.Identifier(table)))

    def scrub(self) -> None:
        """Do nothing: PostgreSQL reuses the space of deleted rows."""

    def merge_words(self, stop: Callable[[], bool] = lambda: False) -> None:
        """Do nothing: PostgreSQL keeps one index."""

    def check(self) -> list[str]:
        with self._writers.session() as connection:
            postgres.verify(connection, self._writers.name, self._schema)
        return []

    def migrate(self) -> None:
        with self._writers.session() as connection:
            postgres.create(connection, self._writers.schema)
            self._channel = postgres.channel(connection)
            postgres.migrate(connection, self._writers.name, self._schema)

    def close(self) -> None:
        self._listener.close()
        self._writers.close()
        self._readers.close()
