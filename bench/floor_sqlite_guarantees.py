"""The SQLite floor of additions with the guarantees of the engine.

The bare statements of the engine on its table with all indexes and CHECK constraints: the turn of the tenant,
pauses, and no row beside a live duplicate. What the engine adds to it are objects, limits and refusals.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.floor_sqlite import SqliteFloor
from penstock import clock
from penstock.clock import format_new_time
from penstock.queue import transitions
from penstock.queue.job import NewJob
from penstock.queue.sql.statements import INSERTED_COLUMNS
from penstock.queue.sqlite.queue import SqliteQueue
from penstock.queue.sqlite.rows import SQL, plain_row

_TENANT_AT, _PRIORITY_AT, _TURN_AT = map(INSERTED_COLUMNS.index, ("tenant_id", "priority", "turn"))


class GuaranteedSqliteFloor(SqliteFloor):
    """Adds rows as the engine does; only additions are measured."""

    def __init__(self, directory: Path) -> None:
        # The file of the floor, but with the schema of the engine left as it is.
        path = directory / "floor.db"
        if not path.exists():
            SqliteQueue(path).close()
        super().__init__(directory)

    def prepare(self, new: Sequence[NewJob]) -> list[tuple[Any, ...]]:
        at = format_new_time(clock.now())
        return [plain_row(item, at, 0) for item in new]

    def add(self, prepared: Sequence[tuple[Any, ...]]) -> None:
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        turns: dict[tuple[str, int], int] = {}
        rows = [self._with_turn(connection, row, turns) for row in prepared]
        inserted = connection.executemany(SQL["insert_job"], rows)
        assert inserted.rowcount == len(rows)
        connection.execute("COMMIT")

    @staticmethod
    def _with_turn(
        connection: sqlite3.Connection, row: tuple[Any, ...], turns: dict[tuple[str, int], int]
    ) -> tuple[Any, ...]:
        flow = row[_TENANT_AT], row[_PRIORITY_AT]
        if flow not in turns:
            head, paused = connection.execute(SQL["head_turn"], flow[1:]).fetchone()
            assert not paused
            last = (connection.execute(SQL["last_turn"], flow).fetchone() or (None,))[0]
            turns[flow] = transitions.next_turn(head, last)
        else:
            turns[flow] += 1
        return (*row[:_TURN_AT], turns[flow], *row[_TURN_AT + 1 :])
