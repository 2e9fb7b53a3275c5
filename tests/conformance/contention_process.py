"""Process of the contention test: fills and drains a shared store, and records every call.

Run as ``python -m tests.conformance.contention_process ENGINE PLACE NUMBER JOBS``; says ``ready``, then
waits for a line.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import msgspec

from penstock.clock import new_ids
from penstock.queue import transitions
from penstock.queue.job import Claim, ClaimRequest, JobQuery, NewJob, Status
from penstock.queue.protocol import Queue
from tests.conformance.durable_engines import opened

PROCESSES = 4
BATCH = 30
"""Small, so that few jobs make many calls: they race, not the rows within one."""
TENANTS = 5
LOCKS = 40
LOCKED_EVERY = 9
ENDED = JobQuery(statuses=frozenset({Status.DONE}))


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """One added job, with the columns of the promises."""

    queue_id: str
    tenant_id: str
    priority: int
    lock_key: str | None


class Call(msgspec.Struct, frozen=True, omit_defaults=True):
    """One finished call, between two readings of the monotonic clock."""

    start: float
    end: float
    worker: str
    added: list[Entry] = []
    settled: list[tuple[str, int, Status | None]] = []
    claimed: list[tuple[str, int]] = []


def history_of(place: Path, number: int | str) -> Path:
    return place / f"history-{number}.jsonl"


class Process:
    def __init__(self, queue: Queue, number: str, jobs: int) -> None:
        self._queue = queue
        self._worker = f"w{number}"
        self._jobs = jobs
        self._own = jobs // PROCESSES
        self._up_front = self._own // 2 // BATCH
        """Batches that are there before the first claim."""
        self._new = self._requests(number)
        self._held: list[Claim] = []
        self.calls: list[Call] = []

    def run(self) -> None:
        for _ in range(self._up_front):
            self._add()
        while not self._drained():
            self._add()
            self._exchange()

    def _requests(self, number: str) -> Iterator[NewJob]:
        for index, queue_id in enumerate(new_ids(self._own)):
            yield NewJob(
                queue_id=queue_id,
                item_type="file",
                op="ingest",
                tenant_id=f"tenant-{index % TENANTS}",
                collection="docs",
                idempotency_key=f"file:docs:{number}-{index}",
                payload_json='{"path":"/a"}',
                priority=7 if index // BATCH % 4 == 0 else 5,
                lock_key=f"lock-{index % LOCKS}" if index % LOCKED_EVERY == 0 else None,
            )

    def _add(self) -> None:
        batch = list(islice(self._new, BATCH))
        if not batch:
            return
        start = time.monotonic()
        answers = self._queue.add(batch)
        end = time.monotonic()
        if [answer.queue_id for answer in answers] != [item.queue_id for item in batch]:
            raise AssertionError("a job of its own was taken for another")
        entries = [Entry(each.queue_id, each.tenant_id, each.priority, each.lock_key) for each in batch]
        self.calls.append(Call(start, end, self._worker, added=entries))

    def _exchange(self) -> None:
        held = self._held
        start = time.monotonic()
        answer = self._queue.exchange(
            [transitions.done(claim) for claim in held], ClaimRequest(self._worker, BATCH)
        )
        end = time.monotonic()
        self._held = answer.claims
        settled = [
            (claim.queue_id, claim.claim_number, status)
            for claim, status in zip(held, answer.settled, strict=True)
        ]
        claimed = [(claim.queue_id, claim.claim_number) for claim in answer.claims]
        self.calls.append(Call(start, end, self._worker, settled=settled, claimed=claimed))

    def _drained(self) -> bool:
        if self._held or len(self.calls) <= self._up_front:
            return False
        if self._queue.count(ENDED) == {(): self._jobs}:
            return True
        self._queue.wait(0.05)
        return False


def main(engine: str, place: Path, number: str, jobs: int) -> None:
    queue = opened(engine, place)
    print("ready", flush=True)
    sys.stdin.readline()
    process = Process(queue, number, jobs)
    process.run()
    queue.close()
    history_of(place, number).write_bytes(b"\n".join(map(msgspec.json.encode, process.calls)))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
