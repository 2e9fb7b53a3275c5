"""Transitions of jobs: pure functions from a job and an event to the changed columns.

A worker reports an event that ends a claim (``done``, ``failed_attempt``, ``lease_lost`` …) as a
``Settlement``; ``settled`` computes the new row. Engines apply the changes inside a transaction that holds
the row. ``turn: None`` in changes means a new turn number. docs/concepts/state-machine.md has the drawing.

A hook is a job that waits for another one, so the end of that job releases it in the same transaction, on
every engine. Jobs without hooks have nothing of this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, TypeAlias

import msgspec

from penstock.queue import payloads, retry
from penstock.queue.job import (
    CHILDREN,
    DEFAULT_TIMEOUT_S,
    ENDED,
    RETURNED,
    SUSPECT,
    Beat,
    Changes,
    Claim,
    ClaimRequest,
    Held,
    Job,
    JobEvent,
    NewJob,
    Settlement,
    Status,
    failure_reason,
)

Holder: TypeAlias = Claim | Job

CANCELLED_MESSAGE = "Cancelled by user"
FIRST_START = "first_started_at"
"""In the progress of a job whose timeout bounds all of its attempts: the start of the first one."""
_LEASE_ENDED = "no worker renewed its lease; it runs alone now"


TIMED_OUT = "ERR_JOB_TIMEOUT"
FAILURE_CODES: Mapping[str, str] = {
    "ERR_JOB_TIMEOUT": "The job ran longer than its timeout. Final: it is not retried.",
    "ERR_WORKER_LOST": "The worker died or stopped renewing its lease. Spends a retry.",
    "ERR_STALE": "A task showed no progress and was reset by cleanup_stale_tasks; no retry is spent.",
    "ERR_FAILED_BEFORE": "The job failed in the queue that it was imported from.",
    "ERR_DEPENDENCY_FAILED": "A job that this one waited for failed or was cancelled. Retry both.",
    "ERR_CHILDREN_FAILED": "Some child jobs failed; the message counts and names them.",
}
"""Values of ``error_code`` without an exception class."""


def done(claim: Holder, *, result_json: str | None = None) -> Settlement:
    return Settlement(
        queue_id=claim.queue_id,
        claim_number=claim.claim_number,
        status=Status.DONE,
        what="done",
        result_json=result_json,
    )


def waits(
    claim: Holder,
    waiting_for: str = CHILDREN,
    *,
    children: tuple[NewJob, ...] = (),
    progress_json: str | None = None,
    result_json: str | None = None,
) -> Settlement:
    """End the handler's part; the job ends with its children, or with its document.

    ``result_json`` is the result of the handler's own part, which the job keeps when it ends.
    """
    return Settlement(
        queue_id=claim.queue_id,
        claim_number=claim.claim_number,
        status=Status.IN_PROGRESS,
        what="waits",
        waiting_for=waiting_for,
        children=children,
        progress_json=progress_json,
        result_json=result_json,
    )


def expanded(claim: Holder, children: tuple[NewJob, ...], *, progress_json: str | None = None) -> Settlement:
    """Add children while the worker keeps the claim; ``progress_json`` may hold a cursor to resume."""
    return Settlement(
        queue_id=claim.queue_id,
        claim_number=claim.claim_number,
        status=Status.IN_PROGRESS,
        what="expanded",
        keep_lease=True,
        children=children,
        progress_json=progress_json,
    )


def failed_attempt(
    claim: Holder,
    failure: retry.Classification,
    message: str,
    *,
    schedule: retry.Backoff = retry.JOB_BACKOFF,
    jitter: float = 0.0,
) -> Settlement:
    """Retry after an error of the handler, or fail: without retries left, or for a permanent error."""
    if failure.kind == "cancelled":
        return cancelled_by_flag(claim)
    if failure.kind == "permanent" or claim.retry_count >= claim.max_retries:
        return failed(claim, failure.code, message)
    number = claim.retry_count + 1
    delay = failure.retry_after or retry.delay(schedule, number, jitter=jitter)
    return _returned(claim, "retry", delay, retry_count=number, error=(failure.code, message))


def failed(claim: Holder, code: str, message: str) -> Settlement:
    return _ended_badly(claim, Status.FAILED, code, printable(message))


def _ended_badly(claim: Holder, status: Status, code: str, message: str) -> Settlement:
    return Settlement(
        queue_id=claim.queue_id,
        claim_number=claim.claim_number,
        status=status,
        what=status.value,
        retry_count=claim.retry_count,
        lost_count=claim.lost_count,
        error_code=code,
        error_message=message,
    )


def failed_by_hand(claim: Holder, code: str, message: str) -> Settlement:
    """Fail on request of a person or another program; spends a retry, if one is left."""
    spent = min(claim.retry_count + 1, claim.max_retries)
    return msgspec.structs.replace(failed(claim, code, message), retry_count=spent)


def timed_out(claim: Holder) -> Settlement:
    return failed(claim, TIMED_OUT, f"Timeout after {claim.timeout_s}s")


def bounds_whole_job(holder: Holder) -> bool:
    """Tell whether the timeout bounds the job from its first start to its end, children included.

    It does if it was asked for, that is unless it is the default. The default, and the timeout of a function,
    bound one attempt, and a wait in which no part of the job ends. Children have that of their parent, which
    ends with them.
    """
    return (
        holder.timeout_s != DEFAULT_TIMEOUT_S and holder.parent_id is None and holder.item_type != "function"
    )


def first_start(holder: Holder) -> datetime | None:
    """Start of the first attempt; of a job that was reopened for its children, that time."""
    known = (holder.progress or {}).get(FIRST_START) if holder.progress_json else None
    started_at = datetime.fromisoformat(known) if isinstance(known, str) else None
    if isinstance(holder, Claim):
        return started_at
    reopened = [event.at for event in holder.history if event.what == "reopened"]
    return max(filter(None, (started_at or holder.started_at, *reopened)), default=None)


def is_overdue(job: Job, now: datetime) -> bool:
    """True if the timeout of a job that bounds all of it is over."""
    started_at = first_start(job) if bounds_whole_job(job) else None
    return started_at is not None and now - started_at > timedelta(seconds=job.timeout_s)


def with_first_start(
    settlement: Settlement, holder: Holder, started_at: datetime | None, now: datetime
) -> Settlement:
    """Keep the first start of a job that is tried again, if its timeout bounds all attempts.

    Nobody looks at the timeout of a job that waits for its next attempt. So the attempt comes in time for it,
    and there is none after it.
    """
    if started_at is None or settlement.status is not Status.PENDING or not bounds_whole_job(holder):
        return settlement
    progress = holder.progress or {}
    if settlement.progress_json is not None:
        progress = msgspec.json.decode(settlement.progress_json)
    first = first_start(holder) or started_at
    left = first + timedelta(seconds=holder.timeout_s) - now
    if left <= timedelta(0):
        return timed_out(holder)
    progress = {FIRST_START: first.isoformat()} | progress
    return msgspec.structs.replace(
        settlement, progress_json=msgspec.json.encode(progress).decode(), delay=min(settlement.delay, left)
    )


def cancelled_by_flag(claim: Holder) -> Settlement:
    """Cancel: the handler saw the flag at a checkpoint, or was stopped because of the flag."""
    return _ended_badly(claim, Status.CANCELLED, "ERR_CANCELLED", CANCELLED_MESSAGE)


def released(
    claim: Holder, reason: str, *, delay: timedelta = timedelta(0), code: str | None = None
) -> Settlement:
    """Release without spending a retry. With ``code`` the reason is shown as the job's error."""
    return _returned(
        claim,
        "released",
        delay,
        retry_count=claim.retry_count,
        error=(code, reason) if code else None,
        note=reason,
    )


