"""The store's own clock, which counts wherever nobody passes a time."""

from __future__ import annotations

from datetime import UTC

from penstock.queue.protocol import Queue
from tests.conformance.conftest import new, row


def test_what_is_written_has_the_time_of_the_stores_clock(queue: Queue) -> None:
    before = queue.now()
    (added,) = queue.add([new()])
    job = row(queue, added.queue_id)

    assert before.tzinfo is UTC
    assert before <= job.created_at <= queue.now()
