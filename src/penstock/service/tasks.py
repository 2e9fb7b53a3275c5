"""Function jobs as a task queue for agents: the same rows with its columns and statuses.

``docs/guides/functions.md`` lists the differences between the two.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from penstock import clock, lifecycle, vocabulary
from penstock.errors import (
    InvalidRequest,
    InvalidTime,
    InvalidTransition,
    LeaseLost,
    LiveTwin,
    TaskNotFound,
    UnknownEntity,
    UnknownStatus,
)
from penstock.job import ClaimRequest, Job, JobQuery, Settlement, Status

if TYPE_CHECKING:
    from penstock.service.call_fields import Call
    from penstock.service.functions import FunctionJobs

MAX_RETRIES = 3
STALE_MESSAGE = "Task timed out and was reset"
PAGE = 1_000
BY_HAND = "by-hand"
"""Worker id of tasks started by ``update_task_status``."""

TRANSITIONS: Mapping[str, tuple[str, ...]] = {
    "PENDING": ("IN_PROGRESS",),
    "IN_PROGRESS": ("COMPLETED", "FAILED"),
    "FAILED": ("PENDING",),
    "COMPLETED": (),
}
"""Transitions open to callers. A worker may also release a task, from IN_PROGRESS to PENDING."""

_FIELDS = {"entity_type", "entity_id", "function_name", "payload", "max_retries"}


class Tasks:
    """The interface of a function task queue over an application's queue."""

    def __init__(self, app: FunctionJobs) -> None:
        self._app = app
        self._queue = app.queue

    # Checks; each returns True or False.

    def validate_function_name(self, function_name: str) -> bool:
        return self._app.functions.find(function_name) is not None

    def validate_entity_exists(self, entity_type: str, entity_id: str) -> bool:
        """Tell whether a task may name this entity; any, while no entity type is registered."""
        if not all(isinstance(part, str) and part for part in (entity_type, entity_id)):
            return False
        try:
            self._app.functions.check_entity(entity_type, entity_id)
        except UnknownEntity:
            return False
        return True

    def validate_task_payload(self, function_name: str, payload: Mapping[str, Any] | None) -> bool:
        """Tell whether the payload has the required fields; False for an unknown function."""
        function = self._app.functions.find(function_name)
        if function is None or not isinstance(payload, Mapping | None):
            return False
        return not function.missing(payload or {})

    def validate_status_transition(self, current_status: str, new_status: str) -> bool:
        try:
            return _word(new_status) in TRANSITIONS[_word(current_status)]
        except UnknownStatus:
            return False

    def should_retry_task(self, task: Mapping[str, Any]) -> bool:
        """Tell whether a task returned by ``get_task`` failed with retries left."""
        left = task.get("retry_count", 0) < task.get("max_retries", MAX_RETRIES)
        return task.get("status") == "FAILED" and left

    # Submission.

    def enqueue_task(
        self,
        entity_type: str,
        entity_id: str,
        function_name: str,
        payload: Mapping[str, Any] | None = None,
        max_retries: int | None = None,
        *,
        task_id: str | None = None,
    ) -> str:
        """Queue one task and return the task id. ``max_retries`` defaults to the function's own, else 3."""
        call = self._call(entity_type, entity_id, function_name, payload, max_retries)
        if task_id is not None:
            call["job_id"] = task_id
        return self._app.call_many([call])[0].job_id

    def enqueue_multiple_tasks(self, tasks: Sequence[Mapping[str, Any]]) -> list[str]:
        """Queue many tasks in one transaction: all, or none. Each has the arguments of ``enqueue_task``."""
        calls = [self._call(**_fields(task)) for task in tasks]
        return [receipt.job_id for receipt in self._app.call_many(calls)]

    def _call(
        self,
        entity_type: str,
        entity_id: str,
        function_name: str,
        payload: Mapping[str, Any] | None = None,
        max_retries: int | None = None,
    ) -> Call:
        function = self._app.functions.find(function_name)
        own = function.max_retries if function else None
        retries = max_retries if max_retries is not None else own if own is not None else MAX_RETRIES
        return {
            "name": function_name,
            "payload": payload,
            "entity": (entity_type, entity_id),
            "max_retries": retries,
            "job_id": clock.new_task_id(),
        }

    # Queries.

    def get_task(self, task_id: str) -> dict[str, Any]:
        """One task as a row of ``task_queue``. Raises ``TaskNotFound``, a ``ValueError``."""
        return as_task(self._task(task_id))

    def get_pending_tasks(self, limit: int = 100) -> list[dict[str, Any]]:
        """Tasks ready to start, oldest first: one for each entity, none for a busy entity.

        Of more than ``limit``, those that workers would claim first. An entity is also busy while one of its
        tasks waits for a retry. Workers do not use this: they claim.
        """
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            raise InvalidRequest(f"limit: expected a whole number from 1, got {str(limit)[:80]!r}")
        found = self._queue.upcoming(item_type="function", limit=limit)
        return [as_task(job) for job in sorted(found, key=lambda job: (job.created_at, job.turn))]

    def _task(self, task_id: str) -> Job:
        job = self._queue.get(task_id) if isinstance(task_id, str) else None
        if job is None or job.item_type != "function":
            raise TaskNotFound(f"Task {str(task_id)[:80]!a} not found")
        return job

    def _tasks(self, *statuses: Status) -> Iterator[Job]:
        query = JobQuery(item_type="function", statuses=frozenset(statuses), limit=PAGE)
        while found := self._queue.find(query):
            yield from found
            query = msgspec.structs.replace(query, after=found[-1].queue_id)

    # Changes.

    def update_task_status(self, task_id: str, new_status: str, error_message: str | None = None) -> None:
        """Change the status of a task by hand: start, end, or retry.

        Raises ``TaskNotFound`` or ``InvalidTransition``, both ``ValueError``. A task started here belongs to
        the caller until its timeout: no worker claims it, and other tasks of its entity wait. Of two callers
        that start one task, one is refused. FAILED spends a retry. If a task is ended here, the result of its
        worker is refused.
        """
        job = self._task(task_id)
        current, new = _word(job.status), _word(new_status)
        if not self.validate_status_transition(current, new):
            raise InvalidTransition(f"Invalid status transition: {current} → {new}")
        if new == "IN_PROGRESS":
            self._start(job)
        elif new == "PENDING":
            self._put_back(task_id)
        elif new == "COMPLETED":
            self._settle(lifecycle.done(job))
        elif isinstance(error_message, str) and error_message:
            self._settle(lifecycle.failed_by_hand(job, "ERR_UNKNOWN", error_message))
        else:
            raise InvalidRequest("error_message: a text is required for the status FAILED")

    def _start(self, job: Job) -> None:
        lease = timedelta(seconds=job.timeout_s)
        paused = any(scope.covers(job.tenant_id, job.collection) for scope in self._queue.paused())
        if paused or self._queue.start(job.queue_id, ClaimRequest(BY_HAND, lease=lease)) is None:
            why = "is paused" if paused else "has changed, or another task of its entity is in progress"
            raise InvalidTransition(f"Task {job.queue_id} {why}")

    def _settle(self, settlement: Settlement) -> None:
        if self._queue.settle([settlement]) == [None]:
            raise LeaseLost(f"Task {settlement.queue_id} has changed")

    def _put_back(self, task_id: str) -> None:
        (answer,) = self._queue.requeue([task_id], keep_retries=True)
        if answer.twin is not None:
            raise LiveTwin(f"job {answer.twin} with the same key is live", twin=answer.twin)
        if answer.refused:
            raise InvalidTransition(f"Task {task_id} has changed")

    def enqueue_retry(self, task_id: str) -> bool:
        """Retry a failed task; spent retries stay spent. Returns False when no retry is allowed."""
        try:
            if not self.should_retry_task(self.get_task(task_id)):
                return False
            self._put_back(task_id)
        except (TaskNotFound, InvalidTransition, LiveTwin):
            return False
        return True

    def detect_stale_tasks(self, threshold_minutes: float = 30) -> list[str]:
        """Ids of tasks in progress without any update for so long; their workers may be alive."""
        silent_since = self._queue.now() - _duration("threshold_minutes", minutes=threshold_minutes)
        running = self._tasks(Status.IN_PROGRESS)
        return [job.queue_id for job in running if job.updated_at < silent_since]

    def cleanup_stale_tasks(self, stale_task_ids: Sequence[str]) -> int:
        """Take tasks from their workers and make them PENDING, no retry spent; returns their number."""
        found = [self._queue.get(task_id) for task_id in stale_task_ids if isinstance(task_id, str)]
        stale = [
            lifecycle.released(job, STALE_MESSAGE, code="ERR_STALE")
            for job in found
            if job is not None and job.item_type == "function" and job.lease_until is not None
        ]
        return sum(status is not None for status in self._queue.settle(stale)) if stale else 0

    def cleanup_completed_tasks(self, retention_days: float = 7) -> int:
        """Remove tasks which ended longer ago, and return their number. Other jobs stay."""
        before = self._queue.now() - _duration("retention_days", days=retention_days)
        ends = dict.fromkeys((Status.DONE, Status.FAILED, Status.CANCELLED), before)
        removed = 0
        while gone := self._queue.prune(ends, item_type="function"):
            removed += gone
        return removed


