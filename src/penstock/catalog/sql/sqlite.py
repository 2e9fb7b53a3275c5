"""The catalog in a SQLite file, by default the queue's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import TypeVar

from penstock import clock
from penstock.catalog.sql.catalog import SqlCatalog
from penstock.catalog.sql.snapshot import SqlSnapshot
from penstock.catalog.sql.statements import Rows, SqliteRows, load, migrations
from penstock.errors import InvalidText, StoreError
from penstock.queue.doorbell import Doorbell
from penstock.queue.sql import schema
from penstock.queue.sql.connections import Connections, translated, truncate_log

SQL = load("sqlite")
SCHEMA = schema.Schema("catalog_migration", migrations("sqlite"))

T = TypeVar("T")

MERGED_AT_ONCE = 200
"""Pages of the keyword index written in one transaction of ``scrub``."""


class SqliteCatalog(SqlCatalog):
    def __init__(self, path: Path | str, *, synchronous: str = "FULL", busy_timeout_s: float = 60) -> None:
        self.path = Path(path)
        self._busy_timeout_s = busy_timeout_s
        self._connections = Connections(
            self.path, synchronous=synchronous, busy_timeout_s=busy_timeout_s, foreign_keys=True
        )
        self._idle_readers: list[str] = []
        self._readers = count(1)
        self._doorbell: Doorbell | None = None
        self._version_seen = -1
        try:
            self.migrate()
        except StoreError:
            self._connections.close()
            raise

    def _now(self) -> datetime:
        return clock.now()

    def _write(self, work: Callable[[Rows, datetime], T], now: datetime | None = None) -> T:
        with self._connections.writing() as connection:
            return work(SqliteRows(connection, SQL), now or clock.now())

    @contextmanager
    def snapshot(self) -> Iterator[SqlSnapshot]:
        # A connection each: a search that takes its time holds up nobody else.
        try:
            role = self._idle_readers.pop()
        except IndexError:
            role = f"snapshot {next(self._readers)}"
        with translated(self.path):
            connection = self._connections.get(role)
            connection.execute("BEGIN")
            try:
                yield SqlSnapshot(SqliteRows(connection, SQL))
            except UnicodeEncodeError:
                raise InvalidText("a text that is asked for holds a lone surrogate") from None
            finally:
                connection.execute("ROLLBACK")
                self._idle_readers.append(role)

    def scrub(self) -> None:
        rank = -MERGED_AT_ONCE
        while True:
            with self._connections.writing() as connection:
                before = connection.total_changes
                SqliteRows(connection, SQL).send("merge_words", rank)
                merged = connection.total_changes - before
            if merged < 2:
                break
            rank = MERGED_AT_ONCE
        with translated(self.path):
            truncate_log(self.path, self._busy_timeout_s)

    def wait(self, timeout: float) -> bool:
        if self._doorbell is None:
            self._doorbell = Doorbell(self.path.parent, self._changed)
        return self._doorbell.wait(timeout)

    def _changed(self) -> bool:
        """Whether anybody committed since last asked. A connection does not see its own commits here."""
        with translated(self.path):
            version: int = self._connections.get("listen").execute("PRAGMA data_version").fetchone()[0]
        changed = version != self._version_seen
        self._version_seen = version
        return changed

    def check(self) -> list[str]:
        with translated(self.path):
            schema.verify(self._connections.get("write"), self.path, SCHEMA)
        return []

    def migrate(self) -> None:
        with translated(self.path):
            schema.migrate(self._connections, self.path, SCHEMA)

    def close(self) -> None:
        if self._doorbell is not None:
            self._doorbell.close()
            self._doorbell = None
        self._connections.close()
        self._idle_readers.clear()
