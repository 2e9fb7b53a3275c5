"""Next jobs of a claim, and the start of one job by id."""

from __future__ import annotations

from datetime import timedelta
from itertools import count

import pytest

from penstock.queue import transitions
from penstock.queue.job import ClaimRequest, Scope, Status
from tests.conformance.conftest import T0, at, claim_all, claim_one, done, many, new, put, retry, row, running

HAND = ClaimRequest("hand", lease=timedelta(hours=2))


_keys = count()


def one(queue, now=T0, **fields):
    """Add one job with a unique key and return the id."""
    return put(queue, new(f"own{next(_keys)}", **fields), now=now)[0]


def run(queue, **fields):
    return running(queue, new(f"own{next(_keys)}", **fields))


def upcoming(queue, **asked):
    return [job.queue_id for job in queue.upcoming(now=at(60), **asked)]


def test_upcoming_is_what_a_claim_takes(queue):
    for number in range(6):
        one(queue, at(number), priority=number % 3)

    found = upcoming(queue)

    assert 6 == len(found)
    assert found == [claim.queue_id for claim in claim_all(queue, at(60))]


def test_upcoming_has_one_job_for_each_lock_and_none_of_a_lock_that_is_held(queue):
    first, _, other, free = (one(queue, lock_key=key) for key in ("a", "a", "b", None))
    assert [first, other, free] == upcoming(queue)

    assert first == claim_one(queue, at(60)).queue_id

    assert [other, free] == upcoming(queue)


def test_a_job_that_waits_for_a_retry_keeps_its_lock(queue):
    claim = run(queue, lock_key="a")
    one(queue, lock_key="a")
    retry(queue, claim, at(59))

    assert [] == upcoming(queue)
    assert [claim.queue_id] == [job.queue_id for job in queue.upcoming(now=at(600))]


def test_upcoming_has_jobs_whose_time_has_come(queue):
    due = one(queue, run_at=at(50))
    one(queue, run_at=at(70))

    assert [due] == upcoming(queue)


def test_upcoming_leaves_out_what_is_paused(queue):
    one(queue, tenant_id="acme")
    other = one(queue, tenant_id="other")
    queue.pause(Scope("acme", "*"))

    assert [other] == upcoming(queue)
    claim_all(queue, at(60))
    assert [] == upcoming(queue)


def test_upcoming_of_one_item_type_and_no_more_than_asked(queue):
    ids = [one(queue, item_type="function", op="run") for _ in range(3)]
    one(queue)

    assert ids == upcoming(queue, item_type="function")
    assert ids[:2] == upcoming(queue, item_type="function", limit=2)


def test_upcoming_reads_past_a_long_line_of_one_lock(queue):
    first = put(queue, *many(1100, lock_key="a"))[0]
    last = one(queue, at(1), lock_key="b")

    assert [first, last] == upcoming(queue)


def test_upcoming_changes_nothing(queue):
    job = one(queue, run_at=at(50))
    before = row(queue, job)
    upcoming(queue)
    assert before == row(queue, job)


def test_a_job_is_started_by_its_id(queue):
    one(queue)
    second = one(queue)

    claim = queue.start(second, HAND, now=at(5))

    job = row(queue, second)
    assert (Status.IN_PROGRESS, "hand", at(5), at(5) + HAND.lease) == (
        job.status,
        job.worker_id,
        job.started_at,
        job.lease_until,
    )
    assert (job.claim_number, job.payload_json) == (claim.claim_number, claim.payload_json)
    assert [Status.DONE] == queue.settle([transitions.done(claim)], now=at(6))
    assert 1 == len(claim_all(queue, at(7)))


def test_a_job_is_started_once(queue):
    job = one(queue)

    assert queue.start(job, HAND, now=at(1)) is not None
    assert queue.start(job, HAND, now=at(1)) is None
    assert [] == claim_all(queue, at(2))


def test_several_jobs_are_started_by_their_ids(queue):
    """Those that cannot start are left alone: here the second of a lock, and one that is running."""
    first, second, running, last = (one(queue, lock_key=lock) for lock in ("a", "a", None, None))
    assert queue.start(running, HAND, now=at(1)) is not None

    claims = queue.start_all([last, first, second, running, "unknown"], HAND, now=at(5))

    assert [last, first] == [claim.queue_id for claim in claims]
    assert [at(5)] * 2 == [row(queue, job).started_at for job in (first, last)]
    assert (Status.PENDING, at(1)) == (row(queue, second).status, row(queue, running).started_at)
    assert [Status.DONE] * 2 == queue.settle([transitions.done(claim) for claim in claims], now=at(6))
    assert [second] == [claim.queue_id for claim in claim_all(queue, at(7))]


@pytest.mark.parametrize("why", ["unknown", "ended", "paused", "locked"])
def test_a_job_that_cannot_start_is_left_alone(queue, why):
    if why == "unknown":
        assert queue.start("nobody", HAND, now=at(1)) is None
        return
    if why == "locked":
        run(queue, lock_key="a")
    job = one(queue, lock_key="a")
    if why == "ended":
        done(queue, claim_one(queue, at(1)), at(2))
    if why == "paused":
        queue.pause(Scope("*", "*"))
        claim_all(queue, at(1))
    before = row(queue, job)

    assert queue.start(job, HAND, now=at(5)) is None

    assert before == row(queue, job)


def test_a_started_job_keeps_others_of_its_lock_waiting(queue):
    first, second = one(queue, lock_key="a"), one(queue, lock_key="a")
    claim = queue.start(second, HAND, now=at(1))

    assert [] == claim_all(queue, at(2))
    done(queue, claim, at(3))

    assert [first] == [each.queue_id for each in claim_all(queue, at(4))]


def test_a_parked_or_delayed_job_can_be_started_when_its_lock_is_free(queue):
    claim = run(queue, lock_key="a")
    parked = one(queue, lock_key="a")
    later = one(queue, run_at=at(900))
    assert [] == claim_all(queue, at(1))
    done(queue, claim, at(2))

    for job in (parked, later):
        assert queue.start(job, HAND, now=at(3)) is not None
        assert (Status.IN_PROGRESS, None, None) == (
            row(queue, job).status,
            row(queue, job).held,
            row(queue, job).run_at,
        )


def test_a_failure_by_hand_spends_a_retry_as_far_as_there_is_one(queue):
    job = ""
    for spent in (1, 2, 2):
        job = job or one(queue, max_retries=2)
        claim = queue.start(job, HAND, now=at(1))
        queue.settle([transitions.failed_by_hand(claim, "ERR_UNKNOWN", "no")], now=at(2))
        assert (Status.FAILED, spent) == (row(queue, job).status, row(queue, job).retry_count)
        queue.requeue([job], keep_retries=True, now=at(3))
