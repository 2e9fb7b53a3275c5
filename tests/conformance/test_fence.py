"""The fence: whoever lost a claim can no longer touch the job, however the claim was lost."""

import msgspec
import pytest

from penstock.queue import transitions
from penstock.queue.job import Beat, JobQuery, RenewResult, Settlement, Status
from tests.conformance.conftest import LEASE, T0, at, claim_all, claim_one, many, new, put, reap, row, running


def reaped(queue):
    stale = running(queue)
    reap(queue, at(301))
    return stale


def reaped_and_claimed_by_another(queue):
    stale = reaped(queue)
    claim_one(queue, at(302), worker="w2")
    return stale


def reaped_and_claimed_by_the_same_worker(queue):
    stale = reaped(queue)
    claim_one(queue, at(302))
    return stale


def given_back_at_shutdown(queue):
    stale = running(queue)
    queue.settle([transitions.released(stale, "shutdown")], now=at(1))
    return stale


def given_back_and_claimed_by_another(queue):
    stale = given_back_at_shutdown(queue)
    claim_one(queue, at(2), worker="w2")
    return stale


def given_back_and_claimed_by_the_same_worker(queue):
    stale = given_back_at_shutdown(queue)
    claim_one(queue, at(2))
    return stale


def handed_over_to_wait(queue):
    stale = running(queue)
    queue.settle([transitions.waits(stale, "document")], now=at(1))
    return stale


def handed_over_to_children(queue):
    stale = running(queue, new("parent", item_type="folder"))
    queue.settle([transitions.waits(stale, children=tuple(many(2, "child")))], now=at(1))
    return stale


def ended(queue):
    stale = running(queue)
    queue.settle([transitions.done(stale)], now=at(1))
    return stale


def failed_and_requeued(queue):
    stale = running(queue)
    queue.settle([transitions.timed_out(stale)], now=at(1))
    queue.requeue([stale.queue_id], now=at(2))
    claim_one(queue, at(3))
    return stale


def in_the_next_run(queue):
    stale = running(queue)
    put(queue, new(payload_json='{"v":2}'))
    queue.settle([transitions.done(stale)], now=at(1))
    claim_one(queue, at(2))
    return stale


def reopened_parent(queue):
    stale = running(queue, new("parent", item_type="folder"))
    queue.settle([transitions.waits(stale, children=(new("child"),))], now=at(1))
    queue.settle([transitions.timed_out(claim_one(queue, at(2)))], now=at(2))
    queue.requeue([stale.queue_id], now=at(3))
    return stale


def pruned(queue):
    stale = ended(queue)
    queue.prune({Status.DONE: at(100)})
    return stale


WAYS = [
    reaped,
    reaped_and_claimed_by_another,
    reaped_and_claimed_by_the_same_worker,
    given_back_at_shutdown,
    given_back_and_claimed_by_another,
    given_back_and_claimed_by_the_same_worker,
    handed_over_to_wait,
    handed_over_to_children,
    ended,
    failed_and_requeued,
    in_the_next_run,
    reopened_parent,
    pruned,
]

ENDINGS = {
    "done": transitions.done,
    "failed": transitions.timed_out,
    "released": lambda claim: transitions.released(claim, "shutdown"),
    "lost": transitions.lease_lost,
    "cancelled": transitions.cancelled_by_flag,
    "waits": lambda claim: transitions.waits(claim, children=tuple(many(2, "late child"))),
    "expanded": lambda claim: transitions.expanded(claim, tuple(many(2, "late child"))),
}


@pytest.fixture(params=WAYS, ids=lambda way: way.__name__)
def stale(request, queue):
    """Lose a claim in one of many ways."""
    return request.param(queue)


def test_a_lost_claim_cannot_settle(queue, stale):
    before = queue.find(JobQuery())
    for name, ending in ENDINGS.items():
        assert [None] == queue.settle([ending(stale)], now=at(400)), name
        assert before == queue.find(JobQuery()), name


def test_a_lost_claim_cannot_renew(queue, stale):
    before = queue.find(JobQuery())
    assert [RenewResult(held=False)] == queue.renew(
        [Beat(stale.queue_id, stale.claim_number, LEASE)], now=at(400)
    )
    assert before == queue.find(JobQuery())


def test_a_lost_claim_cannot_report_progress(queue, stale):
    before = queue.find(JobQuery())
    beat = Beat(stale.queue_id, stale.claim_number, None, '{"done":99}')
    assert [RenewResult(held=False)] == queue.renew([beat], now=at(400))
    assert before == queue.find(JobQuery())


def test_the_present_holder_is_not_disturbed_by_a_lost_claim(queue):
    stale = running(queue)
    queue.settle([transitions.released(stale, "shutdown")], now=at(1))
    present = claim_one(queue, at(2))
    queue.settle([transitions.timed_out(stale)], now=at(3))
    assert [Status.DONE] == queue.settle([transitions.done(present)], now=at(4))


def test_the_second_settlement_of_one_claim_in_a_batch_is_lost(queue):
    claim = running(queue)
    settlements = [transitions.done(claim), transitions.timed_out(claim)]
    assert [Status.DONE, None] == queue.settle(settlements, now=T0)
    assert Status.DONE is row(queue, claim.queue_id).status


def test_a_claim_that_was_given_back_in_the_same_batch_is_lost(queue):
    claim = running(queue)
    settlements = [transitions.released(claim, "shutdown"), transitions.done(claim)]
    assert [Status.PENDING, None] == queue.settle(settlements, now=T0)


def test_a_claim_number_from_the_future_is_refused(queue):
    claim = running(queue)
    ahead = msgspec.structs.replace(transitions.done(claim), claim_number=claim.claim_number + 1)
    assert [None] == queue.settle([ahead], now=T0)
    assert Status.IN_PROGRESS is row(queue, claim.queue_id).status


def test_what_is_unknown_or_was_never_claimed_cannot_be_settled(queue):
    claim = running(queue)
    (other,) = put(queue, new("other"))
    unknown = Settlement(queue_id="job_none", claim_number=1, status=Status.DONE, what="done")
    unclaimed = Settlement(queue_id=other, claim_number=0, status=Status.DONE, what="done")
    assert [None, None, Status.DONE] == queue.settle([unknown, unclaimed, transitions.done(claim)], now=T0)


def test_one_lost_claim_does_not_spoil_the_batch(queue):
    put(queue, *many(3))
    first, second, third = claim_all(queue)
    queue.settle([transitions.released(second, "shutdown")], now=at(1))
    settlements = [transitions.done(first), transitions.done(second), transitions.done(third)]
    assert [Status.DONE, None, Status.DONE] == queue.settle(settlements, now=at(2))


def test_claim_numbers_never_shrink(queue):
    claim = running(queue)
    numbers = [claim.claim_number]
    for end in ("done", "failed", "released", "lost"):
        put(queue, new())
        queue.settle([ENDINGS[end](claim)], now=at(1))
        claim = claim_one(queue, at(2))
        numbers.append(claim.claim_number)
    assert sorted(set(numbers)) == numbers
