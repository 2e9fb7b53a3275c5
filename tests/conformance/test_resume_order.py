"""Order of one entity's calls over a pause: parked, requeued and followed-up rows, ids without order."""

import pytest

from penstock.queue import transitions
from penstock.queue.job import ClaimRequest, Held, JobQuery, Scope
from tests.conformance.conftest import at, claim_all, claim_one, done, fail, many, new, put, row
from tests.conformance.test_resume import A, drain, in_small_steps, of, parked

__all__ = ["in_small_steps"]

ENTITY = "entity:1"


def unordered(number, prefix="k", **fields):
    """New jobs with descending ids."""
    return [
        new(f"{prefix}{i}", queue_id=f"{prefix}_{number - i:03d}", tenant_id="A", **fields)
        for i in range(number)
    ]


def begun(queue, request, second=0):
    """Added behind others, and running all the same."""
    (queue_id,) = put(queue, request, now=at(second))
    claim = queue.start(queue_id, ClaimRequest("w1"), now=at(second))
    assert claim is not None
    return claim


def settle_resume(queue):
    """Let a resume come to its end while nothing is claimed."""
    for second in range(10, 30):
        queue.reconcile(now=at(second))
    assert {} == queue.count(JobQuery(held=Held.PAUSE), by=("held",))


@pytest.mark.parametrize("lock_key", [None, ENTITY])
def test_a_batch_keeps_its_order_whatever_its_ids(queue, lock_key):
    ids = put(queue, *unordered(5, lock_key=lock_key), now=at(0))
    assert [] == parked(queue, A)
    ids += put(queue, *unordered(5, "during", lock_key=lock_key), now=at(11))
    queue.resume(A, now=at(12))
    assert ids == drain(queue, limit=3)


def test_children_keep_their_order_whatever_their_ids(queue):
    parent = begun(queue, new("parent", item_type="folder", tenant_id="B"))
    children = tuple(unordered(5))
    queue.settle([transitions.waits(parent, children=children)], now=at(0))
    assert [] == parked(queue, A)
    queue.resume(A, now=at(12))
    assert [child.queue_id for child in children] == drain(queue)


@pytest.mark.parametrize("limit", [1, 2, 10])
@pytest.mark.parametrize("calls", [3, 9])
def test_calls_parked_for_a_lock_when_a_pause_comes_keep_their_order(queue, calls, limit):
    """A claim holds the first back, and more with every look; a resume finds the others parked."""
    ids = put(queue, *unordered(calls, lock_key=ENTITY), now=at(0))
    (first,) = claim_all(queue, at(1))
    queue.pause(A, now=at(2))
    ids += put(queue, *unordered(3, "during", lock_key=ENTITY), now=at(3))
    done(queue, first, at(4))
    assert [] == claim_all(queue, at(5), limit=limit)
    queue.resume(A, now=at(6))
    ids += put(queue, *unordered(3, "after", lock_key=ENTITY), now=at(7))
    assert ids[1:] == drain(queue)


def test_a_call_woken_before_any_claim_meets_the_pause_stays_first(queue):
    ids = put(queue, *unordered(4, lock_key=ENTITY), now=at(0))
    (first,) = claim_all(queue, at(1))
    done(queue, first, at(2))
    ids += put(queue, *unordered(3, "other"), now=at(2))
    queue.pause(A, now=at(3))
    queue.resume(A, now=at(4))
    order = drain(queue)
    assert ids[1:4] == [queue_id for queue_id in order if queue_id in ids[:4]]
    assert sorted(ids[1:]) == sorted(order)


