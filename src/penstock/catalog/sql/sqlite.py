"""The catalog in a SQLite file, by default the queue's own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from penstock import clock
from penstock.catalog import protocol
from penstock.catalog.rules.words import keyword_text
from penstock.catalog.sql.catalog import SqlCatalog
from penstock.catalog.sql.snapshot import SqlSnapshot
from penstock.catalog.sql.statements import SqliteStatements, Statements, column, load, migrations
from penstock.database import sqlite
from penstock.database.schema import Schema
from penstock.database.sqlite import (
    SqlFunction,
    SqliteConnections,
    translating_errors,
    truncate_log,
)
from penstock.errors import InvalidText, StoreError
from penstock.queue.file_watch import SqliteListener

if TYPE_CHECKING:
    from penstock.catalog.sql.transfer import SqliteTransfer

SQL = load("sqlite")
SCHEMA = Schema("catalog_migration", migrations("sqlite"))

T = TypeVar("T")

_FUNCTIONS = {"glob": SqlFunction(2, protocol.matches), "keyword_text": SqlFunction(1, keyword_text)}

_MERGED_AT_ONCE = 200
"""Pages of the keyword index written in one transaction."""
_REST_OF_LARGEST = 4
"""Segments of the keyword index are merged when all but the largest have a share of it: one of so many. So a
text is written about this number of times, and not again for each change."""


def is_worth_merging(pages: Sequence[int]) -> bool:
    """Decide whether to merge the segments of a keyword index, by the number of pages of each."""
    return len(pages) > 1 and _REST_OF_LARGEST * (sum(pages) - max(pages)) >= max(pages)


class SqliteCatalog(SqlCatalog):
    # A writer that waits asks for the lock more often than this, and so finds it free.
    pause_s = 2 * sqlite.RETRY_S

    def __init__(
        self,
        path: Path | str,
        *,
        synchronous: str = "FULL",
        busy_timeout_s: float = 60,
        restoring: bool = False,
    ) -> None:
        """``restoring``: open a file even if the last restore was not finished."""
        self.path = Path(path)
        self._schema = msgspec.structs.replace(SCHEMA, restoring=restoring)
        self._busy_timeout_s = busy_timeout_s
        self._connections = SqliteConnections(
            self.path,
            synchronous=synchronous,
            busy_timeout_s=busy_timeout_s,
            foreign_keys=True,
            functions=_FUNCTIONS,
        )
        self._idle_readers: list[str] = []
        self._readers = count(1)
        self._listener = SqliteListener(self._connections)
        try:
            self.migrate()
        except StoreError:
            self._connections.close()
            raise

    def _now(self) -> datetime:
        return clock.now()

    def _write(
        self, work: Callable[[Statements, datetime], T], now: datetime | None = None, *, synced: bool = True
    ) -> T:
        with self._connections.writing(synced=synced) as connection:
            return work(SqliteStatements(connection, SQL), now or clock.now())

    @contextmanager
    def snapshot(self) -> Iterator[SqlSnapshot]:
        try:
            with self._reader() as role, self._connections.snapshot(role) as connection:
                yield SqlSnapshot(SqliteStatements(connection, SQL))
        except UnicodeEncodeError:
            raise InvalidText("a text that is asked for holds a lone surrogate") from None

    @contextmanager
    def _reader(self) -> Iterator[str]:
        """Reserve the role of an idle connection, so that a slow search does not block other snapshots."""
        try:
            role = self._idle_readers.pop()
        except IndexError:
            role = f"snapshot {next(self._readers)}"
        try:
            yield role
        finally:
            self._idle_readers.append(role)

    @property
    def transfer(self) -> SqliteTransfer:
        from penstock.catalog.sql.transfer import SqliteTransfer

        return SqliteTransfer(self, self._connections, self._schema)

    def scrub(self) -> None:
        self._merge_all(lambda: False, pause_s=0)
        with translating_errors(self.path):
            truncate_log(self.path, self._busy_timeout_s)

    def merge_words(self, stop: Callable[[], bool] = lambda: False) -> None:
        with self.snapshot() as snapshot:
            pages = column(snapshot.rows.all("word_segments"))
        if is_worth_merging(pages):
            self._merge_all(stop, pause_s=self.pause_s)

    def _merge_all(self, stop: Callable[[], bool], *, pause_s: float) -> None:
        """Merge the keyword index into one segment. ``pause_s``: time for other writers between two steps."""
        rank = -_MERGED_AT_ONCE
        while not stop():
            with self._connections.writing() as connection:
                before = connection.total_changes
                SqliteStatements(connection, SQL).send("merge_words", rank)
                merged = connection.total_changes - before
            if merged < 2:
                break
            rank = _MERGED_AT_ONCE
            time.sleep(pause_s)

    def wait(self, timeout: float) -> bool:
        return self._listener.wait(timeout)

    def check(self) -> list[str]:
        with self._connections.reading() as connection:
            sqlite.verify(connection, self.path, self._schema)
        return []

    def migrate(self) -> None:
        # The first snapshot goes on with the connection that is opened here.
        with translating_errors(self.path), self._reader() as role:
            sqlite.migrate(self._connections, self.path, self._schema, reader=role)

    def close(self) -> None:
        self._listener.close()
        self._connections.close()
        self._idle_readers.clear()
