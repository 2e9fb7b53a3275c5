"""Held jobs: rows held back by a pause or a limit, and their release in order, in bounded batches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from penstock.queue.job import RETURNED, Changes, Held, Job, Scope, Status
from penstock.queue.limits import AHEAD, Limit, after_start, next_starts
from penstock.queue.rules.addition import with_turn
from penstock.queue.rules.rows import (
    EVERYTHING,
    ClaimPosition,
    Pause,
    PauseState,
    Rows,
    active_resume,
    freed,
    is_kept,
    place_of,
    wake,
)


class _BatchResult(msgspec.Struct, frozen=True):
    """Result of one batch: the number of released rows, and whether there is more to do."""

    released: int = 0
    more: bool = False


def held_back(job: Job, reason: Held, now: datetime) -> Changes:
    """Return the changes which hold a row back.

    A pause resets the turn: an old turn would let the tenant pass all others at resume, or delay its new
    jobs. The turn of a row woken for a lock is reset, too: rows of its lock that are held back later may be
    older.
    """
    changes: Changes = {"held": reason, "updated_at": now}
    woken = job.turn == RETURNED and job.lock_key is not None and not job.lock_held
    if reason is Held.PAUSE and (woken or job.turn >= 0):
        changes["turn"] = 0
    return changes


def pause(rows: Rows, scope: Scope) -> None:
    """Pause a scope, also during a resume of the same scope."""
    rows.pauses(to_change=True)
    rows.set_pause(Pause(scope))


def resume(rows: Rows, scope: Scope, *, limit: int) -> _BatchResult:
    """Begin a resume. Without a held row of the scope, the pause ends at once."""
    known = rows.pauses(to_change=True)
    pause = next((each for each in known if each.scope == scope), None)
    if pause is None:
        return _BatchResult()
    if pause.phase is not PauseState.PAUSED:
        return _BatchResult(more=True)
    # A pause of everything holds back no row, so the held rows of other pauses are not read.
    held = [] if scope == EVERYTHING else rows.paused_rows(limit, None)
    if not (len(held) == limit or any(_covered(pause, job) for job in held)):
        rows.drop_pause(scope)
        return _BatchResult()
    rows.set_pause(msgspec.structs.replace(pause, phase=PauseState.GATHERING))
    return _BatchResult(more=True)


def advance_resume(rows: Rows, now: datetime, *, limit: int) -> _BatchResult:
    """Advance the active resume, if any, by one batch."""
    known = rows.pauses(to_change=True) if rows.may_move() else ()
    pause = active_resume(known)
    if pause is None:
        return _BatchResult()
    if pause.phase is PauseState.GATHERING:
        _gather(rows, pause, now, limit)
        return _BatchResult(more=True)
    return _release(rows, pause, known, now, limit)


def release_stranded(
    rows: Rows, now: datetime, *, limit: int, after: ClaimPosition | None
) -> tuple[int, ClaimPosition | None]:
    """Release held rows without a pause: a row may be held back while the pause ends.

    Reads one batch. Returns the number of rows, and the position to continue from.
    """
    known, batch = rows.pauses(), rows.paused_rows(limit, after)
    stranded = [job for job in batch if not is_kept(job, known)]
    for job in stranded:
        _release_row(rows, job, now)
    return len(stranded), place_of(batch[-1]) if len(batch) == limit else None


def _covered(pause: Pause, job: Job) -> bool:
    return pause.covers(job.tenant_id, job.collection)


def _gather(rows: Rows, pause: Pause, now: datetime, limit: int) -> None:
    left = limit if pause.at is not None else _gather_parked(rows, pause, now, limit)
    batch = rows.claimable_rows(left, pause.at) if left else ()
    ids = [each.queue_id for each in batch if pause.covers(each.tenant_id, each.collection)]
    rows.lock_rows(ids)
    found = [job for job in map(rows.get, ids) if job is not None and job.status is Status.PENDING]
    # A claim that read the pauses earlier may have parked one since.
    _hold_back(rows, [job for job in found if job.held in (None, Held.LOCK)], now)
    if len(batch) == left:
        rows.set_pause(msgspec.structs.replace(pause, at=place_of(batch[-1]) if batch else None))
    elif rows.parked_rows(pause.scope, 1):
        rows.set_pause(Pause(pause.scope, PauseState.GATHERING))
    else:
        rows.set_pause(Pause(pause.scope, PauseState.RELEASING))


def _gather_parked(rows: Rows, pause: Pause, now: datetime, limit: int) -> int:
    """Hold back parked rows of the scope, also for held locks. Returns how many rows may still be read.

    A parked row keeps a lower turn than the rows of its lock that the pause releases, and these may be older.
    First of all, because a parked row may be woken, and be claimable at a place that the resume has passed.
    """
    found = rows.parked_rows(pause.scope, limit)
    parked = [job for job in found if job is not None]
    _hold_back(rows, parked, now)
    # Rows locked by another transaction are looked for in the next call.
    return limit - len(found) if len(parked) == len(found) else 0


def _hold_back(rows: Rows, jobs: Sequence[Job], now: datetime) -> None:
    for job in jobs:
        rows.change(job, held_back(job, Held.PAUSE, now))
    # Each may have been the one woken to take its lock next.
    keys = {job.lock_key for job in jobs if job.lock_key is not None and not job.lock_held}
    wake(rows, sorted(keys), now)


def _release(rows: Rows, pause: Pause, known: Sequence[Pause], now: datetime, limit: int) -> _BatchResult:
    others = [each for each in known if each.scope != pause.scope]
    batch = rows.paused_rows(limit, pause.at)
    free = [job for job in batch if not is_kept(job, others)]
    for job in free:
        _release_row(rows, job, now)
    if len(batch) == limit:
        rows.set_pause(Pause(pause.scope, PauseState.RELEASING, place_of(batch[-1])))
        return _BatchResult(len(free), more=True)
    rows.drop_pause(pause.scope)
    return _BatchResult(len(free), more=active_resume(others) is not None)


def _release_row(rows: Rows, job: Job, now: datetime) -> None:
    rows.change(job, with_turn(rows, job, freed(job) | {"updated_at": now}))


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
        free = _release_by_limit(rows, batch, starts, now)
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


def _release_by_limit(rows: Rows, batch: Iterable[Job], starts: list[datetime], now: datetime) -> int:
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
        changes = {"held": Held.LIMIT, "run_at": None, "limit_at": None, "turn": min(job.turn, 0)}
        rows.change(job, changes | {"updated_at": now})
    rows.limit_keys.discard(key)
    return len(found)
