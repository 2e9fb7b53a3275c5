"""SQLite for queue and catalog: connections to one file, errors, and migration.

A process has one connection for writing, some for reading and one for notifications. Each is used by one
thread at a time. SQLite would allow more, but an unfinished read of one thread keeps a write of another from
the newest state, and the write fails at once as busy.
"""

from __future__ import annotations

import errno
import os
import random
import re
import sqlite3
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from penstock import clock
from penstock.clock import format_time, now
from penstock.database import schema
from penstock.database.schema import RESTORING, Schema
from penstock.errors import (
    DiskFull,
    InvalidText,
    PenstockError,
    SchemaMismatch,
    StateDamaged,
    StatementRefused,
    StoreDenied,
    StoreReadOnly,
    StoreUnavailable,
    StoreVanished,
    TooManyFiles,
)
from penstock.queue.sql.statements import migrations
from penstock.state_directory import make_private


class _NamedCursor(sqlite3.Cursor):
    """A cursor for drivers that take ``?1`` for a name, and warn of each value in a sequence.

    The number becomes the name, and the values a mapping.
    """

    def execute(self, statement: str, values: Any = (), /) -> _NamedCursor:
        if "?1" in statement:
            super().execute(_with_names(statement), _by_name(values))
        else:
            super().execute(statement, values)
        return self

    def executemany(self, statement: str, rows: Iterable[Any], /) -> _NamedCursor:
        if "?1" in statement:
            super().executemany(_with_names(statement), map(_by_name, rows))
        else:
            super().executemany(statement, rows)
        return self


class NamedConnection(sqlite3.Connection):
    """A connection with such cursors."""

    def cursor(self, factory: Any = _NamedCursor) -> Any:
        return super().cursor(factory)

    def execute(self, statement: str, values: Any = (), /) -> _NamedCursor:
        cursor: _NamedCursor = self.cursor()
        return cursor.execute(statement, values)

    def executemany(self, statement: str, rows: Iterable[Any], /) -> _NamedCursor:
        cursor: _NamedCursor = self.cursor()
        return cursor.executemany(statement, rows)


@cache
def _with_names(statement: str) -> str:
    # By its number a parameter may be missing in between; such a gap would have no name.
    return re.sub(r"\?([0-9]+)", r":\1", statement)


def _by_name(values: Sequence[object]) -> dict[str, object]:
    return {str(number): value for number, value in enumerate(values, 1)}


def takes_numbers_for_names(python: Sequence[int]) -> bool:
    """Tell whether this version of Python has that fault (3.12.0 to 3.12.3).

    Statements number their parameters, as a value often stands in several places. Elsewhere tuples are
    bound, which is faster than a mapping.
    """
    return (3, 12) <= tuple(python[:3]) < (3, 12, 4)


_NAMED = takes_numbers_for_names(sys.version_info[:3])
CONNECTION: type[sqlite3.Connection] = NamedConnection if _NAMED else sqlite3.Connection
CURSOR: type[sqlite3.Cursor] = _NamedCursor if _NAMED else sqlite3.Cursor
"""The class of cursors on the connections of callers."""

_CANNOT_WRITE = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)


