"""Positions of jobs in the queue, read in one snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from penstock.job import Position
from penstock.queue.rules.rows import storable
from penstock.queue.sqlite.rows import SQL, SqliteRows


def positions(rows: SqliteRows, ids: Sequence[str], cap: int) -> list[Position | None]:
    """Positions of pending rows, exact up to ``cap``; None for other rows."""
    places = _Places(rows, cap)
    return [places.position(queue_id) if storable([queue_id]) else None for queue_id in ids]


class _Places:
    """What the positions of several rows share. Numbers are counted up to ``cap``, when first needed."""

    def __init__(self, rows: SqliteRows, cap: int) -> None:
        self._rows = rows
        self._cap = cap
        # One place tells of all rows behind it, at a third of the price of a count.
        self._last = rows.cursor.execute(SQL["claimable_place"], (cap - 1,)).fetchone()

    @cached_property
    def _jobs(self) -> int:
        return self._cap if self._last is not None else int(self._rows.scalar("pending", self._cap))

    @cached_property
    def _requests(self) -> int:
        if self._last is not None and self._rows.scalar("more_requests", self._cap - 1):
            return self._cap
        return self._rows.backlog(functions=False, tenant_id=None, cap=self._cap)

    def position(self, queue_id: str) -> Position | None:
        rows, cap, last = self._rows, self._cap, self._last
        found = rows.cursor.execute(SQL["pending_place"], (queue_id,)).fetchone()
        if found is None:
            return None
        is_request, priority, *place = found
        if last is not None and (-priority, *place) > (-last[0], *last[1:]):
            ahead = cap
        else:
            ahead = min(rows.scalar("jobs_ahead", priority, cap, *place), cap)
        if not is_request:
            return Position(ahead, self._jobs, ahead)
        if not ahead or self._requests >= cap or self._requests == self._jobs:
            return Position(ahead, self._requests, ahead)
        return Position(rows.scalar("requests_ahead", cap, priority, *place), self._requests, ahead)
