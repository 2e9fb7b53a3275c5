"""Jobs and schedules of a deleted tenant: those from before the delete end, and leave no trace."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import datetime
from typing import TypeAlias

import msgspec

from penstock import clock, items
from penstock.handlers.context import Context
from penstock.job import Job, JobQuery
from penstock.named_tuple import NamedTuple
from penstock.queue.protocol import Queue

OpenQueue: TypeAlias = Callable[[], AbstractContextManager[Queue]]

BATCH_JOBS = 500
"""Jobs read and removed per step, to bound the transaction."""
STOP_TIMEOUT_S = 30.0
"""Time for running jobs to stop. Then they are removed while they run; the tombstone of the tenant refuses
their later writes."""
POLL_S = 0.2


class Purged(NamedTuple):
    jobs: int
    kept: bool
    """True if the tenant has jobs that were requested after the delete."""


class _Pass(NamedTuple):
    """Result of one pass over all jobs of the tenant."""

    removed: int
    running: int
    missed: int
    """Jobs that changed between reading and removal."""
    kept: bool


def purge_jobs(queue: Queue, tenant_id: str, context: Context) -> Purged:
    """Remove all schedules and jobs of a tenant requested before the delete, except the delete itself.

    Jobs without a worker are removed at once. Running jobs are cancelled, and removed when they have stopped.
    """
    # Schedules first: they would add jobs that look like later requests, and bring the documents back.
    _drop_schedules(queue, tenant_id, context.asked_at)
    deadline, pause, removed = clock.elapsed_s() + STOP_TIMEOUT_S, threading.Event(), 0
    while True:
        waiting = clock.elapsed_s() < deadline
        found = _one_pass(queue, tenant_id, context, waiting=waiting)
        removed += found.removed
        if not found.running and not found.missed:
            return Purged(removed, found.kept)
        context.progress(
            removed, None, f"waiting for {found.running} running jobs of the tenant", jobs=removed
        )
        if waiting:
            pause.wait(POLL_S)


def _drop_schedules(queue: Queue, tenant_id: str, asked_at: datetime) -> None:
    for schedule in queue.schedules(tenant_id=tenant_id):
        if schedule.created_at <= asked_at:
            queue.drop_schedule(tenant_id, schedule.name)


def _one_pass(queue: Queue, tenant_id: str, context: Context, *, waiting: bool) -> _Pass:
    removed, running, missed, kept = 0, 0, 0, False
    for page in _pages(queue, JobQuery(tenant_id=tenant_id, limit=BATCH_JOBS)):
        earlier = [job for job in page if _is_earlier(job, context.asked_at)]
        kept = kept or len(earlier) < len(page)
        own = [job for job in earlier if job.queue_id != context.job_id]
        busy = [job for job in own if job.lease_until is not None] if waiting else []
        idle = [job for job in own if not waiting or job.lease_until is None]
        if busy:
            queue.cancel([job.queue_id for job in busy])
        went = queue.purge(idle) if idle else 0
        removed, running, missed = removed + went, running + len(busy), missed + len(idle) - went
        context.checkpoint()
    return _Pass(removed, running, missed, kept)


def _pages(queue: Queue, query: JobQuery) -> Iterator[list[Job]]:
    while page := queue.find(query):
        yield page
        if len(page) < query.limit:
            return
        query = msgspec.structs.replace(query, after=page[-1].queue_id)


def _is_earlier(job: Job, asked_at: datetime) -> bool:
    """Check whether all requests behind a job came before the delete."""
    times = [items.asked_at(job.metadata) or job.created_at]
    if job.followup_json is not None:
        followup = msgspec.json.decode(job.followup_json)
        times.append(items.asked_at(followup.get("metadata") or "{}") or asked_at)
    return max(times) <= asked_at
