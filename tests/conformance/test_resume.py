"""Resuming: order of submission, fair turns, bounded batches, and states in between."""

import pytest

from penstock.queue import engine, transitions
from penstock.queue.job import Claim, ClaimRequest, Held, JobQuery, Scope, Status
from penstock.queue.redis import queue as redis_queue
from penstock.queue.rules import rows
from tests.conformance.conftest import at, claim_all, claim_one, done, many, new, put, retry, row

A, B = Scope("A"), Scope("B")
PENDING = JobQuery(statuses=frozenset({Status.PENDING}))
LOOKED_AT_ONCE = 3_100
"""A little more than what a claim of ten looks at in one transaction: three rounds of a thousand."""


@pytest.fixture
def in_small_steps(monkeypatch):
    """Two rows per transaction and one transaction per call, so a resume takes several calls."""
    for module in (engine, redis_queue):
        monkeypatch.setattr(module, "MOVED_AT_ONCE", 2)
        monkeypatch.setattr(module, "RESUME_STEPS", 1)


def of(tenant, number, prefix="k", **fields):
    return many(number, f"{tenant}{prefix}", tenant_id=tenant, **fields)


def drain(queue, second=100, limit=1):
    """Ids in the order in which they are claimed, until nothing is left to be claimed or released."""
    order = []
    for _ in range(200):
        claims = queue.claim(ClaimRequest("w1", limit), now=at(second))
        order += [claim.queue_id for claim in claims]
        if claims:
            queue.settle([transitions.done(claim) for claim in claims], now=at(second))
        elif not queue.wait(0):
            return order
    raise AssertionError("it never comes to an end")


def parked(queue, *scopes, second=10):
    """Pause, then claim once, so the first rows are held back."""
    for scope in scopes:
        queue.pause(scope, now=at(second))
    return claim_all(queue, at(second), limit=1)


def test_jobs_added_in_a_pause_run_after_those_it_held_back(queue):
    first = put(queue, *of("A", 3), now=at(0))
    assert [] == parked(queue, A)
    during = put(queue, *of("A", 3, "during"), now=at(11))
    queue.resume(A, now=at(12))
    after = put(queue, *of("A", 3, "after"), now=at(13))
    assert first + during + after == drain(queue, limit=2)


def test_jobs_no_claim_has_met_keep_their_place_among_those_held_back(queue):
    ids = put(queue, *of("A", 6), now=at(0))
    others = put(queue, *of("B", 2), now=at(0))
    # Two turns of B are claimed, so that two of A are met and held back and four are not.
    queue.pause(A, now=at(1))
    assert others == [claim_one(queue, at(2)).queue_id for _ in range(2)]
    held = queue.count(PENDING, by=["held"])
    assert held[None,] + held[Held.PAUSE,] == 6
    queue.resume(A, now=at(3))
    assert ids == drain(queue)


def test_calls_of_one_entity_keep_their_order_over_a_pause(queue):
    ids = put(queue, *of("A", 4, lock_key="entity:1"), now=at(0))
    assert [] == parked(queue, A)
    ids += put(queue, *of("A", 4, "during", lock_key="entity:1"), now=at(11))
    queue.resume(A, now=at(12))
    ids += put(queue, *of("A", 2, "after", lock_key="entity:1"), now=at(13))
    assert ids == drain(queue, limit=3)


def test_jobs_added_while_a_resume_releases_come_last(queue, in_small_steps):
    ids = put(queue, *of("A", 7), now=at(0))
    assert [] == parked(queue, A)
    queue.resume(A, now=at(11))
    for second in range(12, 18):
        ids += put(queue, *of("A", 1, f"late{second}"), now=at(second))
        queue.reconcile(now=at(second))
    assert ids == drain(queue)


def test_children_added_while_a_resume_releases_come_last(queue, in_small_steps):
    put(queue, new("parent", item_type="folder", tenant_id="B", priority=9), now=at(0))
    parent = claim_one(queue, at(0))
    ids = put(queue, *of("A", 5), now=at(0))
    assert [] == parked(queue, A)
    queue.resume(A, now=at(11))
    children = tuple(of("A", 3, "child"))
    queue.settle([transitions.waits(parent, children=children)], now=at(12))
    assert ids + [child.queue_id for child in children] == drain(queue)


def test_a_resumed_tenant_takes_turns_with_the_others(queue):
    put(queue, *of("A", 30), now=at(0))
    put(queue, *of("B", 60), now=at(0))
    queue.pause(A, now=at(1))
    for claim in claim_all(queue, at(2), limit=30):
        done(queue, claim, at(2))
    queue.resume(A, now=at(3))
    tenants = [claim.tenant_id for claim in claim_all(queue, at(4), limit=40)]
    assert 18 <= tenants.count("A") <= 22
    assert all(5 <= tenants[start : start + 12].count("A") <= 7 for start in range(0, 36, 12))


def test_a_job_that_comes_back_stays_in_front(queue):
    ids = put(queue, *of("A", 3), now=at(0))
    claim = claim_one(queue, at(1))
    queue.pause(A, now=at(2))
    retry(queue, claim, at(3))
    assert [] == claim_all(queue, at(60))
    queue.resume(A, now=at(61))
    assert ids == drain(queue, 62)


