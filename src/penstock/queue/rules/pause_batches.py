"""Resume of a pause in bounded batches: hold rows back, then release them in order."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec

from penstock.job import RETURNED, Changes, Held, Job, Scope, Status
from penstock.queue.rules import locks, pauses
from penstock.queue.rules.addition import with_turn
from penstock.queue.rules.candidates import Claimable
from penstock.queue.rules.pauses import ClaimPosition, Pause, PauseState
from penstock.queue.rules.rows import Rows


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


def resume(rows: Rows, scope: Scope, *, limit: int) -> BatchResult:
    """Begin a resume. Without a held row of the scope, the pause ends at once."""
    known = rows.pauses(to_change=True)
    pause = next((each for each in known if each.scope == scope), None)
    if pause is None:
        return BatchResult()
    if pause.phase is not PauseState.PAUSED:
        return BatchResult(more=True)
    held = rows.paused_rows(limit, None)
    if scope == pauses.EVERYTHING or not (len(held) == limit or any(_covered(pause, job) for job in held)):
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
    batch = rows.claimable_rows(limit, pause.at)
    ids = [each.queue_id for each in batch if pause.covers(each.tenant_id, each.collection)]
    rows.lock_rows(ids)
    for queue_id in ids:
        job = rows.get(queue_id)
        if job is not None and job.status is Status.PENDING and job.held is None:
            rows.change(job, held_back(job, Held.PAUSE, now))
    if len(batch) == limit:
        rows.set_pause(msgspec.structs.replace(pause, at=batch[-1].place))
    elif _gather_parked(rows, pause, now, limit):
        rows.set_pause(Pause(pause.scope, PauseState.GATHERING))
    else:
        rows.set_pause(Pause(pause.scope, PauseState.RELEASING))


def _gather_parked(rows: Rows, pause: Pause, now: datetime, limit: int) -> bool:
    """Hold back rows parked for free locks. Returns whether there may be more.

    They would come before older rows of their lock that the pause holds back. Rows parked for a lock of a
    running job are older than all rows of that lock that the pause has met.
    """
    idle, left = list(rows.idle_locks(limit)), limit
    first = rows.first_parked(idle)
    # Rows locked by another transaction are not found, and read once more.
    more = len(first) < len(idle)
    while first and left > 0:
        covered = [job for job in first if _covered(pause, job)]
        locks.wake(rows, [job.lock_key for job in first if job.lock_key and job not in covered], now)
        for job in covered:
            rows.change(job, held_back(job, Held.PAUSE, now))
        left -= len(first)
        first = rows.first_parked([job.lock_key for job in covered if job.lock_key is not None])
    return more or bool(first)


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
