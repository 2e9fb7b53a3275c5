"""Claim: order, leases, and the content of claims."""

from datetime import timedelta

import pytest

from penstock.queue import transitions
from penstock.queue.job import ClaimRequest, Held, JobQuery, Status
from penstock.queue.rules.rows import DUE_AT_ONCE
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


def suspect(queue, request):
    """Add a job and lose the worker; due at once."""
    claim = running(queue, request)
    reap(queue, at(301))
    return claim.queue_id


def test_an_empty_queue_gives_nothing(queue):
    assert [] == claim_all(queue)


def test_a_claim_takes_the_job_for_the_time_of_the_lease(queue):
    (queue_id,) = put(queue, new())
    queue.claim(ClaimRequest("w7", lease=timedelta(seconds=90)), now=at(1))
    job = row(queue, queue_id)
    assert (Status.IN_PROGRESS, "w7", 1) == (job.status, job.worker_id, job.claim_number)
    assert (at(91), at(1), at(1)) == (job.lease_until, job.started_at, job.updated_at)


def test_a_claim_carries_all_a_worker_needs(queue):
    put(queue, new(lock_key="doc:1", payload_json='{"a":1}', priority=3, max_retries=7))
    claim = claim_one(queue, at(1))
    job = row(queue, claim.queue_id)
    for name in claim.__struct_fields__:
        assert getattr(job, name) == getattr(claim, name), name
    assert {"a": 1} == claim.payload


def test_an_item_type_can_have_a_lease_of_its_own(queue):
    put(queue, new("a"), new("b", item_type="library"))
    request = ClaimRequest("w1", 2, LEASE, {"library": timedelta(hours=1)})
    assert [T0 + LEASE, at(3600)] == [claim.lease_until for claim in queue.claim(request, now=T0)]


def test_a_claimed_job_is_not_claimed_again(queue):
    running(queue)
    assert [] == claim_all(queue, at(10_000), worker="w2")


def test_a_claim_takes_no_more_than_its_limit(queue):
    put(queue, *many(5))
    assert [2, 2, 1, 0] == [len(claim_all(queue, limit=2)) for _ in range(4)]


def test_higher_priorities_come_first(queue):
    ids = {p: put(queue, new(f"p{p}", priority=p))[0] for p in (3, 10, 0, 7)}
    assert [ids[10], ids[7], ids[3], ids[0]] == [claim.queue_id for claim in claim_all(queue)]


def test_the_order_holds_over_several_claims(queue):
    ids = {p: put(queue, new(f"p{p}", priority=p))[0] for p in (3, 10, 0, 7)}
    assert [ids[10], ids[7], ids[3], ids[0]] == [claim_one(queue).queue_id for _ in range(4)]


def test_one_tenant_is_served_in_the_order_of_arrival(queue):
    ids = [put(queue, new(f"k{i}"), now=at(i))[0] for i in range(10)]
    assert ids == [claim.queue_id for claim in claim_all(queue, at(10))]


def test_a_scheduled_job_is_not_claimed_before_its_time(queue):
    (queue_id,) = put(queue, new(run_at=at(60)))
    assert Held.TIME is row(queue, queue_id).held
    assert [] == claim_all(queue, at(59.999))


def test_a_scheduled_job_is_claimed_at_its_time(queue):
    (queue_id,) = put(queue, new(run_at=at(60)))
    assert queue_id == claim_one(queue, at(60)).queue_id
    job = row(queue, queue_id)
    assert (None, None) == (job.held, job.run_at)


def test_a_time_that_has_passed_is_no_wait(queue):
    (queue_id,) = put(queue, new(run_at=at(-60)))
    assert queue_id == claim_one(queue).queue_id


def test_a_due_retry_comes_before_what_was_never_tried(queue):
    claim = running(queue)
    retry(queue, claim)
    put(queue, *many(3))
    assert claim.queue_id == claim_one(queue, at(5)).queue_id


def test_one_claim_promotes_a_bounded_number_of_due_jobs_and_the_next_ones_the_rest(queue):
    """With a million due rows, a claim promoting all of them would exceed every timeout."""
    ids = put(queue, *many(2 * DUE_AT_ONCE + 10, run_at=at(5)))

    claims = claim_all(queue, at(6), limit=10)

    assert 10 == len(claims)
    assert {(): DUE_AT_ONCE + 10} == queue.count(JobQuery(held=Held.TIME))
    while more := claim_all(queue, at(6), limit=DUE_AT_ONCE):
        claims += more
    assert sorted(ids) == sorted(claim.queue_id for claim in claims)


def test_a_due_retry_does_not_pass_a_higher_priority(queue):
    retry(queue, running(queue, new(priority=5)))
    (higher,) = put(queue, new("higher", priority=6))
    assert higher == claim_one(queue, at(5)).queue_id


def test_every_claim_of_a_job_has_a_higher_number(queue):
    claim = running(queue)
    numbers = [claim.claim_number]
    for _ in range(4):
        queue.settle([transitions.released(claim, "shutdown")], now=T0)
        claim = claim_one(queue)
        numbers.append(claim.claim_number)
    assert [1, 2, 3, 4, 5] == numbers


def test_started_at_is_the_start_of_the_attempt(queue):
    claim = running(queue)
    retry(queue, claim)
    claim_one(queue, at(5))
    assert at(5) == row(queue, claim.queue_id).started_at


