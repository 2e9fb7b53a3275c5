"""SQLite connections of one process: one that writes, one that reads, one that listens."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from penstock.errors import (
    DiskFull,
    StateDamaged,
    StoreDenied,
    StoreError,
    StoreReadOnly,
    StoreUnavailable,
)


def truncate_log(path: Path, busy_timeout_s: float) -> None:
    """Copy the write-ahead log back into the database file and empty it. A reader that takes too long leaves
    it as it is. On a connection of its own: others may be in the middle of a transaction."""
    with closing(sqlite3.connect(path, timeout=busy_timeout_s, isolation_level=None)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


class Connections:
    def __init__(
        self, path: Path, *, synchronous: str, busy_timeout_s: float, foreign_keys: bool = False
    ) -> None:
        self.path = path
        self._synchronous = synchronous
        self._busy_timeout_s = busy_timeout_s
        self._foreign_keys = foreign_keys
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._write_lock = threading.RLock()
        self._read_lock = threading.Lock()
        self._open: dict[str, sqlite3.Connection] = {}

    def get(self, role: str) -> sqlite3.Connection:
        self._notice_fork()
        connection = self._open.get(role)
        if connection is None:
            connection = self._open[role] = self._connect(role)
        return connection

    def _connect(self, role: str) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path,
            timeout=self._busy_timeout_s,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        )
        _use_wal(connection, self._busy_timeout_s)
        connection.execute(f"PRAGMA synchronous = {self._synchronous}")
        connection.execute("PRAGMA cache_size = -32768")
        # Hot pages are copied back once for many commits; the log stays below 32 MB.
        connection.execute("PRAGMA wal_autocheckpoint = 8000")
        connection.execute("PRAGMA temp_store = MEMORY")
        if self._foreign_keys:
            connection.execute("PRAGMA foreign_keys = 1")
        if role != "write":
            connection.execute("PRAGMA query_only = 1")
        return connection

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction, begun as a writer so that it can never fail to become one."""
        self._notice_fork()
        with self._write_lock:
            connection: sqlite3.Connection | None = None
            try:
                connection = self.get("write")
                connection.execute("BEGIN IMMEDIATE")
                yield connection
                connection.execute("COMMIT")
            except BaseException as error:
                if connection is not None:
                    with suppress(sqlite3.Error):
                        connection.execute("ROLLBACK")
                translation = ours(error, self.path)
                if translation is None:
                    raise
                raise translation from error

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """One snapshot; never waits for a writer."""
        self._notice_fork()
        with self._read_lock, translated(self.path):
            connection = self.get("read")
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                connection.execute("ROLLBACK")

    def _notice_fork(self) -> None:
        if self._pid != os.getpid():
            # A connection carried across fork corrupts the file: leave the parent's alone, open our own.
            self._reset()

    def close(self) -> None:
        if self._pid == os.getpid():
            for connection in self._open.values():
                connection.close()
            self._open.clear()


def _use_wal(connection: sqlite3.Connection, timeout_s: float) -> None:
    """Switching to WAL does not wait for other openers by itself, so take the write lock first."""
    if connection.execute("PRAGMA journal_mode").fetchone() == ("wal",):
        return
    for _ in range(max(1, int(timeout_s))):
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                raise
            # Waits, by the busy handler, until whoever holds the file lets go.
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
    raise StoreUnavailable(f"{connection} stayed busy while it was opened")


_BY_CODE: dict[int, tuple[type[StoreError], str]] = {
    sqlite3.SQLITE_BUSY: (StoreUnavailable, "stayed busy for longer than the timeout"),
    sqlite3.SQLITE_LOCKED: (StoreUnavailable, "stayed busy for longer than the timeout"),
    sqlite3.SQLITE_PROTOCOL: (StoreUnavailable, "could not be locked"),
    sqlite3.SQLITE_READONLY: (StoreReadOnly, "cannot be written"),
    sqlite3.SQLITE_FULL: (DiskFull, "has no space left"),
    sqlite3.SQLITE_IOERR: (StoreUnavailable, "met a disk error"),
    sqlite3.SQLITE_CANTOPEN: (StoreDenied, "cannot be opened"),
    sqlite3.SQLITE_PERM: (StoreDenied, "cannot be opened"),
    sqlite3.SQLITE_AUTH: (StoreDenied, "cannot be opened"),
    sqlite3.SQLITE_CORRUPT: (StateDamaged, "is damaged"),
    sqlite3.SQLITE_NOTADB: (StateDamaged, "is not a SQLite database"),
}


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """SQLite's errors as ours. What is not the store's fault goes on as it is."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        translation = ours(error, path)
        if translation is None:
            raise
        raise translation from error


def ours(error: BaseException, path: Path) -> StoreError | None:
    """The error as one of ours, with the file named, where it is the store's fault."""
    known = _BY_CODE.get(getattr(error, "sqlite_errorcode", 0) & 0xFF)
    if known is None:
        return None
    kind, what = known
    return kind(f"{path} {what} ({error})")
