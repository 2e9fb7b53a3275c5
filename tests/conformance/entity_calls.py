"""Process of the order test: submits and runs calls of a few entities, recorded in a shared file.

Run as ``python -m tests.conformance.entity_calls ENGINE PLACE NUMBER PLAN``; says ``ready``, then waits for a
line. A process submits, raises, cancels and requeues the calls of its own entities and does the calls of all.

Each line of the record is an event, written by one append: ``began`` and ``ended`` while the process holds
the entity's lock, so the lines of one entity stand in the order in which its calls had the lock. What a
process is about to ask for (``places``, ``cancels``, ``pauses``, ``asks``) is written before the request,
what came of it after.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from datetime import timedelta
from itertools import count
from pathlib import Path
from random import Random

import msgspec

from penstock.queue import transitions
from penstock.queue.job import (
    Beat,
    Claim,
    ClaimRequest,
    Held,
    Job,
    JobQuery,
    NewJob,
    Scope,
    Settlement,
    Status,
)
from penstock.queue.protocol import Queue
from penstock.queue.retry import Classification
from tests.conformance.durable_engines import opened

SOON = Classification("transient", "ERR_NETWORK", timedelta(milliseconds=20))
BATCH = 10
LIVE = JobQuery(statuses=frozenset({Status.PENDING, Status.IN_PROGRESS}))
HELD_BACK = JobQuery(held=Held.PAUSE)
REQUESTED = [name for name in NewJob.__struct_fields__ if name in Job.__struct_fields__]
"""Fields of a request that its row keeps under the same name."""
ENDED_BADLY = frozenset({Status.FAILED, Status.CANCELLED})


class Plan(msgspec.Struct, frozen=True):
    processes: int
    entities: int
    calls: int
    """Submitted by all processes together."""
    seed: int


class Record:
    """The file shared by all processes."""

    def __init__(self, place: Path) -> None:
        self.path = place / "record"
        self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def write(self, events: Iterable[tuple[object, ...]]) -> None:
        lines = "".join(" ".join(map(str, event)) + "\n" for event in events)
        if lines:
            os.write(self._file, lines.encode())

    def close(self) -> None:
        os.close(self._file)


MOST_PAUSES = 8
"""Of one actor. A pause and its resume move every row, so that in a long line there would be nothing else."""


class Actor:
    def __init__(self, queue: Queue, record: Record, number: int, plan: Plan) -> None:
        self._queue = queue
        self._record = record
        self._number = number
        self._plan = plan
        self._random = Random(plan.seed * 1_000 + number)
        self._own = [f"entity:{each}" for each in range(number, plan.entities, plan.processes)]
        self._left = plan.calls // plan.processes
        self._ids = count(1)
        self._held: list[Claim] = []
        self._pauses = MOST_PAUSES

    def run(self) -> None:
        self._submit(self._left // 2)
        # What else may happen to the calls of an entity, and how often.
        actions: list[tuple[Callable[[], object], int]] = [
            (self._submit, 6),
            (self._raise, 2),
            (self._cancel, 2),
            (self._requeue, 2),
            (self._reap, 1),
            (self._pause, 2),
        ]
        while self._left:
            self._exchange(calmly=False)
            calls, weights = zip(*actions, strict=True)
            self._random.choices(calls, weights)[0]()
        self._record.write([("fed", self._number)])

    def finish(self) -> None:
        """Run the remaining calls."""
        while self._held or self._others_feed() or self._queue.count(LIVE):
            self._reap()
            if not self._exchange(calmly=True):
                self._queue.wait(0.01)

    def _others_feed(self) -> bool:
        fed = {line for line in self._record.path.read_text().splitlines() if line.startswith("fed ")}
        return len(fed) < self._plan.processes

    # The producer of the actor's own entities.

    def _submit(self, most: int = 6) -> None:
        new = [self._new() for _ in range(self._random.randint(1, max(1, min(most, self._left))))]
        self._left = max(0, self._left - len(new))
        self._record.write([("places", self._number)])
        self._queue.add(new)
        self._record.write(
            ("placed", self._number, each.queue_id, each.lock_key, each.priority) for each in new
        )

    def _new(self) -> NewJob:
        # As a caller's own ids: their order means nothing.
        queue_id = f"job_{self._random.randrange(16**4):04x}_{self._number}_{next(self._ids)}"
        return NewJob(
            queue_id=queue_id,
            item_type="function",
            op="run",
            tenant_id="acme",
            collection="docs",
            idempotency_key=queue_id,
            payload_json="{}",
            priority=self._random.choice([5, 5, 5, 7]),
            lock_key=self._random.choice(self._own),
            max_retries=1_000,
        )

    def _raise(self) -> None:
        for job in self._some(frozenset({Status.PENDING}), 2):
            again = NewJob(
                **{name: getattr(job, name) for name in REQUESTED}
                | {"queue_id": f"{job.queue_id}_{next(self._ids)}", "priority": min(10, job.priority + 2)}
            )
            self._record.write([("places", self._number)])
            (added,) = self._queue.add([again])
            # A call that has begun meanwhile is followed up; one that has ended makes this a new call.
            followed = "raised" if added.status is Status.PENDING else "loose"
            what = followed if added.dedupe_hit else "placed"
            self._record.write([(what, self._number, added.queue_id, job.lock_key, again.priority)])

    def _cancel(self) -> None:
        ids = [job.queue_id for job in self._some(LIVE.statuses, 2)]
        self._record.write(("cancels", self._number, queue_id) for queue_id in ids)
        self._queue.cancel(ids)

    def _requeue(self) -> None:
        jobs = self._some(ENDED_BADLY, 2)
        self._record.write([("places", self._number)])
        answers = self._queue.requeue([job.queue_id for job in jobs])
        self._record.write(
            (
                "suspect" if job.lost_count else "requeued",
                self._number,
                job.queue_id,
                job.lock_key,
                job.priority,
            )
            for job, answer in zip(jobs, answers, strict=True)
            if answer.now is Status.PENDING
        )

    def _pause(self) -> None:
        """Pause and resume, with calls added and claims made in between."""
        if not self._pauses:
            return
        self._pauses -= 1
        self._record.write([("pauses", self._number)])
        self._queue.pause(Scope("acme"))
        self._submit()
        self._exchange(calmly=False)
        self._queue.resume(Scope("acme"))
        # A call requeued before the last batch is released goes where its submission was.
        while self._queue.count(HELD_BACK):
            self._queue.reconcile()
        self._queue.reconcile()
        self._record.write([("resumed", self._number)])

    def _some(self, statuses: frozenset[Status], number: int) -> list[Job]:
        found = self._queue.find(
            JobQuery(statuses=statuses, lock_key=self._random.choice(self._own), limit=1_000)
        )
        return self._random.sample(found, min(number, len(found)))

    # The worker of all entities.

    def _exchange(self, *, calmly: bool) -> int:
        ending, self._held = self._held, []
        if not calmly:
            keep = self._random.randint(0, len(ending))
            self._random.shuffle(ending)
            ending, self._held = ending[keep // 2 :], ending[: keep // 2]
        settlements = self._endings(ending, calmly=calmly)
        oldest = self._random.random() < 0.1
        self._record.write([("asks", self._number, "oldest" if oldest else "next")])
        request = ClaimRequest(f"w{self._number}", BATCH, oldest=oldest)
        claims = self._queue.exchange(settlements, request).claims
        self._record.write(("began", self._number, each.queue_id, each.lock_key) for each in claims)
        self._held += claims
        return len(claims)

    def _endings(self, claims: list[Claim], *, calmly: bool) -> list[Settlement]:
        ways = {claim.queue_id: "done" if calmly else self._way(claim) for claim in claims}
        self._record.write(
            ("ended", self._number, each.queue_id, each.lock_key, ways[each.queue_id]) for each in claims
        )
        lost = [each for each in claims if ways[each.queue_id] == "lost"]
        if lost:
            # As if the process had died: the lease runs out, and whoever looks next finds it.
            self._queue.renew([Beat(each.queue_id, each.claim_number, timedelta(0)) for each in lost])
        return [self._ending(each, ways[each.queue_id]) for each in claims if each not in lost]

    def _way(self, claim: Claim) -> str:
        way = self._random.choice(["done"] * 12 + ["retry", "release", "fail", "lost"])
        # Only the first loss of a call is due again at once.
        return "done" if way == "lost" and claim.lost_count else way

    def _ending(self, claim: Claim, way: str) -> Settlement:
        if way == "retry":
            return transitions.failed_attempt(claim, SOON, "no route")
        if way == "release":
            return transitions.released(claim, "shutting down")
        return transitions.failed(claim, "ERR_PARSE", "no") if way == "fail" else transitions.done(claim)

    def _reap(self) -> None:
        self._queue.settle([transitions.lease_lost(job) for job in self._queue.expired()])


def main(engine: str, place: Path, number: int, plan: Plan) -> None:
    queue = opened(engine, place)
    record = Record(place)
    print("ready", flush=True)
    sys.stdin.readline()
    actor = Actor(queue, record, number, plan)
    actor.run()
    actor.finish()
    record.close()
    queue.close()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), msgspec.json.decode(sys.argv[4], type=Plan))
