"""Claims whose answer was lost on the way: the store has them, and nobody works on them.

A supervisor renews whatever its child holds, so that such a job would be in progress for ever.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Collection

from penstock import lifecycle
from penstock.queue.protocol import Queue
from penstock.worker import dead_workers
from penstock.worker.outbox import settle_all
from penstock.worker.schedule import AWAY

LASTS_S = 60.0
"""A server that was cut off may still do what it was asked for, a while after this side has given up."""

log = logging.getLogger("penstock.worker")


class OrphanedClaims:
    def __init__(self, queue: Queue, worker_id: str) -> None:
        self._queue = queue
        self._worker_id = worker_id
        self._until = 0.0
        self._look_at = math.inf

    def arises(self, now: float) -> None:
        """A claim failed, and may have happened."""
        self._until = now + LASTS_S
        self._look_at = now

    def clear_up(self, known: Collection[tuple[str, int]], now: float) -> None:
        """Give back what is held and not among the ``known`` claims, id and claim number each: once now, and
        once when nothing more can come of the question.
        """
        if now < self._look_at:
            return
        try:
            self._give_back_all_but(known)
        except AWAY as error:
            # No reason to wait with what was claimed. The next claim looks again.
            log.warning("the store is away: %s", error)
        else:
            self._look_at = self._until if now < self._until else math.inf

    def _give_back_all_but(self, known: Collection[tuple[str, int]]) -> None:
        held = dead_workers.held_by(self._queue, self._worker_id)
        unknown = [job for job in held if (job.queue_id, job.claim_number) not in known]
        reason = "the answer to its claim was lost"
        settle_all(self._queue, [lifecycle.released(job, reason) for job in unknown])
        if unknown:
            log.warning("gave back %d jobs: %s", len(unknown), reason)