def as_task(job: Job) -> dict[str, Any]:
    """A function job in the columns of ``task_queue``, and no others."""
    payload = job.payload
    return {
        "task_id": job.queue_id,
        "entity_type": payload.get("entity_type"),
        "entity_id": payload.get("entity_id"),
        "function_name": payload["function_name"],
        "payload": payload.get("payload"),
        "status": vocabulary.speak(job.status, "function"),
        "error_message": job.error_message,
        "retry_count": job.retry_count,
        "max_retries": job.max_retries,
        "created_at": job.created_at,
        "updated_at": job.updated_at,
    }


def _word(status: str) -> str:
    return vocabulary.speak(vocabulary.understand(status), "function")


def _fields(task: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(task, Mapping):
        raise InvalidRequest(f"a task is a mapping of fields, got {type(task).__name__}")
    missing = sorted({"entity_type", "entity_id", "function_name"} - set(task))
    unknown = sorted(map(str, set(task) - _FIELDS))
    if missing or unknown:
        what = f"missing field {missing[0]!r}" if missing else f"unknown field {unknown[0]!r}"
        raise InvalidRequest(f"task: {what}; known are {', '.join(sorted(_FIELDS))}")
    return dict(task)


def _duration(name: str, **amount: float) -> timedelta:
    try:
        duration = timedelta(**amount)
    except (TypeError, ValueError, OverflowError):
        duration = timedelta(-1)
    if not timedelta(0) <= duration <= timedelta(days=36_500):
        raise InvalidTime(
            f"{name}: expected 0 or more, got {str(*amount.values())[:80]!r}", remedy="Use 0 for all."
        )
    return duration
