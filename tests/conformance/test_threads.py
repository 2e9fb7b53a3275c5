"""One queue object for all threads of a process: nothing raises, nothing is lost, every waiter is told."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from random import Random, SystemRandom

from penstock.clock import new_ids
from penstock.queue import transitions
from penstock.queue.job import (
    Beat,
    Claim,
    ClaimRequest,
    JobQuery,
    NewJob,
    Scope,
    Status,
    WorkerReport,
)
from penstock.queue.protocol import Queue
from tests.conformance.conftest import T0, new, put
from tests.conformance.invariants import breaches

THREADS = 6
CALLS = 60
EVERYTHING = JobQuery(limit=100_000)
PATIENCE = 120.0
LEASE = timedelta(minutes=5)


class Caller:
    """Random calls of one thread, over the whole protocol."""

    def __init__(self, queue: Queue, seed: int) -> None:
        self._queue = queue
        self._random = Random(seed)
        self._held: list[Claim] = []
        self.added: list[str] = []
        self.done: list[str] = []

    def run(self) -> None:
        changes = (self._add, self._add, self._claim, self._settle, self._exchange, self._renew)
        rare = (self._cancel, self._requeue, self._pause, self._report, self._prune, self._repair)
        looks = (self._look_at_one, self._look_at_all, self._queue.check, self._wait, self._queue.migrate)
        calls: tuple[Callable[[], object], ...] = changes * 3 + rare + looks * 2
        for _ in range(CALLS):
            self._random.choice(calls)()

    def end(self) -> None:
        """Finish all held and claimable jobs."""
        while self._held or (claims := self._queue.claim(ClaimRequest("w", 50, lease=LEASE))):
            self._held = self._held or claims
            self._settle()

    def _add(self) -> None:
        made = [
            NewJob(
                queue_id=queue_id,
                item_type="file",
                op="ingest",
                tenant_id=self._random.choice(["ann", "bob"]),
                collection="docs",
                idempotency_key=queue_id,
                payload_json='"' + "x" * self._random.choice([10, 3_000]) + '"',
                lock_key=self._random.choice([None, None, "disk"]),
            )
            for queue_id in new_ids(self._random.choice([1, 3]))
        ]
        self.added += [added.queue_id for added in self._queue.add(made)]

    def _claim(self) -> None:
        self._held += self._queue.claim(ClaimRequest("w", self._random.choice([1, 5]), lease=LEASE))

    def _settle(self) -> None:
        self._count(self._held, self._queue.settle([transitions.done(claim) for claim in self._held]))

    def _exchange(self) -> None:
        ending, request = self._held, ClaimRequest("w", 3, lease=LEASE)
        answer = self._queue.exchange([transitions.done(claim) for claim in ending], request)
        self._count(ending, answer.settled)
        self._held = answer.claims

    def _count(self, claims: list[Claim], answers: list[Status | None]) -> None:
        self._held = []
        ended = zip(claims, answers, strict=True)
        self.done += [claim.queue_id for claim, status in ended if status is Status.DONE]

    def _renew(self) -> None:
        beats = [Beat(claim.queue_id, claim.claim_number, lease=LEASE) for claim in self._held]
        assert all(renewed.held for renewed in self._queue.renew(beats))

    def _some(self) -> list[str]:
        return self._random.sample(self.added, min(2, len(self.added)))

    def _cancel(self) -> None:
        # Only what is pending: what runs is then done all the same, and the count stays simple.
        self._queue.cancel([job.queue_id for job in self._queue.find(JobQuery(limit=1))])

    def _requeue(self) -> None:
        self._queue.requeue(self._some())

    def _pause(self) -> None:
        self._queue.pause(Scope("bob"))
        assert isinstance(self._queue.paused(), frozenset)
        self._queue.resume(Scope("bob"))

    def _report(self) -> None:
        name = f"worker {self._random.randrange(3)}"
        self._queue.report(WorkerReport(worker_id=name, host="h", pid=1, started_at=T0))
        assert name in {worker.worker_id for worker in self._queue.workers()}

    def _prune(self) -> None:
        assert 0 == self._queue.prune({Status.DONE: T0})

    def _repair(self) -> None:
        assert [] == self._queue.expired()
        self._queue.reconcile()

    def _look_at_one(self) -> None:
        for queue_id in self._some():
            job = self._queue.get(queue_id)
            assert job is not None
            assert queue_id == job.queue_id
            self._queue.position(queue_id)

    def _look_at_all(self) -> None:
        self._queue.find(JobQuery(limit=20))
        counted = self._queue.count(JobQuery(), by=("status",))
        assert sum(counted.values()) >= len(self.added)
        assert self._queue.now() > T0

    def _wait(self) -> None:
        self._queue.wait(self._random.choice([0, 0.002]))


def test_threads_call_everything_of_one_queue_and_lose_nothing(queue: Queue) -> None:
    seed = SystemRandom().getrandbits(32)
    start = threading.Barrier(THREADS)

    def call(number: int) -> Caller:
        caller = Caller(queue, seed + number)
        start.wait()
        caller.run()
        return caller

    with ThreadPoolExecutor(THREADS) as pool:
        callers = list(pool.map(call, range(THREADS)))
    assert [] == breaches(queue.find(EVERYTHING)), f"seed {seed}"
    for caller in callers:
        caller.end()

    jobs = {job.queue_id: job for job in queue.find(EVERYTHING)}
    done = Counter(queue_id for caller in callers for queue_id in caller.done)
    assert jobs.keys() == {queue_id for caller in callers for queue_id in caller.added}, f"seed {seed}"
    assert {Status.DONE, Status.CANCELLED} >= {job.status for job in jobs.values()}, f"seed {seed}"
    assert done.keys() >= {job.queue_id for job in jobs.values() if job.status is Status.DONE}, f"seed {seed}"
    assert all(times == 1 for times in done.values()), f"seed {seed}"


def test_a_look_at_the_store_fails_no_write_of_another_thread(
    queue: Queue, opened: Callable[[], Queue]
) -> None:
    """Reads do not hide the commits of other threads from a write."""
    stop = threading.Event()
    other = opened()

    def look() -> int:
        looks = 0
        while not stop.is_set():
            queue.check()
            looks += 1
        return looks

    def write() -> int:
        written = 0
        while not stop.is_set():
            written += len(put(other, new(f"other {written}")))
        return written

    with ThreadPoolExecutor(4) as pool:
        looking = [pool.submit(look) for _ in range(2)]
        writing = pool.submit(write)
        try:
            added = [put(queue, new(f"k{number}"))[0] for number in range(40)]
        finally:
            stop.set()
        assert all(look.result() > 0 for look in looking)
        assert writing.result() + len(added) == len(queue.find(EVERYTHING))

    assert set(added) <= {job.queue_id for job in queue.find(EVERYTHING)}


def test_every_thread_that_waits_is_told(queue: Queue) -> None:
    ready = threading.Barrier(THREADS + 1)

    def wait() -> bool:
        while queue.wait(0):
            pass
        ready.wait(PATIENCE)
        started = time.monotonic()
        return queue.wait(PATIENCE) and time.monotonic() - started < PATIENCE / 2

    with ThreadPoolExecutor(THREADS) as pool:
        waiting = [pool.submit(wait) for _ in range(THREADS)]
        ready.wait(PATIENCE)
        put(queue, new())
        assert [True] * THREADS == [told.result() for told in waiting]


def test_threads_that_wait_for_nothing_are_told_nothing(queue: Queue) -> None:
    def wait() -> bool:
        while queue.wait(0):
            pass
        return queue.wait(0.2)

    with ThreadPoolExecutor(THREADS) as pool:
        assert [False] * THREADS == [told.result() for told in [pool.submit(wait) for _ in range(THREADS)]]


def test_a_waiter_takes_over_from_one_that_leaves(queue: Queue) -> None:
    """Whoever watches for the others may have less patience than they have."""
    ready = threading.Barrier(3)

    def wait(timeout: float) -> bool:
        while queue.wait(0):
            pass
        ready.wait(PATIENCE)
        return queue.wait(timeout)

    with ThreadPoolExecutor(2) as pool:
        short, long = pool.submit(wait, 0.05), pool.submit(wait, PATIENCE)
        ready.wait(PATIENCE)
        assert not short.result()
        put(queue, new())
        started = time.monotonic()
        assert long.result()
        assert time.monotonic() - started < PATIENCE / 2
