"""The end of ``--until-idle``: nothing is left that this worker could bring forward now."""

from __future__ import annotations

from collections.abc import Collection

from penstock.catalog.protocol import Catalog
from penstock.catalog.values import Phase
from penstock.job import CHILDREN, Held, JobQuery, Status
from penstock.queue.protocol import Queue
from penstock.worker import paging

IN_PROGRESS = frozenset({Status.IN_PROGRESS})
PENDING = frozenset({Status.PENDING})
LIVE = frozenset({Status.PENDING, Status.IN_PROGRESS})


def lanes_idle(queue: Queue, catalog: Catalog | None, lanes: Collection[Phase], *, takes_jobs: bool) -> bool:
    """The lanes this worker serves have nothing to claim, nothing that runs and nothing in back-off.

    Jobs that wait for a document count as work, unless their document waits for a lane served elsewhere.
    """
    opened: set[Phase] = set()
    if takes_jobs and queue.count(JobQuery(statuses=PENDING), by=("held",)).get((None,)):
        return False
    if catalog is not None:
        with catalog.snapshot() as snapshot:
            opened = {lane for lane in Phase if snapshot.open_tasks(lane)}
    if not opened.isdisjoint(lanes):
        return False
    # Without a catalog the documents, and all their lanes, are another host's.
    return not takes_jobs or idle(queue, documents_elsewhere=catalog is None or bool(opened))


def idle(queue: Queue, *, documents_elsewhere: bool = False) -> bool:
    """Nothing can be claimed, nothing runs, and nothing is in back-off.

    Jobs that are paused, scheduled for later or given back for later do not count until that time has come,
    nor does what only waits for them: parents for their children, jobs for a lock. With
    ``documents_elsewhere``, neither do jobs that wait for their documents.
    """
    # Counted first: a job that begins to wait in between only makes the answer "not yet".
    waiting = sum(queue.count(JobQuery(statuses=IN_PROGRESS, waiting_for=CHILDREN)).values())
    counts = queue.count(JobQuery(statuses=LIVE), by=("status", "held"))
    if counts.get((Status.PENDING, None)):
        return False
    if counts.get((Status.IN_PROGRESS, None), 0) > waiting and not (documents_elsewhere and _all_wait(queue)):
        return False
    now = queue.now()
    later = paging.every(queue, JobQuery(statuses=PENDING, held=Held.TIME))
    # What has become due is taken up by the next claim; until then its row says what it said.
    return not any(job.retry_count or (job.run_at and job.run_at <= now) for job in later)


def _all_wait(queue: Queue) -> bool:
    return all(job.waiting for job in paging.every(queue, JobQuery(statuses=IN_PROGRESS)))
