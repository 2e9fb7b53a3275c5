"""The heap against a plain sort of the rows."""

from __future__ import annotations

from datetime import UTC, datetime
from random import Random

import msgspec
import pytest

from penstock.queue import transitions
from penstock.queue.job import RETURNED, SUSPECT, Job, NewJob
from penstock.queue.memory.table import ClaimableRows, LazyHeap, claim_order

T0 = datetime(2026, 1, 1, tzinfo=UTC)


def row(number: int, turn: int) -> Job:
    new = NewJob(
        queue_id=f"job_{number:04d}",
        item_type="file",
        op="ingest",
        tenant_id="t",
        collection="c",
        idempotency_key=str(number),
        payload_json="{}",
    )
    return transitions.added(new, T0, turn)


def by_turn(job: Job) -> tuple[int, str]:
    return job.turn, job.queue_id


class Rows:
    def __init__(self) -> None:
        self.rows: dict[str, Job] = {}
        self.heap = LazyHeap(self.rows, by_turn)

    def put(self, job: Job) -> None:
        self.rows[job.queue_id] = job
        self.heap.put(job)

    def expected(self) -> list[Job]:
        return sorted(self.rows.values(), key=by_turn)


@pytest.mark.parametrize("seed", range(20))
def test_rows_come_in_order_whatever_came_and_went(seed: int):
    random, rows = Random(seed), Rows()
    for number in range(400):
        rows.put(row(number, number if random.random() < 0.8 else random.randrange(400)))
        if random.random() < 0.5:
            moved = rows.rows[random.choice(list(rows.rows))]
            rows.put(msgspec.structs.replace(moved, turn=random.randrange(400)))
        if random.random() < 0.3:
            # Removed without notice to the heap, half of the time at its head.
            gone = rows.expected()[0].queue_id if random.random() < 0.5 else random.choice(list(rows.rows))
            del rows.rows[gone]
        if random.random() < 0.2:
            assert rows.expected() == list(rows.heap.ordered())
            assert rows.heap.first() is next(iter(rows.expected()), None)
            number = random.randrange(1, 200)
            assert rows.expected()[:number] == rows.heap.smallest(number)
    assert rows.expected() == list(rows.heap.ordered())


def test_claimable_rows_come_by_priority_and_those_that_returned_before_numbered_ones():
    rows: dict[str, Job] = {}
    claimable = ClaimableRows(rows)
    assert [] == claimable.first(5)
    random = Random(1)
    for number in range(200):
        job = row(number, random.choice([SUSPECT, RETURNED, 0, number]))
        job = msgspec.structs.replace(job, priority=random.choice([0, 3, 7, 10]))
        rows[job.queue_id] = job
        claimable.put(job)
    del rows["job_0007"]
    expected = sorted(rows.values(), key=claim_order)

    assert expected == list(claimable.ordered()) == claimable.first(500)
    assert expected[:120] == claimable.first(120)
    by_priority = {
        priority: [job for job in expected if job.priority == priority] for priority in (10, 7, 3, 0)
    }
    assert [jobs[0] for jobs in by_priority.values()] == list(claimable.heads())
    for priority, jobs in by_priority.items():
        assert min(job.turn for job in jobs if job.turn >= 0) == claimable.head_turn(priority)
    assert claimable.head_turn(5) is None


def test_a_reader_that_stops_early_takes_nothing_away():
    rows = Rows()
    for number in range(100):
        rows.put(row(number, number * 7 % 10))
    first = next(iter(rows.heap.ordered()))

    assert first is rows.expected()[0]
    assert rows.expected() == list(rows.heap.ordered())


def test_a_row_put_again_unchanged_comes_once():
    rows = Rows()
    job = row(1, 1)
    rows.put(job)
    rows.put(msgspec.structs.replace(job))

    assert [rows.rows["job_0001"]] == list(rows.heap.ordered())


@pytest.mark.parametrize("read", [True, False])
def test_what_died_does_not_pile_up(read: bool):
    rows = Rows()
    rows.put(row(0, 0))
    for number in range(10_000):
        rows.put(row(1, number))
        if read:
            rows.heap.first()
    kept = len(rows.heap._fresh) + len(rows.heap._run) + len(rows.heap._heap)

    assert kept < 500
