"""Requeue: failed and cancelled jobs run again, and nothing else."""

import pytest

from penstock.queue import transitions
from penstock.queue.job import JobQuery, RequeueResult, Status
from penstock.queue.protocol import CASCADE_BATCH
from tests.conformance.conftest import (
    T0,
    at,
    claim_all,
    claim_one,
    done,
    fail,
    many,
    new,
    put,
    reap,
    retry,
    row,
    running,
)


def failed_job(queue, request=None):
    claim = running(queue, request or new())
    fail(queue, claim)
    return claim.queue_id


def folder(queue, *children, key="parent"):
    """Add a folder waiting for children and return the id."""
    claim = running(queue, new(key, item_type="folder"))
    queue.settle([transitions.waits(claim, children=children)], now=T0)
    return claim.queue_id


def failed_folder(queue):
    """Add a folder of three with a failed second child; returns the ids."""
    parent = folder(queue, *many(3, "c"))
    first, second, third = claim_all(queue)
    queue.settle([transitions.done(first), transitions.timed_out(second), transitions.done(third)], now=at(1))
    return parent, first.queue_id, second.queue_id, third.queue_id


def failed_tree(queue):
    """Three levels, failed from the bottom up; the ids from the top down."""
    top = folder(queue, new("middle", item_type="folder"))
    middle = claim_one(queue)
    queue.settle([transitions.waits(middle, children=(new("leaf"), new("good leaf")))], now=T0)
    leaf, good = claim_all(queue)
    queue.settle([transitions.done(good), transitions.timed_out(leaf)], now=at(1))
    return top, middle.queue_id, leaf.queue_id


def statuses(queue, *ids):
    return [row(queue, queue_id).status for queue_id in ids]


def test_a_requeued_job_gets_new_metadata_only_for_that_which_it_had(queue):
    before, after = '{"asked_at":"1","of":[],"n":1.0}', '{"asked_at":"2","of":[],"n":1.0}'
    named, changed, plain = (
        failed_job(queue, new(key, metadata=text))
        for key, text in (("named", before), ("changed", '{"asked_at":"3"}'), ("plain", "{}"))
    )
    parent, _, child, _ = failed_folder(queue)

    queue.requeue([named, changed], metadata={before: after}, now=at(2))
    queue.requeue([plain], metadata={"{}": before}, now=at(2))
    queue.requeue([parent], metadata={"{}": after}, now=at(2))

    found = [row(queue, one).metadata for one in (named, changed, plain, parent, child)]
    assert [after, '{"asked_at":"3"}', before, after, "{}"] == found
    assert {after, before, '{"asked_at":"3"}', "{}"} == {claim.metadata for claim in claim_all(queue)}


def test_a_retry_takes_the_cancel_back_and_keeps_the_error_of_an_attempt(queue):
    (cancelled,) = put(queue, new("cancelled"))
    queue.cancel([cancelled], now=T0)
    failed = failed_job(queue, new("failed"))
    parent = folder(queue, *many(2, "c"), key="cancelled parent")
    queue.cancel([parent], now=T0)
    assert Status.CANCELLED is row(queue, parent).status

    queue.requeue([cancelled, failed, parent], now=at(1))

    for queue_id in (cancelled, parent):
        job = row(queue, queue_id)
        assert (None, None, None) == (job.error_code, job.error_message, job.last_error_at)
        assert "cancelled" in [event.what for event in job.history]
    assert row(queue, failed).error_message
    children = queue.find(JobQuery(parent_id=parent))
    assert [None, None] == [child.error_message for child in children]
    claim_all(queue)
    assert None is row(queue, cancelled).error_message


def test_a_failed_job_runs_again_from_the_start(queue):
    queue_id = failed_job(queue, new(max_retries=0))
    assert [RequeueResult(queue_id, Status.FAILED, Status.PENDING)] == queue.requeue([queue_id], now=at(9))
    job = row(queue, queue_id)
    assert (Status.PENDING, 2, 0, None) == (job.status, job.run, job.retry_count, job.finished_at)
    assert (None, None, at(9)) == (job.held, job.progress, job.updated_at)
    assert queue_id == claim_one(queue, at(9)).queue_id