def suspected(claim: Holder, reason: str) -> Settlement:
    """Release without spending a retry, but claim alone from now on: it may crash its batch."""
    return msgspec.structs.replace(released(claim, reason), lost_count=claim.lost_count + 1)


def lease_ended(claim: Holder, *, jitter: float = 0.0) -> Settlement:
    """Return a job whose lease ended: nobody knows whether its worker was executing it.

    The first time spends no retry, and the job is claimed alone from then on: a second loss is its own. A
    function always spends one, since it may have begun, and may not be repeatable.
    """
    if claim.item_type == "function" or claim.lost_count:
        return lease_lost(claim, jitter=jitter)
    return suspected(claim, _LEASE_ENDED)


def lease_lost(claim: Holder, *, jitter: float = 0.0) -> Settlement:
    """Retry after the worker died while executing the job; spends a retry, the first time without a delay."""
    attempt = f"lost in attempt {claim.retry_count + 1} of {claim.max_retries + 1}"
    message = f"Worker {attempt}"
    if claim.retry_count >= claim.max_retries:
        # The specified words, for programs that look for them.
        exceeded = f"Max retries ({claim.max_retries}) exceeded after restart: worker {attempt}"
        lost = failed(claim, "ERR_WORKER_LOST", exceeded)
        return msgspec.structs.replace(lost, what="lost", lost_count=claim.lost_count + 1)
    number = claim.retry_count + 1
    first = claim.lost_count == 0
    delay = timedelta(0) if first else retry.delay(retry.JOB_BACKOFF, number, jitter=jitter)
    settlement = _returned(claim, "lost", delay, retry_count=number, error=("ERR_WORKER_LOST", message))
    return msgspec.structs.replace(settlement, lost_count=claim.lost_count + 1)


