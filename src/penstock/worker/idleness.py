"""Whether a queue has nothing left that this moment could bring forward."""

from __future__ import annotations

from penstock.job import CHILDREN, Held, JobQuery, Status
from penstock.queue.protocol import Queue
from penstock.worker import paging

IN_PROGRESS = frozenset({Status.IN_PROGRESS})
LIVE = frozenset({Status.PENDING, Status.IN_PROGRESS})


def idle(queue: Queue) -> bool:
    """Nothing can be claimed, nothing runs, and nothing is in back-off.

    Jobs that are paused, scheduled for later or given back for later do not count until that time has come,
    nor does what only waits for them: parents for their children, jobs for a lock.
    """
    # Counted first: a job that begins to wait in between only makes the answer "not yet".
    waiting = sum(queue.count(JobQuery(statuses=IN_PROGRESS, waiting_for=CHILDREN)).values())
    counts = queue.count(JobQuery(statuses=LIVE), by=("status", "held"))
    if counts.get((Status.PENDING, None)) or counts.get((Status.IN_PROGRESS, None), 0) > waiting:
        return False
    now = queue.now()
    later = paging.every(queue, JobQuery(statuses=frozenset({Status.PENDING}), held=Held.TIME))
    # What has become due is taken up by the next claim; until then its row says what it said.
    return not any(job.retry_count or (job.run_at and job.run_at <= now) for job in later)
