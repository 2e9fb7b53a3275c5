"""Runs of schedules: adds the jobs of due schedules.

Every worker and server does this; there is no leader. The rules are in ``penstock.schedule``.
"""

from __future__ import annotations

import logging
from datetime import datetime

from penstock import clock
from penstock.end_hooks import hook_jobs
from penstock.errors import DuplicateId, InvalidSchedule
from penstock.queue.protocol import Queue
from penstock.schedule import Schedule, due

EVERY_S = 1.0
AT_ONCE = 100

log = logging.getLogger("penstock.schedules")


class ScheduleRunner:
    """Adds jobs of due schedules. A run already added by another host is not added again."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    def run(self, now: datetime | None = None) -> bool:
        """Run the due schedules, a bounded number; True if there may be more."""
        found = self._queue.due_schedules(now=now, limit=AT_ONCE)
        moment = now or (self._queue.now() if found else None)
        for schedule in found:
            assert moment is not None
            self._run(schedule, moment)
        return len(found) == AT_ONCE

    def _run(self, schedule: Schedule, now: datetime) -> None:
        try:
            result = due(schedule, now)
        except InvalidSchedule as error:
            # This host has no such time zone; another one may have it.
            log.warning("schedule %s cannot run here: %s", schedule.name, error)
            return
        if result is None:
            return  # the clock went back meanwhile
        for job in result.jobs:
            try:
                self._queue.add([job, *hook_jobs(job, clock.new_ids)], now=now)
            except DuplicateId:
                continue  # added by another host, or before a crash
        if self._queue.put_schedule(result.after, replaces=schedule.version):
            self._log(schedule, len(result.jobs))

    def _log(self, schedule: Schedule, jobs: int) -> None:
        if jobs:
            log.info("schedule %s ran: %s", schedule.name, schedule.summary)
        else:
            log.warning(
                "schedule %s: the run of %s was missed and is skipped", schedule.name, schedule.next_at
            )
