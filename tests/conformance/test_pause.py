"""Pause: no more claims from a scope; running jobs go on."""

import pytest

from penstock.queue import transitions
from penstock.queue.job import Beat, ClaimRequest, Held, JobQuery, RenewResult, Scope, Status
from penstock.queue.protocol import CASCADE_BATCH
from tests.conformance.conftest import (
    LEASE,
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

PLACES = [("A", "x"), ("A", "y"), ("B", "x"), ("B", "y")]


def places(queue):
    """One job in each of two collections of two tenants."""
    put(queue, *[new(f"{t}{c}", tenant_id=t, collection=c) for t, c in PLACES])


def claimed(queue, second=1):
    return {f"{claim.tenant_id}{claim.collection}" for claim in claim_all(queue, at(second))}


@pytest.mark.parametrize(
    ("scopes", "expected"),
    [
        ([], {"Ax", "Ay", "Bx", "By"}),
        ([Scope("A")], {"Bx", "By"}),
        ([Scope(collection="x")], {"Ay", "By"}),
        ([Scope("A", "x")], {"Ay", "Bx", "By"}),
        ([Scope("A"), Scope(collection="x")], {"By"}),
        ([Scope("A", "x"), Scope("B", "y")], {"Ay", "Bx"}),
        ([Scope()], set()),
    ],
    ids=["nothing", "tenant", "collection", "both of one", "tenant and collection", "two", "everything"],
)
def test_a_pause_covers_what_it_names(queue, scopes, expected):
    places(queue)
    for scope in scopes:
        queue.pause(scope, now=at(0))
    assert expected == claimed(queue)


def test_the_paused_scopes_can_be_read(queue):
    assert frozenset() == queue.paused()
    for scope in (Scope("A"), Scope("A"), Scope(collection="x")):
        queue.pause(scope, now=at(0))
    assert {Scope("A"), Scope(collection="x")} == queue.paused()
    queue.resume(Scope("A"), now=at(1))
    assert {Scope(collection="x")} == queue.paused()


def test_a_job_met_by_a_claim_shows_that_it_is_paused(queue):
    (queue_id,) = put(queue, new())
    queue.pause(Scope("acme"), now=at(1))
    assert [] == claim_all(queue, at(2))
    assert (Status.PENDING, Held.PAUSE) == (row(queue, queue_id).status, row(queue, queue_id).held)


def test_what_is_added_in_a_pause_is_not_claimed(queue):
    queue.pause(Scope("acme"), now=at(0))
    put(queue, *many(3))
    assert [] == claim_all(queue, at(1))


def test_what_runs_goes_on(queue):
    claim = running(queue)
    queue.pause(Scope("acme"), now=at(1))
    beat = Beat(claim.queue_id, claim.claim_number, LEASE)
    assert [RenewResult(held=True)] == queue.renew([beat], now=at(2))
    assert [Status.DONE] == queue.settle([transitions.done(claim)], now=at(3))


def test_what_comes_back_in_a_pause_waits(queue):
    retry(queue, running(queue))
    queue.pause(Scope("acme"), now=at(1))
    assert [] == claim_all(queue, at(60))


def test_children_are_paused_too(queue):
    parent = running(queue, new("parent", item_type="folder"))
    queue.settle([transitions.waits(parent, children=(new("c", collection="x"),))], now=at(0))
    queue.pause(Scope(collection="x"), now=at(1))
    assert [] == claim_all(queue, at(2))


def test_the_oldest_is_not_claimed_from_a_pause(queue):
    put(queue, new("old", tenant_id="A"))
    queue.pause(Scope("A"), now=at(1))
    assert [] == queue.claim(ClaimRequest("w1", oldest=True), now=at(2))


def test_resume_releases_what_was_held_and_says_how_many(queue):
    ids = put(queue, *many(3))
    queue.pause(Scope("acme"), now=at(1))
    claim_all(queue, at(1))
    assert 3 == queue.resume(Scope("acme"), now=at(2))
    assert ids == [claim.queue_id for claim in claim_all(queue, at(3))]


def test_resume_of_what_no_claim_has_met_releases_nothing(queue):
    put(queue, *many(3))
    queue.pause(Scope("acme"), now=at(1))
    assert 0 == queue.resume(Scope("acme"), now=at(2))
    assert 3 == len(claim_all(queue, at(3)))


def test_resume_of_what_is_not_paused_does_nothing(queue):
    put(queue, *many(3))
    queue.pause(Scope("acme"), now=at(1))
    claim_all(queue, at(1))
    assert 0 == queue.resume(Scope("other"), now=at(2))
    assert [] == claim_all(queue, at(3))


def test_resume_of_one_of_two_pauses_keeps_the_other(queue):
    places(queue)
    queue.pause(Scope("A"), now=at(1))
    queue.pause(Scope(collection="x"), now=at(1))
    assert {"By"} == claimed(queue)
    assert 1 == queue.resume(Scope("A"), now=at(2))
    assert {"Ay"} == claimed(queue, 3)
    assert 2 == queue.resume(Scope(collection="x"), now=at(4))
    assert {"Ax", "Bx"} == claimed(queue, 5)


def test_a_general_resume_does_not_end_a_narrower_pause(queue):
    places(queue)
    queue.pause(Scope("A", "x"), now=at(1))
    queue.resume(Scope("A"), now=at(2))
    assert {"Ay", "Bx", "By"} == claimed(queue, 3)


def test_resume_keeps_the_order_by_priority_and_age(queue):
    ids = [put(queue, new(f"p{i}", priority=p), now=at(i))[0] for i, p in enumerate((1, 9, 5, 9))]
    queue.pause(Scope("acme"), now=at(4))
    claim_all(queue, at(4))
    queue.resume(Scope("acme"), now=at(5))
    assert [ids[1], ids[3], ids[2], ids[0]] == [claim.queue_id for claim in claim_all(queue, at(6))]


def test_resume_releases_more_than_one_batch_holds(queue):
    put(queue, *many(CASCADE_BATCH + 50))
    queue.pause(Scope("acme"), now=at(1))
    assert [] == claim_all(queue, at(1))
    assert CASCADE_BATCH + 50 == queue.resume(Scope("acme"), now=at(2))
    assert CASCADE_BATCH + 50 == len(claim_all(queue, at(3), limit=2000))


def test_a_suspect_released_from_a_pause_is_still_claimed_alone(queue):
    claim = running(queue)
    reap(queue, at(301))
    queue.pause(Scope("acme"), now=at(302))
    assert [] == claim_all(queue, at(302))
    queue.resume(Scope("acme"), now=at(303))
    put(queue, *many(2), now=at(303))
    assert [claim.queue_id] == [c.queue_id for c in claim_all(queue, at(304))]


def test_a_paused_job_can_be_cancelled(queue):
    (queue_id,) = put(queue, new())
    queue.pause(Scope("acme"), now=at(1))
    claim_all(queue, at(1))
    queue.cancel([queue_id], now=at(2))
    assert Status.CANCELLED is row(queue, queue_id).status
    assert 0 == queue.resume(Scope("acme"), now=at(3))


def test_a_paused_job_is_joined_by_its_twin(queue):
    (queue_id,) = put(queue, new())
    queue.pause(Scope("acme"), now=at(1))
    claim_all(queue, at(1))
    put(queue, new(priority=9, payload_json='{"v":2}'), now=at(2))
    job = row(queue, queue_id)
    assert (Held.PAUSE, 9, {"v": 2}) == (job.held, job.priority, job.payload)
    assert 1 == queue.resume(Scope("acme"), now=at(3))
    done(queue, claim_one(queue, at(4)), at(4))


def test_rows_held_by_a_pause_can_be_counted(queue):
    put(queue, *many(3, tenant_id="A"), new("b", tenant_id="B"))
    queue.pause(Scope("A"), now=at(1))
    claim_all(queue, at(1))
    pending = JobQuery(statuses=frozenset({Status.PENDING}))
    assert {("A", Held.PAUSE): 3} == queue.count(pending, by=["tenant_id", "held"])


def test_a_claim_leaves_due_jobs_alone_while_everything_is_paused(queue):
    (later,) = put(queue, new(run_at=at(5)))
    queue.pause(Scope(), now=at(1))
    for second in (6, 7):
        assert [] == claim_all(queue, at(second))
        assert (Held.TIME, at(5)) == (row(queue, later).held, row(queue, later).run_at)
    queue.resume(Scope(), now=at(8))
    assert later == claim_one(queue, at(9)).queue_id
