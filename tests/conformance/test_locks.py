"""Lock keys: one holder from the first claim to the end, then the next in order."""

import pytest

from penstock.queue import transitions
from penstock.queue.job import ClaimRequest, Held, JobQuery, Scope, Status
from tests.conformance.conftest import (
    T0,
    at,
    claim_all,
    claim_one,
    done,
    many,
    new,
    put,
    reap,
    retry,
    row,
    running,
)


def locked(number, prefix="k", **fields):
    return many(number, prefix, lock_key="doc:1", **fields)


def test_one_job_holds_a_lock_at_a_time(queue):
    first, second = put(queue, *locked(2))
    assert [first] == [claim.queue_id for claim in claim_all(queue)]
    assert [True, False] == [row(queue, queue_id).lock_held for queue_id in (first, second)]
    assert [] == claim_all(queue, worker="w2")


def test_a_job_that_met_a_taken_lock_shows_it(queue):
    _, second = put(queue, *locked(2))
    claim_all(queue)
    assert Held.LOCK is row(queue, second).held


def test_different_locks_do_not_meet(queue):
    put(queue, new("a", lock_key="doc:1"), new("b", lock_key="doc:2"), new("c"), new("d"))
    assert 4 == len(claim_all(queue))


def test_locks_reach_over_tenants(queue):
    put(queue, new(tenant_id="A", lock_key="entity:1"), new(tenant_id="B", lock_key="entity:1"))
    assert 1 == len(claim_all(queue))


@pytest.mark.parametrize(
    "end",
    [transitions.done, transitions.timed_out, transitions.cancelled_by_flag],
    ids=lambda end: end.__name__,
)
def test_every_end_passes_the_lock_on(queue, end):
    _, second = put(queue, *locked(2))
    (first,) = claim_all(queue)
    queue.settle([end(first)], now=at(1))
    assert not row(queue, first.queue_id).lock_held
    assert second == claim_one(queue, at(1)).queue_id


def test_a_job_of_a_lock_is_served_in_the_order_of_arrival(queue):
    ids = put(queue, *locked(5))
    served = []
    while claims := claim_all(queue):
        served += [claim.queue_id for claim in claims]
        queue.settle([transitions.done(claim) for claim in claims], now=T0)
    assert ids == served


def test_the_order_of_arrival_holds_when_more_arrive_meanwhile(queue):
    ids = put(queue, *locked(2))
    served = []
    for i in range(4):
        claim = claim_one(queue, at(i))
        served.append(claim.queue_id)
        ids += put(queue, new(f"later{i}", lock_key="doc:1"), now=at(i))
        done(queue, claim, at(i))
    assert ids[:4] == served


def test_the_highest_priority_that_waits_gets_the_lock(queue):
    put(queue, *locked(2))
    holder = claim_one(queue)
    (urgent,) = put(queue, new("urgent", lock_key="doc:1", priority=9))
    assert [] == claim_all(queue)
    done(queue, holder)
    assert urgent == claim_one(queue).queue_id


def test_the_next_holder_comes_before_jobs_that_were_never_held_back(queue):
    _, second = put(queue, *locked(2))
    (holder,) = claim_all(queue)
    put(queue, *many(3, "free"))
    done(queue, holder)
    assert second == claim_one(queue).queue_id


def test_only_one_of_many_is_woken(queue):
    put(queue, *locked(10))
    (holder,) = claim_all(queue)
    done(queue, holder)
    assert {(None,): 1, (Held.LOCK,): 8} == queue.count(
        JobQuery(statuses=frozenset({Status.PENDING})), by=["held"]
    )


def test_a_lock_is_kept_through_back_off(queue):
    put(queue, *locked(2))
    (holder,) = claim_all(queue)
    retry(queue, holder)
    assert row(queue, holder.queue_id).lock_held
    assert [] == claim_all(queue, at(4))
    assert [holder.queue_id] == [claim.queue_id for claim in claim_all(queue, at(5))]


