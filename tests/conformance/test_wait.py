"""Wait for work: a hint comes soon, is not missed, and is not false."""

import threading
import time

import pytest

from penstock.queue import transitions
from penstock.queue.job import Scope
from tests.conformance.conftest import T0, at, claim_all, many, new, put, retry, running

PATIENCE = 120.0
"""Seconds no test should need; a hint that does not come fails by the clock, not by hanging."""


def settled(queue):
    """Use up earlier hints."""
    claim_all(queue)
    while queue.wait(0):
        claim_all(queue)


def hinted(queue, waiter, change):
    """Whether ``change``, made by another thread while this one waits, was told to the waiter in time."""
    started = time.monotonic()
    timer = threading.Timer(0.02, change)
    timer.start()
    told = waiter.wait(PATIENCE)
    timer.join()
    return told and time.monotonic() - started < PATIENCE / 2


def test_waiting_ends_after_the_timeout(queue):
    settled(queue)
    started = time.monotonic()
    assert not queue.wait(0.05)
    assert 0.04 < time.monotonic() - started < PATIENCE / 2


def test_waiting_for_no_time_returns_at_once(queue):
    settled(queue)
    assert not queue.wait(0)


def test_a_claim_that_found_nothing_is_no_news(queue):
    settled(queue)
    assert [] == claim_all(queue)
    assert not queue.wait(0.01)


def test_an_add_is_told(queue):
    settled(queue)
    assert hinted(queue, queue, lambda: put(queue, new()))


def test_an_add_by_another_opener_is_told(queue, opened):
    other = opened()
    settled(queue)
    assert hinted(queue, queue, lambda: put(other, new()))


def test_an_add_between_claim_and_wait_is_not_missed(queue, opened):
    other = opened()
    settled(queue)
    assert [] == claim_all(queue)
    put(other, new())
    started = time.monotonic()
    assert queue.wait(PATIENCE)
    assert time.monotonic() - started < PATIENCE / 2


def released(queue):
    claim = running(queue)
    return lambda: queue.settle([transitions.released(claim, "shutdown")], now=at(1))


def lock_passed_on(queue):
    put(queue, *many(2, lock_key="doc:1"))
    (claim,) = claim_all(queue)
    return lambda: queue.settle([transitions.done(claim)], now=at(1))


def lock_of_a_cancelled_job(queue):
    put(queue, *many(2, lock_key="doc:1"))
    (claim,) = claim_all(queue)
    retry(queue, claim)
    return lambda: queue.cancel([claim.queue_id], now=at(1))


def requeued(queue):
    claim = running(queue)
    queue.settle([transitions.timed_out(claim)], now=T0)
    return lambda: queue.requeue([claim.queue_id], now=at(1))


def resumed(queue):
    put(queue, new())
    queue.pause(Scope("acme"), now=T0)
    claim_all(queue)
    return lambda: queue.resume(Scope("acme"), now=at(1))


def children(queue):
    parent = running(queue, new("parent", item_type="folder"))
    return lambda: queue.settle([transitions.waits(parent, children=(new("c"),))], now=at(1))


@pytest.mark.parametrize(
    "prepare",
    [released, lock_passed_on, lock_of_a_cancelled_job, requeued, resumed, children],
    ids=lambda prepare: prepare.__name__,
)
def test_whatever_makes_a_job_claimable_is_told(queue, opened, prepare):
    change = prepare(queue)
    waiter = opened()
    settled(waiter)
    assert hinted(queue, waiter, change)
