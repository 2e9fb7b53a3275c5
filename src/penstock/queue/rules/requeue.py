"""Requeue failed and cancelled jobs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from penstock import transitions
from penstock.job import CHILDREN, SAME_METADATA, Changes, Job, RequeueResult, Status
from penstock.queue.rules.addition import with_position
from penstock.queue.rules.dependencies import requeue_changes
from penstock.queue.rules.rows import Rows

RETRYABLE = frozenset({Status.FAILED, Status.CANCELLED})


def requeue(
    rows: Rows,
    ids: list[str],
    now: datetime,
    *,
    keep_retries: bool = False,
    metadata: Mapping[str, str] = SAME_METADATA,
) -> tuple[list[RequeueResult], list[str]]:
    """Requeue jobs. Returns a result for each, and the parents with children to requeue."""
    answers, parents = [], []
    # Before any row is locked: a resume locks pauses first, too.
    rows.pauses()
    rows.lock_rows(ids)
    for queue_id in ids:
        answer, job = _requeue_one(rows, queue_id, now, keep_retries, metadata)
        answers.append(answer)
        if job is not None and job.status is Status.IN_PROGRESS:
            parents.append(queue_id)
    return answers, parents


def return_children(rows: Rows, parent_id: str, now: datetime, limit: int) -> tuple[bool, list[str]]:
    """Requeue one batch of children. Returns whether the batch was the last, and parents with children to
    requeue.

    Refused children would be found again. If all of a batch are refused, reconcile continues later.
    """
    parent = rows.peek(parent_id)
    if parent is None or parent.ended:
        return True, []
    batch = rows.children(parent, RETRYABLE, limit)
    answers, parents = requeue(rows, [child.queue_id for child in batch], now)
    return len(batch) < limit or all(answer.refused for answer in answers), parents


def _requeue_one(
    rows: Rows, queue_id: str, now: datetime, keep_retries: bool, metadata: Mapping[str, str]
) -> tuple[RequeueResult, Job | None]:
    job = rows.get(queue_id)
    if job is None or job.status not in RETRYABLE:
        status = job.status if job else None
        return RequeueResult(queue_id, status, status), None
    was_waiting = job.waiting_for == CHILDREN and (
        job.children_open > 0 or bool(rows.children(job, RETRYABLE, 1))
    )
    obstacle = _obstacle(rows, job, reopened=was_waiting)
    if obstacle is not None:
        return RequeueResult(queue_id, job.status, job.status, obstacle), None
    if was_waiting:
        changes = transitions.reopened(job, now)
    else:
        changes = transitions.requeued(job, now, keep_retries=keep_retries)
        changes |= requeue_changes(rows, job)
    if job.metadata in metadata:
        changes["metadata"] = metadata[job.metadata]
    after = rows.change(job, with_position(rows, job, changes))
    _reopen_parent(rows, job, now)
    return RequeueResult(queue_id, job.status, after.status), after


def _obstacle(rows: Rows, job: Job, *, reopened: bool) -> str | None:
    """Return the id of a live row in the way of a requeue, or None.

    A row that holds the lock of a row to be re-opened: the job itself (``reopened``) or an ancestor. Or a row
    with the key of the job, or of the root of the failed tree that it would re-open.
    """
    top = job
    while True:
        holder = rows.lock_holder(top.lock_key) if reopened and top.lock_key is not None else None
        if holder is not None:
            return holder
        if top.parent_id is None:
            break
        parent = rows.get(top.parent_id)
        if parent is None or not _reopens(parent, top):
            return None
        top, reopened = parent, True
    live = rows.live(top.tenant_id, top.branch, top.idempotency_key) if top.dedupe else None
    return live.queue_id if live else None


def _reopens(parent: Job, child: Job) -> bool:
    return parent.status is Status.FAILED and parent.run == child.parent_run


def _reopen_parent(rows: Rows, child: Job, now: datetime) -> None:
    """Count the child as open again, up to the root."""
    parent = rows.get(child.parent_id) if child.parent_id is not None else None
    if parent is None or parent.run != child.parent_run:
        return
    changes: Changes = transitions.reopened(parent, now) if _reopens(parent, child) else {"updated_at": now}
    changes["children_open"] = parent.children_open + 1
    if child.status is Status.FAILED:
        changes["children_failed"] = parent.children_failed - 1
    rows.change(parent, changes)
    if _reopens(parent, child):
        _reopen_parent(rows, parent, now)
