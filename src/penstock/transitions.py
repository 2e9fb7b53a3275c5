"""Transitions of rows: pure functions from a job and an event to the changed columns.

Engines apply them inside a transaction that holds the row. ``turn: None`` in changes means a new turn number.
docs/concepts/state-machine.md has the drawing.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from penstock.failure_reasons import failure_reason
from penstock.job import (
    CHILDREN,
    RETURNED,
    SUSPECT,
    Beat,
    Changes,
    ClaimRequest,
    Held,
    Job,
    NewJob,
    Settlement,
    Status,
)
from penstock.job_event import JobEvent
from penstock.lifecycle import cancelled_by_flag, done, failed

HISTORY_LIMIT = 20
FOLLOW_UP_NOTE = "continues as the follow-up"
NOTE_LIMIT = 500
CHILDREN_FAILED = "%s of %s %s failed (%s)"
"""Message of a parent with failed children: failed, total, what they are, and the first of their ids."""
CHILD_NOUNS = {"folder": "files", "project": "files", "library": "files", "file": "files inside it"}
OTHER_CHILDREN = "children"
AND_MORE = ", …"

_encode = msgspec.json.Encoder().encode


class FollowUp(msgspec.Struct, frozen=True):
    """A request submitted while the job ran, for its next run."""

    op: str
    payload_json: str
    metadata: str
    priority: int
    max_retries: int
    timeout_s: int
    run_at: datetime | None = None


def added(new: NewJob, now: datetime, turn: int, parent: Job | None = None) -> Job:
    """The row of a new job, or of a child of ``parent``."""
    later = new.run_at is not None and new.run_at > now
    job = Job(
        queue_id=new.queue_id,
        item_type=new.item_type,
        op=new.op,
        tenant_id=new.tenant_id,
        collection=new.collection,
        branch=new.branch,
        priority=new.priority,
        status=Status.PENDING,
        created_at=now,
        updated_at=now,
        idempotency_key=new.idempotency_key,
        dedupe=new.dedupe,
        retry_count=0,
        max_retries=new.max_retries,
        timeout_s=new.timeout_s,
        submitted_by=new.submitted_by,
        turn=RETURNED if later else 0 if new.limit_key is not None else turn,
        held=Held.TIME if later else Held.LIMIT if new.limit_key is not None else None,
        run_at=new.run_at if later else None,
        lock_key=new.lock_key,
        parent_id=None if parent is None else parent.queue_id,
        parent_run=None if parent is None else parent.run,
        root_id=new.queue_id if parent is None else parent.root_id,
        payload_json=new.payload_json,
        metadata=new.metadata,
    )
    if new.limit_key or new.backlog_key or new.result_ttl_s:
        # Not above, where they would cost every job.
        key = new.backlog_key if parent is None else None
        job = msgspec.structs.replace(
            job, limit_key=new.limit_key, backlog_key=key, result_ttl_s=new.result_ttl_s
        )
    return job


def coalesced(job: Job, new: NewJob, now: datetime) -> Changes:
    """Merge a duplicate request into a live job; into its follow-up if the job is running."""
    if job.status is Status.IN_PROGRESS:
        return _followed(job, new, now)
    changes: Changes = {
        "op": new.op,
        "payload_json": new.payload_json,
        "metadata": new.metadata,
        "max_retries": new.max_retries,
        "timeout_s": new.timeout_s,
        "retry_count": 0,
        "updated_at": now,
    }
    if job.started_at is not None:
        # The job has begun and waits for a retry: its children belong to the former request.
        changes |= _new_run(job)
    if new.priority > job.priority:
        changes["priority"] = new.priority
        if job.turn >= 0 and job.held not in (Held.PAUSE, Held.AFTER, Held.LIMIT):
            changes["turn"] = None
    if job.held is Held.TIME and job.limit_at is None:
        # The earlier of the two times serves both requests.
        if new.run_at is None or new.run_at <= now:
            changes.update(held=None, run_at=None)
        elif job.run_at is not None and new.run_at < job.run_at:
            changes["run_at"] = new.run_at
    return changes


def _followed(job: Job, new: NewJob, now: datetime) -> Changes:
    before = _followup(job)
    followup = FollowUp(
        op=new.op,
        payload_json=new.payload_json,
        metadata=new.metadata,
        priority=max(new.priority, before.priority if before else job.priority),
        max_retries=new.max_retries,
        timeout_s=new.timeout_s,
        run_at=new.run_at,
    )
    changes: Changes = {"followup_json": _encode(followup).decode(), "updated_at": now}
    if new.op == "delete" and job.op != "delete":
        # The result of the running work would be deleted at once.
        changes["cancel_requested"] = True
    return changes


def claimed(job: Job, request: ClaimRequest, now: datetime) -> Changes:
    return {
        "status": Status.IN_PROGRESS,
        "worker_id": request.worker_id,
        "lease_until": now + request.lease_of(job.item_type),
        "claim_number": job.claim_number + 1,
        "lock_held": job.lock_key is not None,
        "started_at": now,
        "updated_at": now,
    }


def started(job: Job, request: ClaimRequest, now: datetime) -> Changes:
    """Claim a job by id, also one held until a time."""
    return claimed(job, request, now) | {"held": None, "run_at": None}


def renewed(beat: Beat, now: datetime) -> Changes:
    changes: Changes = {}
    if beat.lease is not None:
        changes["lease_until"] = now + beat.lease
    if beat.progress_json is not None:
        changes.update(progress_json=beat.progress_json, updated_at=now)
    return changes


def settled(job: Job, settlement: Settlement, now: datetime) -> Changes:
    """Apply a settlement. ``job`` already counts the settlement's children."""
    if settlement.keep_lease:
        progress = settlement.progress_json or job.progress_json
        return {"progress_json": progress, "updated_at": now}
    if settlement.status is Status.IN_PROGRESS:
        return _waiting(job, settlement, now)
    if settlement.status is Status.PENDING:
        if job.cancel_requested:
            return settled(job, cancelled_by_flag(job), now)
        return _back(job, settlement, now)
    if job.children_open and settlement.status is not Status.FAILED:
        # A job is neither done nor cancelled before its children have ended.
        cancelling = job.cancel_requested or settlement.status is Status.CANCELLED
        held = _waiting(job, msgspec.structs.replace(settlement, waiting_for=CHILDREN), now)
        return held | {"cancel_requested": cancelling}
    return _ended(job, settlement, now)