def test_a_requeued_job_has_all_its_retries(queue):
    claim = running(queue, new(max_retries=1))
    retry(queue, claim)
    retry(queue, claim_one(queue, at(5)), at(5))
    queue.requeue([claim.queue_id], now=at(6))
    retry(queue, claim_one(queue, at(6)), at(6))
    assert (Status.PENDING, 1) == (row(queue, claim.queue_id).status, row(queue, claim.queue_id).retry_count)


def test_a_requeued_job_can_keep_to_the_retries_it_has_left(queue):
    claim = running(queue, new(max_retries=1))
    retry(queue, claim)
    fail(queue, claim_one(queue, at(5)), at(5))
    queue.requeue([claim.queue_id], keep_retries=True, now=at(6))
    retry(queue, claim_one(queue, at(6)), at(6))
    assert Status.FAILED is row(queue, claim.queue_id).status


def test_the_last_error_shows_until_the_job_is_done(queue):
    queue_id = failed_job(queue)
    queue.requeue([queue_id], now=at(1))
    assert "not a PDF" == row(queue, queue_id).error_message
    done(queue, claim_one(queue, at(2)), at(2))
    assert None is row(queue, queue_id).error_message


def test_a_cancelled_job_runs_again(queue):
    (queue_id,) = put(queue, new())
    queue.cancel([queue_id], now=at(1))
    assert [RequeueResult(queue_id, Status.CANCELLED, Status.PENDING)] == queue.requeue([queue_id], now=at(2))
    assert not row(queue, queue_id).cancel_requested
    done(queue, claim_one(queue, at(3)), at(3))


@pytest.mark.parametrize("status", [Status.PENDING, Status.IN_PROGRESS, Status.DONE])
def test_what_has_not_ended_badly_is_refused(queue, status):
    (queue_id,) = put(queue, new())
    if status is not Status.PENDING:
        claim = claim_one(queue)
        queue.settle([transitions.done(claim)] if status is Status.DONE else [], now=T0)
    before = row(queue, queue_id)
    (answer,) = queue.requeue([queue_id], now=at(1))
    assert (RequeueResult(queue_id, status, status), True) == (answer, answer.refused)
    assert before == row(queue, queue_id)


def test_an_unknown_job_is_refused(queue):
    (answer,) = queue.requeue(["job_none"], now=T0)
    assert (RequeueResult("job_none", None, None), True) == (answer, answer.refused)


def test_a_live_twin_refuses_and_is_named(queue):
    queue_id = failed_job(queue)
    (twin,) = put(queue, new())
    (answer,) = queue.requeue([queue_id], now=at(1))
    assert (RequeueResult(queue_id, Status.FAILED, Status.FAILED, twin), True) == (answer, answer.refused)
    assert Status.FAILED is row(queue, queue_id).status


def test_an_ended_twin_does_not_refuse(queue):
    queue_id = failed_job(queue)
    done(queue, running(queue))
    assert not queue.requeue([queue_id], now=at(1))[0].refused


def test_a_row_without_dedupe_has_no_twin(queue):
    queue_id = failed_job(queue, new(dedupe=False))
    put(queue, new())
    assert not queue.requeue([queue_id], now=at(1))[0].refused


def test_of_two_failed_twins_one_comes_back(queue):
    ids = [failed_job(queue), failed_job(queue)]
    answers = queue.requeue(ids, now=at(1))
    assert [None, ids[0]] == [answer.twin for answer in answers]
    assert [Status.PENDING, Status.FAILED] == statuses(queue, *ids)


def test_many_are_answered_in_their_order(queue):
    failed, ended = failed_job(queue, new("a")), running(queue, new("b"))
    done(queue, ended)
    answers = queue.requeue([ended.queue_id, "job_none", failed], now=at(1))
    assert [True, True, False] == [answer.refused for answer in answers]


def test_a_crash_suspect_stays_one(queue):
    claim = running(queue, new(max_retries=0))
    reap(queue, at(301))
    queue.requeue([claim.queue_id], now=at(302))
    put(queue, *many(2), now=at(302))
    assert [claim.queue_id] == [c.queue_id for c in claim_all(queue, at(303))]


def test_a_requeued_job_takes_its_turn(queue):
    queue_id = failed_job(queue)
    waiting = put(queue, *many(2))
    queue.requeue([queue_id], now=at(1))
    assert [*waiting, queue_id] == [claim.queue_id for claim in claim_all(queue, at(2))]