class _SqliteFile:
    """One database file: the path, and the identity at the first open."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._name = os.fspath(path)
        self._identity: tuple[int, int] | None = None
        self._read_as: dict[str, tuple[object, ...]] = {}
        """File state at the open of connections that SQLite does not keep current."""

    def opened(self) -> None:
        """Remember the identity of the file at the first open."""
        if self._identity is None:
            self._identity = self._read_identity()

    def forget(self) -> None:
        self._identity = None
        self._read_as.clear()

    def refuse_vanished(self) -> None:
        """Raise if the path no longer names the opened file. One call of stat."""
        if self._identity is not None and self._read_identity() != self._identity:
            name = self._path.name
            raise StoreVanished(
                f"{self._path} was replaced by another file while it was open",
                remedy=f"Stop all that use it, remove {name}-wal and {name}-shm, which are of the old file, "
                "and start again; or put the old file back.",
            )

    def _read_identity(self) -> tuple[int, int]:
        try:
            found = os.stat(self._name)  # noqa: PTH116 - on every call, and twice as fast
        except FileNotFoundError:
            raise StoreVanished(f"{self._path} was removed while it was open") from None
        except OSError as error:
            raise StoreVanished(f"{self._path} is out of reach ({error.strerror})") from error
        return found.st_dev, found.st_ino

    def create(self) -> None:
        """Create a missing file, readable by the owner only; SQLite gives -wal and -shm the same mode.

        By mknod, which opens nothing: closing a descriptor of a database file releases the locks that other
        connections of this process hold on it.
        """
        with suppress(OSError):  # the file exists, or SQLite reports the reason
            os.mknod(self._name, stat.S_IFREG | 0o600)

    def connect(self, timeout_s: float, name: str = "", *, uri: bool = False) -> sqlite3.Connection:
        return sqlite3.connect(
            name or self._name,
            uri=uri,
            timeout=timeout_s,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
            factory=CONNECTION,
        )

    def connect_read_only(
        self, role: str, timeout_s: float, refusal: sqlite3.OperationalError
    ) -> sqlite3.Connection:
        """Connect to a file in a read-only directory; raises ``refusal`` for other reasons.

        In WAL mode SQLite needs an index of the log (``-shm``) beside the file. While another process
        writes, the index exists, and this is not called. If it is missing and cannot be created, no process
        writes. Without a log the file is then read as it is; with one, a VFS without locks builds the index
        in memory.
        """
        if refusal.sqlite_errorcode & 0xFF not in _CANNOT_WRITE or os.access(self._path.parent, os.W_OK):
            raise refusal
        try:
            found = self._path.exists()
        except OSError:  # a directory above may not be searched, or the name is too long
            raise refusal from None
        if not found:
            raise StoreReadOnly(f"{self._path.parent} cannot be written, and has no {self._path.name} in it")
        self._read_as[role] = self._files()
        logged = self._read_as[role][1]
        query = "mode=ro&vfs=unix-none" if logged else "mode=ro&immutable=1"
        connection = self.connect(timeout_s, f"file:{quote(self._name)}?{query}", uri=True)
        try:
            if logged:
                connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
        except BaseException:
            connection.close()
            raise
        return connection

    def written_since(self, role: str) -> bool:
        """Check whether a connection not kept current by SQLite was opened before the last write."""
        before = self._read_as.get(role)
        if before is None or before == self._files():
            return False
        del self._read_as[role]
        return True

    def _files(self) -> tuple[object, ...]:
        """Return times and sizes of file and log; None for an empty log."""
        file = self._path.stat()
        try:
            log = os.stat(self._name + "-wal")  # noqa: PTH116
        except OSError:
            return (file.st_mtime_ns, file.st_size), None
        return (file.st_mtime_ns, file.st_size), (log.st_mtime_ns, log.st_size) if log.st_size else None


T = TypeVar("T")

_DESCRIPTORS = 4
"""Files of an open store: database, log, index and a temporary file."""

_READERS = 4
"""Connections for reading: a read that takes its time, such as groups of failures, delays no other."""

RETRY_S = 0.002
"""Longest time between two attempts of a waiting writer to take the lock."""

LOG_PAGES = 8000
"""Pages in the log from which on a commit copies them back. Hot pages are copied once for many commits, and
the log stays below 32 MB."""
BULK_LOG_PAGES = LOG_PAGES // 2
"""The same for commits that need not be synced. They belong to large documents, which fill the log: so the
copying takes their time, not that of a small job."""


def truncate_log(path: Path, busy_timeout_s: float) -> None:
    """Copy the write-ahead log back into the database file and empty the log.

    A long reader leaves the log as it is. On a separate connection: others may be in a transaction.
    """
    with closing(sqlite3.connect(path, timeout=busy_timeout_s, isolation_level=None)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


class SqlFunction(msgspec.Struct, frozen=True):
    """A function for SQL: the number of arguments, and the callable."""

    arguments: int
    call: Callable[..., Any]


class SqliteConnections:
    """The connections to one database file."""

    def __init__(
        self,
        path: Path,
        *,
        synchronous: str,
        busy_timeout_s: float,
        foreign_keys: bool = False,
        functions: Mapping[str, SqlFunction] | None = None,
    ) -> None:
        """``functions``: SQL functions, which may replace built-in ones."""
        self.path = path
        self.file = _SqliteFile(path)
        self._synchronous = synchronous
        self._busy_timeout_s = busy_timeout_s
        self._foreign_keys = foreign_keys
        self._functions = functions or {}
        self._inherited: list[dict[str, sqlite3.Connection]] = []
        self._reset()
        schema.register(self)

    def _reset(self) -> None:
        self._write_lock = threading.RLock()
        self._reads = threading.Semaphore(_READERS)
        self._idle_readers = ["read", *(f"read {number}" for number in range(2, _READERS + 1))][::-1]
        self._listen_lock = threading.Lock()
        self._opening = threading.Lock()
        self._open: dict[str, sqlite3.Connection] = {}

    def after_fork(self) -> None:
        # Using or closing an inherited connection corrupts the file: keep it and open new ones.
        self._inherited.append(self._open)
        self._reset()

    def get(self, role: str) -> sqlite3.Connection:
        """Return the connection of a role. The caller must hold the lock of the role."""
        connection = self._open.get(role)
        if connection is None or self.file.written_since(role):
            with self._opening:
                if connection is not None:
                    connection.close()
                connection = self._open[role] = self._connect(role)
        return connection

    def _connect(self, role: str) -> sqlite3.Connection:
        self.file.refuse_vanished()
        self.file.create()
        try:
            connection = self._prepare(self.file.connect(self._busy_timeout_s), role)
        except sqlite3.OperationalError as error:
            connection = self.file.connect_read_only(role, self._busy_timeout_s, error)
            self._configure(connection, role)
        self.file.opened()
        return connection

    def _prepare(self, connection: sqlite3.Connection, role: str) -> sqlite3.Connection:
        try:
            _use_wal(connection, self._busy_timeout_s)
            self._configure(connection, role)
        except BaseException:
            connection.close()
            raise
        return connection

    def _configure(self, connection: sqlite3.Connection, role: str) -> None:
        connection.execute(f"PRAGMA synchronous = {self._synchronous}")
        connection.execute("PRAGMA cache_size = -32768")
        connection.execute(f"PRAGMA wal_autocheckpoint = {LOG_PAGES}")
        connection.execute("PRAGMA temp_store = MEMORY")
        if self._foreign_keys:
            connection.execute("PRAGMA foreign_keys = 1")
        if role == "write":
            connection.execute("PRAGMA busy_timeout = 0")
        else:
            connection.execute("PRAGMA query_only = 1")
        for name, function in self._functions.items():
            connection.create_function(name, function.arguments, function.call, deterministic=True)

    def writing(self, *, synced: bool = True) -> AbstractContextManager[sqlite3.Connection]:
        """Run one write transaction, begun as a writer, so the lock is taken at the start.

        Nothing is committed to a deleted file, which could not be read again. ``synced=False``: a power cut
        may undo the transaction, as long as no later one was synced. The lock is free sooner.
        """
        return self._transaction() if synced else self._unsynced_transaction()

    @contextmanager
    def _unsynced_transaction(self) -> Iterator[sqlite3.Connection]:
        with self._write_lock:
            self._commit_as("NORMAL" if self._synchronous in ("FULL", "EXTRA") else None, BULK_LOG_PAGES)
            try:
                with self._transaction() as connection:
                    yield connection
            finally:
                # A connection that failed is opened anew by the next call, with the usual settings.
                if "write" in self._open:
                    self._commit_as(self._synchronous, LOG_PAGES)

    def _commit_as(self, synchronous: str | None, log_pages: int) -> None:
        with translating_errors(self.path):
            connection = self.get("write")
            if synchronous is not None:
                connection.execute(f"PRAGMA synchronous = {synchronous}")
            connection.execute(f"PRAGMA wal_autocheckpoint = {log_pages}")

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._write_lock:
            connection: sqlite3.Connection | None = None
            try:
                connection = self.get("write")
                self._begin(connection)
                yield connection
                self.file.refuse_vanished()
                connection.execute("COMMIT")
            except BaseException as error:
                self._abandon(connection, error)
                raise

    def transact(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run a function in one write transaction; cheaper than ``writing`` around the same calls."""
        with self._write_lock:
            connection: sqlite3.Connection | None = None
            try:
                connection = self.get("write")
                self._begin(connection)
                result = work(connection)
                self.file.refuse_vanished()
                connection.execute("COMMIT")
            except BaseException as error:
                self._abandon(connection, error)
                raise
            return result

    def _abandon(self, connection: sqlite3.Connection | None, error: BaseException) -> None:
        """Roll back, and raise the translation of an error of SQLite."""
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
        translation = translate_error(error, self.path)
        if translation is None:
            return
        if isinstance(translation, StoreReadOnly | StoreDenied):
            self._forget("write")
        raise translation from error

    def _forget(self, role: str) -> None:
        """Open the file anew for the next call: SQLite goes on reading only, once it could not write."""
        connection = self._open.pop(role, None)
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()

    def _begin(self, connection: sqlite3.Connection) -> None:
        """Wait for the write lock.

        SQLite itself would sleep up to 0.1 s between two attempts, and miss the gaps of a busy writer.
        """
        give_up_at: float | None = None
        while True:
            try:
                connection.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                    raise
                now = clock.elapsed_s()
                give_up_at = give_up_at or now + self._busy_timeout_s
                if now >= give_up_at:
                    raise
            time.sleep(random.uniform(0.25, 1.0) * RETRY_S)

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Read one snapshot; never waits for a writer."""
        with self._reads:
            role = self._idle_readers.pop()
            try:
                with self.snapshot(role) as connection:
                    yield connection
            finally:
                self._idle_readers.append(role)

    @contextmanager
    def snapshot(self, role: str) -> Iterator[sqlite3.Connection]:
        """Read one snapshot on the connection of a role owned by this thread."""
        with translating_errors(self.path):
            connection = self._begin_read(role)
            try:
                yield connection
            finally:
                connection.execute("ROLLBACK")

    @contextmanager
    def own_snapshot(self) -> Iterator[sqlite3.Connection]:
        """Read one snapshot on a separate connection, for a long read."""
        with translating_errors(self.path), closing(self._connect("own")) as connection:
            connection.execute("BEGIN")
            yield connection

    def _begin_read(self, role: str) -> sqlite3.Connection:
        self.file.refuse_vanished()
        connection = self.get(role)
        connection.execute("BEGIN")
        return connection

    def data_version(self) -> int:
        """Return a number which changes with every commit of another connection."""
        with self._listen_lock, translating_errors(self.path):
            version: int = self.get("listen").execute("PRAGMA data_version").fetchone()[0]
            return version

    def close(self) -> None:
        """Close all connections. A later call opens the file again, even a new file at the path."""
        with self._write_lock, self._listen_lock:
            for _ in range(_READERS):
                self._reads.acquire()
            try:
                for connection in self._open.values():
                    connection.close()
                self._open.clear()
                self.file.forget()
            finally:
                self._reads.release(_READERS)


def _use_wal(connection: sqlite3.Connection, timeout_s: float) -> None:
    """Switch to WAL mode. SQLite does not wait for other processes here, so take the write lock first."""
    if connection.execute("PRAGMA journal_mode").fetchone() == ("wal",):
        return
    for _ in range(max(1, int(timeout_s))):
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                raise
            # The busy handler waits until the other process releases the lock.
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
    raise StoreUnavailable(f"{connection} stayed busy while it was opened")


_BY_CODE: dict[int, tuple[type[PenstockError], str]] = {
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
    sqlite3.SQLITE_NOMEM: (StoreUnavailable, "cannot be used: no memory is left"),
    sqlite3.SQLITE_INTERRUPT: (StoreUnavailable, "was interrupted"),
    sqlite3.SQLITE_ABORT: (StoreUnavailable, "rolled the transaction back"),
    sqlite3.SQLITE_INTERNAL: (StoreUnavailable, "met an internal error"),
    sqlite3.SQLITE_SCHEMA: (StoreUnavailable, "had its tables changed under a statement"),
    sqlite3.SQLITE_NOLFS: (DiskFull, "has reached the largest size of this disk"),
    sqlite3.SQLITE_TOOBIG: (InvalidText, "cannot keep a text this long"),
}


_OF_ANOTHER_SCHEMA = (
    "no such table",
    "no such column",
    "no such index",
    "already exists",
    "has no column named",
)


@contextmanager
def translating_errors(path: Path) -> Iterator[None]:
    """Translate errors of SQLite; errors not caused by the store pass unchanged."""
    try:
        yield
    except sqlite3.Error as error:
        translation = translate_error(error, path)
        if translation is None:
            raise
        raise translation from error


def _out_of_descriptors() -> bool:
    """Check whether this process is out of file descriptors: SQLite reports only a failure."""
    opened: list[int] = []
    try:
        opened.extend(os.open(os.devnull, os.O_RDONLY) for _ in range(_DESCRIPTORS))
    except OSError as error:
        return error.errno in (errno.EMFILE, errno.ENFILE)
    finally:
        for descriptor in opened:
            os.close(descriptor)
    return False


def translate_error(error: BaseException, path: Path) -> PenstockError | None:
    """Translate an error of the store, with the file name; None for an error that is not the driver's."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_ERROR and any(words in str(error) for words in _OF_ANOTHER_SCHEMA):
        return SchemaMismatch(
            f"{path} does not have this version's schema ({error})",
            remedy="Restore the file from a backup, or choose another file in its URL.",
        )
    if not isinstance(error, sqlite3.Error):
        return None
    kind, what = _BY_CODE.get(code, (StatementRefused, "refused a statement"))
    if kind in (StoreDenied, StoreUnavailable) and _out_of_descriptors():
        return TooManyFiles(f"{path} cannot be opened: this process has too many open files")
    return kind(f"{path} {what} ({error})")