def _returned(
    claim: Holder,
    what: str,
    delay: timedelta,
    *,
    retry_count: int,
    error: tuple[str | None, str] | None,
    note: str | None = None,
) -> Settlement:
    code, message = error or (None, note)
    return Settlement(
        queue_id=claim.queue_id,
        claim_number=claim.claim_number,
        status=Status.PENDING,
        what=what,
        retry_count=retry_count,
        lost_count=claim.lost_count,
        delay=delay,
        error_code=code,
        error_message=printable(message) if message else message,
    )


def printable(message: str) -> str:
    """Escape NUL and invalid UTF-8, which no store can keep; file names in messages may hold both."""
    return message.encode("utf-8", "backslashreplace").decode().replace("\x00", "\\x00")


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
        return stop | {"status": Status.IN_PROGRESS, "waiting_for": CHILDREN, "held": None, "run_at": None}
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


MOST_DEPENDENCIES = 1_000
"""Largest number of jobs that one job may wait for."""

DEPENDENCY_FAILED = "ERR_DEPENDENCY_FAILED"
_ENDED_BADLY = {Status.FAILED: "failed", Status.CANCELLED: "was cancelled"}
DEPENDENCY_MESSAGE = "%s %s, and this job waited for it"
"""Message of a job that is cancelled for another one: id of that one, and what became of it."""


class Dependencies(msgspec.Struct, frozen=True, omit_defaults=True):
    """Jobs to wait for, as stored in ``after_json``. See ``NewJob`` for the fields."""

    after: tuple[str, ...]
    run_after_failure: bool = False

    @property
    def on_failure(self) -> str | None:
        """The choice in the words of a request; None without dependencies."""
        return ("run" if self.run_after_failure else "cancel") if self.after else None


_decode = msgspec.json.Decoder(Dependencies).decode


class WaitDecision(msgspec.Struct, frozen=True):
    """Decision on a waiting job: wait, release, or cancel because of another job."""

    waits: bool
    failed: str | None = None


def encoded(found: Dependencies) -> str:
    """The dependencies of a job, as stored."""
    return _encode(found).decode()


def dependencies_of(job: Job) -> Dependencies:
    """The dependencies of a job; empty for most."""
    return _decode(job.after_json) if job.after_json else Dependencies(())


def verdict(found: Dependencies, statuses: Mapping[str, Status]) -> WaitDecision:
    """Decide from the statuses of the named jobs. A deleted job counts as ended."""
    known = [(queue_id, statuses[queue_id]) for queue_id in found.after if queue_id in statuses]
    if not found.run_after_failure:
        for queue_id, status in known:
            if status in _ENDED_BADLY:
                return WaitDecision(False, queue_id)
    return WaitDecision(any(status not in ENDED for _, status in known))


def cancelled_with(job: Job, failed: str, status: Status) -> Settlement:
    """End a waiting job because another one failed or was cancelled."""
    message = DEPENDENCY_MESSAGE % (failed, _ENDED_BADLY[status])
    return _ended_badly(job, Status.CANCELLED, DEPENDENCY_FAILED, message)


def held_back(turn: int) -> Changes:
    """The changes of a job with open dependencies. The job takes no turn of the tenant."""
    return {"held": Held.AFTER, "turn": min(turn, 0)}


RESERVED = "penstock."
"""Start of the names of functions that Penstock itself runs, and of its keys in the metadata of jobs."""
HOOKS = f"{RESERVED}hooks"
"""In the metadata of a job: its hooks, which a retry adds again."""
HOOK = f"{RESERVED}hook"
"""In the metadata of a hook: the end that it is for, ``success``, ``failure`` or ``any``."""
HOOK_FIELDS = frozenset({"webhook", "on_success", "on_failure"})
"""Fields of functions and calls that make hooks."""
TRACEPARENT = "traceparent"
"""In the metadata of a job: the trace that it belongs to, as in the W3C Trace Context."""