@pytest.mark.parametrize("calls", [3, 9])
def test_a_call_that_an_urgent_one_passed_keeps_its_place_over_a_pause(queue, in_small_steps, calls):
    """The pause meets the call that was to take the lock next; later calls are parked for a running one."""
    ids = put(queue, *unordered(calls, lock_key=ENTITY), now=at(0))
    (first,) = claim_all(queue, at(1))
    done(queue, first, at(2))
    urgent = begun(queue, new("urgent", tenant_id="A", lock_key=ENTITY, priority=9), 3)
    queue.pause(A, now=at(4))
    assert [] == claim_all(queue, at(5))
    queue.resume(A, now=at(6))
    settle_resume(queue)
    done(queue, urgent, at(30))
    assert ids[1:] == drain(queue)


@pytest.mark.parametrize("calls", [3, 9])
def test_calls_parked_for_a_lock_that_another_tenant_took_keep_their_order(queue, in_small_steps, calls):
    ids = put(queue, *of("A", calls, lock_key=ENTITY), now=at(0))
    (first,) = claim_all(queue, at(1))
    (other,) = put(queue, new("b", tenant_id="B", lock_key=ENTITY), now=at(2))
    queue.pause(A, now=at(3))
    done(queue, first, at(4))
    claim = claim_one(queue, at(5))
    assert other == claim.queue_id
    queue.resume(A, now=at(6))
    settle_resume(queue)
    done(queue, claim, at(30))
    assert ids[1:] == drain(queue)


def test_a_row_of_another_tenant_is_woken_though_the_first_of_its_lock_is_resumed(queue, in_small_steps):
    put(queue, *of("A", 4, lock_key=ENTITY), now=at(0))
    (first,) = claim_all(queue, at(1))
    (other,) = put(queue, new("b", tenant_id="B", lock_key=ENTITY), now=at(2))
    assert [] == claim_all(queue, at(2))
    queue.pause(A, now=at(3))
    done(queue, first, at(4))
    assert [other] == drain(queue, 5)


@pytest.mark.parametrize("steps", range(1, 9))
def test_a_call_requeued_while_a_resume_goes_on_does_not_pass_older_ones(queue, in_small_steps, steps):
    ids = put(queue, *of("A", 6, lock_key=ENTITY), now=at(0))
    last = begun(queue, new("last", tenant_id="A", lock_key=ENTITY), 1)
    fail(queue, last, at(2))
    assert [] == parked(queue, A)
    queue.resume(A, now=at(11))
    for step in range(steps - 1):
        queue.reconcile(now=at(12 + step))
    queue.requeue([last.queue_id], now=at(30))
    assert [*ids, last.queue_id] == drain(queue)


@pytest.mark.parametrize("steps", range(1, 9))
def test_a_follow_up_while_a_resume_goes_on_does_not_pass_older_calls(queue, in_small_steps, steps):
    ids = put(queue, *of("A", 6, lock_key=ENTITY), now=at(0))
    last = begun(queue, new("last", tenant_id="A", lock_key=ENTITY), 1)
    put(queue, new("last", tenant_id="A", lock_key=ENTITY), now=at(2))
    assert [] == parked(queue, A)
    queue.resume(A, now=at(11))
    for step in range(steps - 1):
        queue.reconcile(now=at(12 + step))
    done(queue, last, at(30))
    assert [*ids, last.queue_id] == drain(queue)


def test_a_requeued_call_goes_back_to_where_it_was_submitted(queue):
    ids = put(queue, *of("A", 3, lock_key=ENTITY), now=at(0))
    first = claim_one(queue, at(1))
    fail(queue, first, at(2))
    queue.requeue([first.queue_id], now=at(3))
    assert [] == parked(queue, A)
    assert {Held.PAUSE} == {row(queue, queue_id).held for queue_id in ids}
    queue.resume(A, now=at(12))
    assert ids == drain(queue)


def test_a_pause_and_a_resume_without_a_claim_between_change_no_order(queue):
    ids = put(queue, *many(3, tenant_id="A", lock_key=ENTITY), now=at(0))
    queue.pause(Scope("A"), now=at(1))
    queue.resume(Scope("A"), now=at(2))
    assert ids == drain(queue)
