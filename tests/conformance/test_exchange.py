"""Exchange: a settle and a claim in one step, with the meaning of both."""

from penstock.queue import transitions
from penstock.queue.job import ClaimRequest, Status
from penstock.queue.protocol import Exchange
from tests.conformance.conftest import T0, at, claim_all, claim_one, done, many, new, put, row, running


def test_an_exchange_settles_and_claims(queue):
    ids = put(queue, *many(4))
    held = claim_all(queue, limit=2)
    exchange = queue.exchange([transitions.done(claim) for claim in held], ClaimRequest("w1", 2), now=at(1))
    assert [Status.DONE, Status.DONE] == exchange.settled
    assert ids[2:] == [claim.queue_id for claim in exchange.claims]
    assert [Status.IN_PROGRESS] * 2 == [row(queue, queue_id).status for queue_id in ids[2:]]


def test_nothing_to_settle_and_nothing_to_claim(queue):
    assert Exchange([], []) == queue.exchange([], ClaimRequest("w1"), now=T0)


def test_what_is_given_back_can_be_claimed_in_the_same_step(queue):
    claim = running(queue)
    exchange = queue.exchange([transitions.released(claim, "again")], ClaimRequest("w1"), now=at(1))
    assert [(claim.queue_id, 2)] == [(c.queue_id, c.claim_number) for c in exchange.claims]


def test_a_lock_is_passed_on_in_the_same_step(queue):
    _, second = put(queue, *many(2, lock_key="doc:1"))
    (holder,) = claim_all(queue)
    exchange = queue.exchange([transitions.done(holder)], ClaimRequest("w1", 10), now=at(1))
    assert [second] == [claim.queue_id for claim in exchange.claims]


def test_a_lock_freed_by_a_job_with_a_follow_up_is_passed_on_in_order(queue):
    """PostgreSQL may claim rows without a lock before this job is settled; see docs/decisions/0018."""
    holder = running(queue, new("holder", lock_key="doc:1"))
    first, second = put(queue, *many(2, "parked", lock_key="doc:1"))
    assert claim_all(queue) == []
    # The last claim met nothing special, so PostgreSQL expects the same of the next.
    running(queue, new("plain"))
    put(queue, new("holder", lock_key="doc:1"))
    others = put(queue, *many(2, "other"))
    exchange = queue.exchange([transitions.done(holder)], ClaimRequest("w1", 2), now=at(1))
    claims = {claim.queue_id: claim for claim in (*exchange.claims, *claim_all(queue, at(1)))}
    assert {first, *others} == set(claims)
    done(queue, claims[first], at(2))
    last = claim_one(queue, at(2))
    assert second == last.queue_id
    done(queue, last, at(3))
    assert [holder.queue_id] == [claim.queue_id for claim in claim_all(queue, at(3))]


def test_children_can_be_claimed_in_the_step_that_adds_them(queue):
    parent = running(queue, new("parent", item_type="folder"))
    waits = transitions.waits(parent, children=tuple(many(3, "c")))
    exchange = queue.exchange([waits], ClaimRequest("w1", 10), now=at(1))
    assert [parent.queue_id] * 3 == [claim.parent_id for claim in exchange.claims]


def test_an_exchange_ends_a_parent(queue):
    parent = running(queue, new("parent", item_type="folder"))
    queue.settle([transitions.waits(parent, children=(new("c"),))], now=T0)
    queue.exchange([transitions.done(claim_one(queue))], ClaimRequest("w1"), now=at(1))
    assert Status.DONE is row(queue, parent.queue_id).status


def test_a_lost_claim_is_lost_in_an_exchange_too(queue):
    stale = running(queue)
    queue.settle([transitions.released(stale, "shutdown")], now=at(1))
    exchange = queue.exchange([transitions.done(stale)], ClaimRequest("w2"), now=at(2))
    assert [None] == exchange.settled
    assert [stale.queue_id] == [claim.queue_id for claim in exchange.claims]


def test_the_children_of_a_cancelled_parent_are_stopped_after_an_exchange(queue):
    parent = running(queue, new("parent", item_type="folder"))
    children = many(3, "c", run_at=at(60))
    queue.settle([transitions.expanded(parent, tuple(children))], now=T0)
    queue.cancel([parent.queue_id], now=at(1))
    queue.exchange([transitions.cancelled_by_flag(parent)], ClaimRequest("w1", 10), now=at(2))
    assert [Status.CANCELLED] * 3 == [row(queue, child.queue_id).status for child in children]
    assert Status.CANCELLED is row(queue, parent.queue_id).status
