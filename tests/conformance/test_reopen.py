"""Acknowledged changes are visible to the next process, and to all with the store open."""

from penstock.queue import transitions
from penstock.queue.job import Beat, ClaimRequest, JobQuery, Scope, Status, WorkerReport
from tests.conformance.conftest import (
    LEASE,
    T0,
    at,
    claim_all,
    claim_one,
    done,
    fail,
    many,
    new,
    put,
    reap,
    retry,
    row,
    running,
)


def lived_in(queue):
    """A queue with something in every column."""
    parent = running(queue, new("parent", item_type="folder"))
    queue.settle([transitions.waits(parent, children=tuple(many(3, "child")))], now=T0)
    fail(queue, claim_one(queue))
    retry(queue, claim_one(queue))
    put(queue, *many(3, "locked", lock_key="doc:1", priority=9), new("paused", tenant_id="P"))
    put(queue, new("later", run_at=at(60)), new("große 鍵", payload_json='{"p":"' + "ü" * 5000 + '"}'))
    queue.pause(Scope("P"), now=T0)
    held = claim_all(queue, limit=2)[0]
    queue.renew([Beat(held.queue_id, held.claim_number, LEASE, '{"page":7}')], now=at(1))
    put(queue, new(queue.get(held.queue_id).idempotency_key, payload_json='{"v":2}'), now=at(2))
    for name in ("gone", "w1"):
        queue.report(WorkerReport(worker_id=name, host="mill", pid=7, started_at=T0), now=at(3))
    queue.forget_workers(queue.workers()[:1])


def test_everything_is_there_after_reopening(queue, reopen):
    lived_in(queue)
    jobs, paused, workers = queue.find(JobQuery()), queue.paused(), queue.workers()
    again = reopen()
    assert jobs == again.find(JobQuery())
    assert (paused, workers) == (again.paused(), again.workers())


def test_the_order_goes_on_after_reopening(queue, reopen):
    put(queue, *many(3, tenant_id="A"))
    put(queue, *many(3, tenant_id="B"), now=at(1))
    claim_all(queue, at(2), limit=2)
    again = reopen()
    put(again, new("c", tenant_id="C"), now=at(3))
    assert "ABCAB" == "".join(claim.tenant_id for claim in claim_all(again, at(4)))


def test_a_claim_is_still_held_after_reopening(queue, reopen):
    claim = running(queue)
    again = reopen()
    assert [] == claim_all(again, at(1))
    assert [Status.DONE] == again.settle([transitions.done(claim)], now=at(2))


def test_a_lost_claim_is_still_lost_after_reopening(queue, reopen):
    stale = running(queue)
    queue.settle([transitions.released(stale, "shutdown")], now=at(1))
    again = reopen()
    claim_one(again, at(2))
    assert [None] == again.settle([transitions.done(stale)], now=at(3))


def test_a_live_key_is_still_live_after_reopening(queue, reopen):
    (queue_id,) = put(queue, new())
    assert [queue_id] == put(reopen(), new(), now=at(1))


def test_a_lock_is_still_held_after_reopening(queue, reopen):
    _, second = put(queue, *many(2, lock_key="doc:1"))
    (holder,) = claim_all(queue)
    again = reopen()
    assert [] == claim_all(again, at(1))
    done(again, holder, at(2))
    assert second == claim_one(again, at(2)).queue_id


def test_a_suspect_is_still_one_after_reopening(queue, reopen):
    lost = running(queue)
    reap(queue, at(301))
    put(queue, *many(2), now=at(302))
    assert [lost.queue_id] == [claim.queue_id for claim in claim_all(reopen(), at(303))]


def test_a_family_stays_together_after_reopening(queue, reopen):
    parent = running(queue, new("parent", item_type="folder"))
    queue.settle([transitions.waits(parent, children=tuple(many(2, "c")))], now=T0)
    done(queue, claim_one(queue))
    again = reopen()
    done(again, claim_one(again, at(1)), at(1))
    assert Status.DONE is row(again, parent.queue_id).status
    assert 3 == again.prune({Status.DONE: at(2)})


# Several openers.


def test_openers_see_each_others_jobs(queue, opened):
    other = opened()
    (queue_id,) = put(queue, new())
    claim = claim_one(other)
    assert queue_id == claim.queue_id
    assert [] == claim_all(queue)
    assert [Status.DONE] == queue.settle([transitions.done(claim)], now=at(1))
    assert Status.DONE is row(other, queue_id).status


def test_openers_see_each_others_pauses(queue, opened):
    other = opened()
    put(queue, *many(2))
    other.pause(Scope("acme"), now=T0)
    assert [] == claim_all(queue)
    assert 2 == other.resume(Scope("acme"), now=at(1))
    assert 2 == len(claim_all(queue, at(2)))


def test_openers_drain_one_queue_without_overlap(queue, opened):
    openers = [queue, opened(), opened()]
    ids = put(queue, *many(30))
    taken = []
    for i in range(15):
        claims = openers[i % 3].claim(ClaimRequest(f"w{i % 3}", 2), now=at(i))
        taken += [claim.queue_id for claim in claims]
        assert [Status.DONE] * 2 == openers[(i + 1) % 3].settle(
            [transitions.done(c) for c in claims], now=at(i)
        )
    assert ids == taken
