"""Limits: jobs of a key run only as many at once, and start only as often, as the limit of the key allows."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest

from penstock.queue import transitions
from penstock.queue.job import ClaimRequest, Held, JobQuery, NewJob, Scope, Status
from penstock.queue.limits import Limit
from penstock.queue.protocol import Queue
from penstock.queue.rules.held_jobs import ADMITTED_AT_ONCE
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
    reap,
    retry,
    row,
)

API = "api"


def limited(number: int, prefix: str = "k", **fields: object) -> list[NewJob]:
    return many(number, prefix, **({"limit_key": API} | fields))


def concurrent(queue: Queue, most: int, *, now: datetime = T0) -> None:
    queue.put_limit(Limit(key=API, concurrent=most), now=now)


def rate(queue: Queue, starts: int, period_s: int, *, now: datetime = T0) -> None:
    queue.put_limit(Limit(key=API, starts=starts, period_s=period_s), now=now)


def held(queue: Queue, *ids: str) -> list[Held | None]:
    return [row(queue, queue_id).held for queue_id in ids]


def claimed(queue: Queue, seconds: float = 0, **options: object) -> list[str]:
    return [claim.queue_id for claim in claim_all(queue, at(seconds), **options)]  # type: ignore[arg-type]


def test_only_as_many_run_at_once_as_the_limit_allows(queue: Queue) -> None:
    concurrent(queue, 2)
    ids = put(queue, *limited(4))
    assert held(queue, *ids) == [None, None, Held.LIMIT, Held.LIMIT]
    first, second = claim_all(queue)
    assert [first.queue_id, second.queue_id] == ids[:2]
    done(queue, second, at(1))
    assert held(queue, *ids[2:]) == [None, Held.LIMIT]
    assert claimed(queue, 1) == [ids[2]]
    assert queue.slots_of(API) == 2


def test_exchange_claims_the_next_job_of_the_key_at_once(queue: Queue) -> None:
    concurrent(queue, 1)
    first, second = put(queue, *limited(2))
    claim = claim_one(queue)
    answer = queue.exchange([transitions.done(claim)], ClaimRequest("w1", 5), now=at(1))
    assert [each.queue_id for each in answer.claims] == [second]
    assert row(queue, first).limit_at is None


def test_jobs_without_the_key_and_of_other_keys_go_on(queue: Queue) -> None:
    concurrent(queue, 1)
    ids = put(queue, *limited(2), new("plain"), *limited(2, "o", limit_key="other"))
    assert set(claimed(queue)) == {ids[0], *ids[2:]}


def test_jobs_of_a_key_go_by_priority_then_age(queue: Queue) -> None:
    concurrent(queue, 1)
    holder, old, young = put(queue, *limited(3))
    (urgent,) = put(queue, *limited(1, "u", priority=9))
    order = []
    for seconds in range(4):
        claim = claim_one(queue, at(seconds))
        order.append(claim.queue_id)
        done(queue, claim, at(seconds))
    assert order == [holder, urgent, old, young]


def test_a_failed_cancelled_or_purged_job_frees_its_slot(queue: Queue) -> None:
    concurrent(queue, 1)
    ids = put(queue, *limited(5))
    fail(queue, claim_one(queue), at(1))
    assert held(queue, ids[1]) == [None]
    queue.cancel([ids[1]], now=at(2))
    assert held(queue, ids[2]) == [None]
    queue.purge([row(queue, ids[2])], now=at(3))
    assert claimed(queue, 3) == [ids[3]]
    assert held(queue, ids[4]) == [Held.LIMIT]


def test_a_lost_lease_frees_the_slot_of_its_worker(queue: Queue) -> None:
    concurrent(queue, 1)
    first, second = put(queue, *limited(2))
    claim_one(queue)
    assert claimed(queue, 1) == []
    reap(queue, at(301))
    # The lost job is a suspect, and goes first.
    assert claimed(queue, 301) == [first]
    assert held(queue, second) == [Held.LIMIT]


def test_a_job_in_back_off_leaves_its_slot_to_others_and_needs_another_one(queue: Queue) -> None:
    concurrent(queue, 1)
    first, second = put(queue, *limited(2))
    retry(queue, claim_one(queue), at(1))
    assert held(queue, first, second) == [Held.TIME, None]
    claim = claim_one(queue, at(1))
    assert claim.queue_id == second
    assert claimed(queue, 1000) == []
    queue.admit(now=at(1000))
    assert held(queue, first) == [Held.LIMIT]
    done(queue, claim, at(1001))
    assert claimed(queue, 1001) == [first]


def test_a_requeued_job_waits_for_a_slot(queue: Queue) -> None:
    concurrent(queue, 1)
    first, second = put(queue, *limited(2))
    fail(queue, claim_one(queue), at(1))
    queue.requeue([first], now=at(2))
    assert held(queue, first, second) == [Held.LIMIT, None]


def test_a_waiting_parent_has_no_slot(queue: Queue) -> None:
    concurrent(queue, 1)
    _, second = put(queue, *limited(2))
    parent = claim_one(queue)
    queue.settle([transitions.waits(parent, children=(new("child"),))], now=at(1))
    assert held(queue, second) == [None]


def test_children_with_a_key_wait_for_its_limit(queue: Queue) -> None:
    concurrent(queue, 1)
    put(queue, new("parent"))
    parent = claim_one(queue)
    children = tuple(limited(3, "child"))
    expanded = transitions.expanded(parent, children)
    queue.settle([expanded], now=at(1))
    # Sent twice, after a crash.
    queue.settle([expanded, transitions.waits(parent, children=children)], now=at(1))
    for number, child in enumerate(children):
        claim = claim_one(queue, at(2 + number))
        assert claim.queue_id == child.queue_id
        assert claimed(queue, 2 + number) == []
        done(queue, claim, at(2 + number))
    assert row(queue, parent.queue_id).status is Status.DONE


def test_a_later_start_waits_for_its_time_and_then_for_the_limit(queue: Queue) -> None:
    concurrent(queue, 1)
    now, later = put(queue, *limited(1), *limited(1, "l", run_at=at(60)))
    claim = claim_one(queue)
    assert claim.queue_id == now
    assert held(queue, later) == [Held.TIME]
    assert claimed(queue, 61) == []
    assert held(queue, later) == [Held.LIMIT]
    done(queue, claim, at(62))
    assert claimed(queue, 62) == [later]


def test_a_dependent_job_waits_for_the_limit_afterwards(queue: Queue) -> None:
    concurrent(queue, 1)
    first, other = put(queue, *limited(2))
    (last,) = put(queue, new("last", limit_key=API, after=(first,)))
    assert held(queue, last) == [Held.AFTER]
    done(queue, claim_one(queue), at(1))
    assert held(queue, last, other) == [Held.LIMIT, None]


def test_paused_jobs_have_no_slot_and_use_no_start(queue: Queue) -> None:
    concurrent(queue, 1)
    queue.pause(Scope("acme"), now=T0)
    paused = put(queue, *limited(3))
    (free,) = put(queue, *limited(1, "z", tenant_id="zeta"), now=at(1))
    assert held(queue, *paused) == [Held.PAUSE] * 3
    claim = claim_one(queue, at(1))
    assert claim.queue_id == free
    queue.resume(Scope("acme"), now=at(2))
    assert held(queue, *paused) == [Held.LIMIT] * 3
    done(queue, claim, at(3))
    assert claimed(queue, 3) == paused[:1]


def test_a_slot_of_a_job_held_by_a_claim_for_a_pause_is_passed_on(queue: Queue) -> None:
    concurrent(queue, 1)
    paused, free = put(queue, *limited(1), *limited(1, "z", tenant_id="zeta"))
    queue.pause(Scope("acme"), now=at(1))
    assert claimed(queue, 1) == []
    assert held(queue, paused, free) == [Held.PAUSE, Held.LIMIT]
    assert queue.slots_of(API) == 0
    assert queue.admit(now=at(2)) == 1
    assert claimed(queue, 2) == [free]


def test_a_rate_spreads_starts_evenly(queue: Queue) -> None:
    rate(queue, 60, 60)
    ids = put(queue, *limited(10))
    starts: dict[str, float] = {}
    for tenth in range(80):
        second = tenth / 10
        for claim in claim_all(queue, at(second)):
            starts[claim.queue_id] = second
            done(queue, claim, at(second))
        queue.admit(now=at(second))
    assert list(starts) == ids[:8]
    assert list(starts.values()) == pytest.approx(range(8), abs=0.1)


def test_a_rate_holds_for_retries_too(queue: Queue) -> None:
    rate(queue, 1, 60)
    (job,) = put(queue, *limited(1))
    retry(queue, claim_one(queue), at(1))
    begun = [second for second in range(2, 70) if queue.admit(now=at(second)) >= 0 and claimed(queue, second)]
    assert begun == [60]
    assert row(queue, job).retry_count == 1


def test_starts_that_no_worker_claims_do_not_pile_up(queue: Queue) -> None:
    """Workers that were away for an hour start two jobs at once, and the others at the rate."""
    rate(queue, 60, 60)
    put(queue, *limited(100))
    for second in range(0, 3600, 10):
        queue.admit(now=at(second))
    assert len(claimed(queue, 3600)) == 2
    queue.admit(now=at(3600))
    assert len(claimed(queue, 3600)) == 1


def test_a_clock_that_goes_back_does_not_stop_a_rate(queue: Queue) -> None:
    rate(queue, 60, 60)
    put(queue, *limited(5), now=at(86_400))
    assert claimed(queue, 86_400)
    begun = 0
    for second in range(30):
        queue.admit(now=at(second))
        begun += len(claimed(queue, second))
    assert begun == 3, "the one with a start of the other day keeps it"


def test_a_raised_or_removed_limit_releases_jobs(queue: Queue) -> None:
    concurrent(queue, 1)
    ids = put(queue, *limited(5))
    concurrent(queue, 3, now=at(1))
    assert held(queue, *ids) == [None] * 3 + [Held.LIMIT] * 2
    assert queue.drop_limit(API, now=at(2))
    assert held(queue, *ids) == [None] * 5
    assert not queue.drop_limit(API, now=at(3))


def test_a_new_limit_holds_jobs_that_no_worker_has_claimed(queue: Queue) -> None:
    ids = put(queue, *limited(4))
    assert held(queue, *ids) == [None] * 4
    running = claim_one(queue)
    concurrent(queue, 2, now=at(1))
    assert held(queue, *ids[1:]) == [None, Held.LIMIT, Held.LIMIT]
    done(queue, running, at(2))
    assert claimed(queue, 2) == ids[1:3]


def test_the_same_limit_again_changes_nothing(queue: Queue) -> None:
    limit = Limit(key=API, starts=1, period_s=3600)
    assert queue.put_limit(limit, now=T0)
    put(queue, *limited(2))
    assert len(claimed(queue)) == 1
    assert not queue.put_limit(limit, now=at(1))
    assert claimed(queue, 2) == []
    assert queue.limits() == [Limit(key=API, starts=1, period_s=3600, next_at=at(3600))]


def test_limits_outlive_the_process(queue: Queue, reopen: Callable[[], Queue]) -> None:
    concurrent(queue, 1)
    queue.put_limit(Limit(key="another", starts=5, period_s=60), now=T0)
    ids = put(queue, *limited(3))
    other = reopen()
    assert [limit.key for limit in other.limits()] == ["another", API]
    claim = claim_one(other)
    assert claim.queue_id == ids[0]
    done(other, claim, at(1))
    assert claimed(other, 1) == [ids[1]]


def test_a_job_that_joins_a_live_one_keeps_the_limit_of_that_one(queue: Queue) -> None:
    concurrent(queue, 1)
    put(queue, *limited(1))
    first, again = put(queue, *limited(1, "w")), put(queue, new("w0", priority=9), now=at(1))
    assert first == again
    assert held(queue, *first) == [Held.LIMIT]
    assert row(queue, first[0]).limit_key == API


def test_more_rows_than_one_transaction_releases(queue: Queue) -> None:
    concurrent(queue, 1)
    number = ADMITTED_AT_ONCE + 20
    put(queue, *limited(number))
    queue.drop_limit(API, now=at(1))
    assert queue.count(JobQuery(held=Held.LIMIT)) in ({}, {(): 0})
    assert len(claimed(queue, 1, limit=2 * number)) == number


def test_start_takes_no_job_that_waits_for_its_limit(queue: Queue) -> None:
    concurrent(queue, 1)
    first, second, later = put(queue, *limited(2), *limited(1, "l", run_at=at(60)))
    request = ClaimRequest("w1")
    assert queue.start(second, request, now=at(1)) is None
    assert queue.start(later, request, now=at(1)) is None
    assert queue.start(first, request, now=at(1)) is not None


def test_a_queue_with_waiting_jobs_is_busy(queue: Queue) -> None:
    """A worker that ends when there is nothing to do waits for them."""
    rate(queue, 1, 60)
    put(queue, *limited(2))
    assert queue.busy(now=T0)
    done(queue, claim_one(queue))
    assert queue.busy(now=at(1))
    queue.admit(now=at(59))
    assert held(queue, *[job.queue_id for job in queue.find(JobQuery(limit_key=API))])[1] is Held.TIME
    assert queue.busy(now=at(59))
    done(queue, claim_one(queue, at(60)), at(60))
    assert not queue.busy(now=at(61))


def test_waiting_jobs_are_counted_by_their_reason(queue: Queue) -> None:
    concurrent(queue, 1)
    put(queue, *limited(3))
    assert queue.tally().counts == {
        (Status.PENDING, None, "file"): 1,
        (Status.PENDING, Held.LIMIT, "file"): 2,
    }
    assert queue.count(JobQuery(held=Held.LIMIT), by=("held",)) == {(Held.LIMIT,): 2}


def test_a_restored_job_keeps_its_place(queue: Queue) -> None:
    concurrent(queue, 1)
    first, second = put(queue, *limited(2))
    jobs = [row(queue, first), row(queue, second)]
    queue.purge(jobs, now=at(1))
    assert queue.restore(jobs) == [None, None]
    assert queue.slots_of(API) == 1
    assert claimed(queue, 1) == [first]
    assert held(queue, second) == [Held.LIMIT]


def test_a_limit_holds_for_a_long_lease(queue: Queue) -> None:
    concurrent(queue, 1)
    put(queue, *limited(2))
    claim = queue.claim(ClaimRequest("w1", 1, timedelta(hours=2)), now=T0)[0]
    for minute in range(60):
        queue.admit(now=at(60 * minute))
        assert claimed(queue, 60 * minute) == []
    done(queue, claim, at(3600))
    assert len(claimed(queue, 3600)) == 1
