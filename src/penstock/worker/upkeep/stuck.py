"""Warns of jobs whose worker lives but has said nothing for half an hour: worth a person's look."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from penstock import clock
from penstock.job import Job, JobQuery, Status
from penstock.queue.protocol import Queue
from penstock.worker.job_pages import JobPages

STUCK_AFTER = timedelta(minutes=30)

log = logging.getLogger("penstock.upkeep")


class StuckWarner:
    def __init__(self, queue: Queue, *, after: timedelta = STUCK_AFTER) -> None:
        self._queue = queue
        self._rounds = JobPages(queue, JobQuery(statuses=frozenset({Status.IN_PROGRESS})))
        self._after = after
        self._warned: dict[str, datetime] = {}
        self._seen: dict[str, datetime] = {}

    @property
    def stuck(self) -> int:
        return len(self._warned)

    def step(self) -> bool:
        page, more = self._rounds.next_page()
        now = self._queue.now()
        for job in page:
            if job.lease_until is not None and now - job.updated_at > self._after:
                self._warn_once(job)
        if not more:
            # What is no longer stuck is forgotten, and warned of anew should it be stuck again.
            self._warned, self._seen = self._seen, {}
        return more

    def _warn_once(self, job: Job) -> None:
        self._seen[job.queue_id] = job.updated_at
        if self._warned.get(job.queue_id) != job.updated_at:
            log.warning(
                "job %s (%s/%s, worker %s) shows no progress since %s",
                job.queue_id,
                job.item_type,
                job.op,
                job.worker_id,
                clock.format_time(job.updated_at),
            )
