"""Conformance suite: one test for each promise of the queue protocol, run on every engine.

Every call passes ``now=``, so no test sleeps. An engine joins with one line in ``ENGINES``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from weakref import WeakValueDictionary

import pytest

from penstock.queue import transitions
from penstock.queue.job import Claim, ClaimRequest, Job, NewJob
from penstock.queue.memory.queue import MemoryQueue
from penstock.queue.protocol import Queue
from penstock.queue.retry import Classification
from tests.servers.stores import given_back

T0 = datetime(2026, 1, 1, tzinfo=UTC)
LEASE = timedelta(seconds=300)
TRANSIENT = Classification("transient", "ERR_NETWORK")

_memories: WeakValueDictionary[Path, MemoryQueue] = WeakValueDictionary()
_numbers = count(1)


def _memory(place: Path) -> Queue:
    """Opened again, a memory is the same memory."""
    queue = _memories.get(place) or MemoryQueue()
    _memories[place] = queue
    return queue


def _sqlite(place: Path) -> Queue:
    from penstock.queue.sqlite.queue import SqliteQueue

    # Durability has its own tests (test_crash); here the sync would only cost time.
    return SqliteQueue(place / "queue.db", synchronous="NORMAL")


def _jsonl(place: Path) -> Queue:
    from penstock.queue.jsonl.queue import JsonlQueue

    return JsonlQueue(place / "queue")


def _postgres(place: Path) -> Queue:
    from penstock.queue.postgres.queue import PostgresQueue
    from tests.servers import postgres

    return PostgresQueue(postgres.store_at(place))


def _redis(place: Path) -> Queue:
    from penstock.queue.redis.queue import RedisQueue
    from tests.servers.redis import queue_url

    return RedisQueue(queue_url(place))


ENGINES: dict[str, Callable[[Path], Queue]] = {
    "memory": _memory,
    "sqlite": _sqlite,
    "jsonl": _jsonl,
    "postgres": _postgres,
    "redis": _redis,
}


@pytest.fixture(params=ENGINES)
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Queue]]:
    """Opens the test's store; each call is one more opener of the same store."""
    queues: list[Queue] = []

    def open_one() -> Queue:
        queues.append(ENGINES[request.param](tmp_path))
        queues[-1].migrate()
        return queues[-1]

    yield open_one
    for queue in queues:
        queue.close()
    given_back(tmp_path)


@pytest.fixture
def queue(opened: Callable[[], Queue]) -> Queue:
    return opened()


@pytest.fixture
def reopen(queue: Queue, opened: Callable[[], Queue]) -> Callable[[], Queue]:
    """Close the queue and open the store again, as the next process would."""

    def close_and_open() -> Queue:
        queue.close()
        return opened()

    return close_and_open


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def new(key: str = "k", **fields: object) -> NewJob:
    """Make a new job with an id after all earlier ids."""
    defaults: dict[str, object] = {
        "queue_id": f"job_{next(_numbers):08d}",
        "item_type": "file",
        "op": "ingest",
        "tenant_id": "acme",
        "collection": "docs",
        "idempotency_key": key,
        "payload_json": "{}",
    }
    return NewJob(**(defaults | fields))  # type: ignore[arg-type]


def many(number: int, prefix: str = "k", **fields: object) -> list[NewJob]:
    return [new(f"{prefix}{i}", **fields) for i in range(number)]


def put(queue: Queue, *requests: NewJob, now: datetime = T0) -> list[str]:
    """Add jobs and return their ids."""
    return [added.queue_id for added in queue.add(requests, now=now)]


def claim_all(queue: Queue, now: datetime = T0, *, limit: int = 1000, worker: str = "w1") -> list[Claim]:
    """Claim all claimable jobs at once."""
    return queue.claim(ClaimRequest(worker, limit), now=now)


def claim_one(queue: Queue, now: datetime = T0, *, worker: str = "w1") -> Claim:
    """The next job; fails when there is none."""
    (claim,) = queue.claim(ClaimRequest(worker), now=now)
    return claim


def running(queue: Queue, request: NewJob | None = None, now: datetime = T0) -> Claim:
    """Add one job to an empty queue and claim the job."""
    put(queue, request or new(), now=now)
    return claim_one(queue, now)


def row(queue: Queue, queue_id: str) -> Job:
    """The job, which must be there."""
    job = queue.get(queue_id)
    assert job is not None
    return job


def retry(queue: Queue, claim: Claim, now: datetime = T0) -> None:
    """Settle an attempt with a transient failure: back-off."""
    queue.settle([transitions.failed_attempt(claim, TRANSIENT, "no route")], now=now)


def fail(queue: Queue, claim: Claim, now: datetime = T0) -> None:
    queue.settle([transitions.failed(claim, "ERR_PARSE", "not a PDF")], now=now)


def done(queue: Queue, claim: Claim, now: datetime = T0) -> None:
    queue.settle([transitions.done(claim)], now=now)


def reap(queue: Queue, now: datetime) -> None:
    """Settle expired leases, as upkeep does."""
    queue.settle([transitions.lease_lost(job) for job in queue.expired(now=now)], now=now)