def test_a_lock_is_kept_when_the_job_is_given_back(queue):
    put(queue, *locked(2))
    (holder,) = claim_all(queue)
    queue.settle([transitions.released(holder, "shutdown")], now=T0)
    assert [holder.queue_id] == [claim.queue_id for claim in claim_all(queue)]


def test_a_lock_is_kept_when_the_worker_is_lost(queue):
    put(queue, *locked(2))
    (holder,) = claim_all(queue)
    reap(queue, at(301))
    assert [holder.queue_id] == [claim.queue_id for claim in claim_all(queue, at(301))]
    assert [] == claim_all(queue, at(301))


def test_a_lock_is_kept_while_the_job_waits(queue):
    put(queue, *locked(2))
    (holder,) = claim_all(queue)
    queue.settle([transitions.waits(holder, "document")], now=T0)
    assert row(queue, holder.queue_id).lock_held
    assert [] == claim_all(queue)


def test_a_higher_priority_does_not_get_the_lock_of_a_job_in_back_off(queue):
    put(queue, new("holder", lock_key="doc:1"))
    retry(queue, claim_one(queue))
    (urgent,) = put(queue, new("urgent", lock_key="doc:1", priority=10))
    assert [] == claim_all(queue, at(1))
    assert Held.LOCK is row(queue, urgent).held


def test_cancelling_the_holder_in_back_off_passes_the_lock_on(queue):
    _, second = put(queue, *locked(2))
    (holder,) = claim_all(queue)
    retry(queue, holder)
    queue.cancel([holder.queue_id], now=at(1))
    assert second == claim_one(queue, at(1)).queue_id


def test_cancelling_the_woken_job_passes_the_lock_on(queue):
    _, second, third = put(queue, *locked(3))
    (holder,) = claim_all(queue)
    done(queue, holder)
    queue.cancel([second], now=at(1))
    assert third == claim_one(queue, at(1)).queue_id


def test_cancelling_a_parked_job_leaves_the_lock_with_its_holder(queue):
    _, second, _ = put(queue, *locked(3))
    claim_all(queue)
    queue.cancel([second], now=at(1))
    assert [] == claim_all(queue, at(1))


def test_a_woken_job_that_is_paused_passes_the_lock_on(queue):
    put(queue, new("a", lock_key="doc:1"), new("b", lock_key="doc:1", tenant_id="paused"))
    (third,) = put(queue, new("c", lock_key="doc:1"), now=at(1))
    (holder,) = claim_all(queue, at(2))
    queue.pause(Scope("paused"), now=at(3))
    done(queue, holder, at(3))
    assert [third] == [claim.queue_id for claim in claim_all(queue, at(3))]


def test_a_job_passed_over_in_a_pause_gets_the_lock_later(queue):
    put(queue, new("a", lock_key="doc:1"))
    (second,) = put(queue, new("b", lock_key="doc:1", tenant_id="paused"), now=at(1))
    (holder,) = claim_all(queue, at(2))
    queue.pause(Scope("paused"), now=at(3))
    done(queue, holder, at(3))
    assert [] == claim_all(queue, at(3))
    queue.resume(Scope("paused"), now=at(4))
    assert second == claim_one(queue, at(4)).queue_id


def test_a_holder_in_a_pause_keeps_its_lock(queue):
    put(queue, new("a", lock_key="doc:1", tenant_id="paused"))
    retry(queue, claim_one(queue))
    put(queue, new("b", lock_key="doc:1"))
    queue.pause(Scope("paused"), now=at(1))
    assert [] == claim_all(queue, at(60))


def test_a_suspect_woken_from_a_lock_is_still_claimed_alone(queue):
    put(queue, *locked(1, "suspect", max_retries=0))
    claim_one(queue)
    reap(queue, at(301))
    holder = running(queue, new("holder", lock_key="doc:1"), at(302))
    (failed,) = queue.find(JobQuery(statuses=frozenset({Status.FAILED})))
    queue.requeue([failed.queue_id], now=at(303))
    assert [] == claim_all(queue, at(303))
    done(queue, holder, at(304))
    put(queue, *many(3, "free"), now=at(304))
    assert [failed.queue_id] == [claim.queue_id for claim in claim_all(queue, at(305))]


