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
AGAIN_S, LONGEST_S = 0.05, 5.0
"""Time until the next look at a job, for each job before it, and the longest one."""
SHARE = 0.1
"""A share of the time for which a job before it has run is added: a long job is looked at seldom, and its end
is noticed soon as compared with its length."""
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
            return [_turn(queue, context) for context in contexts]


def _turn(queue: Queue, context: Context) -> Later | None:
    """When to look at the job again; None: it is its turn."""
    own = queue.get(context.job_id) if context.claim.parent_id is None else None
    if own is None:
        return None
    running = [
        job
        for job in _jobs_for_paths(queue, own, Status.IN_PROGRESS)
        if job.queue_id != own.queue_id and _start(job) < _start(own)
    ]
    place = -own.priority, own.queue_id
    waiting = filter(_waits_for_its_turn, _jobs_for_paths(queue, own, Status.PENDING))
    before = len(running) + sum((-job.priority, job.queue_id) < place for job in waiting)
    if not before:
        return None
    now = queue.now()
    longest_s = max(((now - (job.started_at or now)).total_seconds() for job in running), default=0.0)
    seconds = AGAIN_S * before + SHARE * max(longest_s, 0.0)
    return Later(REASON, timedelta(seconds=min(seconds, LONGEST_S)))


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