def children_ended(job: Job, now: datetime, total: int, failed_ids: list[str]) -> Changes:
    """End a waiting parent after its last child."""
    if job.children_failed:
        noun = CHILD_NOUNS.get(job.item_type, OTHER_CHILDREN)
        named = ", ".join(failed_ids) + (AND_MORE if job.children_failed > len(failed_ids) else "")
        message = CHILDREN_FAILED % (f"{job.children_failed:,}", f"{total:,}", noun, named)
        settlement = failed(job, "ERR_CHILDREN_FAILED", message)
    else:
        settlement = cancelled_by_flag(job) if job.cancel_requested else done(job)
    # The result is that of the parent's own work, before it waited for its children.
    return _ended(job, msgspec.structs.replace(settlement, result_json=job.result_json), now)


def cancelled(job: Job, now: datetime) -> Changes:
    """Cancel: at once without a worker, else by a flag; drops the follow-up.

    A job with open children becomes (or stays) waiting with the flag, and ends after them.
    """
    stop: Changes = {
        "cancel_requested": True,
        "followup_json": None,
        "history_json": _recorded(job, now, "cancel requested"),
        "updated_at": now,
    }
    if job.lease_until is not None:
        return stop
    if job.children_open:
        return stop | {
            "status": Status.IN_PROGRESS,
            "waiting_for": CHILDREN,
            "held": None,
            "run_at": None,
        }
    return _ended(msgspec.structs.replace(job, followup_json=None), cancelled_by_flag(job), now)


def requeued(job: Job, now: datetime, *, keep_retries: bool = False) -> Changes:
    """Retry from the start, with all retries unless ``keep_retries``; a crash suspect stays one."""
    return {
        "status": Status.PENDING,
        "run": job.run + 1,
        "retry_count": job.retry_count if keep_retries else 0,
        "held": None,
        "run_at": None,
        "turn": SUSPECT if job.lost_count else None,
        "waiting_for": None,
        "cancel_requested": False,
        "children_open": 0,
        "children_failed": 0,
        "total_chunks": 0,
        "progress_json": None,
        "finished_at": None,
        "error_reason": None,
        "updated_at": now,
        "history_json": _recorded(job, now, "requeued"),
    } | _without_cancel(job)


def reopened(job: Job, now: datetime) -> Changes:
    """Make a parent wait again, with its lock, after the retry of a child."""
    return {
        "status": Status.IN_PROGRESS,
        "waiting_for": CHILDREN,
        "lock_held": job.lock_key is not None,
        "claim_number": job.claim_number + 1,
        "cancel_requested": False,
        "finished_at": None,
        "error_reason": None,
        "updated_at": now,
        "history_json": _recorded(job, now, "reopened"),
    } | _without_cancel(job)


def _without_cancel(job: Job) -> Changes:
    """Forget the cancel that a retry takes back: it is no error of an attempt. The history keeps it."""
    if job.status is not Status.CANCELLED:
        return {}
    return {"error_code": None, "error_message": None, "last_error_at": None}