def test_a_raised_priority_does_not_get_past_a_lock(queue):
    _, second = put(queue, *locked(2))
    claim_all(queue)
    put(queue, new("k1", lock_key="doc:1", priority=10))
    assert Held.LOCK is row(queue, second).held
    assert [] == claim_all(queue)


def test_a_raised_priority_goes_before_the_job_that_was_woken_for_the_lock(queue):
    _, second, third = put(queue, *locked(3))
    (holder,) = claim_all(queue)
    done(queue, holder)
    put(queue, new("k2", lock_key="doc:1", priority=9))
    assert [third] == [claim.queue_id for claim in claim_all(queue)]
    assert Held.LOCK is row(queue, second).held


def test_the_oldest_job_does_not_pass_an_earlier_one_of_its_lock(queue):
    _, early = put(queue, *locked(2))
    (holder,) = claim_all(queue)
    (late,) = put(queue, new("late", lock_key="doc:1"), now=at(1))
    (urgent,) = put(queue, new("urgent", lock_key="doc:1", priority=9), now=at(2))
    put(queue, new("free", priority=9), now=at(2))
    # Meets the urgent job, which has to wait for the lock, and not the late one.
    claim_one(queue, at(3))
    done(queue, holder, at(4))
    served = []
    while claims := queue.claim(ClaimRequest("w1", 1, oldest=True), now=at(5)):
        served += [claim.queue_id for claim in claims]
        queue.settle([transitions.done(claim) for claim in claims], now=at(5))
    assert [urgent, early, late] == served


def test_the_oldest_job_may_pass_a_higher_priority_of_its_lock(queue):
    (old,) = put(queue, new("old", lock_key="doc:1"))
    put(queue, new("urgent", lock_key="doc:1", priority=9), now=at(1))
    assert [old] == [claim.queue_id for claim in queue.claim(ClaimRequest("w1", 5, oldest=True), now=at(2))]


@pytest.mark.parametrize("meanwhile", ["another is cancelled", "a higher priority is served"])
def test_the_order_of_arrival_holds_whatever_the_ids_are(queue, meanwhile):
    names = ["w", "z", "y", "x"]
    put(queue, *[new(name, queue_id=f"job_{name}", lock_key="doc:1") for name in names])
    (holder,) = claim_all(queue)
    done(queue, holder)
    if meanwhile == "another is cancelled":
        queue.cancel(["job_x"], now=T0)
    else:
        put(queue, new("urgent", lock_key="doc:1", priority=9))
        done(queue, claim_one(queue))
    served = []
    while claims := claim_all(queue):
        served += [claim.queue_id for claim in claims]
        queue.settle([transitions.done(claim) for claim in claims], now=T0)
    assert ["job_z", "job_y", "job_x"][: len(served)] == served


def test_the_lock_of_a_requeued_job_is_taken_anew(queue):
    first, second = put(queue, *locked(2))
    queue.settle([transitions.timed_out(claim_one(queue))], now=T0)
    claim_one(queue)
    queue.requeue([first], now=at(1))
    assert [] == claim_all(queue, at(1))
    assert [False, True] == [row(queue, queue_id).lock_held for queue_id in (first, second)]


def test_children_of_one_lock_run_one_by_one(queue):
    parent = running(queue, new("parent", item_type="folder"))
    queue.settle([transitions.waits(parent, children=tuple(locked(2, "child")))], now=T0)
    (first,) = claim_all(queue)
    done(queue, first)
    (second,) = claim_all(queue)
    done(queue, second)
    assert Status.DONE is row(queue, parent.queue_id).status


def test_several_locks_are_passed_on_in_one_settle(queue):
    put(queue, *[new(f"{key}{i}", lock_key=key) for key in "xyz" for i in range(2)])
    queue.settle([transitions.done(claim) for claim in claim_all(queue)], now=T0)
    assert ["x", "y", "z"] == sorted(str(claim.lock_key) for claim in claim_all(queue))
