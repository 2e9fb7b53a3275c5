"""Turns of a serial worker: one job for paths at a time in each collection, in order.

A job that was submitted as a serial one has a lock, and no worker claims it before its turn. The worker gives
turns to all others as well: it releases a job while an earlier one runs, or waits in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from penstock import items
from penstock.handlers.context import Context
from penstock.handlers.registry import BatchHandler, Handler, Later, Registry
from penstock.handlers.tenant_jobs import OpenQueue
from penstock.job import Held, Job, JobQuery, Status
from penstock.queue.protocol import Queue

REASON = "another job for paths of this collection runs before it, and the worker is serial"
AGAIN_S, LONGEST_S = 1, 5
"""Time until the next look at a job: longer after many looks, so that a long line of jobs costs little."""
LOOKED_AT = 500
"""Jobs of a collection that are looked at; those behind them wait in any case."""


def give_turns(registry: Registry, open_queue: OpenQueue) -> None:
    """Let the handlers of jobs for paths run one job at a time in each collection."""
    registry.wrap(items.PATH_TYPES, SerialTurns(open_queue).around)


class SerialTurns:
    """Lets one job for paths of a collection run at a time; others are released for a while."""

    def __init__(self, open_queue: OpenQueue) -> None:
        self._open_queue = open_queue

    def around(self, handler: Handler | BatchHandler, batch: int) -> Handler | BatchHandler:
        """The handler, called for jobs whose turn it is."""
        return self._batch(handler) if batch else self._single(handler)

    def _single(self, handler: Callable[..., Any]) -> Handler:
        return lambda context: self._later([context])[0] or handler(context)

    def _batch(self, handler: Callable[..., Any]) -> BatchHandler:
        def run(contexts: Sequence[Context]) -> Sequence[Any]:
            later = self._later(contexts)
            ready = [context for context, wait in zip(contexts, later, strict=True) if wait is None]
            answers = iter(handler(ready) if ready else ())
            return [next(answers) if wait is None else wait for wait in later]

        return run

    def _later(self, contexts: Sequence[Context]) -> list[Later | None]:
        # Children have their turn with their parent.
        if all(context.claim.parent_id is not None for context in contexts):
            return [None] * len(contexts)
        with self._open_queue() as queue:
            return [None if _is_next(queue, context) else _again(context) for context in contexts]


def _again(context: Context) -> Later:
    return Later(REASON, timedelta(seconds=min(AGAIN_S + context.claim.claim_number // 10, LONGEST_S)))


def _is_next(queue: Queue, context: Context) -> bool:
    own = queue.get(context.job_id) if context.claim.parent_id is None else None
    if own is None:
        return True
    running = _jobs_for_paths(queue, own, Status.IN_PROGRESS)
    if any(_start(job) < _start(own) for job in running if job.queue_id != own.queue_id):
        return False
    waiting = filter(_waits_for_its_turn, _jobs_for_paths(queue, own, Status.PENDING))
    return not any((-job.priority, job.queue_id) < (-own.priority, own.queue_id) for job in waiting)


def _jobs_for_paths(queue: Queue, own: Job, status: Status) -> list[Job]:
    """The first jobs of the same collection with this status."""
    found = queue.find(
        JobQuery(
            statuses=frozenset([status]),
            tenant_id=own.tenant_id,
            collection=own.collection,
            top_level=True,
            by_priority=True,
            limit=LOOKED_AT,
        )
    )
    return [job for job in found if job.item_type in items.PATH_TYPES]


def _start(job: Job) -> tuple[float, str]:
    return job.started_at.timestamp() if job.started_at is not None else 0.0, job.queue_id


def _waits_for_its_turn(job: Job) -> bool:
    """True for a job that this rule released; those that are held for other reasons are passed."""
    return job.held is Held.TIME and job.error_message == REASON
