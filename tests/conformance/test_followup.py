"""Follow-ups: a request during a run is done by the next run, and never lost."""

import pytest

from penstock.queue import transitions
from penstock.queue.job import AddResult, Beat, Held, RenewResult, Status
from tests.conformance.conftest import (
    LEASE,
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


def followed(queue, first=None, **again):
    """A running job with a follow-up of another payload."""
    claim = running(queue, first or new())
    put(queue, new(**({"op": "update", "payload_json": '{"v":2}'} | again)), now=at(1))
    return claim


def test_a_running_twin_answers_with_its_next_run(queue):
    claim = running(queue)
    expected = AddResult(claim.queue_id, Status.IN_PROGRESS, 2, dedupe_hit=True)
    assert [expected] == queue.add([new()], now=at(1))


def test_asking_several_times_is_answered_with_the_same_run(queue):
    claim = running(queue)
    answers = queue.add([new(), new(), new()], now=at(1))
    assert [(claim.queue_id, 2)] * 3 == [(answer.queue_id, answer.run) for answer in answers]


def test_the_present_run_is_left_alone(queue):
    claim = followed(queue)
    job = row(queue, claim.queue_id)
    assert (Status.IN_PROGRESS, 1, "ingest", {}) == (job.status, job.run, job.op, job.payload)
    assert [RenewResult(held=True)] == queue.renew(
        [Beat(claim.queue_id, claim.claim_number, LEASE)], now=at(2)
    )


@pytest.mark.parametrize(
    "end",
    [transitions.done, transitions.timed_out, transitions.cancelled_by_flag],
    ids=["done", "failed", "cancelled"],
)
def test_the_end_of_a_run_starts_the_next(queue, end):
    claim = followed(queue)
    assert [Status.PENDING] == queue.settle([end(claim)], now=at(9))
    job = row(queue, claim.queue_id)
    assert (2, "update", {"v": 2}) == (job.run, job.op, job.payload)
    assert (0, None, None, None) == (job.retry_count, job.held, job.finished_at, job.followup_json)
    assert claim.queue_id == claim_one(queue, at(9)).queue_id


def test_the_next_run_ends_like_any_other(queue):
    claim = followed(queue)
    done(queue, claim, at(2))
    done(queue, claim_one(queue, at(3)), at(4))
    job = row(queue, claim.queue_id)
    assert (Status.DONE, 2, at(4)) == (job.status, job.run, job.finished_at)


def test_the_next_run_has_all_its_retries(queue):
    claim = running(queue)
    for second in (0, 100, 200):
        retry(queue, claim, at(second))
        claim = claim_one(queue, at(second + 60))
    put(queue, new(), now=at(300))
    fail(queue, claim, at(301))
    assert 0 == row(queue, claim.queue_id).retry_count


def test_a_failed_run_leaves_its_error_in_sight(queue):
    claim = followed(queue)
    fail(queue, claim, at(2))
    assert "not a PDF" == row(queue, claim.queue_id).error_message


def test_the_next_run_starts_without_the_progress_of_the_last(queue):
    claim = running(queue)
    queue.renew([Beat(claim.queue_id, claim.claim_number, None, '{"page":7}')], now=T0)
    put(queue, new(), now=at(1))
    done(queue, claim, at(2))
    assert None is row(queue, claim.queue_id).progress


def test_the_next_run_takes_its_turn(queue):
    claim = followed(queue)
    waiting = put(queue, *many(2))
    done(queue, claim, at(2))
    assert [*waiting, claim.queue_id] == [c.queue_id for c in claim_all(queue, at(3))]


def test_a_retry_takes_the_follow_up_along(queue):
    claim = followed(queue)
    retry(queue, claim, at(2))
    job = row(queue, claim.queue_id)
    assert (Status.PENDING, 2, "update", {"v": 2}) == (job.status, job.run, job.op, job.payload)
    assert (1, Held.TIME, at(7), None) == (job.retry_count, job.held, job.run_at, job.followup_json)


def test_a_retry_counts_no_higher_than_the_follow_up_allows(queue):
    claim = followed(queue, max_retries=0)
    retry(queue, claim, at(2))
    job = row(queue, claim.queue_id)
    assert (0, 0) == (job.retry_count, job.max_retries)


def test_what_is_given_back_takes_the_follow_up_along(queue):
    claim = followed(queue)
    queue.settle([transitions.released(claim, "shutdown")], now=at(2))
    job = row(queue, claim.queue_id)
    assert (Status.PENDING, 2, {"v": 2}, None) == (job.status, job.run, job.payload, job.held)


def test_a_lost_job_takes_the_follow_up_along(queue):
    claim = followed(queue)
    reap(queue, at(301))
    job = row(queue, claim.queue_id)
    assert (Status.PENDING, 2, {"v": 2}, 1) == (job.status, job.run, job.payload, job.lost_count)


def test_a_job_lost_for_good_starts_the_follow_up_afresh(queue):
    claim = followed(queue, new(max_retries=0))
    reap(queue, at(301))
    job = row(queue, claim.queue_id)
    assert (Status.PENDING, 2, 0, 0) == (job.status, job.run, job.retry_count, job.lost_count)


def test_the_newest_follow_up_wins(queue):
    claim = followed(queue)
    put(queue, new(op="ingest", payload_json='{"v":3}', metadata='{"m":3}', timeout_s=9), now=at(2))
    done(queue, claim, at(3))
    job = row(queue, claim.queue_id)
    assert ("ingest", {"v": 3}, '{"m":3}', 9) == (job.op, job.payload, job.metadata, job.timeout_s)
    assert (2, None) == (job.run, job.followup_json)


def test_the_next_run_has_the_highest_priority_asked_for(queue):
    claim = running(queue, new(priority=4))
    for priority in (3, 8, 6):
        put(queue, new(priority=priority), now=at(1))
    assert 4 == row(queue, claim.queue_id).priority
    done(queue, claim, at(2))
    assert 8 == row(queue, claim.queue_id).priority


def test_a_follow_up_for_later_waits_for_its_time(queue):
    claim = followed(queue, run_at=at(600))
    done(queue, claim, at(2))
    job = row(queue, claim.queue_id)
    assert (Status.PENDING, Held.TIME, at(600)) == (job.status, job.held, job.run_at)
    assert [] == claim_all(queue, at(599))
    assert claim.queue_id == claim_one(queue, at(600)).queue_id


def test_a_follow_up_whose_time_has_come_meanwhile_is_due(queue):
    claim = followed(queue, run_at=at(5))
    done(queue, claim, at(6))
    assert claim.queue_id == claim_one(queue, at(6)).queue_id


def test_the_next_run_can_be_followed_too(queue):
    claim = followed(queue)
    done(queue, claim, at(2))
    claim = claim_one(queue, at(3))
    assert 3 == queue.add([new()], now=at(4))[0].run
    done(queue, claim, at(5))
    assert (Status.PENDING, 3) == (row(queue, claim.queue_id).status, row(queue, claim.queue_id).run)


def test_a_pending_next_run_is_joined_like_any_pending_job(queue):
    claim = followed(queue)
    done(queue, claim, at(2))
    assert [AddResult(claim.queue_id, Status.PENDING, 2, dedupe_hit=True)] == queue.add([new()], now=at(3))


def test_the_lock_goes_to_whoever_waited_before_the_next_run(queue):
    claim = followed(queue, new(lock_key="doc:1"), lock_key="doc:1")
    (other,) = put(queue, new("other", lock_key="doc:1"))
    assert [] == claim_all(queue, at(1))
    done(queue, claim, at(2))
    assert [other] == [c.queue_id for c in claim_all(queue, at(3))]


# Cancel and delete.


def test_a_persons_cancel_drops_the_follow_up(queue):
    claim = followed(queue)
    queue.cancel([claim.queue_id], now=at(2))
    assert [Status.CANCELLED] == queue.settle([transitions.cancelled_by_flag(claim)], now=at(3))
    assert (1, None) == (row(queue, claim.queue_id).run, row(queue, claim.queue_id).followup_json)


def test_done_after_a_persons_cancel_does_not_start_the_dropped_follow_up(queue):
    claim = followed(queue)
    queue.cancel([claim.queue_id], now=at(2))
    assert [Status.DONE] == queue.settle([transitions.done(claim)], now=at(3))


def test_what_is_asked_for_after_the_cancel_is_done(queue):
    claim = running(queue)
    queue.cancel([claim.queue_id], now=at(1))
    assert 2 == queue.add([new(payload_json='{"v":2}')], now=at(2))[0].run
    assert [Status.PENDING] == queue.settle([transitions.cancelled_by_flag(claim)], now=at(3))
    job = row(queue, claim.queue_id)
    assert (2, {"v": 2}, False) == (job.run, job.payload, job.cancel_requested)


def test_a_delete_asks_the_present_run_to_stop(queue):
    claim = followed(queue, op="delete")
    beat = Beat(claim.queue_id, claim.claim_number, LEASE)
    assert [RenewResult(held=True, cancel_requested=True)] == queue.renew([beat], now=at(2))


@pytest.mark.parametrize(
    "end",
    [transitions.cancelled_by_flag, transitions.done, transitions.timed_out, transitions.lease_lost],
    ids=lambda end: end.__name__,
)
def test_a_delete_runs_next_however_the_present_run_ends(queue, end):
    claim = followed(queue, op="delete")
    assert [Status.PENDING] == queue.settle([end(claim)], now=at(2))
    job = row(queue, claim.queue_id)
    assert (2, "delete", False) == (job.run, job.op, job.cancel_requested)
    assert ["delete"] == [c.op for c in claim_all(queue, at(60))]


def test_a_running_delete_is_not_stopped_by_another(queue):
    claim = followed(queue, new(op="delete"), op="delete")
    assert not row(queue, claim.queue_id).cancel_requested


# Jobs that wait.


def test_a_waiting_job_is_followed_like_a_running_one(queue):
    claim = running(queue)
    queue.settle([transitions.waits(claim, "document")], now=at(1))
    assert [AddResult(claim.queue_id, Status.IN_PROGRESS, 2, dedupe_hit=True)] == queue.add(
        [new()], now=at(2)
    )
    queue.settle([transitions.done(row(queue, claim.queue_id))], now=at(3))
    job = row(queue, claim.queue_id)
    assert (Status.PENDING, 2, None) == (job.status, job.run, job.waiting_for)


def test_a_parent_starts_its_next_run_when_its_last_child_ends(queue):
    claim = running(queue, new(item_type="folder"))
    queue.settle([transitions.waits(claim, children=tuple(many(2, "c")))], now=at(1))
    put(queue, new(item_type="folder", payload_json='{"v":2}'), now=at(2))
    queue.settle([transitions.done(child) for child in claim_all(queue, at(3))], now=at(4))
    job = row(queue, claim.queue_id)
    assert (Status.PENDING, 2, {"v": 2}, 0) == (job.status, job.run, job.payload, job.children_open)


def test_the_next_run_of_a_parent_has_children_of_its_own(queue):
    claim = running(queue, new(item_type="folder"))
    queue.settle([transitions.waits(claim, children=(new("c"),))], now=at(1))
    put(queue, new(item_type="folder"), now=at(2))
    done(queue, claim_one(queue, at(3)), at(3))
    again = claim_one(queue, at(4))
    queue.settle([transitions.waits(again, children=(new("c"),))], now=at(5))
    assert 1 == row(queue, claim.queue_id).children_open
    done(queue, claim_one(queue, at(6)), at(6))
    assert Status.DONE is row(queue, claim.queue_id).status


def test_children_of_the_last_run_do_not_count_for_the_next(queue):
    claim = running(queue, new(item_type="folder"))
    queue.settle([transitions.expanded(claim, tuple(many(2, "old")))], now=at(1))
    put(queue, new(item_type="folder"), now=at(2))
    fail(queue, claim, at(3))
    old = claim_all(queue, at(4), limit=2)
    again = claim_one(queue, at(4))
    queue.settle([transitions.waits(again, children=(new("fresh"),))], now=at(5))
    queue.settle([transitions.timed_out(child) for child in old], now=at(6))
    job = row(queue, claim.queue_id)
    assert (Status.IN_PROGRESS, 1, 0) == (job.status, job.children_open, job.children_failed)
