"""The end of ``--until-idle``: nothing is left that this worker could bring forward now."""

from __future__ import annotations

from collections.abc import Collection

from penstock.catalog.protocol import Catalog
from penstock.catalog.values import Phase
from penstock.queue.protocol import Queue


def lanes_idle(queue: Queue, catalog: Catalog | None, lanes: Collection[Phase], *, takes_jobs: bool) -> bool:
    """The lanes this worker serves have nothing to claim, nothing that runs and nothing in back-off.

    Jobs that wait for a document count as work, unless their document waits for a lane served elsewhere.
    """
    opened: set[Phase] = set()
    if takes_jobs and queue.busy(documents=False):
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
    return not queue.busy(documents=not documents_elsewhere)