# The oldest of the heads.


def test_the_oldest_head_can_be_asked_for(queue):
    (old,) = put(queue, new("old", priority=0))
    put(queue, *many(3, priority=9), now=at(1))
    (claim,) = queue.claim(ClaimRequest("w1", oldest=True), now=at(2))
    assert old == claim.queue_id


def test_after_the_oldest_head_the_usual_order_goes_on(queue):
    (old, next_oldest) = put(queue, *many(2, "old", priority=0))
    newer = put(queue, *many(2, priority=9), now=at(1))
    claims = queue.claim(ClaimRequest("w1", 10, oldest=True), now=at(2))
    assert [old, *newer, next_oldest] == [claim.queue_id for claim in claims]


def test_where_the_oldest_head_cannot_be_claimed_the_usual_order_holds(queue):
    running(queue, new("holder", lock_key="l"))
    put(queue, new("old", priority=0, lock_key="l"))
    put(queue, new("free", priority=1), now=at(1))
    (usual,) = put(queue, new("newest", priority=9), now=at(2))
    (claim,) = queue.claim(ClaimRequest("w1", oldest=True), now=at(3))
    assert usual == claim.queue_id


def test_asking_an_empty_queue_for_the_oldest_gives_nothing(queue):
    assert [] == queue.claim(ClaimRequest("w1", oldest=True), now=T0)


# Crash suspects: jobs whose worker was lost.


def test_a_suspect_comes_before_due_retries(queue):
    retried = running(queue, new("retried"))
    lost = running(queue, new("suspect"))
    retry(queue, retried)
    reap(queue, at(301))
    assert [lost.queue_id, retried.queue_id] == [claim_one(queue, at(302)).queue_id for _ in range(2)]


def test_a_suspect_is_claimed_alone(queue):
    lost = suspect(queue, new("suspect"))
    others = put(queue, *many(3), now=at(301))
    assert [lost] == [claim.queue_id for claim in claim_all(queue, at(302))]
    assert others == [claim.queue_id for claim in claim_all(queue, at(302))]


def test_two_suspects_are_claimed_one_by_one(queue):
    put(queue, *many(2))
    claim_all(queue)
    reap(queue, at(301))
    assert [1, 1, 0] == [len(claim_all(queue, at(302))) for _ in range(3)]


def test_a_suspect_in_the_middle_ends_the_batch_before_it(queue):
    lost = suspect(queue, new("suspect", priority=5))
    higher = put(queue, *many(2, "higher", priority=6), now=at(301))
    lower = put(queue, *many(2, "lower", priority=4), now=at(301))
    batches = [[claim.queue_id for claim in claim_all(queue, at(302))] for _ in range(3)]
    assert [higher, [lost], lower] == batches


def test_a_suspect_behind_rows_that_were_held_back_does_not_join_the_batch(queue):
    lost = suspect(queue, new("suspect", priority=5))
    running(queue, new("holder", lock_key="l", priority=9), at(301))
    (free,) = put(queue, new("free", priority=9), now=at(302))
    put(queue, *many(2, "stuck", lock_key="l", priority=9), now=at(303))
    batches = [[claim.queue_id for claim in claim_all(queue, at(304), limit=3)] for _ in range(2)]
    assert [[free], [lost]] == batches


def test_a_suspect_does_not_pass_a_higher_priority(queue):
    suspect(queue, new("suspect", priority=5))
    (higher,) = put(queue, new("higher", priority=6), now=at(301))
    assert higher == claim_one(queue, at(302)).queue_id


def test_a_suspect_that_is_the_oldest_head_is_claimed_alone(queue):
    lost = suspect(queue, new("suspect", priority=1))
    put(queue, *many(2, priority=9), now=at(301))
    claims = queue.claim(ClaimRequest("w1", 10, oldest=True), now=at(302))
    assert [lost] == [claim.queue_id for claim in claims]


def test_a_suspect_that_retries_stays_one(queue):
    lost = suspect(queue, new("suspect"))
    retry(queue, claim_one(queue, at(301)), at(301))
    put(queue, *many(2), now=at(302))
    assert [lost] == [claim.queue_id for claim in claim_all(queue, at(400))]


def test_a_suspect_that_is_given_back_stays_one(queue):
    lost = suspect(queue, new("suspect"))
    queue.settle([transitions.released(claim_one(queue, at(301)), "shutdown")], now=at(301))
    put(queue, *many(2), now=at(302))
    assert [lost] == [claim.queue_id for claim in claim_all(queue, at(302))]


def test_a_suspect_that_is_asked_for_again_stays_one(queue):
    lost = suspect(queue, new("suspect"))
    put(queue, new("suspect", priority=7), *many(2, priority=7), now=at(302))
    assert [lost] == [claim.queue_id for claim in claim_all(queue, at(302))]


@pytest.mark.parametrize("limit", [1, 2, 3, 10])
def test_rows_that_cannot_be_claimed_leave_room_for_others(queue, limit):
    running(queue, new("holder", lock_key="l"))
    put(queue, *many(5, "stuck", lock_key="l", priority=9))
    free = put(queue, *many(10, "free"))
    assert free[:limit] == [claim.queue_id for claim in claim_all(queue, limit=limit)]


def test_a_done_job_was_claimed_once(queue):
    claim = running(queue)
    done(queue, claim)
    assert 1 == row(queue, claim.queue_id).claim_number
