"""Cancel: at once for pending jobs, by a flag for running ones, with all children, never after the end."""

import pytest

from penstock.queue import transitions
from penstock.queue.job import CancelResult, Held, JobQuery, Status
from penstock.queue.protocol import CASCADE_BATCH
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


def statuses(queue, *ids):
    return [row(queue, queue_id).status for queue_id in ids]


def waiting_folder(queue, *children):
    claim = running(queue, new("parent", item_type="folder"))
    queue.settle([transitions.waits(claim, children=children)], now=T0)
    return claim


def test_a_pending_job_is_cancelled_at_once(queue):
    (queue_id,) = put(queue, new())
    assert [CancelResult(queue_id, Status.PENDING, Status.CANCELLED)] == queue.cancel([queue_id], now=at(1))
    job = row(queue, queue_id)
    assert (Status.CANCELLED, at(1)) == (job.status, job.finished_at)
    assert ("ERR_CANCELLED", "Cancelled by user") == (job.error_code, job.error_message)
    assert [] == claim_all(queue, at(2))


def test_a_scheduled_job_is_cancelled_at_once(queue):
    (queue_id,) = put(queue, new(run_at=at(60)))
    queue.cancel([queue_id], now=at(1))
    job = row(queue, queue_id)
    assert (Status.CANCELLED, None, None) == (job.status, job.held, job.run_at)
    assert [] == claim_all(queue, at(61))


def test_a_job_in_back_off_is_cancelled_at_once(queue):
    claim = running(queue)
    retry(queue, claim)
    queue.cancel([claim.queue_id], now=at(1))
    assert Status.CANCELLED is row(queue, claim.queue_id).status


def test_a_running_job_is_asked_to_stop(queue):
    claim = running(queue)
    expected = CancelResult(claim.queue_id, Status.IN_PROGRESS, Status.IN_PROGRESS)
    assert [expected] == queue.cancel([claim.queue_id], now=at(1))
    job = row(queue, claim.queue_id)
    assert (True, claim.lease_until, claim.claim_number) == (
        job.cancel_requested,
        job.lease_until,
        job.claim_number,
    )


@pytest.mark.parametrize(
    ("reported", "expected"),
    [
        (transitions.done, Status.DONE),
        (transitions.timed_out, Status.FAILED),
        (transitions.cancelled_by_flag, Status.CANCELLED),
        (lambda claim: transitions.failed_attempt(claim, TRANSIENT, "x"), Status.CANCELLED),
        (lambda claim: transitions.released(claim, "shutdown"), Status.CANCELLED),
        (transitions.lease_lost, Status.CANCELLED),
    ],
    ids=["done", "failed", "cancelled", "retry", "released", "lost"],
)
def test_what_is_reported_after_the_flag(queue, reported, expected):
    claim = running(queue)
    queue.cancel([claim.queue_id], now=at(1))
    assert [expected] == queue.settle([reported(claim)], now=at(2))
    assert (expected, at(2)) == (row(queue, claim.queue_id).status, row(queue, claim.queue_id).finished_at)


def test_a_job_that_waits_for_its_document_is_cancelled_at_once(queue):
    claim = running(queue)
    queue.settle([transitions.waits(claim, "document")], now=at(1))
    answer = queue.cancel([claim.queue_id], now=at(2))
    assert [CancelResult(claim.queue_id, Status.IN_PROGRESS, Status.CANCELLED)] == answer


@pytest.mark.parametrize("end", [transitions.done, transitions.timed_out, transitions.cancelled_by_flag])
def test_an_ended_job_is_left_untouched(queue, end):
    claim = running(queue)
    queue.settle([end(claim)], now=at(1))
    before = row(queue, claim.queue_id)
    (answer,) = queue.cancel([claim.queue_id], now=at(2))
    assert (True, before.status, before.status) == (answer.refused, answer.was, answer.now)
    assert before == row(queue, claim.queue_id)


def test_an_unknown_job_is_refused(queue):
    (answer,) = queue.cancel(["job_none"], now=T0)
    assert (CancelResult("job_none", None, None), True) == (answer, answer.refused)


def test_many_are_cancelled_in_one_call_and_answered_in_its_order(queue):
    claim = running(queue, new("running"))
    (pending,) = put(queue, new("pending"))
    answers = queue.cancel([pending, "job_none", claim.queue_id, pending], now=at(1))
    assert [Status.PENDING, None, Status.IN_PROGRESS, Status.CANCELLED] == [answer.was for answer in answers]
    assert [False, True, False, True] == [answer.refused for answer in answers]


def test_a_cancelled_key_is_free(queue):
    (queue_id,) = put(queue, new())
    queue.cancel([queue_id], now=at(1))
    assert not queue.add([new()], now=at(2))[0].dedupe_hit


# Trees.


def test_a_waiting_parent_is_cancelled_with_its_pending_children(queue):
    children = many(3, "c")
    parent = waiting_folder(queue, *children)
    queue.cancel([parent.queue_id], now=at(1))
    ids = [parent.queue_id, *(child.queue_id for child in children)]
    assert [Status.CANCELLED] * 4 == statuses(queue, *ids)
    assert [at(1)] * 4 == [row(queue, queue_id).finished_at for queue_id in ids]


