"""Parents: expansion, waiting, and the end after the last child."""

import pytest

from penstock.errors import DuplicateId
from penstock.queue import transitions
from penstock.queue.job import CHILDREN, Beat, JobQuery, RenewResult, Status
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


def folder(key="parent", **fields):
    return new(key, item_type="folder", **fields)


def expand(queue, *children, parent=None):
    """Add a folder waiting for children."""
    claim = running(queue, parent or folder())
    queue.settle([transitions.waits(claim, children=children)], now=T0)
    return claim


def nested(queue):
    """A folder with one folder with one file: their claims from the top down, all but the file waiting."""
    top = expand(queue, folder("middle", priority=4))
    middle = claim_one(queue)
    queue.settle([transitions.waits(middle, children=(new("leaf", priority=3),))], now=T0)
    return top, middle, claim_one(queue)


def children_of(queue, claim):
    return queue.find(JobQuery(parent_id=claim.queue_id))


# Expansion.


def test_a_child_is_a_pending_job_that_knows_its_family(queue):
    request = new("child", priority=4, payload_json='{"a":1}', lock_key="doc:1")
    parent = expand(queue, request)
    child = row(queue, request.queue_id)
    assert (parent.queue_id, 1, parent.queue_id) == (child.parent_id, child.parent_run, child.root_id)
    assert (Status.PENDING, 4, {"a": 1}, T0) == (
        child.status,
        child.priority,
        child.payload,
        child.created_at,
    )


def test_a_grandchild_knows_its_root(queue):
    top, middle, leaf = nested(queue)
    assert (middle.queue_id, top.queue_id) == (leaf.parent_id, leaf.root_id)


def test_a_parent_expands_in_steps_and_keeps_its_claim(queue):
    parent = running(queue, folder())
    for step in range(3):
        settlement = transitions.expanded(
            parent, tuple(many(2, f"s{step}-")), progress_json=f'{{"step":{step}}}'
        )
        assert [Status.IN_PROGRESS] == queue.settle([settlement], now=at(step))
    job = row(queue, parent.queue_id)
    assert (6, {"step": 2}) == (job.children_open, job.progress)
    assert (parent.claim_number, parent.lease_until) == (job.claim_number, job.lease_until)
    beat = Beat(parent.queue_id, parent.claim_number, LEASE)
    assert [RenewResult(held=True)] == queue.renew([beat], now=at(4))


def test_several_steps_of_expansion_fit_into_one_batch(queue):
    parent = running(queue, folder())
    settlements = [
        transitions.expanded(parent, tuple(many(2, "a"))),
        transitions.expanded(parent, tuple(many(2, "b"))),
        transitions.waits(parent, children=tuple(many(2, "c"))),
    ]
    assert [Status.IN_PROGRESS] * 3 == queue.settle(settlements, now=T0)
    assert 6 == row(queue, parent.queue_id).children_open


def test_the_resume_cursor_outlives_a_lost_worker(queue):
    parent = running(queue, folder())
    queue.settle(
        [transitions.expanded(parent, tuple(many(2, "c", priority=0)), progress_json='{"at":2}')], now=T0
    )
    reap(queue, at(301))
    assert {"at": 2} == claim_one(queue, at(301)).progress


def test_an_expansion_repeated_after_a_crash_adds_nothing(queue):
    parent = running(queue, folder())
    queue.settle([transitions.expanded(parent, tuple(many(3, "c", priority=0)))], now=T0)
    reap(queue, at(301))
    again = claim_one(queue, at(301))
    settlement = transitions.waits(again, children=tuple(many(4, "c", priority=0)))
    queue.settle([settlement], now=at(302))
    assert 4 == row(queue, parent.queue_id).children_open
    assert 4 == len(children_of(queue, parent))


def test_an_expansion_repeated_after_children_ended_does_not_run_them_again(queue):
    parent = running(queue, folder(priority=1))
    queue.settle([transitions.expanded(parent, tuple(many(2, "c")))], now=T0)
    queue.settle([transitions.done(child) for child in claim_all(queue)], now=T0)
    reap(queue, at(301))
    again = claim_one(queue, at(301))
    queue.settle([transitions.waits(again, children=tuple(many(2, "c")))], now=at(302))
    assert Status.DONE is row(queue, parent.queue_id).status
    assert [] == claim_all(queue, at(303))


def test_a_child_asked_for_twice_in_one_expansion_is_one_job(queue):
    parent = expand(queue, new("c"), new("c"), new("d"))
    assert 2 == row(queue, parent.queue_id).children_open
    assert 2 == len(children_of(queue, parent))


def test_a_child_may_have_the_key_of_a_live_job(queue):
    (live,) = put(queue, new("same"))
    expand(queue, new("same"), parent=folder(priority=9))
    assert 2 == len(queue.find(JobQuery(idempotency_key="same")))
    assert None is row(queue, live).parent_id


