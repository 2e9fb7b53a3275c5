"""Dependencies added while the awaited jobs end."""

from __future__ import annotations

import threading
from collections.abc import Callable

from penstock.queue import transitions
from penstock.queue.protocol import Queue
from tests.conformance.conftest import at, claim_all, new, put


def test_no_end_is_missed_by_a_job_that_is_added_meanwhile(opened: Callable[[], Queue]) -> None:
    """One thread ends jobs, the other one adds jobs that wait for them."""
    adding, settling = opened(), opened()
    ids = put(adding, *(new(str(number)) for number in range(20)))
    claims = {claim.queue_id: claim for claim in claim_all(settling)}
    barrier = threading.Barrier(2, timeout=60)

    def end_all() -> None:
        for queue_id in ids:
            barrier.wait()
            settling.settle([transitions.done(claims[queue_id])], now=at(1))

    thread = threading.Thread(target=end_all)
    thread.start()
    waiting = []
    for queue_id in ids:
        barrier.wait()
        waiting += put(adding, new("", after=(queue_id,), dedupe=False), now=at(1))
    thread.join(60)
    assert set(waiting) == {claim.queue_id for claim in claim_all(adding, at(2))}
