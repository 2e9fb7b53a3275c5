"""Limits of pending jobs: an add is refused as a whole, and only new top-level rows count."""

import pytest

from penstock.errors import QueueFull
from penstock.queue import transitions
from penstock.queue.job import ClaimRequest, JobQuery, QueueLimits, Status
from tests.conformance.conftest import T0, at, claim_all, claim_one, many, new, put, retry, running

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
    queue.settle([transitions.done(claim) for claim in claim_all(queue)], now=T0)
    queue.add(many(2), limits=TWO, now=T0)


def test_children_do_not_count(queue):
    parent = running(queue, new("parent", item_type="folder"))
    queue.settle([transitions.waits(parent, children=tuple(many(5, "child")))], now=T0)
    queue.add(many(2), limits=TWO, now=T0)


def test_children_are_never_refused(queue):
    parent = running(queue, new("parent", item_type="folder"))
    queue.add(many(2), limits=TWO, now=T0)
    assert [Status.IN_PROGRESS] == queue.settle(
        [transitions.waits(parent, children=tuple(many(5, "child")))], now=T0
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


MAIL = QueueLimits(by_key={"mail": 2, "other": 1})


def calls(number: int, prefix: str = "c", **fields: object):
    given = {"item_type": "function", "op": "run", "backlog_key": "mail", "dedupe": False} | fields
    return [new(f"{prefix}{each}", **given) for each in range(number)]


def test_a_key_has_a_limit_of_its_own(queue):
    queue.add(calls(2), limits=MAIL, now=T0)
    with pytest.raises(QueueFull) as refused:
        queue.add(calls(1, "d"), limits=MAIL, now=T0)
    assert (2, "mail") == (refused.value.pending, refused.value.function)
    assert "Queue full for calls of mail (2 pending)" == str(refused.value)
    queue.add(
        [*calls(1, "o", backlog_key="other"), *calls(3, "p", backlog_key=None), new("f")], limits=MAIL, now=T0
    )
    assert {(): 7} == queue.count(JobQuery())


def test_a_batch_of_calls_fits_as_a_whole_or_not_at_all(queue):
    queue.add(calls(1), limits=MAIL, now=T0)
    with pytest.raises(QueueFull):
        queue.add([*calls(1, "o", backlog_key="other"), *calls(2, "d")], limits=MAIL, now=T0)
    assert {(): 1} == queue.count(JobQuery())


def test_calls_of_a_key_count_while_they_are_pending_for_any_reason(queue):
    """Later, after others, for a limit or a lock: all count. Running and ended calls do not."""
    (first,) = put(queue, *calls(1))
    later = calls(1, "l", run_at=at(60))
    queue.add([*later, *calls(1, "a", after=(first,))], limits=QueueLimits(by_key={"mail": 3}), now=T0)
    three = QueueLimits(by_key={"mail": 3})
    with pytest.raises(QueueFull):
        queue.add(calls(1, "n"), limits=three, now=T0)
    claim = claim_one(queue)
    queue.add(calls(1, "n"), limits=three, now=T0)
    with pytest.raises(QueueFull):
        queue.add(calls(1, "m"), limits=three, now=T0)
    retry(queue, claim)
    with pytest.raises(QueueFull) as refused:
        queue.add(calls(1, "m"), limits=three, now=T0)
    assert 4 == refused.value.pending
    queue.cancel([job.queue_id for job in queue.find(JobQuery(statuses=frozenset({Status.PENDING})))], now=T0)
    queue.add(calls(3, "q"), limits=three, now=T0)


def test_a_purged_restored_or_claimed_call_is_counted_right(queue):
    ids = put(queue, *calls(2))
    jobs = [queue.get(queue_id) for queue_id in ids]
    queue.purge(jobs, now=T0)
    queue.restore(jobs)
    with pytest.raises(QueueFull):
        queue.add(calls(1, "d"), limits=MAIL, now=T0)
    assert queue.start(ids[0], ClaimRequest("w1"), now=T0)
    queue.add(calls(1, "d"), limits=MAIL, now=T0)
    assert 2 == len(claim_all(queue))
    queue.add(calls(2, "e"), limits=MAIL, now=T0)


def test_a_call_that_joins_a_live_one_is_accepted(queue):
    queue.add(calls(2, dedupe=True), limits=MAIL, now=T0)
    (answer,) = queue.add(calls(1, dedupe=True), limits=MAIL, now=T0)
    assert answer.dedupe_hit
