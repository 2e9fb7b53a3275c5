"""Progress of a resume on PostgreSQL while other sessions add and claim without a gap, case by case."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from penstock.queue import transitions
from penstock.queue.job import ClaimRequest, Held, JobQuery, Scope
from penstock.queue.postgres.queue import PostgresQueue
from penstock.queue.postgres.rows import PostgresRows
from tests.stores.conftest import Own
from tests.stores.new_jobs import T0
from tests.stores.new_jobs import call as new

PAUSED = Scope("t")
WAITING = b"""SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND cardinality(pg_blocking_pids(pid)) > 0"""


@pytest.fixture
def held(queue: PostgresQueue) -> PostgresQueue:
    """A queue with a pause that holds two rows back."""
    queue.add([new(number, lock_key="a") for number in (1, 2)], now=T0)
    queue.pause(PAUSED, now=T0)
    assert [] == queue.claim(ClaimRequest("w", 10), now=T0)
    assert {(): 2} == queue.count(JobQuery(held=Held.PAUSE))
    return queue


@contextmanager
def open_add(own: Own) -> Iterator[None]:
    """Read the pauses for new rows, and commit at the end."""
    with own.transaction():
        PostgresRows(own).pauses()
        yield


def waiting(own: Own) -> int:
    ((number,),) = own.execute(WAITING).fetchall()
    return int(number)


def wait_until_waiting(own: Own, number: int, *unless: Future[Any]) -> None:
    """Wait until so many sessions wait, or one of the calls is over."""
    while waiting(own) < number and not any(call.done() for call in unless):
        own.execute(b"SELECT pg_sleep(0.01), pg_stat_clear_snapshot()")


def served(queue: PostgresQueue) -> list[str]:
    ids: list[str] = []
    while (claims := queue.claim(ClaimRequest("w", 10), now=T0)) or queue.wait(0):
        ids += [claim.queue_id for claim in claims]
        queue.settle([transitions.done(claim) for claim in claims], now=T0)
    return ids


def test_an_add_does_not_pass_a_resume_that_waits_for_an_earlier_add(held: PostgresQueue, own: Own) -> None:
    """Else adds that overlap would hold the resume up for ever."""
    with ThreadPoolExecutor(2) as pool:
        with open_add(own):
            resuming = pool.submit(held.resume, PAUSED, now=T0)
            wait_until_waiting(own, 1)
            adding = pool.submit(held.add, [new(number, lock_key="a") for number in (3, 4)], now=T0)
            wait_until_waiting(own, 2, adding)
            assert not adding.done()
        assert 2 == len(adding.result(120))
        resuming.result(120)
    assert [f"job_{number:06d}" for number in (1, 2, 3, 4)] == served(held)


def test_a_claim_does_not_hold_up_a_resume_that_waits(held: PostgresQueue, own: Own) -> None:
    """A row held back by the claim would have to be kept until its commit, and the next claim overlaps."""
    held.add([new(number, lock_key="a") for number in (3, 4)], now=T0)
    with ThreadPoolExecutor(1) as pool:
        with open_add(own):
            resuming = pool.submit(held.resume, PAUSED, now=T0)
            wait_until_waiting(own, 1)
            held.rows_read = 0
            assert [] == held.claim(ClaimRequest("w", 10), now=T0)
            assert 2 == held.rows_read
            assert [None, None] == [job.held for job in map(held.get, ("job_000003", "job_000004")) if job]
        resuming.result(120)
    assert [f"job_{number:06d}" for number in (1, 2, 3, 4)] == served(held)


@pytest.mark.parametrize("what", ["start", "expand"])
def test_a_call_that_waits_for_a_resume_has_no_row_locked(queue: PostgresQueue, own: Own, what: str) -> None:
    """The resume may wait for that row: the two would deadlock."""
    queue.pause(Scope("other"), now=T0)
    queue.add([new(1), new(2)], now=T0)
    (claim,) = queue.claim(ClaimRequest("w", 1), now=T0)
    with ThreadPoolExecutor(1) as pool:
        with own.transaction():
            PostgresRows(own).pauses(to_change=True)
            if what == "start":
                calling: Future[Any] = pool.submit(queue.start, "job_000002", ClaimRequest("w", 1), now=T0)
            else:
                calling = pool.submit(queue.settle, [transitions.expanded(claim, (new(3),))], now=T0)
            wait_until_waiting(own, 1, calling)
            assert not calling.done()
            own.execute(b"SELECT 1 FROM unified_queue FOR UPDATE NOWAIT")
        assert calling.result(120)


def test_an_add_does_not_wait_for_another(held: PostgresQueue, own: Own) -> None:
    with open_add(own):
        assert 1 == len(held.add([new(3, lock_key="b")], now=T0))
