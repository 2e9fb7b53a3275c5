"""Outcomes of claimed tasks: one function for each way to end. Pure: no store, no clock."""

from __future__ import annotations

from datetime import timedelta
from typing import Protocol

import msgspec

from penstock.catalog.entities import Extraction
from penstock.catalog.values import Failure, FailureKind, NewPage, Phase, TaskOutcome, TaskStatus
from penstock.retry import JOB_BACKOFF, Classification, delay

LOST = Failure("ERR_WORKER_LOST", "the worker was lost")


class TaskClaim(Protocol):
    """A ``Task`` or a ``Claimed``."""

    @property
    def lane(self) -> Phase: ...
    @property
    def task_id(self) -> int: ...
    @property
    def claim_number(self) -> int: ...
    @property
    def retry_count(self) -> int: ...
    @property
    def max_retries(self) -> int: ...


def completed_page(task: TaskClaim, page: NewPage) -> TaskOutcome:
    """Complete the ocr of a page. ``page.chunks`` become the chunks of the page."""
    return _ended(task, TaskStatus.COMPLETED, page=page)


def needs_ocr(task: TaskClaim) -> TaskOutcome:
    """Release a page found to be a picture, to be recognized by OCR."""
    return msgspec.structs.replace(released(task), needs_ocr=True)


def completed_vector(task: TaskClaim, vector: bytes | None, stored: str | None = None) -> TaskOutcome:
    """Complete the embedding of a chunk. ``stored``: the address of the outside store that has the vector."""
    return _ended(task, TaskStatus.COMPLETED, vector=vector, stored=stored)


def completed_graph(task: TaskClaim, graph: Extraction) -> TaskOutcome:
    """Complete the extraction of a chunk. The entities and relations become those of the chunk's text."""
    return _ended(task, TaskStatus.COMPLETED, graph=graph)


def failed_attempt(task: TaskClaim, why: Classification, message: str, *, jitter: float = 0) -> TaskOutcome:
    """Record a failure: retry later if the error is transient and retries are left."""
    if why.kind != "transient":
        return failed(task, Failure(why.code, message))
    if task.retry_count >= task.max_retries:
        return failed(task, Failure(why.code, message, FailureKind.OUTAGE))
    wait = why.retry_after or delay(JOB_BACKOFF, task.retry_count + 1, jitter=jitter)
    return _ended(
        task,
        TaskStatus.FAILED,
        retry_count=task.retry_count,
        retry_after=wait,
        code=why.code,
        message=message,
    )


def failed(task: TaskClaim, failure: Failure) -> TaskOutcome:
    """Fail for good, without using the retries left."""
    return _ended(
        task,
        TaskStatus.FAILED,
        retry_count=task.max_retries,
        code=failure.code,
        message=failure.message,
        fault=failure.fault,
    )


def lost(task: TaskClaim) -> TaskOutcome:
    """Give back the task of a dead worker: one retry spent, due now, claimed alone as a crash suspect."""
    if task.retry_count >= task.max_retries:
        return failed(task, LOST)
    return _ended(
        task,
        TaskStatus.FAILED,
        retry_count=task.retry_count,
        retry_after=timedelta(0),
        suspect=True,
        code=LOST.code,
        message=LOST.message,
    )


def released(task: TaskClaim) -> TaskOutcome:
    """Give a task back unspent: in the state before the claim, due now."""
    if task.retry_count == 0:
        return _ended(task, TaskStatus.PENDING)
    # A claimed task with a count came from the retry pool, and the claim had added one.
    return _ended(
        task, TaskStatus.FAILED, retry_count=task.retry_count - 1, retry_after=timedelta(0), code=None
    )


def postponed(task: TaskClaim, failure: Failure, wait: timedelta) -> TaskOutcome:
    """Try again later, without spending a retry: a service needed by the task is down."""
    if task.max_retries == 0:
        return failed(task, failure)
    return _ended(
        task,
        TaskStatus.FAILED,
        # A claim of a failed task adds one.
        retry_count=max(task.retry_count - 1, 0),
        retry_after=wait,
        code=failure.code,
        message=failure.message,
    )


def skipped(task: TaskClaim, reason: str) -> TaskOutcome:
    """Not wanted or not possible here."""
    return _ended(task, TaskStatus.SKIPPED, message=reason)


def _ended(task: TaskClaim, status: TaskStatus, **what: object) -> TaskOutcome:
    return TaskOutcome(
        lane=task.lane,
        task_id=task.task_id,
        claim_number=task.claim_number,
        status=status,
        **what,  # type: ignore[arg-type]
    )
