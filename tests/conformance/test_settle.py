"""Settling: every way a claim can end."""

from datetime import timedelta

import msgspec
import pytest

from penstock.errors import DuplicateId
from penstock.queue import transitions
from penstock.queue.job import Held, JobQuery, Status
from penstock.queue.retry import FUNCTION_BACKOFF, JOB_BACKOFF, Classification
from tests.conformance.conftest import (
    T0,
    TRANSIENT,
    at,
    claim_all,
    claim_one,
    done,
    fail,
    many,
    new,
    put,
    retry,
    row,
    running,
)


def test_done_ends_the_job(queue):
    claim = running(queue)
    assert [Status.DONE] == queue.settle([transitions.done(claim, result_json='{"n":3}')], now=at(9))
    job = row(queue, claim.queue_id)
    assert (Status.DONE, at(9), at(9)) == (job.status, job.finished_at, job.updated_at)
    assert (None, {"n": 3}) == (job.lease_until, job.result)


def test_an_ended_job_still_says_who_worked_on_it_and_since_when(queue):
    claim = running(queue)
    done(queue, claim, at(9))
    job = row(queue, claim.queue_id)
    assert ("w1", T0) == (job.worker_id, job.started_at)


def test_done_clears_the_last_error(queue):
    claim = running(queue)
    retry(queue, claim)
    done(queue, claim_one(queue, at(5)), at(6))
    job = row(queue, claim.queue_id)
    assert (Status.DONE, None, None) == (job.status, job.error_code, job.error_message)


def test_done_keeps_the_number_of_retries_it_took(queue):
    claim = running(queue)
    retry(queue, claim)
    done(queue, claim_one(queue, at(5)), at(6))
    assert 1 == row(queue, claim.queue_id).retry_count


def test_a_failed_job_keeps_the_progress_it_ended_with(queue):
    claim = running(queue)
    ending = transitions.failed(claim, "ERR_UNKNOWN", "no")
    queue.settle([msgspec.structs.replace(ending, progress_json='{"traceback":"here"}')], now=at(9))
    assert {"traceback": "here"} == row(queue, claim.queue_id).progress


def test_a_failed_job_keeps_its_error(queue):
    claim = running(queue)
    fail(queue, claim, at(9))
    job = row(queue, claim.queue_id)
    assert (Status.FAILED, at(9), at(9)) == (job.status, job.finished_at, job.last_error_at)
    assert ("ERR_PARSE", "not a PDF") == (job.error_code, job.error_message)


def test_a_timeout_is_final(queue):
    claim = running(queue, new(timeout_s=60))
    queue.settle([transitions.timed_out(claim)], now=at(60))
    job = row(queue, claim.queue_id)
    assert (Status.FAILED, "ERR_JOB_TIMEOUT") == (job.status, job.error_code)
    assert "Timeout after 60s" == job.error_message


def test_a_transient_failure_is_tried_again_after_the_back_off(queue):
    claim = running(queue)
    answer = queue.settle([transitions.failed_attempt(claim, TRANSIENT, "no route")], now=at(1))
    job = row(queue, claim.queue_id)
    assert [Status.PENDING] == answer
    assert (Held.TIME, at(6), 1) == (job.held, job.run_at, job.retry_count)
    assert (None, None) == (job.lease_until, job.finished_at)
    assert [] == claim_all(queue, at(5.999))
    assert claim.queue_id == claim_one(queue, at(6)).queue_id


def test_the_last_error_shows_while_the_job_retries(queue):
    claim = running(queue)
    retry(queue, claim, at(1))
    job = row(queue, claim.queue_id)
    assert ("ERR_NETWORK", "no route", at(1)) == (job.error_code, job.error_message, job.last_error_at)
    claim_one(queue, at(60))
    assert "no route" == row(queue, claim.queue_id).error_message


