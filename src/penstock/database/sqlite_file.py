"""The file of SQLite connections: creation, detection of a lost file, and read-only access."""

from __future__ import annotations

import os
import re
import sqlite3
import stat
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from penstock.errors import StoreReadOnly, StoreVanished


class NamedCursor(sqlite3.Cursor):
    """A cursor for drivers that take ``?1`` for a name, and warn of each value in a sequence.

    The number becomes the name, and the values a mapping.
    """

    def execute(self, statement: str, values: Any = (), /) -> NamedCursor:
        if "?1" in statement:
            super().execute(_with_names(statement), _by_name(values))
        else:
            super().execute(statement, values)
        return self

    def executemany(self, statement: str, rows: Iterable[Any], /) -> NamedCursor:
        if "?1" in statement:
            super().executemany(_with_names(statement), map(_by_name, rows))
        else:
            super().executemany(statement, rows)
        return self


class NamedConnection(sqlite3.Connection):
    """A connection with such cursors."""

    def cursor(self, factory: Any = NamedCursor) -> Any:
        return super().cursor(factory)

    def execute(self, statement: str, values: Any = (), /) -> NamedCursor:
        cursor: NamedCursor = self.cursor()
        return cursor.execute(statement, values)

    def executemany(self, statement: str, rows: Iterable[Any], /) -> NamedCursor:
        cursor: NamedCursor = self.cursor()
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
CURSOR: type[sqlite3.Cursor] = NamedCursor if _NAMED else sqlite3.Cursor
"""The class of cursors on the connections of callers."""

_CANNOT_WRITE = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)


class SqliteFile:
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