def test_a_child_may_have_the_key_of_its_parent(queue):
    parent = expand(queue, new("parent"))
    assert [parent.queue_id] == [child.parent_id for child in children_of(queue, parent)]


def test_a_request_does_not_join_a_child(queue):
    expand(queue, new("same"))
    request = new("same")
    assert not queue.add([request], now=T0)[0].dedupe_hit
    assert None is row(queue, request.queue_id).parent_id


def test_children_of_different_parents_may_have_one_key(queue):
    parents = [expand(queue, new("same", priority=0), parent=folder(name)) for name in "ab"]
    assert [1, 1] == [len(children_of(queue, parent)) for parent in parents]


def test_children_take_turns_like_other_jobs(queue):
    expand(queue, *many(3, "c", tenant_id="A"), parent=folder(tenant_id="A"))
    put(queue, new("b", tenant_id="B"), now=at(1))
    assert "ABAA" == "".join(claim.tenant_id for claim in claim_all(queue, at(2)))


# Waiting.


def test_a_waiting_parent_has_no_worker_and_is_not_claimed(queue):
    parent = expand(queue, new("child"))
    job = row(queue, parent.queue_id)
    assert (True, CHILDREN, None) == (job.waiting, job.waiting_for, job.lease_until)
    assert ["child"] == [row(queue, c.queue_id).idempotency_key for c in claim_all(queue, at(1))]


def test_a_waiting_parent_never_expires(queue):
    expand(queue, new("child"))
    assert [] == queue.expired(now=at(1_000_000))


def test_a_parent_without_children_is_done_at_once(queue):
    parent = expand(queue)
    job = row(queue, parent.queue_id)
    assert (Status.DONE, T0) == (job.status, job.finished_at)


def test_a_parent_whose_children_have_ended_before_it_waits_is_done_at_once(queue):
    parent = running(queue, folder())
    queue.settle([transitions.expanded(parent, tuple(many(2, "c")))], now=T0)
    queue.settle([transitions.done(child) for child in claim_all(queue)], now=T0)
    assert Status.IN_PROGRESS is row(queue, parent.queue_id).status
    queue.settle([transitions.waits(parent)], now=at(1))
    assert Status.DONE is row(queue, parent.queue_id).status


def test_a_parent_that_says_done_waits_for_its_open_children(queue):
    parent = running(queue, folder())
    queue.settle([transitions.expanded(parent, (new("child"),))], now=T0)
    assert [Status.IN_PROGRESS] == queue.settle([transitions.done(parent, result_json='{"n":1}')], now=T0)
    assert row(queue, parent.queue_id).waiting
    done(queue, claim_one(queue))
    job = row(queue, parent.queue_id)
    assert (Status.DONE, {"n": 1}) == (job.status, job.result)


def test_a_parent_that_fails_does_not_wait_for_its_children(queue):
    parent = running(queue, folder())
    queue.settle([transitions.expanded(parent, (new("child"),))], now=T0)
    fail(queue, parent)
    assert Status.FAILED is row(queue, parent.queue_id).status
    done(queue, claim_one(queue))
    job = row(queue, parent.queue_id)
    assert (Status.FAILED, "not a PDF") == (job.status, job.error_message)


def test_a_parent_in_back_off_is_not_ended_by_its_children(queue):
    parent = running(queue, folder())
    queue.settle([transitions.expanded(parent, (new("child"),))], now=T0)
    retry(queue, parent)
    done(queue, claim_one(queue))
    job = row(queue, parent.queue_id)
    assert (Status.PENDING, 0) == (job.status, job.children_open)


# The end.


def test_a_parent_is_done_when_all_its_children_are(queue):
    parent = expand(queue, *many(3, "c"))
    seen = []
    for child in claim_all(queue):
        done(queue, child, at(1))
        seen.append(row(queue, parent.queue_id).status)
    assert [Status.IN_PROGRESS, Status.IN_PROGRESS, Status.DONE] == seen
    assert at(1) == row(queue, parent.queue_id).finished_at


def test_children_that_end_in_one_batch_end_their_parent(queue):
    parent = expand(queue, *many(3, "c"))
    assert [Status.DONE] * 3 == queue.settle(
        [transitions.done(child) for child in claim_all(queue)], now=at(1)
    )
    assert (Status.DONE, 0) == (row(queue, parent.queue_id).status, row(queue, parent.queue_id).children_open)


def test_a_failed_child_fails_its_parent_at_the_end(queue):
    parent = expand(queue, *many(3, "c"))
    first, second, third = claim_all(queue)
    fail(queue, second)
    assert Status.IN_PROGRESS is row(queue, parent.queue_id).status
    queue.settle([transitions.done(first), transitions.done(third)], now=at(1))
    job = row(queue, parent.queue_id)
    assert (Status.FAILED, "ERR_CHILDREN_FAILED") == (job.status, job.error_code)
    assert f"1 of 3 files failed ({second.queue_id})" == job.error_message


