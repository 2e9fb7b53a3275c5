"""Results with a time to live: removed some time after the end of their job, which stays."""

from __future__ import annotations

import pytest

from penstock.queue import transitions
from penstock.queue.job import ClaimRequest, JobQuery, Status
from penstock.queue.protocol import Queue
from tests.conformance.conftest import T0, at, claim_one, fail, many, new, put, row


def end(queue: Queue, seconds: float, *, result: str = '{"sacks":3}') -> str:
    claim = claim_one(queue, at(seconds))
    queue.settle([transitions.done(claim, result_json=result)], now=at(seconds))
    return claim.queue_id


def test_a_result_is_removed_after_its_time_and_its_job_stays(queue: Queue) -> None:
    (queue_id,) = put(queue, new("a", result_ttl_s=60))
    end(queue, 1)
    assert queue.expire_results(now=at(60.9)) == 0
    assert row(queue, queue_id).result == {"sacks": 3}
    assert queue.expire_results(now=at(61)) == 1
    assert (row(queue, queue_id).status, row(queue, queue_id).result) == (Status.DONE, None)
    assert queue.expire_results(now=at(9_999)) == 0


def test_other_results_stay(queue: Queue) -> None:
    put(queue, new("a"), new("b", result_ttl_s=3600))
    ids = [end(queue, 1), end(queue, 2)]
    queue.expire_results(now=at(100))
    assert [row(queue, queue_id).result for queue_id in ids] == [{"sacks": 3}] * 2


def test_exchange_keeps_the_time_of_a_result(queue: Queue) -> None:
    put(queue, *many(3, result_ttl_s=5))
    claims = queue.claim(ClaimRequest("w1", 3), now=T0)
    queue.exchange([transitions.done(claim, result_json="1") for claim in claims], ClaimRequest("w1"), now=T0)
    queue.expire_results(now=at(5), limit=2)
    queue.expire_results(now=at(5), limit=2)
    assert {job.result_json for job in queue.find(JobQuery())} == {None}


def test_a_failed_job_and_one_without_a_result_need_nothing(queue: Queue) -> None:
    first, second = put(queue, *many(2, result_ttl_s=1))
    fail(queue, claim_one(queue))
    claim = claim_one(queue)
    queue.settle([transitions.done(claim)], now=T0)
    queue.expire_results(now=at(10))
    assert [row(queue, each).status for each in (first, second)] == [Status.FAILED, Status.DONE]


def test_the_result_of_a_later_run_has_a_time_of_its_own(queue: Queue) -> None:
    """A request that joins a running job starts it again: the first result is not that of the second run."""
    (queue_id,) = put(queue, new("a", result_ttl_s=60))
    claim = claim_one(queue)
    put(queue, new("b", idempotency_key=row(queue, queue_id).idempotency_key))
    queue.settle([transitions.done(claim, result_json="1")], now=at(1))
    end(queue, 50, result="2")
    queue.expire_results(now=at(62))
    assert row(queue, queue_id).result == 2
    queue.expire_results(now=at(110))
    assert row(queue, queue_id).result is None


def test_deleted_jobs_are_forgotten(queue: Queue) -> None:
    first, second = put(queue, *many(2, result_ttl_s=10))
    end(queue, 1)
    end(queue, 1)
    queue.purge([row(queue, first)], now=at(2))
    queue.prune({Status.DONE: at(3)})
    queue.expire_results(now=at(100))
    assert queue.get(first) is None
    assert queue.get(second) is None
    assert queue.expire_results(now=at(100)) == 0


def test_a_restored_result_has_its_time(queue: Queue) -> None:
    (queue_id,) = put(queue, new("a", result_ttl_s=60))
    end(queue, 1)
    job = row(queue, queue_id)
    queue.purge([job], now=at(2))
    assert queue.restore([job]) == [None]
    assert row(queue, queue_id) == job
    queue.expire_results(now=at(61))
    assert row(queue, queue_id).result is None


@pytest.mark.parametrize("backwards", [3600, 86_400])
def test_a_clock_set_back_keeps_results(queue: Queue, backwards: int) -> None:
    (queue_id,) = put(queue, new("a", result_ttl_s=60))
    end(queue, 1)
    queue.expire_results(now=at(-backwards))
    assert row(queue, queue_id).result == {"sacks": 3}
