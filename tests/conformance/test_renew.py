"""Signs of life: longer leases, progress, and the question whether to stop."""

from datetime import timedelta

import msgspec

from penstock.queue import transitions
from penstock.queue.job import Beat, RenewResult
from tests.conformance.conftest import LEASE, T0, at, claim_all, done, many, new, put, reap, row, running


def test_a_renewal_counts_from_now(queue):
    claim = running(queue)
    beat = Beat(claim.queue_id, claim.claim_number, timedelta(seconds=60))
    assert [RenewResult(held=True)] == queue.renew([beat], now=at(10))
    assert at(70) == row(queue, claim.queue_id).lease_until


def test_a_renewed_job_does_not_expire(queue):
    claim = running(queue)
    queue.renew([Beat(claim.queue_id, claim.claim_number, LEASE)], now=at(299))
    assert [] == queue.expired(now=at(301))


def test_a_beat_without_a_lease_leaves_it_as_it_is(queue):
    claim = running(queue)
    assert [RenewResult(held=True)] == queue.renew([Beat(claim.queue_id, claim.claim_number)], now=at(10))
    assert claim.lease_until == row(queue, claim.queue_id).lease_until


def test_progress_is_written(queue):
    claim = running(queue)
    queue.renew([Beat(claim.queue_id, claim.claim_number, None, '{"done":3}')], now=at(10))
    job = row(queue, claim.queue_id)
    assert ({"done": 3}, at(10)) == (job.progress, job.updated_at)


def test_progress_stays_when_a_beat_has_none(queue):
    claim = running(queue)
    queue.renew([Beat(claim.queue_id, claim.claim_number, None, '{"done":3}')], now=at(10))
    queue.renew([Beat(claim.queue_id, claim.claim_number, LEASE)], now=at(20))
    assert {"done": 3} == row(queue, claim.queue_id).progress


def test_progress_outlives_a_lost_worker(queue):
    claim = running(queue)
    queue.renew([Beat(claim.queue_id, claim.claim_number, None, '{"page":7}')], now=at(10))
    reap(queue, at(301))
    assert [{"page": 7}] == [claim.progress for claim in claim_all(queue, at(301))]


def test_what_is_given_back_can_carry_its_progress(queue):
    claim = running(queue)
    queue.renew([Beat(claim.queue_id, claim.claim_number, None, '{"page":7}')], now=at(10))
    released = msgspec.structs.replace(transitions.released(claim, "shutdown"), progress_json='{"page":8}')
    queue.settle([released], now=at(11))
    assert {"page": 8} == row(queue, claim.queue_id).progress


def test_a_beat_tells_that_the_job_should_stop(queue):
    claim = running(queue)
    queue.cancel([claim.queue_id], now=at(1))
    beat = Beat(claim.queue_id, claim.claim_number, LEASE)
    assert [RenewResult(held=True, cancel_requested=True)] == queue.renew([beat], now=at(2))


def test_a_late_holder_that_was_not_reaped_may_renew(queue):
    claim = running(queue)
    beat = Beat(claim.queue_id, claim.claim_number, LEASE)
    assert [RenewResult(held=True)] == queue.renew([beat], now=at(1000))
    assert [] == queue.expired(now=at(1001))


def test_an_ended_job_is_not_held(queue):
    claim = running(queue)
    done(queue, claim)
    assert [RenewResult(held=False)] == queue.renew([Beat(claim.queue_id, claim.claim_number, LEASE)], now=T0)


def test_an_unknown_job_is_not_held(queue):
    assert [RenewResult(held=False)] == queue.renew([Beat("job_none", 1, LEASE)], now=T0)


def test_a_waiting_job_is_not_held(queue):
    claim = running(queue)
    queue.settle([transitions.waits(claim, "document")], now=T0)
    number = row(queue, claim.queue_id).claim_number
    assert [RenewResult(held=False)] == queue.renew([Beat(claim.queue_id, number, LEASE)], now=T0)
    assert row(queue, claim.queue_id).waiting


def test_many_beats_are_answered_in_their_order(queue):
    put(queue, *many(3))
    first, second, third = claim_all(queue)
    done(queue, second)
    beats = [Beat(claim.queue_id, claim.claim_number, LEASE, "{}") for claim in (third, second, first)]
    assert [True, False, True] == [answer.held for answer in queue.renew(beats, now=at(1))]


def test_no_beats_are_no_work(queue):
    running(queue, new())
    assert [] == queue.renew([], now=T0)