def test_a_pause_of_everything_touches_no_row(queue):
    put(queue, *of("A", 20), *of("B", 20), now=at(0))
    before = queue.find(PENDING)
    queue.pause(Scope(), now=at(1))
    for _ in range(2):
        assert [] == queue.claim(ClaimRequest("w1", 10), now=at(2))
        assert 0 == queue.rows_read
    assert before == queue.find(PENDING)
    assert 0 == queue.resume(Scope(), now=at(3))
    assert before == queue.find(PENDING)
    assert 40 == len(drain(queue))


def test_a_narrower_resume_is_done_under_a_pause_of_everything(queue):
    ids = put(queue, *of("A", 3), now=at(0))
    assert [] == parked(queue, A, Scope(), second=1)
    queue.resume(A, now=at(2))
    assert [] == claim_all(queue, at(3))
    queue.resume(Scope(), now=at(4))
    assert ids == drain(queue)


@pytest.mark.parametrize("first", [A, Scope(collection="x")], ids=["tenant first", "collection first"])
def test_of_two_pauses_the_last_resume_releases(queue, in_small_steps, first):
    second = Scope(collection="x") if first == A else A
    ids = put(queue, *of("A", 5, collection="x"), now=at(0))
    assert [] == parked(queue, first, second)
    queue.resume(first, now=at(11))
    for step in range(12, 24):
        queue.reconcile(now=at(step))
    assert {(Held.PAUSE,): 5} == queue.count(PENDING, by=["held"])
    queue.resume(second, now=at(30))
    ids += put(queue, *of("A", 2, "late", collection="x"), now=at(31))
    assert ids == drain(queue)


def test_two_resumes_at_once_release_what_both_cover(queue, in_small_steps):
    ids = put(queue, *of("A", 5, collection="x"), now=at(0))
    assert [] == parked(queue, A, Scope(collection="x"))
    queue.resume(Scope(collection="x"), now=at(11))
    queue.resume(A, now=at(12))
    ids += put(queue, *of("A", 2, "late", collection="x"), now=at(13))
    assert ids == drain(queue)


@pytest.mark.parametrize("steps", range(1, 9))
def test_a_pause_in_the_middle_of_a_resume_holds_all_back_again(queue, in_small_steps, steps):
    ids = put(queue, *of("A", 6), now=at(0))
    assert [] == parked(queue, A)
    queue.resume(A, now=at(11))
    for step in range(steps - 1):
        queue.reconcile(now=at(12 + step))
    queue.pause(A, now=at(30))
    assert {A} == queue.paused()
    assert [] == drain(queue, 31)
    ids += put(queue, *of("A", 2, "late"), now=at(32))
    queue.resume(A, now=at(33))
    assert ids == drain(queue)


@pytest.mark.parametrize("steps", range(1, 7))
def test_a_resume_goes_on_after_a_stop(queue, reopen, in_small_steps, steps):
    ids = put(queue, *of("A", 6), *of("B", 1), now=at(0))
    assert ids[6:] == [claim.queue_id for claim in parked(queue, A)]
    queue.resume(A, now=at(11))
    for step in range(steps - 1):
        queue.reconcile(now=at(12 + step))
    if type(queue).__name__ != "MemoryQueue":
        queue = reopen()
    ids = ids[:6] + put(queue, *of("A", 2, "late"), now=at(40))
    assert ids == drain(queue, 41)
    assert frozenset() == queue.paused()


def test_a_job_raised_to_where_a_resume_has_been_is_not_forgotten(queue, in_small_steps):
    ids = put(queue, *of("A", 6), now=at(0))
    assert [] == parked(queue, A)
    queue.resume(A, now=at(11))
    for step in range(4):
        queue.reconcile(now=at(12 + step))
    put(queue, new("Ak5", tenant_id="A", priority=9), now=at(20))
    assert [ids[5], *ids[:5]] == drain(queue)


def test_a_claim_holds_back_a_bounded_number_of_rows(queue):
    for start in range(0, 8_000, 4_000):
        queue.add(of("A", 4_000, f"{start}-", priority=9), now=at(0))
    (behind,) = put(queue, new("behind"), now=at(0))
    queue.pause(A, now=at(1))
    claims: list[Claim] = []
    calls = 0
    while not claims:
        claims = queue.claim(ClaimRequest("w1", 10), now=at(2))
        calls += 1
        assert queue.rows_read <= LOOKED_AT_ONCE
        assert claims or queue.wait(0), "a claim that met its bound lets nobody sleep"
    assert [behind] == [claim.queue_id for claim in claims]
    assert 2 <= calls


def test_a_resume_moves_a_bounded_number_of_rows(queue):
    queue.add(of("A", 5_500), now=at(0))
    queue.pause(A, now=at(1))
    while queue.count(JobQuery(held=Held.PAUSE)).get((), 0) < 5_500:
        assert [] == claim_all(queue, at(2))
    assert 2 * rows.MOVED_AT_ONCE == queue.resume(A, now=at(3))
    assert row(queue, queue.find(PENDING)[0].queue_id).held is None
    assert 5_500 == len(drain(queue, limit=1_000))