QUEUE = Schema("penstock_migration", migrations("sqlite"))


def migrate(
    connections: SqliteConnections, path: Path, schema: Schema = QUEUE, *, reader: str | None = None
) -> None:
    """Apply missing changes of the schema. Several processes may do so at a time.

    ``reader``: the role of the connection that looks for them.
    """
    _make_directory(path.parent)
    with connections.reading() if reader is None else connections.snapshot(reader) as connection:
        if _applied(connection, path, schema) >= schema.newest:
            # A file that can only be read is opened here.
            _refuse_incomplete(connection, path, schema)
            return
    with connections.writing() as connection:
        connection.execute(
            f"CREATE TABLE IF NOT EXISTS {schema.ledger}"
            " (number INTEGER NOT NULL PRIMARY KEY, applied_at TEXT NOT NULL)"
        )
        applied = _applied(connection, path, schema)
        _refuse_foreign(connection, path, schema, applied)
        for number, script in schema.after(applied):
            for statement in _statements(script):
                connection.execute(statement)
            connection.execute(f"INSERT INTO {schema.ledger} VALUES (?, ?)", (number, format_time(now())))


def verify(connection: sqlite3.Connection, path: Path, schema: Schema = QUEUE) -> None:
    applied = _applied(connection, path, schema)
    schema.refuse_older(path, applied, remedy="Open it once with a user that may write to it.")
    _refuse_incomplete(connection, path, schema)