def test_the_back_off_grows(queue):
    claim = running(queue, new(max_retries=8))
    due = []
    for i in range(8):
        retry(queue, claim, at(1000 * i))
        due.append(row(queue, claim.queue_id).run_at)
        claim = claim_one(queue, at(1000 * (i + 1)))
    delays = [JOB_BACKOFF.seconds(number) for number in range(1, 9)]
    assert [at(1000 * i + delay) for i, delay in enumerate(delays)] == due


def test_functions_have_a_back_off_of_their_own(queue):
    claim = running(queue, new(item_type="function", op="run"))
    settlement = transitions.failed_attempt(claim, TRANSIENT, "x", schedule=FUNCTION_BACKOFF, jitter=1.0)
    queue.settle([settlement], now=T0)
    assert at(1.1) == row(queue, claim.queue_id).run_at


def test_a_servers_retry_after_is_honoured(queue):
    claim = running(queue)
    failure = Classification("transient", "ERR_RATE_LIMITED", timedelta(seconds=77))
    queue.settle([transitions.failed_attempt(claim, failure, "slow down")], now=T0)
    assert at(77) == row(queue, claim.queue_id).run_at


@pytest.mark.parametrize("max_retries", [0, 1, 3])
def test_there_are_max_retries_after_the_first_attempt(queue, max_retries):
    (queue_id,) = put(queue, new(max_retries=max_retries))
    attempts = 0
    while claims := claim_all(queue, at(1000 * attempts)):
        retry(queue, claims[0], at(1000 * attempts))
        attempts += 1
    assert (1 + max_retries, Status.FAILED) == (attempts, row(queue, queue_id).status)


def test_a_permanent_failure_is_not_tried_again(queue):
    claim = running(queue)
    failure = Classification("permanent", "ERR_FILE_NOT_FOUND")
    assert [Status.FAILED] == queue.settle([transitions.failed_attempt(claim, failure, "gone")], now=T0)


def test_what_is_given_back_is_due_at_once_and_unspent(queue):
    claim = running(queue)
    assert [Status.PENDING] == queue.settle([transitions.released(claim, "shutdown")], now=at(1))
    job = row(queue, claim.queue_id)
    assert (0, None, None, None) == (job.retry_count, job.held, job.run_at, job.error_message)
    assert claim.queue_id == claim_one(queue, at(1), worker="w2").queue_id


def test_what_is_given_back_comes_before_what_was_never_tried(queue):
    claim = running(queue)
    put(queue, *many(3, "later"))
    queue.settle([transitions.released(claim, "shutdown")], now=at(1))
    assert claim.queue_id == claim_one(queue, at(1)).queue_id


def test_what_is_given_back_can_wait(queue):
    claim = running(queue)
    queue.settle([transitions.released(claim, "no handler", delay=timedelta(seconds=30))], now=T0)
    assert [] == claim_all(queue, at(29))
    assert claim.queue_id == claim_one(queue, at(30)).queue_id


def test_the_reason_for_giving_back_can_be_shown_as_the_error(queue):
    claim = running(queue)
    release = transitions.released(claim, "qdrant is down", delay=timedelta(seconds=30), code="ERR_BUSY")
    queue.settle([release], now=T0)
    job = row(queue, claim.queue_id)
    assert ("ERR_BUSY", "qdrant is down", 0) == (job.error_code, job.error_message, job.retry_count)


def test_giving_back_does_not_forget_the_retries_spent(queue):
    claim = running(queue)
    retry(queue, claim)
    queue.settle([transitions.released(claim_one(queue, at(5)), "shutdown")], now=at(6))
    job = row(queue, claim.queue_id)
    assert (1, "no route") == (job.retry_count, job.error_message)


def test_a_handler_that_stopped_at_the_flag_leaves_a_cancelled_job(queue):
    claim = running(queue)
    queue.cancel([claim.queue_id], now=at(1))
    assert [Status.CANCELLED] == queue.settle([transitions.cancelled_by_flag(claim)], now=at(2))
    job = row(queue, claim.queue_id)
    assert ("ERR_CANCELLED", "Cancelled by user", at(2)) == (
        job.error_code,
        job.error_message,
        job.finished_at,
    )