WEBHOOK = f"{RESERVED}webhook"
"""Function name of a webhook."""
BACKUP = f"{RESERVED}backup"
"""Function name of a backup. Requests cannot call it: a backup has the texts of all tenants."""
_WEBHOOK_RETRIES = 20
_WEBHOOK_TIMEOUT_S = 120
SMALL_RESULT = 16_384
"""Bytes of a result that a webhook carries, as JSON."""


class HookCall(msgspec.Struct, frozen=True):
    """A function to call after the end of a job."""

    function: str
    max_retries: int
    timeout_s: int


class EndHooks(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The hooks of one job, as stored in the metadata."""

    webhook: str | None = None
    on_success: HookCall | None = None
    on_failure: HookCall | None = None


class _Metadata(msgspec.Struct, frozen=True):
    hooks: EndHooks | None = msgspec.field(default=None, name=HOOKS)
    traceparent: Any = None


def hook_jobs(job: NewJob | Job, new_ids: Callable[[int], list[str]]) -> list[NewJob]:
    """The hooks of a job as new, waiting jobs; none for most jobs."""
    if HOOKS not in job.metadata:
        return []
    # A decoder of the module would evaluate the annotations in each command.
    found = msgspec.json.decode(job.metadata, type=_Metadata)
    carried = {TRACEPARENT: found.traceparent} if isinstance(found.traceparent, str) else {}
    planned = list(_planned(found.hooks)) if found.hooks is not None else []
    return [
        _hook_job(job, queue_id, end, call, body, carried)
        for queue_id, (end, call, body) in zip(new_ids(len(planned)), planned, strict=True)
    ]


def _planned(hooks: EndHooks) -> Iterator[tuple[str, HookCall, Mapping[str, Any]]]:
    if hooks.on_success is not None:
        yield "success", hooks.on_success, {}
    if hooks.on_failure is not None:
        yield "failure", hooks.on_failure, {}
    if hooks.webhook is not None:
        yield "any", HookCall(WEBHOOK, _WEBHOOK_RETRIES, _WEBHOOK_TIMEOUT_S), {"url": hooks.webhook}


def _hook_job(
    job: NewJob | Job,
    queue_id: str,
    end: str,
    call: HookCall,
    payload: Mapping[str, Any],
    carried: Mapping[str, str],
) -> NewJob:
    body = {"function_name": call.function, "payload": payload}
    return NewJob(
        queue_id=queue_id,
        item_type="function",
        op="run",
        tenant_id=job.tenant_id,
        collection=job.collection,
        branch=job.branch,
        idempotency_key=payloads.function_key(job.collection, queue_id),
        payload_json=_encode(body).decode(),
        priority=job.priority,
        metadata=_encode({HOOK: end, **carried}).decode(),
        dedupe=False,
        max_retries=call.max_retries,
        timeout_s=call.timeout_s,
        submitted_by=job.submitted_by,
        # A live job with the same key takes the place of a duplicate, here too.
        after=(job.queue_id,),
        run_after_failure=end != "success",
    )


def concerns(end: str, status: Status) -> bool:
    """Tell whether a hook for ``end`` applies to a final status."""
    return end == "any" or (end == "success") == (status is Status.DONE)


class EndedJob(msgspec.Struct, frozen=True, kw_only=True):
    """An ended job as passed to hook functions and webhooks; use as the payload type of such a function."""

    job_id: str
    status: str
    item_type: str
    op: str
    function: str | None
    tenant_id: str
    collection: str
    run: int
    attempt: int
    error_code: str | None
    error_message: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    result: Any = None
    result_bytes: int | None = None
    """Size of a result that is too large for a webhook."""


def job_event(job: Job, *, largest_result: int | None = None) -> dict[str, Any]:
    """The fields of ``EndedJob`` as JSON values. A result of more bytes is left out."""
    size = len((job.result_json or "").encode())
    fits = largest_result is None or size <= largest_result
    event = EndedJob(
        job_id=job.queue_id,
        status=job.status.value,
        item_type=job.item_type,
        op=job.op,
        function=job.payload.get("function_name") if job.item_type == "function" else None,
        tenant_id=job.tenant_id,
        collection=job.collection,
        run=job.run,
        attempt=job.retry_count + 1,
        error_code=job.error_code,
        error_message=job.error_message,
        created_at=job.created_at,
        started_at=job.started_at,
        finished_at=job.finished_at,
        result=job.result if fits else None,
        result_bytes=None if fits else size,
    )
    found: dict[str, Any] = msgspec.to_builtins(event)
    return found
