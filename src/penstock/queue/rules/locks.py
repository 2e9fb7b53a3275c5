"""Passing locks on: rows parked for a lock, and when one of them may be claimed again."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from penstock.job import RETURNED, SUSPECT
from penstock.queue.rules.rows import Rows


def wake(rows: Rows, lock_keys: Collection[str], now: datetime) -> int:
    """Let the first row parked for each of these locks be claimed, unless somebody holds it. How many."""
    parked = rows.first_parked(lock_keys)
    for job in parked:
        turn = SUSPECT if job.turn == SUSPECT else RETURNED
        rows.change(job, {"held": None, "turn": turn, "updated_at": now})
    return len(parked)
