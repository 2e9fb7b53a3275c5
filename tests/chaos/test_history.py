"""The history of queue calls: recorded as they are made, also those without an answer."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from penstock.errors import DuplicateId, StoreUnavailable
from penstock.queue.job import ClaimRequest, NewJob, Settlement, Status
from penstock.queue.memory.queue import MemoryQueue
from tests.chaos import history
from tests.chaos.history import Claimed


def new(job_id: str) -> NewJob:
    return NewJob(
        queue_id=job_id,
        item_type="function",
        op="run",
        tenant_id="acme",
        collection="docs",
        idempotency_key=job_id,
        payload_json="{}",
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history"


@pytest.fixture
def queue(path: Path) -> MemoryQueue:
    class Recorded(MemoryQueue):
        """A class of this test alone: recording changes its methods."""

        def settle(self, settlements, *, now=None):
            if settlements[0].queue_id == "away":
                raise StoreUnavailable("the store was killed")
            return super().settle(settlements, now=now)

    history.record_class(Recorded, str(path))
    return Recorded()


def settlement(claim: str, number: int = 1) -> Settlement:
    return Settlement(queue_id=claim, claim_number=number, status=Status.DONE, what="done")


def test_calls_have_their_times_what_was_asked_and_the_answer(queue: MemoryQueue, path: Path):
    queue.add_counted([new("a")])
    queue.claim(ClaimRequest("w", limit=5))
    queue.exchange([settlement("a")], ClaimRequest("w"))

    added, claimed, exchanged = history.read(path)

    assert ["add", "claim", "exchange"] == [added.op, claimed.op, exchanged.op]
    assert added.start <= (added.end or 0) <= claimed.start
    assert ["a"] == [each.job_id for each in added.added]
    assert [Claimed("a", 1)] == claimed.claims
    assert [("a", 1, "done")] == [each[:3] for each in exchanged.settled]
    assert ["done"] == exchanged.statuses


def test_a_refused_call_and_one_without_an_answer_are_told_apart(queue: MemoryQueue, path: Path):
    queue.add([new("a")])
    queue.claim(ClaimRequest("w"))
    with pytest.raises(DuplicateId):
        queue.add([msgspec.structs.replace(new("a"), idempotency_key="other")])
    with pytest.raises(StoreUnavailable):
        queue.settle([settlement("away")])

    _, _, refused, unanswered = history.read(path)

    assert (True, False) == (refused.refused, refused.answered)
    assert (None, False) == (unanswered.end, unanswered.refused)
