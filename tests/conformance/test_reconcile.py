"""Reconcile: finishes work interrupted by a crash between two transactions, and changes nothing else."""

import pytest

from penstock.queue import transitions
from penstock.queue.job import JobQuery, Scope, Status
from penstock.queue.redis.server import Server
from penstock.queue.rules import held_jobs, settlement
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
    retry,
    running,
)


def busy(queue):
    """A queue with something in every state."""
    parent = running(queue, new("parent", item_type="folder"))
    children = (*many(3, "child"), new("nested", item_type="folder", priority=9))
    queue.settle([transitions.waits(parent, children=children)], now=T0)
    nested = claim_one(queue)
    queue.settle([transitions.waits(nested, children=(new("leaf", priority=0),))], now=T0)
    fail(queue, claim_one(queue))
    done(queue, claim_one(queue))
    put(
        queue, *many(3, "locked", lock_key="doc:1"), new("paused", tenant_id="P"), new("later", run_at=at(60))
    )
    queue.pause(Scope("P"), now=T0)
    claims = claim_all(queue)
    retry(queue, claims[-1])
    return parent


def test_an_empty_queue_needs_nothing(queue):
    assert 0 == queue.reconcile(now=T0)


def test_a_healthy_queue_needs_nothing(queue):
    busy(queue)
    before = queue.find(JobQuery())
    assert 0 == queue.reconcile(now=at(1))
    assert before == queue.find(JobQuery())


def test_a_woken_job_that_nobody_claimed_yet_needs_nothing(queue):
    put(queue, *many(3, lock_key="doc:1"))
    (holder,) = claim_all(queue)
    done(queue, holder)
    before = queue.find(JobQuery())
    assert 0 == queue.reconcile(now=at(1))
    assert before == queue.find(JobQuery())


def test_a_parent_that_was_asked_to_stop_and_waits_for_a_running_child_needs_nothing(queue):
    parent = running(queue, new("parent", item_type="folder"))
    queue.settle([transitions.waits(parent, children=tuple(many(2, "c")))], now=T0)
    claim_one(queue)
    queue.cancel([parent.queue_id], now=at(1))
    before = queue.find(JobQuery())
    assert 0 == queue.reconcile(now=at(2))
    assert before == queue.find(JobQuery())


def test_a_requeued_tree_needs_nothing(queue):
    parent = running(queue, new("parent", item_type="folder"))
    queue.settle([transitions.waits(parent, children=tuple(many(2, "c")))], now=T0)
    queue.settle([transitions.timed_out(claim) for claim in claim_all(queue)], now=T0)
    queue.requeue([parent.queue_id], now=at(1))
    before = queue.find(JobQuery())
    assert 0 == queue.reconcile(now=at(2))
    assert before == queue.find(JobQuery())


# Cut short: the call's first transaction is there, what was to follow is not.


class Crash(BaseException):
    """The process ends here."""


@pytest.fixture
def crash(monkeypatch):
    """Run a call which fails at the named step; the step works again afterwards."""

    def dying(*_args, **_named):
        raise Crash

    def run(module, step, call):
        calling = Server.run

        def dying_at_the_script(server, name, *rest):
            return dying() if name == step else calling(server, name, *rest)

        with monkeypatch.context() as patch:
            patch.setattr(module, step, dying)
            # Redis has the step as a script of the same name.
            patch.setattr(Server, "run", dying_at_the_script)
            with pytest.raises(Crash):
                call()

    return run


def folder(queue, *children):
    claim = running(queue, new("parent", item_type="folder"))
    queue.settle([transitions.waits(claim, children=children)], now=T0)
    return claim.queue_id


def statuses(queue):
    return {status: number for (status,), number in queue.count(JobQuery(), by=["status"]).items()}


def test_a_cancel_cut_short_is_carried_on(queue, crash):
    parent = folder(queue, *many(3, "c"))
    crash(settlement, "stop_children", lambda: queue.cancel([parent], now=at(1)))
    assert {Status.IN_PROGRESS: 1, Status.PENDING: 3} == statuses(queue)
    queue.reconcile(now=at(2))
    assert {Status.CANCELLED: 4} == statuses(queue)


def test_a_requeue_cut_short_is_carried_on(queue, crash):
    parent = folder(queue, *many(3, "c"))
    first, second, third = claim_all(queue)
    queue.settle(
        [transitions.done(first), transitions.timed_out(second), transitions.timed_out(third)], now=T0
    )
    crash(settlement, "return_children", lambda: queue.requeue([parent], now=at(1)))
    queue.reconcile(now=at(2))
    assert {Status.IN_PROGRESS: 1, Status.PENDING: 2, Status.DONE: 1} == statuses(queue)
    queue.settle([transitions.done(claim) for claim in claim_all(queue, at(3))], now=at(3))
    assert {Status.DONE: 4} == statuses(queue)


def test_the_requeue_of_a_cancelled_tree_cut_short_is_carried_on(queue, crash):
    parent = folder(queue, *many(2, "c"))
    queue.cancel([parent], now=at(1))
    crash(settlement, "return_children", lambda: queue.requeue([parent], now=at(2)))
    queue.reconcile(now=at(3))
    assert {Status.IN_PROGRESS: 1, Status.PENDING: 2} == statuses(queue)


def test_a_settle_that_was_to_stop_children_is_carried_on(queue, crash):
    parent = running(queue, new("parent", item_type="folder"))
    queue.cancel([parent.queue_id], now=at(1))
    waits = transitions.waits(parent, children=tuple(many(2, "c")))
    crash(settlement, "stop_children", lambda: queue.settle([waits], now=at(2)))
    queue.reconcile(now=at(3))
    assert {Status.CANCELLED: 3} == statuses(queue)


def test_what_was_put_right_stays_right(queue, crash):
    parent = folder(queue, *many(2, "c"))
    crash(settlement, "stop_children", lambda: queue.cancel([parent], now=at(1)))
    queue.reconcile(now=at(2))
    before = queue.find(JobQuery())
    assert 0 == queue.reconcile(now=at(3))
    assert before == queue.find(JobQuery())


def test_a_resume_cut_short_is_carried_on(queue, crash):
    put(queue, *many(3, "c", tenant_id="A"))
    queue.pause(Scope("A"), now=T0)
    assert [] == claim_all(queue)
    crash(held_jobs, "advance_resume", lambda: queue.resume(Scope("A"), now=at(1)))
    assert 3 == queue.reconcile(now=at(2))
    assert 3 == len(claim_all(queue, at(3)))
