"""Events that end a claim, as functions which return a ``Settlement``.

A worker reports the event (``done``, ``failed_attempt``, ``lease_lost`` …); ``transitions`` computes the new
row. docs/concepts/state-machine.md has the drawing.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TypeAlias

import msgspec

from penstock import retry
from penstock.job import CHILDREN, DEFAULT_TIMEOUT_S, Claim, Job, NewJob, Settlement, Status

Holder: TypeAlias = Claim | Job

CANCELLED_MESSAGE = "Cancelled by user"
FIRST_START = "first_started_at"
"""In the progress of a job whose timeout bounds all of its attempts: the start of the first one."""
LEASE_ENDED = "no worker renewed its lease; it runs alone now"

TRANSITIONS: Mapping[Status, frozenset[Status]] = {
    Status.PENDING: frozenset({Status.IN_PROGRESS, Status.CANCELLED}),
    Status.IN_PROGRESS: frozenset(Status),
    Status.DONE: frozenset(),
    Status.FAILED: frozenset({Status.PENDING, Status.IN_PROGRESS}),
    Status.CANCELLED: frozenset({Status.PENDING, Status.IN_PROGRESS}),
}
"""Allowed status changes. A failed parent returns to in_progress when its children are retried."""

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
    return Settlement(
        queue_id=claim.queue_id,
        claim_number=claim.claim_number,
        status=Status.FAILED,
        what="failed",
        retry_count=claim.retry_count,
        lost_count=claim.lost_count,
        error_code=code,
        error_message=printable(message),
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
        settlement,
        progress_json=msgspec.json.encode(progress).decode(),
        delay=min(settlement.delay, left),
    )


def cancelled_by_flag(claim: Holder) -> Settlement:
    """Cancel: the handler saw the flag at a checkpoint, or was stopped because of the flag."""
    return Settlement(
        queue_id=claim.queue_id,
        claim_number=claim.claim_number,
        status=Status.CANCELLED,
        what="cancelled",
        retry_count=claim.retry_count,
        lost_count=claim.lost_count,
        error_code="ERR_CANCELLED",
        error_message=CANCELLED_MESSAGE,
    )


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
    return suspected(claim, LEASE_ENDED)


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
