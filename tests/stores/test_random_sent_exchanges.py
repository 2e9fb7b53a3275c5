"""Random exchanges that PostgreSQL does while the worker runs, compared with the reference after each."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from datetime import datetime, timedelta
from random import Random

import msgspec
import pytest

from penstock.queue import transitions
from penstock.queue.job import ClaimRequest, JobQuery, NewJob, Scope, Settlement, Status
from penstock.queue.memory.queue import MemoryQueue
from penstock.queue.postgres.fast_paths import PlainExchange
from penstock.queue.postgres.queue import PostgresQueue
from penstock.queue.protocol import Exchange, Queue
from tests.servers import postgres
from tests.stores.new_jobs import T0, call, new

STEPS = 40
EVERYTHING = JobQuery(limit=10_000)


class Pair:
    """PostgreSQL and the reference, with the same jobs."""

    def __init__(self, queue: PostgresQueue, seed: int) -> None:
        self.queue, self.reference = queue, MemoryQueue()
        self.random = Random(seed)
        self.now = T0
        self.added = self.sent = self.late = self.claimed = 0

    def step(self) -> None:
        self.now += timedelta(seconds=1)
        self._change()
        held = [job for job in self.reference.find(EVERYTHING) if job.lease_until is not None]
        ending = self.random.sample(held, self.random.randint(0, len(held)))
        request = ClaimRequest("w", self.random.randint(1, 4))
        self._exchange([transitions.done(job, result_json="1") for job in ending], request)
        assert self.reference.find(EVERYTHING) == self.queue.find(EVERYTHING)

    def _change(self) -> None:
        """Add jobs, most of them plain; now and then pause and resume, or have a job wait for a child."""
        jobs = [self._new() for _ in range(self.random.randint(0, 4))]
        held = [job for job in self.reference.find(EVERYTHING) if job.lease_until is not None]
        chance = self.random.random()
        children = [transitions.waits(held[0], children=(self._new(),))] if held and chance < 0.1 else []
        for queue in (self.queue, self.reference):
            queue.add(jobs, now=self.now)
            queue.settle(children, now=self.now)
            if chance > 0.95:
                queue.pause(Scope("t1"), now=self.now)
                queue.claim(ClaimRequest("w", 2), now=self.now)
                queue.resume(Scope("t1"), now=self.now)

    def _new(self) -> NewJob:
        self.added += 1
        fields = {"tenant_id": f"t{self.random.randint(1, 3)}", "priority": self.random.randint(4, 6)}
        if self.random.random() < 0.8:
            return call(self.added, **fields)
        # The same key as a running job: it follows that one.
        key = f"file:c:{self.random.randint(1, 3)}"
        return new(self.added, idempotency_key=key, result_ttl_s=self.random.choice([None, 9_000]), **fields)

    def _exchange(self, settlements: Sequence[Settlement], request: ClaimRequest) -> None:
        sent = self.queue.send_exchange(settlements, request, now=self.now)
        if sent is None:
            self._both_apart(settlements, request)
            return
        assert isinstance(sent, PlainExchange)
        recorded = Recorded(sent)
        found = sent.finish()
        expected = self._expected(settlements, {each.queue_id for each in recorded.late}, request, found)
        assert expected == found
        self.sent += 1
        self.late += len(recorded.late)
        self.claimed += len(found.claims)

    def _both_apart(self, settlements: Sequence[Settlement], request: ClaimRequest) -> None:
        """An exchange may claim before it settles what is not plain, so here one comes after the other."""
        found, expected = (
            (queue.settle(settlements, now=self.now), queue.claim(request, now=self.now))
            for queue in (self.queue, self.reference)
        )
        assert expected == found

    def _expected(
        self, settlements: Sequence[Settlement], late: set[str], request: ClaimRequest, found: Exchange
    ) -> Exchange:
        """Jobs that are not plain are settled after the claim, which takes the first jobs or none."""
        reference = self.reference
        settled = statuses(reference, [each for each in settlements if each.queue_id not in late], self.now)
        limited = msgspec.structs.replace(request, limit=len(found.claims))
        claims = reference.claim(limited, now=self.now) if found.claims else []
        settled |= statuses(reference, [each for each in settlements if each.queue_id in late], self.now)
        return Exchange([settled[each.queue_id] for each in settlements], claims)


class Recorded:
    """What a sent exchange settles only when its result is read."""

    def __init__(self, sent: PlainExchange) -> None:
        self._settle = sent._settle
        sent._settle = self.settle
        self.late: list[Settlement] = []

    def settle(self, settlements: Sequence[Settlement]) -> list[Status | None]:
        self.late += settlements
        return self._settle(settlements)


def statuses(queue: Queue, settlements: Sequence[Settlement], now: datetime) -> dict[str, Status | None]:
    ids = [each.queue_id for each in settlements]
    return dict(zip(ids, queue.settle(settlements, now=now), strict=True))


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 15))])
def test_random_sent_exchanges_leave_the_engine_and_the_reference_equal(seed: int) -> None:
    with closing(PostgresQueue(postgres.fresh_store())) as queue:
        pair = Pair(queue, seed)
        for _ in range(STEPS):
            pair.step()
    assert min(pair.sent, pair.late, pair.claimed) > 0
