"""Results with a time to live: upkeep removes them some time after the end of their job. The job stays."""

from __future__ import annotations

from datetime import datetime, timedelta

from penstock.job import Job

LONGEST_TTL_S = 365 * 86_400


def kept_until(job: Job) -> datetime | None:
    """The time at which the result of an ended job is removed; None: it is kept with the job."""
    if job.result_ttl_s is None or job.finished_at is None:
        return None
    return job.finished_at + timedelta(seconds=job.result_ttl_s)


def expired(job: Job, now: datetime) -> bool:
    """Check whether the time of a result is over. Upkeep may not have removed it yet."""
    until = kept_until(job)
    return until is not None and until <= now


def begins_to_expire(before: Job | None, after: Job) -> bool:
    """Check whether a new or changed row has a result to remove later; ``before`` None: the row is new."""
    if after.result_ttl_s is None or after.finished_at is None or after.result_json is None:
        return False
    return before is None or before.finished_at != after.finished_at
