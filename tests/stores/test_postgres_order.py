"""Order of one lock key on PostgreSQL while other transactions lock the rows, case by case."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from threading import Event

import psycopg
import pytest

from penstock.queue import transitions
from penstock.queue.job import Claim, ClaimRequest, Held, JobQuery, Scope, Status
from penstock.queue.postgres.fast_paths import PostgresClaim
from penstock.queue.postgres.queue import PostgresQueue
from penstock.queue.postgres.rows import PostgresRows, transact
from penstock.queue.sql.statements import LOCK_CAP
from tests.stores.conftest import Own
from tests.stores.new_jobs import T0
from tests.stores.new_jobs import call as new

FIRST, SECOND, THIRD = "job_000001", "job_000002", "job_000003"
LOCK = b"SELECT queue_id FROM unified_queue WHERE queue_id = ANY(%s) ORDER BY queue_id FOR UPDATE"


@pytest.fixture
def line(queue: PostgresQueue) -> PostgresQueue:
    queue.add([new(number, lock_key="a") for number in (1, 2, 3)], now=T0)
    return queue


@contextmanager
def locked(own: Own, *ids: str) -> Iterator[None]:
    """Lock rows like a claim."""
    with own.transaction():
        own.execute(LOCK, (list(ids),))
        yield


def claims(queue: PostgresQueue, limit: int = 10, *, oldest: bool = False) -> list[Claim]:
    return queue.claim(ClaimRequest("w", limit, oldest=oldest), now=T0)


def served(queue: PostgresQueue) -> list[str]:
    """Claim the remaining jobs in order."""
    ids = []
    while held := claims(queue):
        ids += [claim.queue_id for claim in held]
        queue.settle([transitions.done(claim) for claim in held], now=T0)
    return ids


@pytest.mark.parametrize("oldest", [False, True])
@pytest.mark.parametrize("limit", [1, 10])
def test_a_row_is_not_taken_while_another_looks_at_an_earlier_one(
    line: PostgresQueue, own: Own, limit: int, oldest: bool
) -> None:
    with locked(own, FIRST):
        assert [] == claims(line, limit, oldest=oldest)
    assert [FIRST, SECOND, THIRD] == served(line)


def test_a_row_parked_meanwhile_does_not_pass_when_the_lock_is_free_again(
    line: PostgresQueue, own: Own
) -> None:
    (holder,) = claims(line, 1)
    with locked(own, SECOND):
        assert [] == claims(line)
        assert [None, Held.LOCK] == [job.held for job in map(line.get, (SECOND, THIRD)) if job]
        line.settle([transitions.done(holder)], now=T0)
    assert [SECOND, THIRD] == served(line)


def test_nor_when_the_holder_ends_in_an_exchange(line: PostgresQueue, own: Own) -> None:
    (holder,) = claims(line, 1)
    with locked(own, SECOND):
        assert [] == claims(line)
        assert [] == line.exchange([transitions.done(holder)], ClaimRequest("w", 10), now=T0).claims
    assert [SECOND, THIRD] == served(line)


def test_a_claim_that_is_refused_a_row_is_filled_up_with_others(line: PostgresQueue, own: Own) -> None:
    line.add([new(number) for number in (4, 5)], now=T0)
    with locked(own, FIRST):
        assert ["job_000004", "job_000005"] == [claim.queue_id for claim in claims(line, 2)]


def test_a_parked_head_that_another_has_locked_is_woken_once_it_is_free(
    line: PostgresQueue, own: Own
) -> None:
    (holder,) = claims(line)
    with ThreadPoolExecutor(1) as pool:
        with locked(own, SECOND):
            settling = pool.submit(line.settle, [transitions.done(holder)], now=T0)
            wait_for_a_lock(own)
            assert not settling.done()
        settling.result(120)
    assert [SECOND, THIRD] == served(line)


def wait_for_a_lock(own: Own) -> None:
    """Until some session waits for a row of this one's."""
    waiting = b"SELECT count(*) FROM pg_stat_activity WHERE pg_backend_pid() = ANY(pg_blocking_pids(pid))"
    while own.execute(waiting).fetchall() == [(0,)]:
        own.execute(b"SELECT pg_sleep(0.01)")


def test_passing_on_several_locks_waits_for_no_row_while_it_has_another(
    queue: PostgresQueue, own: Own, url: str
) -> None:
    queue.add([new(number, lock_key="a") for number in (1, 2)], now=T0)
    queue.add([new(number, lock_key="b") for number in (3, 4)], now=T0)
    held = claims(queue)
    with ThreadPoolExecutor(1) as pool, psycopg.connect(url) as other, locked(own, "job_000004"):
        other.execute(LOCK, ([SECOND],))
        settling = pool.submit(queue.settle, [transitions.done(claim) for claim in held], now=T0)
        wait_for_a_lock(other)
        other.commit()
        wait_for_a_lock(own)
        # If it had that row as well, the two would wait for each other.
        own.execute(LOCK + b" NOWAIT", ([SECOND],))
    settling.result(120)
    assert {SECOND, "job_000004"} == {claim.queue_id for claim in claims(queue)}


