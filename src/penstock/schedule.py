"""Schedules: values, and the rules for due runs.

Pure. A schedule holds the next time at which it runs. A worker that finds it due adds the jobs under ids made
of the schedule and the time, then moves the schedule on if it is still the same version. So a job is added
once, however many hosts try, and after a crash between the two steps the second one is repeated.
"""

from __future__ import annotations

import enum
from datetime import datetime, timedelta

import msgspec

from penstock import cron, items
from penstock.job import NewJob

LATE = timedelta(minutes=1)
"""A run later than this is a missed one."""
MOST_CAUGHT_UP = 100
"""Missed runs that ``run-all`` catches up, the oldest first."""
SCHEDULE = "schedule"
"""In a job's metadata: the name of the schedule that added it."""
SCHEDULED_FOR = "scheduled_for"
"""In a job's metadata: the time that the schedule named."""


class Missed(enum.StrEnum):
    """Rule for runs that were missed, because no worker was there."""

    SKIP = "skip"
    RUN_ONCE = "run-once"
    RUN_ALL = "run-all"


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """A job that is added by the clock. ``version`` grows with every change."""

    tenant_id: str
    name: str
    schedule_id: str
    timing: str
    zone: str
    job: NewJob
    """The job to add; its id, key and times are replaced."""
    summary: str
    """Short description of the job."""
    missed: Missed = Missed.RUN_ONCE
    start_at: datetime
    """Time from which intervals are counted."""
    next_at: datetime | None
    """Time of the next run; None while paused."""
    paused: bool = False
    created_at: datetime
    last_at: datetime | None = None
    """Time of the last run, as the schedule named it."""
    last_job_id: str | None = None
    runs: int = 0
    skipped: int = 0
    """Missed runs that were not caught up: those of ``skip``, and all but one of ``run-once``."""
    version: int = 1

    def next_after(self, moment: datetime) -> datetime | None:
        timing, zone = cron.parse(self.timing), cron.zone_of(self.zone)
        return cron.next_after(timing, moment, zone, start=self.start_at)

    def times_until(self, now: datetime) -> int:
        """Number of runs that are due."""
        if self.next_at is None or self.next_at > now:
            return 0
        timing, zone = cron.parse(self.timing), cron.zone_of(self.zone)
        return cron.times_until(timing, self.next_at, now, zone, start=self.start_at)

    def upcoming(self, moment: datetime, count: int) -> list[datetime]:
        """The next times, of a paused schedule none."""
        found: list[datetime] = []
        current = self.next_at
        while current is not None and len(found) < count:
            found.append(current)
            current = self.next_after(max(current, moment) if not found[1:] else current)
        return found


class Due(msgspec.Struct, frozen=True):
    """The jobs of a due schedule, and the schedule after it."""

    jobs: list[NewJob]
    after: Schedule


def due(schedule: Schedule, now: datetime) -> Due | None:
    """Return the jobs that a schedule adds now; None before its time."""
    first = schedule.next_at
    if first is None or first > now:
        return None
    times = [first]
    if schedule.missed is Missed.SKIP and now - first > LATE:
        times = []
    elif schedule.missed is Missed.RUN_ALL:
        times = _all_until(schedule, now)
    jobs = [job_at(schedule, moment) for moment in times]
    after = msgspec.structs.replace(
        schedule,
        next_at=schedule.next_after(now),
        last_at=times[-1] if times else schedule.last_at,
        last_job_id=jobs[-1].queue_id if jobs else schedule.last_job_id,
        runs=schedule.runs + len(times),
        skipped=schedule.skipped + max(schedule.times_until(now) - len(times), 0),
        version=schedule.version + 1,
    )
    return Due(jobs, after)


def skipped(schedule: Schedule, now: datetime) -> Schedule:
    """The schedule moved on to its next time without a run."""
    return msgspec.structs.replace(
        schedule,
        next_at=schedule.next_after(now),
        skipped=schedule.skipped + max(schedule.times_until(now), 1),
        version=schedule.version + 1,
    )


def _all_until(schedule: Schedule, now: datetime) -> list[datetime]:
    times: list[datetime] = []
    current = schedule.next_at
    while current is not None and current <= now and len(times) < MOST_CAUGHT_UP:
        times.append(current)
        current = schedule.next_after(current)
    return times


def job_at(schedule: Schedule, moment: datetime, *, queue_id: str | None = None) -> NewJob:
    """The job of a schedule for one of its times, or (``queue_id``) for a run by hand."""
    queue_id = queue_id or f"sched-{schedule.schedule_id}-{moment.timestamp():.0f}"
    new, metadata = schedule.job, msgspec.json.decode(schedule.job.metadata)
    metadata |= {SCHEDULE: schedule.name, SCHEDULED_FOR: moment.isoformat().replace("+00:00", "Z")}
    if items.ASKED_AT in metadata:
        metadata[items.ASKED_AT] = metadata[SCHEDULED_FOR]
    key = new.idempotency_key
    if new.item_type == "function" and not new.dedupe:
        key = items.function_key(new.collection, queue_id)
    return msgspec.structs.replace(
        new, queue_id=queue_id, idempotency_key=key, metadata=msgspec.json.encode(metadata).decode()
    )
