"""Runs of schedules: adds the jobs of due schedules.

Every worker and server does this; there is no leader. The rules are in ``penstock.schedule``.
"""

from __future__ import annotations

import logging
from datetime import datetime

import msgspec

from penstock import clock, items
from penstock.end_hooks import hook_jobs
from penstock.errors import DuplicateId, InvalidSchedule
from penstock.job import Job, JobQuery, Status
from penstock.queue.protocol import Queue
from penstock.schedule import Schedule, due, skipped
from penstock.vocabulary import how_many

EVERY_S = 1.0
AT_ONCE = 100
OPEN = frozenset({Status.PENDING, Status.IN_PROGRESS})
DELETES_AT_ONCE = 500

log = logging.getLogger("penstock.schedules")


class ScheduleRunner:
    """Adds jobs of due schedules. A run already added by another host is not added again."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    def run(self, now: datetime | None = None) -> bool:
        """Run the due schedules, a bounded number; True if there may be more."""
        if not self._queue.due_schedules(now=now, limit=1):
            return False
        deleted = self._deleted_tenants()
        # Only now: a delete that was done before has dropped its schedules.
        found = self._queue.due_schedules(now=now, limit=AT_ONCE)
        moment = now or self._queue.now()
        for schedule in found:
            asked_at = deleted.get(schedule.tenant_id)
            self._run(schedule, moment, ends=asked_at is not None and schedule.created_at <= asked_at)
        return len(found) == AT_ONCE

    def _deleted_tenants(self) -> dict[str, datetime]:
        """Tenants whose delete waits or runs, with the time of the newest request.

        The delete drops the schedules from before its request. Jobs that they add until then would look like
        later requests, and bring the documents back.
        """
        query = JobQuery(item_type="delete_tenant", statuses=OPEN, limit=DELETES_AT_ONCE)
        asked: dict[str, datetime] = {}
        while page := self._queue.find(query):
            for job in page:
                tenant_id, asked_at = job.payload["tenant_id_to_delete"], _newest_request(job)
                asked[tenant_id] = max(asked_at, asked.get(tenant_id, asked_at))
            if len(page) < query.limit:
                break
            query = msgspec.structs.replace(query, after=page[-1].queue_id)
        return asked

    def _run(self, schedule: Schedule, now: datetime, *, ends: bool = False) -> None:
        try:
            result = due(schedule, now)
        except InvalidSchedule as error:
            # This host has no such time zone; another one may have it.
            log.warning("schedule %s cannot run here: %s", schedule.name, error)
            return
        if result is None:
            return  # the clock went back meanwhile
        if ends:
            if self._queue.put_schedule(skipped(schedule, now), replaces=schedule.version):
                log.warning("schedule %s did not run: its tenant is being deleted", schedule.name)
            return
        for job in result.jobs:
            try:
                self._queue.add([job, *hook_jobs(job, clock.new_ids)], now=now)
            except DuplicateId:
                continue  # added by another host, or before a crash
        if self._queue.put_schedule(result.after, replaces=schedule.version):
            self._log(schedule, len(result.jobs), result.after.skipped - schedule.skipped)

    def _log(self, schedule: Schedule, jobs: int, skipped: int) -> None:
        if jobs:
            log.info("schedule %s ran: %s", schedule.name, schedule.summary)
        if skipped:
            runs = how_many(skipped, "run")
            log.warning(
                "schedule %s: %s from %s on missed and skipped", schedule.name, runs, schedule.next_at
            )


def _newest_request(job: Job) -> datetime:
    asked_at = items.asked_at(job.metadata) or job.created_at
    if job.followup_json is None:
        return asked_at
    followup = msgspec.json.decode(job.followup_json)
    return max(asked_at, items.asked_at(followup.get("metadata") or "{}") or asked_at)