def begin_restore(connection: sqlite3.Connection, tables: Iterable[str], schema: Schema = QUEUE) -> None:
    """Delete all rows of these tables, and mark the file: others cannot open it until the restore ends."""
    for name in tables:
        connection.execute(f"DELETE FROM {name}")
    values = (RESTORING, format_time(now()))
    connection.execute(f"INSERT OR REPLACE INTO {schema.ledger} VALUES (?, ?)", values)


def end_restore(connection: sqlite3.Connection, schema: Schema = QUEUE) -> None:
    """Remove the restore mark of a file."""
    connection.execute(f"DELETE FROM {schema.ledger} WHERE number = ?", (RESTORING,))


def is_marked(connection: sqlite3.Connection, schema: Schema = QUEUE) -> bool:
    """Check whether a restore of this file was not finished."""
    found = connection.execute(f"SELECT 1 FROM {schema.ledger} WHERE number = ?", (RESTORING,)).fetchall()
    return bool(found)


def _applied(connection: sqlite3.Connection, path: Path, schema: Schema) -> int:
    ledger = connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (schema.ledger,)).fetchall()
    if not ledger:
        return 0
    ((applied,),) = connection.execute(schema.applied_statement).fetchall()
    if not isinstance(applied, int):
        raise SchemaMismatch(
            f"{path} has a table {schema.ledger} that is not Penstock's", remedy=_ANOTHER_FILE
        )
    schema.refuse_newer(path, applied)
    return applied


