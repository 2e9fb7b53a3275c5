"""Lost workers: expired leases, and the cost of a loss."""

from penstock.queue import transitions
from penstock.queue.job import ClaimRequest, Held, Status
from tests.conformance.conftest import (
    LEASE,
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


def test_a_job_past_its_lease_is_expired(queue):
    claim = running(queue)
    assert [] == queue.expired(now=T0 + LEASE)
    assert [row(queue, claim.queue_id)] == queue.expired(now=at(300.001))


def test_only_leased_jobs_expire(queue):
    put(queue, *many(4))
    waiting, ended, retried, expiring = claim_all(queue)
    queue.settle([transitions.waits(waiting, "document"), transitions.done(ended)], now=T0)
    retry(queue, retried)
    assert [expiring.queue_id] == [job.queue_id for job in queue.expired(now=at(10_000))]


def test_the_longest_expired_come_first_and_no_more_than_asked_for(queue):
    put(queue, *many(3))
    ids = [claim_one(queue, at(second)).queue_id for second in (0, 1, 2)]
    assert ids[:2] == [job.queue_id for job in queue.expired(now=at(1000), limit=2)]


def test_the_first_loss_is_due_at_once_and_spends_a_retry(queue):
    claim = running(queue)
    reap(queue, at(301))
    job = row(queue, claim.queue_id)
    assert (Status.PENDING, None, None) == (job.status, job.held, job.lease_until)
    assert (1, 1) == (job.retry_count, job.lost_count)
    assert ("ERR_WORKER_LOST", "Worker lost in attempt 1 of 4") == (job.error_code, job.error_message)


def test_a_loss_after_a_retry_is_still_the_first_loss(queue):
    retry(queue, running(queue))
    claim = claim_one(queue, at(5))
    reap(queue, at(400))
    job = row(queue, claim.queue_id)
    assert (None, 2, 1) == (job.held, job.retry_count, job.lost_count)


def test_the_second_loss_waits_for_the_back_off(queue):
    claim = running(queue)
    reap(queue, at(301))
    claim_one(queue, at(301))
    reap(queue, at(700))
    job = row(queue, claim.queue_id)
    assert (Held.TIME, at(710), 2, 2) == (job.held, job.run_at, job.retry_count, job.lost_count)


def test_a_job_that_takes_its_worker_down_every_time_fails(queue):
    (queue_id,) = put(queue, new(max_retries=3))
    attempts = 0
    while claim_all(queue, at(1000 * attempts)):
        reap(queue, at(1000 * attempts + 301))
        attempts += 1
    job = row(queue, queue_id)
    assert (4, Status.FAILED, 4) == (attempts, job.status, job.lost_count)
    said = "Max retries (3) exceeded after restart: worker lost in attempt 4 of 4"
    assert ("ERR_WORKER_LOST", said) == (job.error_code, job.error_message)


def test_a_job_that_ends_well_after_a_loss_is_done(queue):
    claim = running(queue)
    reap(queue, at(301))
    done(queue, claim_one(queue, at(301)), at(302))
    job = row(queue, claim.queue_id)
    assert (Status.DONE, None) == (job.status, job.error_message)


def test_a_holder_that_settled_in_time_is_not_lost(queue):
    claim = running(queue)
    (expired,) = queue.expired(now=at(301))
    done(queue, claim, at(301))
    assert [None] == queue.settle([transitions.lease_lost(expired)], now=at(302))
    assert Status.DONE is row(queue, claim.queue_id).status


def test_two_reapers_spend_one_retry(queue):
    claim = running(queue)
    losses = [transitions.lease_lost(queue.expired(now=at(301))[0]) for _ in range(2)]
    assert [Status.PENDING] == queue.settle(losses[:1], now=at(301))
    assert [None] == queue.settle(losses[1:], now=at(301))
    assert 1 == row(queue, claim.queue_id).retry_count


def test_a_reaper_does_not_take_what_was_claimed_again_meanwhile(queue):
    running(queue)
    (expired,) = queue.expired(now=at(301))
    reap(queue, at(301))
    (claim,) = queue.claim(ClaimRequest("w2"), now=at(301))
    assert [None] == queue.settle([transitions.lease_lost(expired)], now=at(302))
    assert [Status.DONE] == queue.settle([transitions.done(claim)], now=at(303))


def end_leases(queue, now):
    queue.settle([transitions.lease_ended(job) for job in queue.expired(now=now)], now=now)


def test_claims_of_a_lost_host_pay_only_when_they_are_lost_alone(queue):
    put(queue, *many(3, max_retries=0))
    claim_all(queue)

    end_leases(queue, at(301))

    suspects = [claim_all(queue, at(302 + number)) for number in range(3)]
    assert [1, 1, 1] == [len(claims) for claims in suspects]
    queue.settle([transitions.done(claim) for claims in suspects[1:] for claim in claims], now=at(310))
    end_leases(queue, at(700))
    job = row(queue, suspects[0][0].queue_id)
    assert (Status.FAILED, "ERR_WORKER_LOST") == (job.status, job.error_code)


def test_a_function_of_a_lost_host_may_have_run_and_pays(queue):
    claim = running(queue, new(item_type="function", op="run", max_retries=0))

    end_leases(queue, at(301))

    assert (Status.FAILED, "ERR_WORKER_LOST") == (
        row(queue, claim.queue_id).status,
        row(queue, claim.queue_id).error_code,
    )
