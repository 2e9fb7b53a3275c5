"""Positions of jobs in the queue, read in one snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.job import Position
from penstock.queue.positions import Lengths
from penstock.queue.rules.rows import storable
from penstock.queue.sqlite.rows import SQL, SqliteRows


def positions(rows: SqliteRows, ids: Sequence[str], cap: int) -> list[Position | None]:
    """Positions of pending rows, exact up to ``cap``; None for other rows."""
    # One place tells of all rows behind it, at a third of the price of a count.
    last = rows.cursor.execute(SQL["claimable_place"], (cap - 1,)).fetchone()
    lengths = Lengths(*rows.cursor.execute(SQL["lengths"], (cap,)).fetchone())
    return [_position(rows, queue_id, cap, last, lengths) for queue_id in ids]


def _position(
    rows: SqliteRows, queue_id: str, cap: int, last: tuple[Any, ...] | None, lengths: Lengths
) -> Position | None:
    known = storable([queue_id])
    found = rows.cursor.execute(SQL["pending_place"], (queue_id,)).fetchone() if known else None
    if found is None:
        return None
    is_request, priority, *place = found
    if last is not None and (-priority, *place) > (-last[0], *last[1:]):
        ahead = cap
    else:
        ahead = rows.scalar("ahead_above", priority, cap)
        ahead += rows.scalar("ahead_within", priority, *place, cap - ahead)
    return lengths.position(
        ahead, bool(is_request), lambda: rows.scalar("requests_ahead", cap, priority, *place), cap
    )
