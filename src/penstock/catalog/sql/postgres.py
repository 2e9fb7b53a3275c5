"""The catalog in PostgreSQL, by default beside the queue: many hosts, one server."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

import msgspec
import psycopg
from psycopg import sql

from penstock.catalog import path_glob
from penstock.catalog.protocol import BATCH
from penstock.catalog.rules.query_terms import as_term, as_terms, phrases, quoted_phrases
from penstock.catalog.sql.catalog import SqlCatalog
from penstock.catalog.sql.postgres_rows import CatalogConnections, PostgresStatements
from penstock.catalog.sql.row_types import Row, column
from penstock.catalog.sql.search import OVERFETCH
from penstock.catalog.sql.snapshot import SqlSnapshot
from penstock.catalog.sql.statements import Statements, listed, migrations
from penstock.catalog.values import HeldTask, Phase, Task
from penstock.catalog.views import Filters
from penstock.database import postgres_schema
from penstock.database.postgres_connections import ServerClock
from penstock.database.postgres_errors import translate_error
from penstock.database.schema import Schema
from penstock.errors import InvalidText, StoreError
from penstock.queue.postgres.listener import PostgresListener
from penstock.queue.postgres.transaction import transact

if TYPE_CHECKING:
    from penstock.catalog.sql.postgres_transfer import PostgresTransfer

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
            None if path is None else path_glob.posix_expression(path),
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
        self._schema = SCHEMA._replace(restoring=restoring)
        # Separate pools: a thread that writes while reading must not wait for its own connection.
        self._writers = CatalogConnections(
            url, size=pool_size, pooled=pooled, timeout_s=timeout_s, plans=_WRITING
        )
        self._readers = CatalogConnections(
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
        from penstock.catalog.sql.postgres_transfer import PostgresTransfer

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
            postgres_schema.verify(connection, self._writers.name, self._schema)
        return []

    def migrate(self) -> None:
        with self._writers.session() as connection:
            postgres_schema.create(connection, self._writers.schema)
            self._channel = postgres_schema.channel(connection)
            postgres_schema.migrate(connection, self._writers.name, self._schema)

    def close(self) -> None:
        self._listener.close()
        self._writers.close()
        self._readers.close()
