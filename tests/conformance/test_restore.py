"""Whole rows of another store: inserted as they are, never twice, and alive afterwards."""

import msgspec
import pytest

from penstock.queue import transitions
from penstock.queue.job import Held, JobQuery, Scope, Status
from penstock.queue.memory.queue import MemoryQueue
from tests.conformance.conftest import (
    T0,
    at,
    claim_all,
    claim_one,
    done,
    fail,
    many,
    new,
    put,
    retry,
    row,
    running,
)

ALL = JobQuery(limit=1000)


def filled() -> MemoryQueue:
    """Rows in every state that a queue knows."""
    queue = MemoryQueue()
    done(queue, running(queue, new("done", metadata='{"a":1}')), at(1))
    fail(queue, running(queue, new("failed")), at(2))
    (cancelled,) = put(queue, new("cancelled"))
    queue.cancel([cancelled], now=at(3))
    retry(queue, running(queue, new("retried", lock_key="other")), at(4))
    parent = running(queue, new("parent", item_type="folder"), at(5))
    queue.settle([transitions.waits(parent, children=tuple(many(3, "child")))], now=at(5))
    done(queue, claim_one(queue, at(6)), at(6))
    fail(queue, claim_one(queue, at(6)), at(7))
    claim_all(queue, at(8))
    put(queue, new("parent", item_type="folder"), now=at(8))  # a follow-up
    running(queue, new("locked", lock_key="one"), at(9))
    put(queue, new("parked", lock_key="one"), new("later", run_at=at(10_000)), now=at(9))
    claim_all(queue, at(9))
    put(queue, *many(3, "plain", payload_json='{"text":"' + "x" * 5000 + '"}'), now=at(10))
    return queue


def test_every_column_of_every_state_is_kept(queue):
    jobs = filled().find(ALL)
    assert {Status.PENDING, Status.IN_PROGRESS, Status.DONE, Status.FAILED, Status.CANCELLED} == {
        job.status for job in jobs
    }
    assert [None] * len(jobs) == queue.restore(jobs)

    def without_turn(found):
        return [msgspec.structs.replace(job, turn=min(job.turn, 0)) for job in found]

    assert without_turn(jobs) == without_turn(queue.find(ALL))


def test_counts_and_the_order_of_claims_are_those_of_the_other_store(queue):
    other = filled()
    queue.restore(other.find(ALL))
    assert other.tally().counts == queue.tally().counts
    assert other.backlog(functions=False, cap=100) == queue.backlog(functions=False, cap=100)

    def names(found):
        return [job.queue_id for job in found]

    assert names(claim_all(other, at(30))) == names(claim_all(queue, at(30)))


def test_a_waiting_parent_ends_with_its_last_child(queue):
    other = filled()
    queue.restore(other.find(ALL))
    for claimed in queue.find(JobQuery(statuses=frozenset({Status.IN_PROGRESS}), limit=100)):
        if claimed.parent_id is not None:
            queue.settle([transitions.done(claimed)], now=at(30))
            parent = row(queue, claimed.parent_id)
    assert 2 == parent.run
    assert Status.PENDING is parent.status, "the follow-up begins the next run"


def test_a_freed_lock_wakes_a_restored_row(queue):
    queue.restore(filled().find(ALL))
    (holder,) = [job for job in queue.find(ALL) if job.lock_held and job.lock_key == "one"]
    (parked,) = queue.find(JobQuery(held=Held.LOCK))
    queue.settle([transitions.done(holder)], now=at(30))
    assert None is row(queue, parked.queue_id).held


def test_a_row_that_is_there_stays_as_it_is(queue):
    jobs = filled().find(ALL)
    queue.restore(jobs[:4])
    changed = [msgspec.structs.replace(job, metadata='{"other":1}') for job in jobs]
    assert [job.queue_id for job in jobs[:4]] + [None] * (len(jobs) - 4) == queue.restore(changed)
    assert jobs[0].metadata == row(queue, jobs[0].queue_id).metadata


def test_a_live_key_is_reported_and_not_changed(queue):
    (live,) = put(queue, new("same", op="delete"))
    other = MemoryQueue()
    done(other, running(other, new("x")), at(1))
    put(other, new("same"))
    (ended, twin) = other.find(ALL)
    ended = msgspec.structs.replace(ended, idempotency_key="same")
    assert [live, None] == queue.restore([twin, ended])
    assert "delete" == row(queue, live).op


def test_two_rows_of_one_call_with_the_same_key_are_one(queue):
    first, second = MemoryQueue(), MemoryQueue()
    put(first, new("same"))
    put(second, new("same"))
    (one,), (two,) = first.find(ALL), second.find(ALL)
    assert [None, one.queue_id] == queue.restore([one, two])


def test_a_lock_has_one_holder(queue):
    holder = running(queue, new("a", lock_key="one"))
    other = MemoryQueue()
    running(other, new("b", lock_key="one"))
    assert [holder.queue_id] == queue.restore(other.find(ALL))


def test_restored_rows_come_after_the_rows_of_their_tenant(queue):
    before = put(queue, *many(2, "own"))
    other = MemoryQueue()
    later = put(other, *many(2, "restored"))
    queue.restore(other.find(ALL))
    assert [*before, *later] == [claim.queue_id for claim in claim_all(queue, at(30))]


def test_a_paused_tenant_holds_restored_rows_back(queue):
    queue.pause(Scope("acme"), now=T0)
    queue.restore([job for job in filled().find(ALL) if job.idempotency_key.startswith("plain")])
    assert [] == claim_all(queue, at(30))
    queue.resume(Scope("acme"), now=at(31))
    assert 3 == len(claim_all(queue, at(32)))


def test_ended_rows_can_be_requeued_and_pruned(queue):
    queue.restore(filled().find(ALL))
    failed = next(
        job
        for job in queue.find(JobQuery(statuses=frozenset({Status.FAILED}), limit=10))
        if job.parent_id is None
    )
    assert Status.PENDING is queue.requeue([failed.queue_id], now=at(30))[0].now
    assert 2 == queue.prune({Status.DONE: at(1000), Status.CANCELLED: at(1000)})


def test_unstorable_text_is_refused(queue):
    from penstock.errors import InvalidText

    (job, *_) = filled().find(JobQuery(statuses=frozenset({Status.FAILED}), limit=1))
    with pytest.raises(InvalidText):
        queue.restore([msgspec.structs.replace(job, error_message="a\0b")])
    assert [] == queue.find(ALL)


def test_nothing_to_restore(queue):
    assert [] == queue.restore([])
