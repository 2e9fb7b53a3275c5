"""Releasing rows that a pause held back."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from penstock.job import Changes, Held, Job, Scope
from penstock.queue.adding import numbered
from penstock.queue.rows import Rows


def held_back(turn: int, reason: Held, now: datetime) -> Changes:
    """A pause forgets the turn: it would let the tenant pass everybody at resume, or hold up its new jobs."""
    changes: Changes = {"held": reason, "updated_at": now}
    if reason is Held.PAUSE and turn >= 0:
        changes["turn"] = 0
    return changes


def release(
    rows: Rows, still_paused: Collection[Scope], now: datetime, *, limit: int, after: Job | None
) -> tuple[int, Job | None]:
    """One batch, in claim order, with new turns. How many were released, and the last row looked at."""
    batch = rows.paused_rows(limit, after)
    released = 0
    for job in batch:
        if any(scope.covers(job.tenant_id, job.collection) for scope in still_paused):
            continue
        changes: Changes = {"held": None, "updated_at": now}
        if job.turn >= 0:
            changes["turn"] = None
        rows.change(job, numbered(rows, job, changes))
        released += 1
    return released, batch[-1] if len(batch) == limit else None