_ANOTHER_FILE = "Name another file in its URL (PENSTOCK_URL; for the catalog PENSTOCK_CATALOG_URL)."
_RESTORE = "Restore the file from a backup, or name another file in its URL."


def _refuse_foreign(connection: sqlite3.Connection, path: Path, schema: Schema, applied: int) -> None:
    """Refuse existing names before the first CREATE: another program's, or half a migration."""
    present = _present(connection)
    taken = [name for name in schema.created_names(applied) if name in present]
    if taken and applied:
        raise SchemaMismatch(
            f"{path} has {taken[0]} of a later schema than {applied}, the last that was recorded",
            remedy=_RESTORE,
        )
    if taken:
        kind = "an index" if present[taken[0]] == "index" else f"a {present[taken[0]]}"
        raise SchemaMismatch(
            f"{path} already has {kind} named {taken[0]} that is not Penstock's", remedy=_ANOTHER_FILE
        )


def _refuse_incomplete(connection: sqlite3.Connection, path: Path, schema: Schema) -> None:
    present = _present(connection)
    missing = [name for name in schema.created_names() if name not in present]
    if missing:
        raise schema.lacks(path, missing[0], remedy=_RESTORE)


def _present(connection: sqlite3.Connection) -> dict[str, str]:
    return dict(connection.execute("SELECT name, type FROM sqlite_master").fetchall())


def _statements(script: str) -> list[str]:
    statements: list[str] = []
    part = ""
    for line in script.splitlines(keepends=True):
        part += line
        if sqlite3.complete_statement(part):
            statements.append(part)
            part = ""
    return statements


def _make_directory(directory: Path) -> None:
    try:
        make_private(directory)
    except (PermissionError, NotADirectoryError, FileExistsError) as error:
        raise StoreDenied(f"{directory} cannot be made ({error.strerror})") from error
