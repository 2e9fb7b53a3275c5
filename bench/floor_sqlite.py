"""The SQLite floor: a plain loop over the same table row, with the primary key and one claim index only.

No dedupe, turns, locks, pause, promotion, fence or decoding. Same file format, WAL and synchronous FULL.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from bench.inotify_floor import Bell
from penstock import clock
from penstock.clock import format_time
from penstock.database.sqlite import LOG_PAGES
from penstock.queue import transitions
from penstock.queue.job import NewJob
from penstock.queue.sql.statements import CLAIM_COLUMNS, JOB_COLUMNS
from penstock.queue.sqlite.queue import SqliteQueue
from penstock.queue.sqlite.rows import encoded

_INDEX = "CREATE INDEX floor_claim ON unified_queue (priority DESC, created_at) WHERE status = 'pending'"
_INSERT = (
    f"INSERT INTO unified_queue ({', '.join(JOB_COLUMNS)}) VALUES ({', '.join('?' for _ in JOB_COLUMNS)})"
)
_SELECT = (
    f"SELECT rowid, {', '.join(CLAIM_COLUMNS)} FROM unified_queue WHERE status = 'pending' "
    "ORDER BY priority DESC, created_at LIMIT ?"
)
_TAKE = (
    "UPDATE unified_queue SET status = 'in_progress', worker_id = 'bench', lease_until = ?, "
    "claim_number = claim_number + 1, started_at = ?, updated_at = ? WHERE rowid = ?"
)
_DONE = (
    "UPDATE unified_queue SET status = 'done', lease_until = NULL, finished_at = ?, updated_at = ? "
    "WHERE queue_id = ?"
)
_ID_AT = 1 + CLAIM_COLUMNS.index("queue_id")
_LEASE = timedelta(seconds=300)


class SqliteFloor:
    def __init__(self, directory: Path) -> None:
        path = directory / "floor.db"
        if not path.exists():
            _create(path)
        self._connection = sqlite3.connect(path, timeout=60, isolation_level=None)
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.execute("PRAGMA cache_size = -32768")
        self._connection.execute(f"PRAGMA wal_autocheckpoint = {LOG_PAGES}")
        # SQLite shows a commit after its last write to a file, so the files' own events come too early:
        # the producer rings once the commit can be seen.
        self._ring = os.open(directory / "bell", os.O_CREAT | os.O_WRONLY, 0o600)
        self._directory = directory
        self._bell: Bell | None = None

    def prepare(self, new: Sequence[NewJob]) -> list[tuple[Any, ...]]:
        return [encoded(transitions.added(item, clock.now(), 0)) for item in new]

    def add(self, prepared: Sequence[tuple[Any, ...]]) -> None:
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(_INSERT, prepared)
        connection.execute("COMMIT")
        os.pwrite(self._ring, b".", 0)

    def exchange(self, held: Sequence[tuple[Any, ...]], limit: int) -> list[tuple[Any, ...]]:
        connection = self._connection
        now = clock.now()
        at, until = format_time(now), format_time(now + _LEASE)
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(_DONE, [(at, at, row[_ID_AT]) for row in held])
        rows = connection.execute(_SELECT, (limit,)).fetchall()
        connection.executemany(_TAKE, [(until, at, at, row[0]) for row in rows])
        connection.execute("COMMIT")
        return rows

    def settle(self, held: Sequence[tuple[Any, ...]]) -> None:
        at = format_time(clock.now())
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.executemany(_DONE, [(at, at, row[_ID_AT]) for row in held])
        self._connection.execute("COMMIT")

    def wait(self, timeout: float) -> None:
        if self._bell is None:
            # What rang before is not waited for: the caller looks once more first.
            self._bell = Bell(self._directory, only="bell")
        else:
            self._bell.wait(timeout)

    def close(self) -> None:
        self._connection.close()
        os.close(self._ring)
        if self._bell is not None:
            self._bell.close()


def _create(path: Path) -> None:
    """The engine's own table, whatever its migrations make of it, without the engine's indexes."""
    SqliteQueue(path).close()
    connection = sqlite3.connect(path, isolation_level=None)
    indexes = connection.execute(
        "SELECT name FROM sqlite_master WHERE type = 'index' AND tbl_name = 'unified_queue' AND sql NOT NULL"
    ).fetchall()
    for (name,) in indexes:
        connection.execute(f"DROP INDEX {name}")
    connection.execute(_INDEX)
    connection.close()
