"""Dependencies of retried jobs, and of jobs that wait for a retried one."""

from __future__ import annotations

from penstock.queue.job import Held
from penstock.queue.protocol import Queue
from tests.conformance.conftest import at, claim_all, claim_one, done, fail, new, put, row
from tests.conformance.test_dependencies import after, chain, run_all


def test_retried_job_waits_for_live_dependencies_only(queue: Queue) -> None:
    ids = chain(queue, 3)
    fail(queue, claim_one(queue))
    queue.requeue(ids[1:], now=at(1))
    assert [None, Held.AFTER] == [row(queue, each).held for each in ids[1:]]
    queue.cancel(ids[1:], now=at(2))
    queue.requeue(ids, now=at(3))
    assert [None, Held.AFTER, Held.AFTER] == [row(queue, each).held for each in ids]
    assert ids == run_all(queue, seconds=4)


def test_retried_job_does_not_fail_for_the_same_job_again(queue: Queue) -> None:
    put(queue, new("a"), new("b"))
    first, second = claim_all(queue)
    (third,) = put(queue, after(first.queue_id, second.queue_id))
    fail(queue, first)
    queue.requeue([third], now=at(1))
    assert row(queue, third).held is Held.AFTER
    done(queue, second, at(2))
    assert third == claim_one(queue, at(2)).queue_id


def test_waiting_job_waits_again_for_a_retried_one(queue: Queue) -> None:
    put(queue, new("a"), new("b"))
    first, second = claim_all(queue)
    fail(queue, first)
    (third,) = put(queue, after(first.queue_id, second.queue_id, run_after_failure=True))
    queue.requeue([first.queue_id], now=at(1))
    done(queue, second, at(2))
    assert row(queue, third).held is Held.AFTER
    done(queue, claim_one(queue, at(3)), at(4))
    assert third == claim_one(queue, at(4)).queue_id
