"""Limits of pending jobs: an add is refused as a whole, and only new top-level rows count."""

import pytest

from penstock import lifecycle
from penstock.errors import QueueFull
from penstock.job import JobQuery, QueueLimits, Status
from tests.conformance.conftest import T0, claim_all, claim_one, many, new, put, retry, running

TWO = QueueLimits(indexing=2)


def test_a_full_queue_refuses_and_says_how_many_are_pending(queue):
    put(queue, *many(2))
    with pytest.raises(QueueFull) as refused:
        queue.add([new("one more")], limits=TWO, now=T0)
    assert 2 == refused.value.pending
    assert "Queue full (2 pending)" == str(refused.value)


def test_the_last_place_can_be_taken(queue):
    put(queue, new("a"))
    queue.add([new("b")], limits=TWO, now=T0)
    assert {(): 2} == queue.count(JobQuery())


def test_a_batch_that_does_not_fit_adds_nothing(queue):
    put(queue, new("a", payload_json='{"v":1}'))
    before = queue.find(JobQuery())
    with pytest.raises(QueueFull):
        queue.add([new("a", payload_json='{"v":2}'), new("b"), new("c")], limits=TWO, now=T0)
    assert before == queue.find(JobQuery())


def test_duplicates_inside_a_batch_count_once(queue):
    queue.add([new("a"), new("a"), new("b"), new("b")], limits=TWO, now=T0)
    assert {(): 2} == queue.count(JobQuery())


def test_rows_without_dedupe_count_each(queue):
    with pytest.raises(QueueFull):
        queue.add([new("a", dedupe=False) for _ in range(3)], limits=TWO, now=T0)


def test_a_full_queue_answers_for_what_it_has(queue):
    pending, _ = put(queue, *many(2))
    (answer,) = queue.add([new("k0")], limits=TWO, now=T0)
    assert (pending, True) == (answer.queue_id, answer.dedupe_hit)


def test_a_full_queue_takes_a_follow_up(queue):
    claim = running(queue, new("running"))
    put(queue, *many(2))
    (answer,) = queue.add([new("running")], limits=TWO, now=T0)
    assert (claim.queue_id, Status.IN_PROGRESS, 2) == (answer.queue_id, answer.status, answer.run)


def test_an_overfull_queue_still_answers_for_what_it_has(queue):
    put(queue, *many(5))
    assert queue.add([new("k3")], limits=TWO, now=T0)[0].dedupe_hit


def test_what_runs_does_not_count(queue):
    put(queue, *many(2))
    claim_one(queue)
    queue.add([new("one more")], limits=TWO, now=T0)


def test_what_waits_for_its_retry_counts(queue):
    put(queue, *many(2))
    retry(queue, claim_one(queue))
    with pytest.raises(QueueFull):
        queue.add([new("one more")], limits=TWO, now=T0)


def test_what_ended_does_not_count(queue):
    put(queue, *many(2))
    queue.settle([lifecycle.done(claim) for claim in claim_all(queue)], now=T0)
    queue.add(many(2), limits=TWO, now=T0)


def test_children_do_not_count(queue):
    parent = running(queue, new("parent", item_type="folder"))
    queue.settle([lifecycle.waits(parent, children=tuple(many(5, "child")))], now=T0)
    queue.add(many(2), limits=TWO, now=T0)


def test_children_are_never_refused(queue):
    parent = running(queue, new("parent", item_type="folder"))
    queue.add(many(2), limits=TWO, now=T0)
    assert [Status.IN_PROGRESS] == queue.settle(
        [lifecycle.waits(parent, children=tuple(many(5, "child")))], now=T0
    )


def test_one_tenant_can_be_full_alone(queue):
    limits = QueueLimits(indexing=10, per_tenant=2)
    put(queue, *many(2, tenant_id="full"))
    with pytest.raises(QueueFull) as refused:
        queue.add([new("x", tenant_id="other"), new("x", tenant_id="full")], limits=limits, now=T0)
    assert 2 == refused.value.pending
    queue.add([new("x", tenant_id="other")], limits=limits, now=T0)


def test_functions_have_a_limit_of_their_own(queue):
    functions = many(3, "f", item_type="function", op="run")
    with pytest.raises(QueueFull):
        queue.add(functions, limits=QueueLimits(functions=2), now=T0)
    queue.add(functions, limits=QueueLimits(indexing=2, per_tenant=2), now=T0)
    queue.add(many(2), limits=QueueLimits(indexing=2, per_tenant=2, functions=3), now=T0)


def test_there_is_no_limit_unless_one_is_given(queue):
    queue.add(many(500), now=T0)
    queue.add([new("one more")], now=T0)
    assert {(): 501} == queue.count(JobQuery())
