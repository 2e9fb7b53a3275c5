"""Several at one store, at the same few keys, locks and parents: whoever comes first, the rows stay right."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from random import Random, SystemRandom
from threading import Barrier

import pytest

from penstock.clock import new_ids
from penstock.queue import transitions
from penstock.queue.job import Claim, ClaimRequest, JobQuery, NewJob, Scope, Settlement, Status
from penstock.queue.protocol import Queue
from penstock.queue.retry import Classification
from tests.conformance.durable_engines import DURABLE, opened
from tests.conformance.invariants import breaches
from tests.servers.stores import given_back

OPENERS = 4
CALLS = 120
EVERYTHING = JobQuery(limit=100_000)
FAILURE = Classification("transient", "ERR_NETWORK")


class Racer:
    """One process at the store, with random calls."""

    def __init__(self, queue: Queue, seed: int) -> None:
        self._queue = queue
        self._random = Random(seed)
        self._held: list[Claim] = []
        self._seen: list[str] = []

    def run(self) -> None:
        actions: list[tuple[Callable[[], object], int]] = [
            (self._add, 8),
            (self._exchange, 10),
            (self._settle, 4),
            (self._cancel, 2),
            (self._requeue, 2),
            (self._pause, 1),
            (self._queue.reconcile, 1),
        ]
        for _ in range(CALLS):
            self._random.choices([call for call, _ in actions], [weight for _, weight in actions])[0]()

    def end(self) -> None:
        """Finish all held and claimable jobs, so locks and parents end."""
        while True:
            done = [transitions.done(claim) for claim in self._held]
            self._held = self._queue.exchange(done, ClaimRequest("w", 20)).claims
            if not self._held:
                return

    def _new(self, count: int) -> list[NewJob]:
        random = self._random
        made = [
            NewJob(
                queue_id=queue_id,
                item_type="folder",
                op=random.choice(["ingest", "update", "delete"]),
                tenant_id=random.choice(["ann", "bob"]),
                collection="docs",
                idempotency_key=f"key-{random.randrange(12)}",
                payload_json="{}",
                priority=random.choice([5, 5, 7]),
                lock_key=random.choice([None, "disk", "gpu"]),
                dedupe=random.random() < 0.8,
            )
            for queue_id in new_ids(count)
        ]
        self._seen += [new.queue_id for new in made]
        return made

    def _add(self) -> None:
        self._queue.add(self._new(self._random.choice([1, 2, 6])))

    def _exchange(self) -> None:
        request = ClaimRequest("w", self._random.choice([1, 3, 10]), oldest=self._random.random() < 0.1)
        self._held += self._queue.exchange(self._endings(), request).claims

    def _settle(self) -> None:
        self._queue.settle(self._endings())

    def _endings(self) -> list[Settlement]:
        count = self._random.randint(0, len(self._held))
        ending, self._held = self._held[:count], self._held[count:]
        return [self._ending(claim) for claim in ending]

    def _ending(self, claim: Claim) -> Settlement:
        way = self._random.choice(["done"] * 6 + ["failed", "retry", "released", "lost", "waits", "waits"])
        if way == "waits" and claim.parent_id is None:
            return transitions.waits(claim, children=tuple(self._new(3)))
        if way == "failed":
            return transitions.failed(claim, "ERR_PARSE", "not a PDF")
        if way == "retry":
            return transitions.failed_attempt(claim, FAILURE, "no route")
        if way == "released":
            return transitions.released(claim, "shutting down")
        return transitions.lease_lost(claim) if way == "lost" else transitions.done(claim)

    def _some(self) -> list[str]:
        found = self._queue.find(JobQuery(limit=200))
        return [job.queue_id for job in self._random.sample(found, min(3, len(found)))]

    def _cancel(self) -> None:
        self._queue.cancel(self._some())

    def _requeue(self) -> None:
        self._queue.requeue(self._some())

    def _pause(self) -> None:
        self._queue.pause(Scope("bob"))
        self._queue.resume(Scope("bob"))


@pytest.mark.parametrize("engine", DURABLE)
def test_openers_that_meet_at_every_row_break_no_promise(engine: str, tmp_path: Path) -> None:
    seed = SystemRandom().getrandbits(32)
    queues = [opened(engine, tmp_path) for _ in range(OPENERS)]
    start = Barrier(OPENERS)

    def race(number: int) -> Racer:
        racer = Racer(queues[number], seed + number)
        start.wait()
        racer.run()
        return racer

    with ThreadPoolExecutor(OPENERS) as pool:
        racers = list(pool.map(race, range(OPENERS)))

    assert [] == breaches(queues[0].find(EVERYTHING)), f"seed {seed}"
    for racer in racers:
        racer.end()
    left = queues[0].find(EVERYTHING)
    assert [] == breaches(left), f"seed {seed}"
    assert [] == [job for job in left if job.status is Status.PENDING and job.held is None], f"seed {seed}"
    for queue in queues:
        with suppress(OSError):
            queue.close()
    given_back(tmp_path)


@pytest.mark.parametrize("engine", DURABLE)
def test_adds_of_one_key_from_everywhere_are_one_live_job(engine: str, tmp_path: Path) -> None:
    queues = [opened(engine, tmp_path) for _ in range(OPENERS)]
    start = Barrier(OPENERS)
    batches = [
        [
            NewJob(
                queue_id=queue_id,
                item_type="file",
                op="ingest",
                tenant_id="ann",
                collection="docs",
                idempotency_key=f"key-{index}",
                payload_json="{}",
            )
            for index, queue_id in enumerate(new_ids(20))
        ]
        for _ in range(OPENERS)
    ]

    def add(number: int) -> list[str]:
        # In another order each: two that wait for each other have to find a way out.
        Random(number).shuffle(batches[number])
        start.wait()
        answers = queues[number].add(batches[number])
        keys = [new.idempotency_key for new in batches[number]]
        return [queue_id for _, queue_id in sorted(zip(keys, (a.queue_id for a in answers), strict=True))]

    with ThreadPoolExecutor(OPENERS) as pool:
        answers = list(pool.map(add, range(OPENERS)))

    assert [answers[0]] * OPENERS == answers
    assert {(): 20} == queues[0].count(JobQuery())
    for queue in queues:
        queue.close()
    given_back(tmp_path)