def next_turn(head: int | None, last: int | None) -> int:
    """Next turn of a tenant: after the last waiting job, and not before the queue's head."""
    return max(head or 0, 0 if last is None else last + 1)


def _waiting(job: Job, settlement: Settlement, now: datetime) -> Changes:
    # A new claim number fences off the former worker.
    return {
        "lease_until": None,
        "waiting_for": settlement.waiting_for,
        "claim_number": job.claim_number + 1,
        "progress_json": settlement.progress_json or job.progress_json,
        "result_json": settlement.result_json or job.result_json,
        "updated_at": now,
    }


def _back(job: Job, settlement: Settlement, now: datetime) -> Changes:
    """Return to pending: retry, loss or release. The lock is kept until the job ends."""
    later = settlement.delay > timedelta(0)
    changes: Changes = {
        "status": Status.PENDING,
        "lease_until": None,
        "waiting_for": None,
        "retry_count": settlement.retry_count,
        "lost_count": settlement.lost_count,
        "held": Held.TIME if later else None,
        "run_at": now + settlement.delay if later else None,
        "turn": SUSPECT if settlement.lost_count else RETURNED,
        "updated_at": now,
        "history_json": _recorded(job, now, settlement.what, settlement.error_message),
    }
    if settlement.progress_json is not None:
        changes["progress_json"] = settlement.progress_json
    if settlement.error_code:
        changes |= {
            "error_code": settlement.error_code,
            "error_message": settlement.error_message,
            "last_error_at": now,
        }
    followup = _followup(job)
    if followup:
        changes |= _next_run(job, followup)
        changes["retry_count"] = min(settlement.retry_count, followup.max_retries)
        changes["history_json"] = _recorded(job, now, settlement.what, FOLLOW_UP_NOTE)
    return changes


def _ended(job: Job, settlement: Settlement, now: datetime) -> Changes:
    failing = settlement.status is not Status.DONE
    changes: Changes = {
        "status": settlement.status,
        "lease_until": None,
        "held": None,
        "run_at": None,
        "lock_held": False,
        "lost_count": settlement.lost_count if failing else job.lost_count,
        "error_code": settlement.error_code,
        "error_message": settlement.error_message,
        "finished_at": now,
        "updated_at": now,
        "result_json": settlement.result_json,
    }
    if settlement.status is Status.FAILED:
        changes["error_reason"] = failure_reason(settlement.error_code, settlement.error_message)
    if failing:
        changes["last_error_at"] = now
        changes["retry_count"] = settlement.retry_count
        changes["history_json"] = _recorded(job, now, settlement.what, settlement.error_message)
        changes["progress_json"] = settlement.progress_json or job.progress_json
    followup = _followup(job)
    return changes | _restarted(job, followup, now) if followup else changes


def _restarted(job: Job, followup: FollowUp, now: datetime) -> Changes:
    """Begin the next run of the row, for a request submitted during the last one."""
    later = followup.run_at is not None and followup.run_at > now
    return _next_run(job, followup) | {
        "status": Status.PENDING,
        "retry_count": 0,
        "lost_count": 0,
        "held": Held.TIME if later else None,
        "run_at": followup.run_at if later else None,
        "turn": RETURNED if later else None,
        "waiting_for": None,
        "finished_at": None,
        "error_reason": None,
        "history_json": _recorded(job, now, "follow-up", f"run {job.run + 1}: {followup.op}"),
    }


def _next_run(job: Job, followup: FollowUp) -> Changes:
    return _new_run(job) | {
        "op": followup.op,
        "payload_json": followup.payload_json,
        "metadata": followup.metadata,
        "priority": followup.priority,
        "max_retries": followup.max_retries,
        "timeout_s": followup.timeout_s,
        "followup_json": None,
        "cancel_requested": False,
    }


def _new_run(job: Job) -> Changes:
    """Reset the row for its next run. Duplicates submitted before the run begins belong to it."""
    return {
        "run": job.run + 1,
        "started_at": None,
        "children_open": 0,
        "children_failed": 0,
        "total_chunks": 0,
        "progress_json": None,
    }


def _followup(job: Job) -> FollowUp | None:
    return msgspec.json.decode(job.followup_json, type=FollowUp) if job.followup_json else None


def _recorded(job: Job, now: datetime, what: str, note: str | None = None) -> str:
    note = note[:NOTE_LIMIT] if note else None
    events = job.history
    if what == "released" and events and (events[-1].what, events[-1].note) == (what, note):
        # Repeated releases for one reason are one event, with the time of the last.
        events.pop()
    events.append(JobEvent(at=now, what=what, note=note, worker_id=job.worker_id))
    return _encode(events[-HISTORY_LIMIT:]).decode()
