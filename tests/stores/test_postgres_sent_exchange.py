"""Exchanges on PostgreSQL whose result is read later."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest

from penstock.errors import StoreUnavailable
from penstock.queue import transitions
from penstock.queue.job import Claim, ClaimRequest, Scope, Settlement, Status
from penstock.queue.postgres.queue import PostgresQueue
from penstock.queue.protocol import Exchange
from tests.servers import postgres
from tests.stores.new_jobs import T0
from tests.stores.new_jobs import call as new

REQUEST = ClaimRequest("w", 2)


@pytest.fixture
def queue() -> Iterator[PostgresQueue]:
    queue = PostgresQueue(postgres.fresh_store())
    yield queue
    queue.close()


def _claimed(queue: PostgresQueue, limit: int = 2) -> list[Claim]:
    return queue.claim(ClaimRequest("w", limit), now=T0)


def _sent(queue: PostgresQueue, settlements: list[Settlement]) -> Exchange:
    sent = queue.send_exchange(settlements, REQUEST, now=T0)
    assert sent is not None
    return sent.finish()


def _statuses(queue: PostgresQueue, *numbers: int) -> list[Status]:
    jobs = [queue.get(f"job_{number:06d}") for number in numbers]
    return [job.status for job in jobs if job is not None]


def _done(claims: list[Claim]) -> list[Settlement]:
    return [transitions.done(claim, result_json="1") for claim in claims]


def test_it_settles_and_claims(queue: PostgresQueue) -> None:
    queue.add([new(number) for number in range(1, 6)], now=T0)
    exchange = _sent(queue, _done(_claimed(queue)))
    assert [Status.DONE, Status.DONE] == exchange.settled
    assert [("job_000003", 1), ("job_000004", 1)] == [(c.queue_id, c.claim_number) for c in exchange.claims]
    assert [Status.DONE, Status.DONE, *[Status.IN_PROGRESS] * 2, Status.PENDING] == _statuses(
        queue, 1, 2, 3, 4, 5
    )
    job = queue.get("job_000001")
    assert job is not None
    assert ("1", None) == (job.result_json, job.lease_until)


def test_the_queue_can_be_used_meanwhile(queue: PostgresQueue) -> None:
    queue.add([new(number) for number in range(1, 6)], now=T0)
    claims = _claimed(queue)
    sent = queue.send_exchange(_done(claims[:1]), REQUEST, now=T0)
    assert sent is not None
    assert [Status.DONE] == queue.settle(_done(claims[1:]), now=T0)
    assert ["job_000003", "job_000004"] == [claim.queue_id for claim in sent.finish().claims]


def test_jobs_with_more_to_do_are_settled_like_others(queue: PostgresQueue) -> None:
    """A parent, a follow-up and a lost claim in one exchange."""
    queue.add([new(1, item_type="folder"), new(2), new(3)], now=T0)
    (parent,) = _claimed(queue, 1)
    queue.settle([transitions.waits(parent, children=(new(4, priority=9),))], now=T0)
    claims = _claimed(queue, 3)
    queue.add([new(9, idempotency_key=new(2).idempotency_key, payload_json='{"a":1}')], now=T0)
    lost = claims[2]
    queue.settle([transitions.released(lost, "by another")], now=T0)

    exchange = _sent(queue, _done(claims))

    assert [Status.DONE, Status.PENDING, None] == exchange.settled
    assert [Status.DONE, Status.DONE] == _statuses(queue, 1, 4)
    assert ["job_000003"] == [claim.queue_id for claim in exchange.claims]
    # Such jobs often come together, so the next ones are settled in one transaction with the claim.
    assert queue.send_exchange([], REQUEST, now=T0) is None
    queue.exchange(_done(exchange.claims), REQUEST, now=T0)
    assert queue.send_exchange([], REQUEST, now=T0) is not None


def test_a_lock_or_a_pause_takes_no_job(queue: PostgresQueue) -> None:
    """These jobs are left to the next exchange, which knows how to choose among them."""
    queue.add([new(1), new(2, lock_key="a")], now=T0)
    claims = _claimed(queue, 1)
    assert Exchange([Status.DONE], []) == _sent(queue, _done(claims))
    assert queue.send_exchange([], REQUEST, now=T0) is None
    (locked,) = queue.exchange([], REQUEST, now=T0).claims
    queue.exchange(_done([locked]), REQUEST, now=T0)
    queue.exchange([], REQUEST, now=T0)

    queue.add([new(3)], now=T0)
    queue.pause(Scope("t"), now=T0)
    assert [] == _sent(queue, []).claims


@pytest.mark.parametrize("settlement", [transitions.released, transitions.failed])
def test_other_ends_are_not_sent(queue: PostgresQueue, settlement: object) -> None:
    queue.add([new(1)], now=T0)
    (claim,) = _claimed(queue, 1)
    arguments = ("again",) if settlement is transitions.released else ("ERR_UNKNOWN", "bad")
    assert queue.send_exchange([settlement(claim, *arguments)], REQUEST, now=T0) is None  # type: ignore[operator]


def test_a_session_that_ended_meanwhile_leaves_the_result_open(queue: PostgresQueue) -> None:
    """The server may have done it, so the worker has to look."""
    queue.add([new(1)], now=T0)
    sent = queue.send_exchange([], REQUEST, now=T0)
    assert sent is not None
    give_up_at = time.monotonic() + 20
    while [Status.IN_PROGRESS] != _statuses(queue, 1) and time.monotonic() < give_up_at:
        time.sleep(0.01)
    pid = sent._connection.info.backend_pid  # type: ignore[attr-defined]
    with psycopg.connect(postgres.shared_url(), autocommit=True) as connection:
        connection.execute("SELECT pg_terminate_backend(%s)", (pid,))
    with pytest.raises(StoreUnavailable):
        sent.finish()
    assert [Status.IN_PROGRESS] == _statuses(queue, 1)


def test_it_is_committed_before_its_result_is_read() -> None:
    """A result larger than the buffers of the connection would keep the rows locked until then."""
    large, url, request = '{"text":"' + "x" * 100_000 + '"}', postgres.fresh_store(), ClaimRequest("w", 100)
    with closing(PostgresQueue(url)) as queue, closing(PostgresQueue(url)) as other:
        queue.add([new(1)], now=T0)
        queue.add([new(number, payload_json=large) for number in range(2, 202)], now=T0)
        sent = queue.send_exchange(_done(_claimed(queue, 1)), request, now=T0)
        assert sent is not None

        give_up_at = time.monotonic() + 20
        while [Status.DONE] != _statuses(other, 1) and time.monotonic() < give_up_at:
            time.sleep(0.01)
        assert [Status.DONE] == _statuses(other, 1)
        assert Exchange([Status.DONE], []) == sent.finish()

        # While the claims are large, each exchange is read at once.
        claims = queue.exchange([], request, now=T0).claims
        while claims:
            assert 100 == len(claims)
            assert queue.send_exchange(_done(claims), request, now=T0) is None
            claims = queue.exchange(_done(claims), request, now=T0).claims
        assert queue.send_exchange([], request, now=T0) is not None
