"""Jobs with a lock and a limit: first the lock, then the slot. A job with a slot never waits for a lock."""

from __future__ import annotations

from penstock import lifecycle
from penstock.job import Held, NewJob, Scope, Status
from penstock.limits import Limit
from penstock.queue.protocol import Queue
from tests.conformance.conftest import T0, at, claim_all, claim_one, done, many, new, put, reap, retry, row

API = "api"


def both(number: int, lock: str = "ann", prefix: str = "b") -> list[NewJob]:
    return many(number, prefix, limit_key=API, lock_key=lock)


def concurrent(queue: Queue, most: int) -> None:
    queue.put_limit(Limit(key=API, concurrent=most), now=T0)


def held(queue: Queue, *ids: str) -> list[Held | None]:
    return [row(queue, queue_id).held for queue_id in ids]


def test_jobs_of_a_lock_take_one_slot_and_leave_the_others(queue: Queue) -> None:
    concurrent(queue, 2)
    first, second, third = put(queue, *both(3))
    (other,) = put(queue, *both(1, "bob", "o"))
    assert held(queue, first, second, third, other) == [None, Held.LOCK, Held.LOCK, None]
    assert queue.slots_of(API) == 2
    assert {claim.queue_id for claim in claim_all(queue)} == {first, other}


def test_jobs_of_a_lock_run_one_at_a_time_in_order(queue: Queue) -> None:
    concurrent(queue, 3)
    ids, order = put(queue, *both(4)), []
    for second in range(4):
        (claim,) = claim_all(queue, at(second))
        order.append(claim.queue_id)
        done(queue, claim, at(second))
    assert order == ids


def test_a_job_whose_lock_is_taken_spends_no_start_of_the_rate(queue: Queue) -> None:
    queue.put_limit(Limit(key=API, starts=1, period_s=60), now=T0)
    put(queue, new("holder", lock_key="ann"))
    holder = claim_one(queue)
    (waiting,) = put(queue, *both(1))
    (other,) = put(queue, *both(1, "bob", "o"))
    assert held(queue, waiting, other) == [Held.LOCK, None]
    done(queue, holder, at(1))
    assert held(queue, waiting) == [Held.LIMIT]
    assert claim_one(queue, at(1)).queue_id == other
    queue.admit(now=at(60))
    assert claim_one(queue, at(60)).queue_id == waiting


def test_a_job_that_waits_for_its_slot_lets_others_take_its_lock(queue: Queue) -> None:
    concurrent(queue, 1)
    (slot,) = put(queue, *both(1, "bob", "s"))
    (waiting,) = put(queue, *both(1))
    (plain,) = put(queue, new("plain", lock_key="ann"))
    claims = {claim.queue_id: claim for claim in claim_all(queue)}
    assert set(claims) == {slot, plain}
    done(queue, claims[slot], at(1))
    assert held(queue, waiting) == [Held.LOCK]
    done(queue, claims[plain], at(2))
    assert claim_one(queue, at(2)).queue_id == waiting


def test_a_retry_keeps_the_lock_and_needs_another_slot(queue: Queue) -> None:
    concurrent(queue, 1)
    first, second = put(queue, *both(2))
    (other,) = put(queue, *both(1, "bob", "o"))
    retry(queue, claim_one(queue), at(1))
    assert held(queue, first, second, other) == [Held.TIME, Held.LOCK, None]
    claim = claim_one(queue, at(1))
    assert claim.queue_id == other
    assert claim_all(queue, at(100)) == []
    done(queue, claim, at(101))
    assert claim_one(queue, at(101)).queue_id == first


def test_a_cancelled_job_passes_lock_and_slot_on(queue: Queue) -> None:
    concurrent(queue, 1)
    first, second, _ = put(queue, *both(3))
    queue.cancel([first], now=at(1))
    assert held(queue, second) == [None]
    claim_one(queue, at(1))
    reap(queue, at(400))
    assert [claim.queue_id for claim in claim_all(queue, at(400))] == [second]


def test_a_changed_or_removed_limit_keeps_the_lock_of_released_jobs(queue: Queue) -> None:
    concurrent(queue, 2)
    first, second = put(queue, *both(2))
    queue.put_limit(Limit(key=API, starts=1, period_s=60), now=at(1))
    assert held(queue, first, second) == [None, Held.LOCK]
    queue.drop_limit(API, now=at(2))
    claim = claim_one(queue, at(2))
    assert claim.queue_id == first
    done(queue, claim, at(3))
    assert claim_one(queue, at(3)).queue_id == second


def test_a_pause_and_its_resume_lose_no_job(queue: Queue) -> None:
    concurrent(queue, 1)
    ids = put(queue, *both(3))
    queue.pause(Scope("acme"), now=at(1))
    assert claim_all(queue, at(1)) == []
    queue.admit(now=at(2))
    queue.resume(Scope("acme"), now=at(3))
    finished = []
    for second in range(4, 20):
        queue.reconcile(now=at(second))
        queue.admit(now=at(second))
        for claim in claim_all(queue, at(second)):
            queue.settle([lifecycle.done(claim)], now=at(second))
            finished.append(claim.queue_id)
    assert sorted(finished) == sorted(ids)
    assert {row(queue, queue_id).status for queue_id in ids} == {Status.DONE}
