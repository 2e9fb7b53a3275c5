"""Statements of one transaction on PostgreSQL, and the rows held by pauses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import msgspec
import psycopg
from psycopg.rows import tuple_row

from penstock.database.postgres_connections import Connection
from penstock.job import Job, Scope
from penstock.queue.postgres.values import as_pause, decoded
from penstock.queue.rules.pauses import ABOVE_ALL, ClaimPosition, Pause, RowPosition
from penstock.queue.sql.statements import load

SQL = load("postgres")

PLANS = {"enable_bitmapscan": "off"}
"""Bitmap scans collect all matching rows before a LIMIT applies."""

Found: TypeAlias = list[tuple[Any, ...]]
Cursor: TypeAlias = psycopg.Cursor[tuple[Any, ...]]


class PauseRows:
    """Statements of one transaction, and the rows as used by pauses and resumes."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.joined = False
        """True if the transaction belongs to the caller."""
        self._known: dict[str, Job | None] = {}
        self._pauses: list[Pause] | None = None
        self._pauses_sent: Cursor | None = None

    # Statements. In a pipeline, ``send`` does not wait for the result.

    def send(self, name: str, **values: object) -> Cursor:
        self.flush()
        return self.execute(SQL[name], values)

    def execute(self, statement: str, values: Mapping[str, object] | Sequence[object]) -> Cursor:
        # A plain cursor: the connection of a caller may have another row factory.
        cursor = psycopg.Cursor(self.connection, row_factory=tuple_row)
        return cursor.execute(statement.encode(), values, binary=True)

    def fetch(self, name: str, **values: object) -> Found:
        return self.send(name, **values).fetchall()

    def scalar(self, name: str, **values: object) -> Any:
        found = self.fetch(name, **values)
        return found[0][0] if found else None

    def flush(self) -> None:
        """Write kept changes, so the next statement sees them."""

    def _remember(self, found: Found) -> list[Job]:
        jobs = [decoded(row) for row in found]
        self._known.update({job.queue_id: job for job in jobs})
        return jobs

    def pauses(self, *, to_change: bool = False) -> list[Pause]:
        if to_change:
            self.send("exclude_additions")
            return [as_pause(*row) for row in self.fetch("hold_pauses")]
        if self._pauses is None:
            sent, self._pauses_sent = self._pauses_sent or self._send_pauses(), None
            self._pauses = [as_pause(*row) for row in sent.fetchall()]
        return self._pauses

    def _send_pauses(self) -> Cursor:
        # The transaction of a caller may take long: a resume must not wait for it.
        return self.send("pauses" if self.joined else "keep_pauses")

    def may_move(self) -> bool:
        return bool(self.scalar("resume_alone"))

    def set_pause(self, pause: Pause) -> None:
        nowhere = {"priority": None, "turn": None, "created_at": None, "queue_id": None}
        place = nowhere if pause.at is None else _place(pause.at)
        scope = msgspec.structs.asdict(pause.scope)
        self.send("set_pause", **place, **scope, phase=pause.phase.value)

    def drop_pause(self, scope: Scope) -> None:
        self.send("drop_pause", tenant_id=scope.tenant_id, collection=scope.collection)

    def parked_rows(self, scope: Scope, limit: int) -> list[Job | None]:
        found = self.fetch("parked_rows", **msgspec.structs.asdict(scope), limit=limit)
        return [None if row[0] is None else self._remember([row])[0] for row in found]

    def paused_rows(self, limit: int, after: ClaimPosition | None) -> list[Job]:
        return self._remember(self._after("paused", limit, after))

    def claimable_rows(self, limit: int, after: ClaimPosition | None) -> list[RowPosition]:
        return [RowPosition(*row) for row in self._after("claimable", limit, after)]

    def _after(self, which: str, limit: int, after: ClaimPosition | None) -> Found:
        found = [] if after is None else self.fetch(f"{which}_from", **_place(after), limit=limit)
        if len(found) < limit:
            below = ABOVE_ALL if after is None else after.priority
            found += self.fetch(f"{which}_below", priority=below, limit=limit - len(found))
        return found


def _place(place: ClaimPosition) -> dict[str, object]:
    return {
        "priority": place.priority,
        "turn": place.turn,
        "created_at": place.created_at,
        "queue_id": place.queue_id,
    }
