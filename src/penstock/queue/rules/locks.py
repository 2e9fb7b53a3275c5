"""Locks: passing a free lock on to the first row parked for the key."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from penstock.job import RETURNED, SUSPECT
from penstock.queue.rules.rows import Rows


def wake(rows: Rows, lock_keys: Collection[str], now: datetime) -> int:
    """Make the first row parked for each free lock claimable. Returns the count."""
    parked = rows.first_parked(lock_keys)
    for job in parked:
        turn = SUSPECT if job.turn == SUSPECT else RETURNED
        rows.change(job, {"held": None, "turn": turn, "updated_at": now})
    return len(parked)
