"""Blocked rows cost one read: the price of a claim does not grow with the blocked rows at the head."""

import pytest

from penstock.queue import transitions
from penstock.queue.job import ClaimRequest, Held, JobQuery, Scope, Status
from tests.conformance.conftest import at, done, many, new, put, running

BLOCKED = [
    3_000,
    pytest.param(10_000, marks=pytest.mark.long),
    pytest.param(50_000, marks=pytest.mark.chaos),
]
PENDING = JobQuery(statuses=frozenset({Status.PENDING}))


def add_blocked(queue, blocked, **fields):
    """Rows of a high priority, before all claimable rows."""
    for start in range(0, blocked, 1_000):
        queue.add(many(1_000, f"blocked{start}-", priority=9, **fields), now=at(1))


def claim_in_the_end(queue, blocked):
    """Repeat a claim until the blocked rows are passed: each reads a bounded number."""
    for _ in range(blocked // 1_000):
        claims = queue.claim(ClaimRequest("w1"), now=at(2))
        if claims:
            return claims[0]
        assert queue.wait(0), "a claim that met its bound lets nobody sleep"
    raise AssertionError("no claim has come by the rows in the way")


@pytest.mark.parametrize("blocked", BLOCKED)
def test_rows_behind_a_held_lock_are_read_once(queue, blocked):
    holder = running(queue, new("holder", lock_key="doc:1"))
    add_blocked(queue, blocked, lock_key="doc:1")
    (behind,) = put(queue, new("behind"), now=at(1))

    assert behind == claim_in_the_end(queue, blocked).queue_id
    assert {(Held.LOCK,): blocked} == queue.count(PENDING, by=["held"])

    assert [] == queue.claim(ClaimRequest("w1", 10), now=at(3))
    assert 0 == queue.rows_read
    put(queue, *many(20, "free"), now=at(4))
    assert 10 == len(queue.claim(ClaimRequest("w1", 10), now=at(4)))
    assert queue.rows_read <= 11

    done(queue, holder, at(5))
    (woken,) = [claim for claim in queue.claim(ClaimRequest("w1", 1), now=at(5)) if claim.lock_key]
    assert queue.rows_read <= 2
    assert ("blocked0-0", blocked - 1) == (
        queue.get(woken.queue_id).idempotency_key,
        queue.count(JobQuery(held=Held.LOCK))[()],
    )


@pytest.mark.parametrize("blocked", BLOCKED)
def test_rows_of_a_paused_tenant_are_read_once(queue, blocked):
    add_blocked(queue, blocked, tenant_id="paused")
    queue.pause(Scope("paused"), now=at(1))
    (behind,) = put(queue, new("behind"), now=at(1))

    assert behind == claim_in_the_end(queue, blocked).queue_id
    assert {(Held.PAUSE,): blocked} == queue.count(PENDING, by=["held"])

    assert [] == queue.claim(ClaimRequest("w1", 10), now=at(3))
    assert 0 == queue.rows_read
    put(queue, *many(20, "free"), now=at(4))
    exchange = queue.exchange([], ClaimRequest("w1", 10, oldest=True), now=at(4))
    assert 10 == len(exchange.claims)
    assert queue.rows_read <= 11


def test_scheduled_rows_are_not_read_before_their_time(queue):
    queue.add(many(5_000, "later", priority=9, run_at=at(600)), now=at(1))
    put(queue, *many(20, "free"), now=at(1))
    assert 10 == len(queue.claim(ClaimRequest("w1", 10), now=at(2)))
    assert queue.rows_read <= 11


def test_a_claim_reads_no_more_of_a_large_backlog_than_it_takes(queue):
    queue.add(many(5_000), now=at(1))
    claims = queue.claim(ClaimRequest("w1", 10), now=at(2))
    assert queue.rows_read <= 11
    queue.exchange([transitions.done(claim) for claim in claims], ClaimRequest("w1", 10), now=at(3))
    assert queue.rows_read <= 11