def test_a_claim_keeps_few_advisory_locks_however_many_rows_it_holds_back(queue: PostgresQueue) -> None:
    """The server has room for some thousand locks of all sessions together."""
    keys = [f"key {number}" for number in range(900)]
    queue.add([new(number, lock_key=key) for number, key in enumerate(keys)], now=T0)
    while claims(queue, 1_000):
        pass
    # Nine that have to wait, one that need not.
    second = [new(1_000 + number, lock_key=key) for number, key in enumerate(keys)]
    free = [new(2_000 + number) for number in range(100)]
    queue.add([job for at in range(100) for job in (*second[9 * at : 9 * at + 9], free[at])], now=T0)
    tried = b"SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()"

    def claim(rows: PostgresRows) -> int:
        PostgresClaim(rows, ClaimRequest("w", 100), T0).run()
        ((number,),) = rows.execute(tried.decode(), {}).fetchall()
        return int(number)

    assert transact(queue._connections, queue._channel, PostgresRows, claim) <= LOCK_CAP
    while claims(queue, 100):
        pass
    assert {(None, Status.IN_PROGRESS): 1_000, (Held.LOCK, Status.PENDING): 900} == queue.count(
        JobQuery(), by=["held", "status"]
    )


# Claims that meet a pause or its end halfway.

PAUSED = Scope("t")


@contextmanager
def halfway(queue: PostgresQueue) -> Iterator[Callable[[], list[Claim]]]:
    """Read candidates; the returned function takes or holds them back."""
    looked, go = Event(), Event()

    def claim(rows: PostgresRows) -> list[Claim]:
        claim = PostgresClaim(rows, ClaimRequest("w", 10), T0)
        look = claim.send_candidates(10)
        rows.scalar("lengths", cap=1)
        looked.set()
        assert go.wait(120)
        taken = claim.take(look)
        return taken.claims() if taken else []

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(transact, queue._connections, queue._channel, PostgresRows, claim)
        assert looked.wait(120)

        def finish() -> list[Claim]:
            go.set()
            return running.result(120)

        try:
            yield finish
        finally:
            finish()


def drained(queue: PostgresQueue) -> list[str]:
    """As ``served``, also where a resume has to be gone on with; without any upkeep."""
    ids: list[str] = []
    while (found := served(queue)) or queue.wait(0):
        ids += found
    return ids


def test_a_claim_holds_nothing_back_for_a_pause_that_has_ended(line: PostgresQueue) -> None:
    line.pause(PAUSED, now=T0)
    with halfway(line) as go_on:
        line.resume(PAUSED, now=T0)
        taken = go_on()
    assert {} == line.count(JobQuery(held=Held.PAUSE))
    line.settle([transitions.done(claim) for claim in taken], now=T0)
    assert [FIRST, SECOND, THIRD] == [claim.queue_id for claim in taken] + drained(line)


def test_a_claim_that_looked_before_a_pause_takes_no_row_after_one_that_it_holds_back(
    line: PostgresQueue, own: Own
) -> None:
    with ExitStack() as stack:
        with locked(own, FIRST):
            go_on = stack.enter_context(halfway(line))
        line.pause(PAUSED, now=T0)
        assert [] == claims(line)
        assert [Held.PAUSE, None] == [job.held for job in map(line.get, (FIRST, SECOND)) if job]
        assert [] == go_on()
    line.resume(PAUSED, now=T0)
    assert [FIRST, SECOND, THIRD] == drained(line)


def test_a_resume_releases_nothing_while_a_parked_row_is_locked(line: PostgresQueue, own: Own) -> None:
    """Left parked, it would keep a place before the older row that the resume numbers anew."""
    (holder,) = claims(line, 1)
    assert [] == claims(line)
    line.settle([transitions.done(holder)], now=T0)
    line.pause(PAUSED, now=T0)
    with ThreadPoolExecutor(1) as pool:
        with locked(own, THIRD):
            claiming = pool.submit(claims, line)
            wait_for_a_lock(own)
            assert 0 == line.resume(PAUSED, now=T0)
            assert [("gathering",)] == own.execute(b"SELECT phase FROM queue_pause").fetchall()
            assert [Held.PAUSE, Held.LOCK] == [job.held for job in map(line.get, (SECOND, THIRD)) if job]
        assert [] == claiming.result(120)
    assert [SECOND, THIRD] == drained(line)
