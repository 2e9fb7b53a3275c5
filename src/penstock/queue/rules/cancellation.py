"""Cancellation: the job itself in one step, then the children in batches."""

from __future__ import annotations

from datetime import datetime

from penstock import transitions
from penstock.job import CancelResult, Job, Status
from penstock.queue.rules.rows import Rows
from penstock.queue.rules.settlement import Aftermath, Leftovers

CANCELLABLE = frozenset({Status.PENDING, Status.IN_PROGRESS})


def cancel(rows: Rows, ids: list[str], now: datetime) -> tuple[list[CancelResult], Leftovers]:
    """Cancel jobs. Returns a result for each, and work left."""
    aftermath = Aftermath(rows, now)
    answers = []
    rows.lock_rows(ids)
    for queue_id in ids:
        job = rows.get(queue_id)
        after = _cancel_one(rows, job, now, aftermath) if job is not None and not job.ended else job
        answers.append(CancelResult(queue_id, job.status if job else None, after.status if after else None))
    aftermath.apply()
    return answers, aftermath.leftovers


def stop_children(rows: Rows, parent_id: str, now: datetime, limit: int) -> tuple[bool, list[str]]:
    """Cancel one batch of children. Returns whether it was the last, and parents left to cancel."""
    # Children before their parent, as in every transaction, so that no two wait for each other.
    parent = rows.peek(parent_id)
    if parent is None or parent.ended:
        return True, []
    aftermath = Aftermath(rows, now)
    batch = [child.queue_id for child in rows.children(parent, CANCELLABLE, limit)]
    rows.lock_rows(batch)
    for queue_id in batch:
        child = rows.get(queue_id)
        if child is not None and not child.ended:
            _cancel_one(rows, child, now, aftermath)
    aftermath.apply()
    return len(batch) < limit, [queue_id for queue_id in aftermath.to_stop if queue_id != parent_id]


def _cancel_one(rows: Rows, job: Job, now: datetime, aftermath: Aftermath) -> Job:
    after = rows.change(job, transitions.cancelled(job, now))
    aftermath.collect(job, after)
    if job.status is Status.PENDING and not job.lock_held:
        # The row may have been woken for this lock.
        aftermath.unblock(job.lock_key)
    return after
