"""Retention: whole ended trees are deleted, oldest first, in batches; never live rows."""

import pytest

from penstock.queue import transitions
from penstock.queue.job import JobQuery, Status
from tests.conformance.conftest import T0, at, claim_all, claim_one, done, fail, many, new, put, row, running

EVERYTHING = dict.fromkeys((Status.DONE, Status.FAILED, Status.CANCELLED), at(1_000_000))


def left(queue):
    return [job.queue_id for job in queue.find(JobQuery(limit=1000))]


def folder(queue, *children):
    claim = running(queue, new("parent", item_type="folder"))
    queue.settle([transitions.waits(claim, children=children)], now=T0)
    return claim


def test_an_empty_queue_has_nothing_to_prune(queue):
    assert 0 == queue.prune(EVERYTHING)


def test_jobs_go_when_they_ended_before_the_time_of_their_status(queue):
    claims = [running(queue, new(f"k{i}")) for i in range(4)]
    done(queue, claims[0], at(10))
    done(queue, claims[1], at(20))
    fail(queue, claims[2], at(10))
    fail(queue, claims[3], at(20))
    assert 3 == queue.prune({Status.DONE: at(21), Status.FAILED: at(15)})
    assert [claims[3].queue_id] == left(queue)


def test_a_job_that_ended_at_that_very_time_stays(queue):
    claim = running(queue)
    done(queue, claim, at(10))
    assert 0 == queue.prune({Status.DONE: at(10)})


def test_a_status_that_is_not_named_stays(queue):
    failed = running(queue, new("a"))
    fail(queue, failed)
    done(queue, running(queue, new("b")))
    assert 1 == queue.prune({Status.DONE: at(1)})
    assert [failed.queue_id] == left(queue)


def test_one_item_type_can_be_pruned_alone(queue):
    done(queue, running(queue, new("a")))
    function = running(queue, new("b", item_type="function", op="run"))
    done(queue, function)
    assert 1 == queue.prune(EVERYTHING, item_type="file")
    assert [function.queue_id] == left(queue)


def test_cancelled_jobs_go_too(queue):
    (queue_id,) = put(queue, new())
    queue.cancel([queue_id], now=at(1))
    assert 1 == queue.prune({Status.CANCELLED: at(2)})


def test_nothing_that_lives_goes(queue):
    put(queue, *many(3))
    claim_one(queue)
    queue.settle([transitions.waits(claim_one(queue), "document")], now=T0)
    assert 0 == queue.prune(EVERYTHING)
    assert 3 == len(left(queue))


def test_what_was_pruned_is_gone(queue):
    claim = running(queue)
    done(queue, claim)
    queue.prune(EVERYTHING)
    assert None is queue.get(claim.queue_id)
    assert {} == queue.count(JobQuery())


def test_the_oldest_end_goes_first(queue):
    claims = [running(queue, new(f"k{i}")) for i in range(5)]
    for second, claim in zip((30, 10, 50, 20, 40), claims, strict=True):
        done(queue, claim, at(second))
    assert 2 == queue.prune(EVERYTHING, limit=2)
    assert [claims[0].queue_id, claims[2].queue_id, claims[4].queue_id] == left(queue)


def test_batches_come_to_an_end(queue):
    put(queue, *many(25))
    queue.settle([transitions.done(claim) for claim in claim_all(queue)], now=T0)
    assert [10, 10, 5, 0] == [queue.prune(EVERYTHING, limit=10) for _ in range(4)]


def test_children_go_with_their_root(queue):
    folder(queue, *many(3, "c"))
    queue.settle([transitions.done(claim) for claim in claim_all(queue)], now=at(1))
    assert 4 == queue.prune(EVERYTHING)
    assert [] == left(queue)


def test_children_that_ended_earlier_stay_with_their_root(queue):
    parent = folder(queue, *many(2, "c"))
    first, second = claim_all(queue)
    done(queue, first, at(1))
    done(queue, second, at(100))
    assert 0 == queue.prune({Status.DONE: at(50)})
    assert 3 == len(left(queue))
    assert Status.DONE is row(queue, parent.queue_id).status


def test_children_of_another_status_go_with_their_root(queue):
    folder(queue, *many(2, "c"))
    first, second = claim_all(queue)
    queue.settle([transitions.done(first), transitions.timed_out(second)], now=at(1))
    assert 0 == queue.prune({Status.DONE: at(100)})
    assert 3 == queue.prune({Status.FAILED: at(100)})


def test_a_tree_of_three_levels_goes_whole(queue):
    folder(queue, new("middle", item_type="folder"))
    middle = claim_one(queue)
    queue.settle([transitions.waits(middle, children=tuple(many(2, "leaf")))], now=T0)
    queue.settle([transitions.done(claim) for claim in claim_all(queue)], now=at(1))
    assert 4 == queue.prune(EVERYTHING)


def test_a_live_descendant_keeps_its_tree(queue):
    parent = running(queue, new("parent", item_type="folder"))
    queue.settle([transitions.expanded(parent, tuple(many(2, "c")))], now=T0)
    fail(queue, parent)
    first, second = claim_all(queue)
    done(queue, first)
    assert 0 == queue.prune(EVERYTHING)
    done(queue, second)
    assert 3 == queue.prune(EVERYTHING)


def test_a_tree_that_is_kept_does_not_keep_others(queue):
    parent = running(queue, new("parent", item_type="folder"))
    queue.settle([transitions.expanded(parent, (new("c", priority=0),))], now=T0)
    fail(queue, parent)
    done(queue, running(queue, new("other")), at(1))
    assert 1 == queue.prune(EVERYTHING, limit=1)
    assert 2 == len(left(queue))


@pytest.mark.parametrize("limit", [1, 3, 10])
def test_a_tree_larger_than_a_batch_goes_in_several_with_its_root_last(queue, limit):
    parent = folder(queue, *many(9, "c"))
    queue.settle([transitions.done(claim) for claim in claim_all(queue)], now=at(1))
    while queue.get(parent.queue_id) is not None:
        assert 0 < queue.prune(EVERYTHING, limit=limit) <= limit
    assert [] == left(queue)


def test_one_item_type_can_be_pruned_alone_with_its_trees(queue):
    parent = folder(queue, *many(2, "c"))
    queue.settle([transitions.done(claim) for claim in claim_all(queue)], now=at(1))
    call = running(queue, new("call", item_type="function", op="run"))
    done(queue, call)
    assert 0 == queue.prune(EVERYTHING, item_type="file")
    assert 1 == queue.prune(EVERYTHING, item_type="function")
    assert parent.queue_id in left(queue)
    assert 3 == queue.prune(EVERYTHING, item_type="folder")
    assert [] == left(queue)