def test_a_failed_parent_names_three_of_its_failed_children(queue):
    parent = expand(queue, *many(5, "c"))
    claims = claim_all(queue)
    queue.settle([transitions.timed_out(child) for child in claims], now=at(1))
    named = ", ".join(claim.queue_id for claim in claims[:3])
    assert f"5 of 5 files failed ({named}, …)" == row(queue, parent.queue_id).error_message


def test_the_children_of_a_file_are_files_inside_it(queue):
    parent = expand(queue, new("child"), parent=new("parent", item_type="file", op="ingest"))
    child = claim_one(queue)
    fail(queue, child)
    assert f"1 of 1 files inside it failed ({child.queue_id})" == row(queue, parent.queue_id).error_message


def test_the_children_of_what_is_no_folder_are_called_children(queue):
    parent = expand(queue, new("child"), parent=new("parent", item_type="function", op="run"))
    child = claim_one(queue)
    fail(queue, child)
    assert f"1 of 1 children failed ({child.queue_id})" == row(queue, parent.queue_id).error_message


def test_a_child_that_retries_keeps_its_parent_waiting(queue):
    parent = expand(queue, new("child"))
    retry(queue, claim_one(queue))
    job = row(queue, parent.queue_id)
    assert (True, 1) == (job.waiting, job.children_open)


def test_a_child_lost_for_good_fails_its_parent(queue):
    parent = expand(queue, new("child", max_retries=0))
    claim_one(queue)
    reap(queue, at(301))
    assert Status.FAILED is row(queue, parent.queue_id).status


def test_cancelled_children_do_not_fail_their_parent(queue):
    parent = expand(queue, *many(2, "c"))
    first, second = claim_all(queue)
    queue.cancel([first.queue_id], now=at(1))
    queue.settle([transitions.cancelled_by_flag(first), transitions.done(second)], now=at(2))
    assert Status.DONE is row(queue, parent.queue_id).status


def test_a_parent_whose_last_open_child_is_cancelled_ends(queue):
    requests = many(2, "c")
    parent = expand(queue, *requests)
    done(queue, claim_one(queue))
    queue.cancel([requests[1].queue_id], now=at(1))
    assert Status.DONE is row(queue, parent.queue_id).status


@pytest.mark.parametrize("end", [transitions.done, transitions.timed_out], ids=lambda end: end.__name__)
def test_an_end_bubbles_up_through_all_levels(queue, end):
    top, middle, leaf = nested(queue)
    queue.settle([end(leaf)], now=at(5))
    ended = [row(queue, claim.queue_id) for claim in (leaf, middle, top)]
    assert 1 == len({job.status for job in ended})
    assert [at(5)] * 3 == [job.finished_at for job in ended]


def test_a_failure_names_its_way_down(queue):
    top, middle, leaf = nested(queue)
    fail(queue, leaf)
    assert f"1 of 1 files failed ({middle.queue_id})" == row(queue, top.queue_id).error_message
    assert f"1 of 1 files failed ({leaf.queue_id})" == row(queue, middle.queue_id).error_message


def test_the_end_of_a_parent_passes_its_lock_on(queue):
    expand(queue, new("child"), parent=folder(lock_key="doc:1"))
    (second,) = put(queue, new("second", lock_key="doc:1"))
    (child,) = claim_all(queue)
    done(queue, child)
    assert second == claim_one(queue).queue_id


def test_children_and_parent_can_end_in_one_batch(queue):
    parent = running(queue, folder())
    queue.settle([transitions.expanded(parent, (new("child"),))], now=T0)
    child = claim_one(queue)
    queue.settle([transitions.done(child), transitions.waits(parent)], now=at(1))
    assert Status.DONE is row(queue, parent.queue_id).status


def test_a_thousand_children_end_their_parent(queue):
    parent = expand(queue, *many(1000, "c"))
    claims = claim_all(queue)
    broken = claims[500]
    settlements = [transitions.done(c) if c is not broken else transitions.timed_out(c) for c in claims]
    queue.settle(settlements, now=at(1))
    expected = f"1 of 1,000 files failed ({broken.queue_id})"
    assert expected == row(queue, parent.queue_id).error_message


def test_a_child_whose_id_is_taken_is_refused_and_takes_nobodys_place(queue):
    parent = running(queue, folder())
    (taken,) = put(queue, new("other"))
    before = queue.find(JobQuery())
    with pytest.raises(DuplicateId):
        queue.settle([transitions.waits(parent, children=(new("child", queue_id=taken),))], now=at(1))
    assert before == queue.find(JobQuery())


def test_an_expansion_sent_twice_with_the_same_ids_adds_nothing(queue):
    parent = running(queue, folder())
    expansion = transitions.expanded(parent, tuple(many(3, "c")))
    assert [Status.IN_PROGRESS] == queue.settle([expansion], now=T0)
    assert [Status.IN_PROGRESS] == queue.settle([expansion], now=at(1))
    assert 3 == row(queue, parent.queue_id).children_open