# Parents.


def test_only_the_failed_children_of_a_parent_run_again(queue):
    parent, first, second, third = failed_folder(queue)
    answer = queue.requeue([parent], now=at(2))
    assert [RequeueResult(parent, Status.FAILED, Status.IN_PROGRESS)] == answer
    assert [Status.DONE, Status.PENDING, Status.DONE] == statuses(queue, first, second, third)
    job = row(queue, parent)
    assert (True, None, 1, 0) == (job.waiting, job.finished_at, job.children_open, job.children_failed)
    assert [second] == [claim.queue_id for claim in claim_all(queue, at(3))]


def test_a_parent_is_done_when_its_failed_children_are(queue):
    parent, *_ = failed_folder(queue)
    queue.requeue([parent], now=at(2))
    done(queue, claim_one(queue, at(3)), at(4))
    job = row(queue, parent)
    assert (Status.DONE, None, at(4), 1) == (job.status, job.error_message, job.finished_at, job.run)


def test_a_parent_fails_again_when_its_children_do(queue):
    parent, _, second, _ = failed_folder(queue)
    queue.requeue([parent], now=at(2))
    fail(queue, claim_one(queue, at(3)), at(4))
    assert f"1 of 3 files failed ({second})" == row(queue, parent).error_message


def test_a_cancelled_tree_runs_again(queue):
    parent = folder(queue, *many(3, "c"))
    done(queue, claim_one(queue))
    queue.cancel([parent], now=at(1))
    queue.requeue([parent], now=at(2))
    claims = claim_all(queue, at(3))
    assert (2, 2) == (len(claims), row(queue, parent).children_open)
    queue.settle([transitions.done(claim) for claim in claims], now=at(4))
    assert Status.DONE is row(queue, parent).status


def test_a_parent_that_failed_by_itself_runs_again_itself(queue):
    parent = failed_job(queue, new(item_type="folder"))
    assert [RequeueResult(parent, Status.FAILED, Status.PENDING)] == queue.requeue([parent], now=at(1))
    again = claim_one(queue, at(2))
    queue.settle([transitions.waits(again, children=(new("c"),))], now=at(2))
    done(queue, claim_one(queue, at(3)), at(3))
    assert Status.DONE is row(queue, parent).status


def test_a_parent_that_timed_out_waiting_waits_again_for_its_open_children(queue):
    parent = folder(queue, *many(2, "c"))
    queue.settle([transitions.timed_out(row(queue, parent))], now=at(1))
    queue.requeue([parent], now=at(2))
    assert (True, 2) == (row(queue, parent).waiting, row(queue, parent).children_open)
    queue.settle([transitions.done(claim) for claim in claim_all(queue, at(3))], now=at(3))
    assert Status.DONE is row(queue, parent).status


def test_requeueing_the_top_reaches_the_failed_leaf(queue):
    top, middle, leaf = failed_tree(queue)
    queue.requeue([top], now=at(2))
    assert [leaf] == [claim.queue_id for claim in claim_all(queue, at(3))]
    assert [True, True] == [row(queue, queue_id).waiting for queue_id in (top, middle)]


def test_a_tree_is_done_when_its_requeued_leaf_is(queue):
    top, middle, leaf = failed_tree(queue)
    queue.requeue([top], now=at(2))
    done(queue, claim_one(queue, at(3)), at(4))
    assert [Status.DONE] * 3 == statuses(queue, top, middle, leaf)


def test_a_parent_puts_back_more_children_than_one_batch_holds(queue):
    parent = folder(queue, *many(CASCADE_BATCH + 50, "c"))
    queue.settle([transitions.timed_out(c) for c in claim_all(queue, limit=2000)], now=at(1))
    queue.requeue([parent], now=at(2))
    job = row(queue, parent)
    assert (True, CASCADE_BATCH + 50, 0) == (job.waiting, job.children_open, job.children_failed)
    assert CASCADE_BATCH + 50 == len(claim_all(queue, at(3), limit=2000))


# Children.


