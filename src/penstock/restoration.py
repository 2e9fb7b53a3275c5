"""Rows of a backup as a restored store gets them."""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from penstock.queue.job import Job
from penstock.queue.limits import gated
from penstock.queue.transitions import released, settled

RESTORED_NOTE = "restored from a backup"
RESTORED_STEP = 1_000
"""Added to claim numbers by a restore: more claims than a job gets between a backup and its restore."""


def restored(job: Job, now: datetime) -> Job:
    """The row of a job in a store restored from a backup: claims of the backed up store are released.

    Claim numbers grow, so that a worker with a claim made after the backup cannot settle here.
    """
    if job.ended:
        return job
    job = replace(job, claim_number=job.claim_number + RESTORED_STEP)
    if job.lease_until is None:
        return job
    changes = settled(job, released(job, RESTORED_NOTE), now)
    changes |= {"turn": changes.get("turn") or 0}
    return replace(job, **(changes if job.limit_key is None else gated(job, changes)))
