"""Jobs with a lock and a limit: first the lock, then the slot. A job with a slot never waits for a lock."""

from __future__ import annotations

from penstock.queue import transitions
from penstock.queue.job import Claim, ClaimRequest, Held, JobQuery, NewJob, Scope, Status
from penstock.queue.limits import Limit
from penstock.queue.protocol import Queue
from penstock.queue.rules.held_jobs import PASSED_AT_ONCE
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


def waiting_for_a_holder(queue: Queue, *requests: NewJob) -> tuple[Claim, list[str]]:
    """Jobs parked for a lock, in this order; then the only slot of ``API`` is taken."""
    concurrent(queue, 1)
    put(queue, new("holder", lock_key="ann"))
    holder = claim_one(queue)
    ids = put(queue, *requests)
    assert claim_all(queue) == []
    assert held(queue, *ids) == [Held.LOCK] * len(ids)
    put(queue, *both(1, "bob", "slot"))
    claim_one(queue)
    return holder, ids


def test_a_job_without_a_slot_passes_its_lock_on(queue: Queue) -> None:
    holder, (limited, plain) = waiting_for_a_holder(queue, *both(1), new("plain", lock_key="ann"))
    done(queue, holder, at(1))
    assert held(queue, limited, plain) == [Held.LIMIT, None]
    put(queue, new("later", lock_key="ann"), now=at(2))
    assert [claim.queue_id for claim in claim_all(queue, at(2))] == [plain]


def test_a_job_of_another_limit_is_passed_over_until_the_next_round(queue: Queue) -> None:
    queue.put_limit(Limit(key="free", concurrent=1), now=T0)
    other = new("other", lock_key="ann", limit_key="free")
    holder, ids = waiting_for_a_holder(queue, *both(3), other)
    done(queue, holder, at(1))
    assert held(queue, *ids) == [Held.LIMIT] * 4
    queue.admit(now=at(2))
    assert [claim.queue_id for claim in claim_all(queue, at(2))] == [ids[3]]


def test_a_job_that_gets_its_slot_keeps_the_jobs_behind_it_parked(queue: Queue) -> None:
    concurrent(queue, 2)
    put(queue, new("holder", lock_key="ann"))
    holder = claim_one(queue)
    ids = put(queue, *both(2), new("plain", lock_key="ann"))
    assert claim_all(queue) == []
    done(queue, holder, at(1))
    assert held(queue, *ids) == [None, Held.LOCK, Held.LOCK]


def test_a_claim_that_holds_a_job_for_a_pause_passes_its_lock_over_a_job_without_a_slot(queue: Queue) -> None:
    first = new("first", lock_key="ann", collection="paused")
    holder, ids = waiting_for_a_holder(queue, first, *both(1), new("plain", lock_key="ann"))
    done(queue, holder, at(1))
    queue.pause(Scope("*", "paused"), now=at(1))
    queue.claim(ClaimRequest("w1", 1), now=at(1))
    assert held(queue, *ids[:2]) == [Held.PAUSE, Held.LIMIT]
    put(queue, new("later", lock_key="ann"), now=at(2))
    running = [job.queue_id for job in queue.find(JobQuery(statuses=frozenset({Status.IN_PROGRESS})))]
    found = [claim.queue_id for claim in claim_all(queue, at(2))]
    assert (ids[2] in running) != (found == [ids[2]])


def test_jobs_without_slots_are_passed_over_in_bounded_steps(queue: Queue) -> None:
    holder, ids = waiting_for_a_holder(queue, *both(PASSED_AT_ONCE + 5), new("plain", lock_key="ann"))
    done(queue, holder, at(1))
    queue.reconcile(now=at(2))
    assert held(queue, *ids) == [Held.LIMIT] * (PASSED_AT_ONCE + 5) + [None]


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
            queue.settle([transitions.done(claim)], now=at(second))
            finished.append(claim.queue_id)
    assert sorted(finished) == sorted(ids)
    assert {row(queue, queue_id).status for queue_id in ids} == {Status.DONE}
