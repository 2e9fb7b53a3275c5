"""Ends waiting jobs in whose tree nothing has ended for as long as their timeout."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from penstock import lifecycle
from penstock.job import Job, JobQuery, Status
from penstock.queue.protocol import Queue
from penstock.worker import job_pages

IN_PROGRESS = frozenset({Status.IN_PROGRESS})

log = logging.getLogger("penstock.upkeep")


class OverdueEnder:
    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._rounds = job_pages.JobPages(queue, JobQuery(statuses=IN_PROGRESS))

    def step(self) -> bool:
        page, more = self._rounds.next_page()
        now, paused = self._queue.now(), self._queue.paused()
        overdue = [
            job
            for job in page
            if job.waiting
            and _silent(job, job.timeout_s, now)
            and not any(scope.covers(job.tenant_id, job.collection) for scope in paused)
            and not self._moves_below(job, job.timeout_s, now)
        ]
        for job in overdue:
            log.warning("job %s waited %d s without any part of it ending", job.queue_id, job.timeout_s)
        if overdue:
            self._queue.settle([lifecycle.timed_out(job) for job in overdue])
        return more

    def _moves_below(self, job: Job, timeout_s: int, now: datetime) -> bool:
        """A child that ends touches its parent's row only, so a tree is asked level by level."""
        below = job_pages.every(self._queue, JobQuery(statuses=IN_PROGRESS, parent_id=job.queue_id))
        return any(
            not _silent(child, timeout_s, now) or self._moves_below(child, timeout_s, now)
            for child in below
            if child.waiting
        )


def _silent(job: Job, timeout_s: int, now: datetime) -> bool:
    return now - job.updated_at > timedelta(seconds=timeout_s)
