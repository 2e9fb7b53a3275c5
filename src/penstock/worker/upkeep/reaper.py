"""Takes back jobs whose lease ran out: their worker died on another host, or went silent."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from contextlib import suppress

from penstock import lifecycle
from penstock.catalog.protocol import Catalog
from penstock.queue.protocol import Queue
from penstock.worker import failed_files
from penstock.worker.schedule import AWAY

REAP_AT_ONCE = 100
DRIFT_S = 5.0

log = logging.getLogger("penstock.upkeep")


class Reaper:
    """Leases are read off the store's clock. When that jumps (set by hand, a laptop that slept), all leases
    seem over at once, though their holders live: then it waits for one lease, in which they renew theirs.
    """

    def __init__(
        self,
        queue: Queue,
        longest_lease_s: float,
        *,
        catalog: Catalog | None = None,
        wall: Callable[[], float] | None = None,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._queue = queue
        self._catalog = catalog
        self._longest_lease_s = longest_lease_s
        self._wall = wall or (lambda: queue.now().timestamp())
        self._steady = steady
        self._offset: float | None = None
        with suppress(*AWAY):
            self._offset = self._wall() - steady()
        self._sits_out_until = 0.0

    def step(self) -> bool:
        """Settled by claim number, so that a holder that finished meanwhile is not robbed."""
        if self._must_sit_out():
            return False
        late = self._queue.expired(limit=REAP_AT_ONCE)
        if late:
            log.warning("%d jobs are taken back: their workers did not renew the leases", len(late))
            lost = [lifecycle.lease_lost(job, jitter=random.uniform(-1, 1)) for job in late]
            failed_files.record(self._catalog, late, lost, None)
            self._queue.settle(lost)
        return len(late) == REAP_AT_ONCE

    def _must_sit_out(self) -> bool:
        now = self._steady()
        offset = self._wall() - now
        jumped = 0.0 if self._offset is None else offset - self._offset
        if abs(jumped) > DRIFT_S:
            log.warning("the clock jumped by %.0f s: leases count again in a while", jumped)
            self._sits_out_until = now + self._longest_lease_s
        self._offset = offset
        return now < self._sits_out_until