def test_a_requeued_child_opens_its_failed_parent(queue):
    parent, _, second, _ = failed_folder(queue)
    assert [RequeueResult(second, Status.FAILED, Status.PENDING)] == queue.requeue([second], now=at(2))
    job = row(queue, parent)
    assert (True, None, 1, 0) == (job.waiting, job.finished_at, job.children_open, job.children_failed)
    done(queue, claim_one(queue, at(3)), at(4))
    assert Status.DONE is row(queue, parent).status


def test_a_requeued_leaf_opens_all_its_failed_ancestors(queue):
    top, middle, leaf = failed_tree(queue)
    queue.requeue([leaf], now=at(2))
    assert [Status.IN_PROGRESS, Status.IN_PROGRESS, Status.PENDING] == statuses(queue, top, middle, leaf)
    done(queue, claim_one(queue, at(3)), at(4))
    assert [Status.DONE] * 3 == statuses(queue, top, middle, leaf)


def test_a_failed_child_can_run_again_while_its_parent_still_waits(queue):
    parent = folder(queue, *many(2, "c"))
    first, second = claim_all(queue)
    fail(queue, first)
    queue.requeue([first.queue_id], now=at(1))
    job = row(queue, parent)
    assert (2, 0) == (job.children_open, job.children_failed)
    done(queue, second, at(2))
    assert Status.IN_PROGRESS is row(queue, parent).status
    done(queue, claim_one(queue, at(3)), at(3))
    assert Status.DONE is row(queue, parent).status


def test_one_of_two_failed_children_can_run_again_alone(queue):
    parent = folder(queue, *many(2, "c"))
    first, second = claim_all(queue)
    queue.settle([transitions.timed_out(first), transitions.timed_out(second)], now=at(1))
    queue.requeue([first.queue_id], now=at(2))
    done(queue, claim_one(queue, at(3)), at(3))
    assert f"1 of 2 files failed ({second.queue_id})" == row(queue, parent).error_message


def test_a_requeued_child_leaves_a_cancelled_parent_cancelled(queue):
    children = many(2, "c")
    parent = folder(queue, *children)
    queue.cancel([parent], now=at(1))
    queue.requeue([children[0].queue_id], now=at(2))
    assert [Status.CANCELLED, Status.PENDING] == statuses(queue, parent, children[0].queue_id)
    done(queue, claim_one(queue, at(3)), at(3))
    assert Status.CANCELLED is row(queue, parent).status


def test_a_live_twin_of_the_parent_refuses_the_child(queue):
    parent, _, second, _ = failed_folder(queue)
    (twin,) = put(queue, new("parent", item_type="folder"))
    (answer,) = queue.requeue([second], now=at(2))
    assert (twin, True) == (answer.twin, answer.refused)
    assert [Status.FAILED, Status.FAILED] == statuses(queue, parent, second)


def test_a_live_job_with_the_key_of_a_child_does_not_refuse_it(queue):
    _, _, second, _ = failed_folder(queue)
    put(queue, new("c1"))
    assert not queue.requeue([second], now=at(2))[0].refused


def test_a_child_of_an_earlier_run_does_not_open_its_parent(queue):
    parent = running(queue, new("parent", item_type="folder"))
    queue.settle([transitions.expanded(parent, (new("old"),))], now=T0)
    old = claim_one(queue)
    fail(queue, parent)
    fail(queue, old)
    queue.requeue([parent.queue_id], now=at(1))
    fail(queue, claim_one(queue, at(1)), at(1))
    queue.requeue([old.queue_id], now=at(2))
    assert [Status.FAILED, Status.PENDING] == statuses(queue, parent.queue_id, old.queue_id)


def test_requeueing_what_failed_leaves_other_jobs_alone(queue):
    failed = failed_job(queue, new("a"))
    other = failed_job(queue, new("b"))
    before = row(queue, other)
    queue.requeue([failed], now=at(1))
    assert [before] == queue.find(JobQuery(statuses=frozenset({Status.FAILED})))


@pytest.mark.parametrize(("keep", "expected"), [(False, 0), (True, 1)])
def test_a_requeued_job_has_all_its_retries_or_those_it_had_left(queue, keep, expected):
    claim = running(queue)
    retry(queue, claim)
    fail(queue, claim_one(queue, at(3600)), at(3600))
    (answer,) = queue.requeue([claim.queue_id], keep_retries=keep, now=at(3601))
    assert Status.PENDING is answer.now
    assert expected == row(queue, claim.queue_id).retry_count