def test_a_waiting_parent_ends_with_its_last_running_child(queue):
    parent = waiting_folder(queue, *many(2, "c"))
    child = claim_one(queue)
    assert [CancelResult(parent.queue_id, Status.IN_PROGRESS, Status.IN_PROGRESS)] == queue.cancel(
        [parent.queue_id], now=at(1)
    )
    assert (True, True) == (row(queue, child.queue_id).cancel_requested, row(queue, parent.queue_id).waiting)
    queue.settle([transitions.cancelled_by_flag(child)], now=at(2))
    assert (Status.CANCELLED, at(2)) == (
        row(queue, parent.queue_id).status,
        row(queue, parent.queue_id).finished_at,
    )


def test_a_parent_that_was_asked_to_stop_is_cancelled_even_if_its_last_child_is_done(queue):
    parent = waiting_folder(queue, new("c"))
    child = claim_one(queue)
    queue.cancel([parent.queue_id], now=at(1))
    done(queue, child, at(2))
    assert [Status.DONE, Status.CANCELLED] == statuses(queue, child.queue_id, parent.queue_id)


def test_ended_children_are_left_untouched(queue):
    parent = waiting_folder(queue, *many(2, "c"))
    child = claim_one(queue)
    done(queue, child)
    before = row(queue, child.queue_id)
    queue.cancel([parent.queue_id], now=at(1))
    assert before == row(queue, child.queue_id)
    assert Status.CANCELLED is row(queue, parent.queue_id).status


def test_a_cancel_reaches_through_two_levels(queue):
    top = waiting_folder(queue, new("middle", item_type="folder"), new("file", priority=0))
    middle = claim_one(queue)
    queue.settle([transitions.waits(middle, children=tuple(many(2, "leaf")))], now=T0)
    leaf = claim_one(queue)
    queue.cancel([top.queue_id], now=at(1))
    flagged = {job.queue_id for job in queue.find(JobQuery(statuses=frozenset({Status.IN_PROGRESS})))}
    assert {top.queue_id, middle.queue_id, leaf.queue_id} == flagged
    assert [True] * 3 == [row(queue, queue_id).cancel_requested for queue_id in flagged]
    queue.settle([transitions.cancelled_by_flag(leaf)], now=at(2))
    assert {(Status.CANCELLED,): 5} == queue.count(JobQuery(), by=["status"])


def test_a_running_parent_takes_its_children_with_it_when_it_stops(queue):
    parent = running(queue, new("parent", item_type="folder"))
    children = many(2, "c")
    queue.settle([transitions.expanded(parent, tuple(children))], now=T0)
    queue.cancel([parent.queue_id], now=at(1))
    assert [Status.PENDING] * 2 == statuses(queue, *(child.queue_id for child in children))
    queue.settle([transitions.cancelled_by_flag(parent)], now=at(2))
    assert {(Status.CANCELLED,): 3} == queue.count(JobQuery(), by=["status"])


def test_a_parent_that_goes_to_wait_after_the_flag_is_cancelled_with_its_children(queue):
    parent = running(queue, new("parent", item_type="folder"))
    queue.cancel([parent.queue_id], now=at(1))
    queue.settle([transitions.waits(parent, children=tuple(many(3, "c")))], now=at(2))
    assert {(Status.CANCELLED,): 4} == queue.count(JobQuery(), by=["status"])


def test_a_parent_in_back_off_is_cancelled_with_its_children(queue):
    parent = running(queue, new("parent", item_type="folder"))
    queue.settle([transitions.expanded(parent, tuple(many(2, "c")))], now=T0)
    retry(queue, parent)
    child = claim_one(queue)
    queue.cancel([parent.queue_id], now=at(1))
    assert (True, None) == (row(queue, parent.queue_id).waiting, row(queue, parent.queue_id).held)
    queue.settle([transitions.cancelled_by_flag(child)], now=at(2))
    assert {(Status.CANCELLED,): 3} == queue.count(JobQuery(), by=["status"])


def test_cancelling_a_child_leaves_its_parent_alone(queue):
    children = many(2, "c")
    parent = waiting_folder(queue, *children)
    queue.cancel([children[0].queue_id], now=at(1))
    job = row(queue, parent.queue_id)
    assert (Status.IN_PROGRESS, False, 1) == (job.status, job.cancel_requested, job.children_open)


def test_a_cancel_reaches_more_children_than_one_batch_holds(queue):
    parent = waiting_folder(queue, *many(CASCADE_BATCH + 50, "c"))
    queue.cancel([parent.queue_id], now=at(1))
    assert {(Status.CANCELLED,): CASCADE_BATCH + 51} == queue.count(JobQuery(), by=["status"])


def test_cancelled_children_pass_their_locks_on(queue):
    parent = waiting_folder(queue, new("a", lock_key="doc:1"))
    retry(queue, claim_one(queue))
    (outsider,) = put(queue, new("b", lock_key="doc:1"))
    assert [] == claim_all(queue, at(1))
    assert Held.LOCK is row(queue, outsider).held
    queue.cancel([parent.queue_id], now=at(1))
    assert outsider == claim_one(queue, at(1)).queue_id


def test_a_failure_after_the_flag_fails_the_parent_too(queue):
    parent = waiting_folder(queue, new("c"))
    child = claim_one(queue)
    queue.cancel([parent.queue_id], now=at(1))
    fail(queue, child, at(2))
    assert [Status.FAILED, Status.FAILED] == statuses(queue, child.queue_id, parent.queue_id)
