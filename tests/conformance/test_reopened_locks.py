"""A re-opened parent holds the lock again: no other job of the key runs beside the children."""

from penstock.queue import engine, transitions
from penstock.queue.job import Held, RequeueResult, Status
from penstock.queue.redis import queue as redis_queue
from tests.conformance.conftest import T0, at, claim_all, claim_one, done, many, new, put, row, running


def failed_parent(queue, *children, key="parent"):
    """Add a job with the lock key ``doc:1`` and a failed first child; returns both ids."""
    claim = running(queue, new(key, item_type="folder", lock_key="doc:1"))
    queue.settle([transitions.waits(claim, children=children or (new("child"),))], now=T0)
    first, *others = claim_all(queue)
    queue.settle([transitions.timed_out(first), *(transitions.done(each) for each in others)], now=at(1))
    assert Status.FAILED is row(queue, claim.queue_id).status
    return claim.queue_id, first.queue_id


def test_a_parent_that_waits_again_holds_its_lock_again(queue):
    for requeued in (0, 1):
        ids = failed_parent(queue, key=f"parent {requeued}")
        assert [Status.FAILED] == [each.was for each in queue.requeue([ids[requeued]], now=at(2))]
        assert (Status.IN_PROGRESS, True) == (row(queue, ids[0]).status, row(queue, ids[0]).lock_held)
        (other,) = put(queue, new(f"other {requeued}", lock_key="doc:1"), now=at(3))
        assert [ids[1]] == [claim.queue_id for claim in claim_all(queue, at(3))]
        assert Held.LOCK is row(queue, other).held
        queue.settle([transitions.done(row(queue, ids[1]))], now=at(4))
        assert (Status.DONE, False) == (row(queue, ids[0]).status, row(queue, ids[0]).lock_held)
        done(queue, claim_one(queue, at(5)), at(5))
        assert Status.DONE is row(queue, other).status


def test_the_holder_of_its_lock_refuses_a_parent_and_is_named(queue):
    parent, child = failed_parent(queue)
    (holder,) = put(queue, new("other", lock_key="doc:1"), now=at(2))
    claim = claim_one(queue, at(2))

    answers = queue.requeue([parent, child], now=at(3))

    failed = Status.FAILED
    assert [RequeueResult(each, failed, failed, holder) for each in (parent, child)] == answers
    assert [failed, failed] == [row(queue, each).status for each in (parent, child)]
    assert {"failed"} == {row(queue, each).history[-1].what for each in (parent, child)}
    done(queue, claim, at(4))
    assert Status.IN_PROGRESS is queue.requeue([parent], now=at(5))[0].now
    assert child == claim_one(queue, at(5)).queue_id


def test_a_job_that_waits_for_the_lock_does_not_refuse_the_parent(queue):
    parent, child = failed_parent(queue)
    first, second = put(queue, *many(2, "other", lock_key="doc:1"), now=at(2))

    assert Status.PENDING is queue.requeue([child], now=at(3))[0].now

    assert [child] == [claim.queue_id for claim in claim_all(queue, at(3))]
    assert [Held.LOCK, Held.LOCK] == [row(queue, each).held for each in (first, second)]
    queue.settle([transitions.done(row(queue, child))], now=at(4))
    assert Status.DONE is row(queue, parent).status
    assert [first] == [claim.queue_id for claim in claim_all(queue, at(5))]


def test_a_job_woken_for_the_lock_waits_again_when_a_parent_takes_it(queue):
    parent, child = failed_parent(queue)
    _, second, third = put(queue, *many(3, "other", lock_key="doc:1"), now=at(2))
    done(queue, claim_one(queue, at(2)), at(2))

    queue.requeue([parent], now=at(3))

    assert [child] == [claim.queue_id for claim in claim_all(queue, at(3))]
    queue.settle([transitions.done(row(queue, child))], now=at(4))
    for expected in (second, third):
        claim = claim_one(queue, at(5))
        assert expected == claim.queue_id
        done(queue, claim, at(5))


def claim_each(queue, now):
    """Claim all claimable jobs, in several calls if needed."""
    found = []
    while claims := claim_all(queue, now):
        found += claims
    return found


def test_children_whose_lock_is_taken_stay_failed_until_it_is_free(queue, monkeypatch):
    """More children than one batch, each a parent with a separate lock."""
    for module in (engine, redis_queue):
        monkeypatch.setattr(module, "CASCADE_BATCH", 5)
    number = 6
    top = running(queue, new("top", item_type="folder"))
    middles = tuple(new(f"middle{i:04}", item_type="folder", lock_key=f"doc:{i}") for i in range(number))
    queue.settle([transitions.waits(top, children=middles)], now=T0)
    claims = claim_each(queue, T0)
    queue.settle(
        [transitions.waits(each, children=(new(f"leaf {each.queue_id}"),)) for each in claims], now=T0
    )
    queue.settle([transitions.timed_out(each) for each in claim_each(queue, at(1))], now=at(1))
    assert Status.FAILED is row(queue, top.queue_id).status
    put(queue, *(new(f"other{i}", lock_key=f"doc:{i}") for i in range(number)), now=at(2))
    others = claim_each(queue, at(2))
    assert number == len(others)

    assert Status.IN_PROGRESS is queue.requeue([top.queue_id], now=at(3))[0].now
    assert [] == claim_all(queue, at(3))

    queue.settle([transitions.done(each) for each in others], now=at(4))
    queue.reconcile(now=at(5))
    leaves = claim_each(queue, at(5))
    assert number == len(leaves)
    queue.settle([transitions.done(each) for each in leaves], now=at(6))
    assert Status.DONE is row(queue, top.queue_id).status


def test_of_two_parents_with_one_lock_the_first_waits_again(queue):
    first, second = (failed_parent(queue, new(f"child of {key}"), key=key) for key in ("one", "two"))

    answers = queue.requeue([first[0], second[0], second[1]], now=at(2))

    assert [None, first[0], first[0]] == [answer.twin for answer in answers]
    assert [True, False] == [row(queue, parent).lock_held for parent, _ in (first, second)]
    assert [first[1]] == [claim.queue_id for claim in claim_all(queue, at(2))]
