"""Resume of a pause in bounded batches: hold rows back, then release them in order."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from penstock.job import RETURNED, Changes, Held, Job, Scope, Status
from penstock.named_tuple import NamedTuple
from penstock.queue.rules import pauses
from penstock.queue.rules.addition import with_turn
from penstock.queue.rules.candidates import Claimable
from penstock.queue.rules.pauses import ClaimPosition, Pause, PauseState
from penstock.queue.rules.rows import Rows, wake


class BatchResult(NamedTuple):
    """Result of one batch: the number of released rows, and whether there is more to do."""

    released: int = 0
    more: bool = False


def held_back(job: Claimable, reason: Held, now: datetime) -> Changes:
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


def resume(rows: Rows, scope: Scope, *, limit: int) -> BatchResult:
    """Begin a resume. Without a held row of the scope, the pause ends at once."""
    known = rows.pauses(to_change=True)
    pause = next((each for each in known if each.scope == scope), None)
    if pause is None:
        return BatchResult()
    if pause.phase is not PauseState.PAUSED:
        return BatchResult(more=True)
    # A pause of everything holds back no row, so the held rows of other pauses are not read.
    held = [] if scope == pauses.EVERYTHING else rows.paused_rows(limit, None)
    if not (len(held) == limit or any(_covered(pause, job) for job in held)):
        rows.drop_pause(scope)
        return BatchResult()
    rows.set_pause(msgspec.structs.replace(pause, phase=PauseState.GATHERING))
    return BatchResult(more=True)


def advance_resume(rows: Rows, now: datetime, *, limit: int) -> BatchResult:
    """Advance the active resume, if any, by one batch."""
    known = rows.pauses(to_change=True) if rows.may_move() else ()
    pause = pauses.active_resume(known)
    if pause is None:
        return BatchResult()
    if pause.phase is PauseState.GATHERING:
        _gather(rows, pause, now, limit)
        return BatchResult(more=True)
    return _release(rows, pause, known, now, limit)


def release_stranded(
    rows: Rows, now: datetime, *, limit: int, after: ClaimPosition | None
) -> tuple[int, ClaimPosition | None]:
    """Release held rows without a pause: a row may be held back while the pause ends.

    Reads one batch. Returns the number of rows, and the position to continue from.
    """
    known, batch = rows.pauses(), rows.paused_rows(limit, after)
    stranded = [job for job in batch if not pauses.is_kept(job, known)]
    for job in stranded:
        _release_row(rows, job, now)
    return len(stranded), pauses.place_of(batch[-1]) if len(batch) == limit else None


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
        rows.set_pause(msgspec.structs.replace(pause, at=batch[-1].place if batch else None))
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


def _release(rows: Rows, pause: Pause, known: Sequence[Pause], now: datetime, limit: int) -> BatchResult:
    others = [each for each in known if each.scope != pause.scope]
    batch = rows.paused_rows(limit, pause.at)
    free = [job for job in batch if not pauses.is_kept(job, others)]
    for job in free:
        _release_row(rows, job, now)
    if len(batch) == limit:
        rows.set_pause(Pause(pause.scope, PauseState.RELEASING, pauses.place_of(batch[-1])))
        return BatchResult(len(free), more=True)
    rows.drop_pause(pause.scope)
    return BatchResult(len(free), more=pauses.active_resume(others) is not None)


def _release_row(rows: Rows, job: Job, now: datetime) -> None:
    rows.change(job, with_turn(rows, job, pauses.released(job) | {"updated_at": now}))