def test_a_job_can_wait_for_its_document(queue):
    claim = running(queue)
    settlement = transitions.waits(claim, "document", progress_json='{"pages":4}')
    assert [Status.IN_PROGRESS] == queue.settle([settlement], now=at(1))
    job = row(queue, claim.queue_id)
    assert (True, "document", None) == (job.waiting, job.waiting_for, job.lease_until)
    assert {"pages": 4} == job.progress


def test_a_waiting_job_is_settled_under_its_present_claim_number(queue):
    claim = running(queue)
    queue.settle([transitions.waits(claim, "document")], now=at(1))
    waiting = row(queue, claim.queue_id)
    assert [Status.DONE] == queue.settle([transitions.done(waiting)], now=at(2))


def test_a_batch_is_answered_in_its_order(queue):
    put(queue, *many(4))
    first, second, third, fourth = claim_all(queue)
    settlements = [
        transitions.failed(third, "ERR_PARSE", "x"),
        transitions.done(first),
        transitions.released(fourth, "shutdown"),
        transitions.cancelled_by_flag(second),
    ]
    assert [Status.FAILED, Status.DONE, Status.PENDING, Status.CANCELLED] == queue.settle(settlements, now=T0)


def test_of_two_ends_of_a_job_in_one_batch_the_first_counts(queue):
    put(queue, *many(3))
    first, second, third = claim_all(queue)
    settlements = [
        transitions.failed(first, "ERR_PARSE", "x"),
        transitions.done(second, result_json="1"),
        transitions.done(first),
        transitions.failed(second, "ERR_PARSE", "x"),
        transitions.done(third, result_json="1"),
        transitions.done(third, result_json="2"),
    ]
    assert [Status.FAILED, Status.DONE, None, None, Status.DONE, None] == queue.settle(settlements, now=T0)
    assert 1 == row(queue, third.queue_id).result


def test_plain_ends_alone_count_once_for_a_job(queue):
    claim = running(queue, new("k", dedupe=True, lock_key="lock"))
    ends = [transitions.done(claim, result_json="1"), transitions.done(claim, result_json="2")]
    assert [Status.DONE, None] == queue.settle(ends, now=T0)
    assert 1 == row(queue, claim.queue_id).result
    # Its key is free: the same job can be added again.
    assert not queue.add([new("k", dedupe=True)], now=T0)[0].dedupe_hit


def test_a_late_holder_that_was_not_reaped_may_settle(queue):
    claim = running(queue)
    assert [Status.DONE] == queue.settle([transitions.done(claim)], now=at(10_000))


def test_nothing_to_settle_is_no_work(queue):
    assert [] == queue.settle([], now=T0)


def test_a_settle_with_a_childs_id_taken_changes_nothing(queue):
    first, second = running(queue, new("first")), running(queue, new("second"))
    (other,) = put(queue, new("other"))
    before = queue.find(JobQuery())
    settlements = [
        transitions.done(first),
        transitions.waits(second, children=(new("child"), new("bad", queue_id=other))),
    ]
    with pytest.raises(DuplicateId):
        queue.settle(settlements, now=T0)
    assert before == queue.find(JobQuery())


def test_an_error_that_quotes_bytes_which_are_no_text_is_kept_readable(queue):
    message = "no such file: caf\udce9\x00.txt"
    first, second = running(queue, new("first")), running(queue, new("second"))
    again = transitions.failed_attempt(second, Classification("transient", "ERR_X"), message)
    queue.settle([transitions.failed(first, "ERR_X", message), again], now=T0)
    for claim in (first, second):
        assert "no such file: caf\\udce9\\x00.txt" == row(queue, claim.queue_id).error_message
