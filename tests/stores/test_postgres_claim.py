"""Claims on PostgreSQL: the plain case in one statement, and the return to the fast path."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from penstock.queue import transitions
from penstock.queue.job import Claim, ClaimRequest, Held, JobQuery, Scope
from penstock.queue.postgres.queue import PostgresQueue
from penstock.queue.postgres.rows import PostgresRows
from tests.servers import postgres
from tests.stores.new_jobs import T0
from tests.stores.new_jobs import call as new

LINES = 20


@pytest.fixture
def queue() -> Iterator[PostgresQueue]:
    queue = PostgresQueue(postgres.fresh_store())
    yield queue
    queue.close()


def _claimed(queue: PostgresQueue, limit: int = 10, held: list[Claim] | None = None) -> list[str]:
    settled = [transitions.done(claim) for claim in held or []]
    return [claim.queue_id for claim in queue.exchange(settled, ClaimRequest("w", limit), now=T0).claims]


def _hopes(queue: PostgresQueue) -> bool:
    """For the usual case, at its next claim."""
    return queue._plain


@pytest.mark.parametrize("ends", [False, True])
def test_the_usual_case_comes_back_after_a_lock(queue: PostgresQueue, ends: bool) -> None:
    queue.add([new(1), new(2, lock_key="a"), new(3)], now=T0)
    held = queue.claim(ClaimRequest("w", 3), now=T0)
    assert not _hopes(queue)

    queue.add([new(4), new(5)], now=T0)
    first = _claimed(queue, 1, held if ends else None)
    assert _hopes(queue)
    assert ["job_000004", "job_000005"] == first + _claimed(queue, 1)


def test_an_empty_queue_is_the_usual_case(queue: PostgresQueue) -> None:
    assert [] == _claimed(queue)
    assert _hopes(queue)


def test_what_is_paused_stays(queue: PostgresQueue) -> None:
    queue.add([new(1), new(2, tenant_id="other")], now=T0)
    assert ["job_000001"] == _claimed(queue, 1)
    queue.pause(Scope("other"))
    assert [] == _claimed(queue)
    assert not _hopes(queue)
    queue.resume(Scope("other"), now=T0)
    assert ["job_000002"] == _claimed(queue)
    assert [] == _claimed(queue)
    assert _hopes(queue)


def test_what_is_due_comes_in_its_turn(queue: PostgresQueue) -> None:
    queue.add([new(1, run_at=T0 + timedelta(seconds=1)), new(2)], now=T0)
    later = queue.claim(ClaimRequest("w", 1), now=T0 + timedelta(seconds=2))
    assert ["job_000001"] == [claim.queue_id for claim in later]
    assert ["job_000002"] == _claimed(queue)


def test_what_has_an_end_of_its_own_does_not_hold_up_what_was_taken(queue: PostgresQueue) -> None:
    """A follow-up is found only after the next jobs were taken."""
    queue.add([new(1)], now=T0)
    held = queue.claim(ClaimRequest("w", 1), now=T0)
    queue.add([new(9, idempotency_key=new(1).idempotency_key), new(2)], now=T0)
    exchange = queue.exchange([transitions.done(claim) for claim in held], ClaimRequest("w", 2), now=T0)

    assert ["pending"] == exchange.settled
    assert {"job_000001", "job_000002"} == {claim.queue_id for claim in exchange.claims}


def test_a_claim_that_meets_paused_lines_takes_few_statements(
    queue: PostgresQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The resume waits for the transaction of the claim; row by row there were thousands of rounds."""
    queue.add([new(n, lock_key=f"entity:{n % LINES}") for n in range(30 * LINES)], now=T0)
    heads = queue.claim(ClaimRequest("w", 30 * LINES), now=T0)
    assert LINES == len(heads)
    queue.pause(Scope(heads[0].tenant_id))
    queue.settle([transitions.done(each) for each in heads], now=T0)
    sent = []
    execute = PostgresRows.execute

    def recorded(rows: PostgresRows, statement: str, values: Any) -> Any:
        sent.append(statement)
        return execute(rows, statement, values)

    monkeypatch.setattr(PostgresRows, "execute", recorded)

    assert [] == _claimed(queue)

    transactions = sent.count("BEGIN")
    assert len(sent) <= 300 * transactions, Counter(sent).most_common(5)
    left = 29 * LINES
    while queue.count(JobQuery(held=Held.LOCK)):
        assert [] == _claimed(queue)
    assert {(): left} == queue.count(JobQuery(held=Held.PAUSE))
