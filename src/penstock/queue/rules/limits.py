"""Limits over rows: slots and starts given to waiting rows, in order."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from penstock.job import RETURNED, Changes, Held, Job
from penstock.limits import AHEAD, Limit, after_start, next_starts
from penstock.queue.rules.addition import with_turn
from penstock.queue.rules.pause_batches import held_back
from penstock.queue.rules.pauses import is_kept
from penstock.queue.rules.rows import Rows, wake

ADMITTED_AT_ONCE = 1_000
"""Rows of one key that one transaction releases; upkeep releases the others."""

PASSED_AT_ONCE = 100
"""Rows of one lock that one transaction passes over, as their limits give them no slot; upkeep goes on."""


def admit_touched(rows: Rows, now: datetime) -> int:
    """Release rows of the keys touched by this transaction. Returns the number of rows looked at.

    The last step that waits for a lock, with keys in order, so that no two transactions wait for each other.
    """
    if not rows.limit_keys:
        return 0
    keys = sorted(rows.limit_keys)
    rows.limit_keys.clear()
    return admit(rows, keys, now)


def admit(rows: Rows, keys: Iterable[str], now: datetime) -> int:
    """Release the next rows of each key while slots and rate allow. Returns the number of rows looked at."""
    seen = sum(_admit_key(rows, key, now) for key in keys)
    pass_over_limited(rows, now)
    return seen


def pass_over_limited(rows: Rows, now: datetime) -> None:
    """Wake the rows behind those that were woken for a lock and wait for a slot, if the lock is still free.

    Else they would stay parked for a lock without a holder, and a row added later would take it first.
    Rows woken here get their slots from upkeep: a transaction that gave them would lock limits out of order.
    """
    for _ in range(PASSED_AT_ONCE):
        if not rows.limited_locks:
            break
        locks = sorted(rows.limited_locks)
        rows.limited_locks.clear()
        wake(rows, locks, now)
    rows.limited_locks.clear()
    rows.limit_keys.clear()


def _admit_key(rows: Rows, key: str, now: datetime) -> int:
    limit, seen = rows.limit(key), 0
    while seen < ADMITTED_AT_ONCE:
        admitted, unclaimed = (0, 0) if limit is None else _slots(rows, limit, now)
        starts = next_starts(limit, admitted, unclaimed, now, ADMITTED_AT_ONCE - seen)
        batch = rows.limited_rows(key, len(starts)) if starts else ()
        free = _release(rows, batch, starts, now)
        seen += len(batch)
        if limit is not None and free:
            limit = after_start(limit, starts[free - 1])
            if limit.next_at is not None:
                rows.set_limit(limit)
        # Rows held back for a pause or a lock leave their starts to the rows after them.
        if free == len(batch):
            break
    return seen


def _slots(rows: Rows, limit: Limit, now: datetime) -> tuple[int, int]:
    most_unclaimed = 0 if limit.interval is None else limit.most_unclaimed
    return rows.slots(limit.key, limit.concurrent or 0, most_unclaimed, now + AHEAD)


def _release(rows: Rows, batch: Iterable[Job], starts: list[datetime], now: datetime) -> int:
    """Release rows, or hold them back for a pause or a lock. Returns the number of released rows."""
    pauses, free = rows.seen_pauses(), 0
    for job in batch:
        if pauses and is_kept(job, pauses):
            rows.change(job, held_back(job, Held.PAUSE, now))
            if job.lock_key is not None and not job.lock_held:
                # The row may have been the one woken to take its lock next.
                wake(rows, [job.lock_key], now)
        elif _wants_taken_lock(rows, job):
            rows.change(job, held_back(job, Held.LOCK, now))
        else:
            rows.change(job, _released(rows, job, starts[free], now))
            free += 1
    return free


def _wants_taken_lock(rows: Rows, job: Job) -> bool:
    return job.lock_key is not None and not job.lock_held and rows.lock_holder(job.lock_key) is not None


def _released(rows: Rows, job: Job, start: datetime, now: datetime) -> Changes:
    """The changes of a row free to start, including the row's lock, so that a slot never waits for a lock."""
    changes: Changes = {"limit_at": start, "updated_at": now}
    if job.lock_key is not None:
        changes["lock_held"] = True
    if start > now:
        return changes | {"held": Held.TIME, "run_at": start, "turn": min(job.turn, RETURNED)}
    changes["held"] = None
    return with_turn(rows, job, changes if job.turn < 0 else changes | {"turn": None})


def recall(rows: Rows, key: str, now: datetime) -> int:
    """Hold unclaimed rows again after a change of their limit. Returns their number."""
    found = rows.unclaimed_rows(key, ADMITTED_AT_ONCE)
    for job in found:
        rows.change(
            job,
            {
                "held": Held.LIMIT,
                "run_at": None,
                "limit_at": None,
                "turn": min(job.turn, 0),
                "updated_at": now,
            },
        )
    rows.limit_keys.discard(key)
    return len(found)
