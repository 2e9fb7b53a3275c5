"""The limits of a SQLite queue with many pending jobs, which an addition does not count each time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock import clock
from penstock.errors import QueueFull
from penstock.queue import transitions
from penstock.queue.job import ClaimRequest, NewJob, QueueLimits
from penstock.queue.sqlite import rows
from penstock.queue.sqlite.queue import SqliteQueue
from tests.stores.new_jobs import call, new
from tests.stores.test_bounded_calls import steps_of

MANY = 5 * rows.FEW


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[SqliteQueue]:
    queue = SqliteQueue(tmp_path / "queue.db", synchronous="OFF")
    yield queue
    queue.close()


@pytest.fixture(autouse=True)
def stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that stands still: a count is used for ever."""
    monkeypatch.setattr(clock, "elapsed_s", lambda: 1_000.0)


@pytest.mark.parametrize(
    ("job", "limits"),
    [
        (new, QueueLimits(indexing=10 * MANY)),
        (new, QueueLimits(per_tenant=10 * MANY)),
        (call, QueueLimits(functions=10 * MANY)),
    ],
    ids=["indexing", "per tenant", "functions"],
)
@pytest.mark.parametrize("at_once", [1, 2])
def test_only_the_first_addition_counts_the_pending_jobs(
    queue: SqliteQueue, job: Callable[[int], NewJob], limits: QueueLimits, at_once: int
) -> None:
    queue.add([job(n) for n in range(MANY)])

    def steps(first: int) -> int:
        return steps_of(queue, lambda one: one.add([job(first + n) for n in range(at_once)], limits=limits))

    counted, bounded = steps(MANY), steps(MANY + 10)
    assert MANY // 100 < counted
    assert bounded < 10


def test_limits_of_other_jobs_cost_a_call_no_statement(queue: SqliteQueue) -> None:
    ran: list[str] = []
    connection = queue._connections.get("write")
    connection.set_trace_callback(ran.append)
    queue.add([call(1)], limits=QueueLimits(indexing=MANY, per_tenant=MANY))
    connection.set_trace_callback(None)

    _, insert, _ = ran
    assert insert.startswith("INSERT"), ran


@pytest.mark.parametrize("limits", [QueueLimits(indexing=MANY), QueueLimits(per_tenant=MANY)], ids=str)
def test_a_limit_holds_to_the_last_job(queue: SqliteQueue, limits: QueueLimits) -> None:
    queue.add([new(n) for n in range(MANY - 3)])
    for number in (MANY, MANY + 1):
        queue.add([new(number)], limits=limits)
    with pytest.raises(QueueFull):
        queue.add([new(MANY + 2), new(MANY + 3)], limits=limits)
    queue.add([new(MANY + 2)], limits=limits)
    with pytest.raises(QueueFull) as refused:
        queue.add([new(MANY + 3)], limits=limits)

    assert MANY == refused.value.pending


def test_jobs_of_other_processes_count_at_once(queue: SqliteQueue) -> None:
    limits = QueueLimits(indexing=2 * MANY)
    queue.add([new(n) for n in range(MANY)])
    queue.add([new(MANY)], limits=limits)
    other = SqliteQueue(queue.path)
    other.add([new(n) for n in range(MANY + 1, 2 * MANY)])
    other.close()

    with pytest.raises(QueueFull):
        queue.add([new(2 * MANY)], limits=limits)


def test_claimed_jobs_make_room(queue: SqliteQueue) -> None:
    limits = QueueLimits(indexing=MANY)
    queue.add([new(n) for n in range(MANY - 1)])
    queue.add([new(MANY)], limits=limits)
    queue.claim(ClaimRequest("w", 2))

    queue.add([new(MANY + 1), new(MANY + 2)], limits=limits)
    with pytest.raises(QueueFull):
        queue.add([new(MANY + 3)], limits=limits)


def test_jobs_that_returned_count_after_a_while(queue: SqliteQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = QueueLimits(indexing=MANY + 1)
    queue.add([new(n) for n in range(MANY)])
    claims = queue.claim(ClaimRequest("w", 10))
    queue.add([new(MANY)], limits=limits)
    queue.settle([transitions.released(claim, "shutdown") for claim in claims])
    monkeypatch.setattr(clock, "elapsed_s", lambda: 1_000.0 + rows.RECOUNT_S)

    with pytest.raises(QueueFull):
        queue.add([new(MANY + 1)], limits=limits)


def test_another_limit_has_a_count_of_its_own(queue: SqliteQueue) -> None:
    queue.add([new(n) for n in range(3 * rows.FEW)])
    with pytest.raises(QueueFull):
        queue.add([new(MANY)], limits=QueueLimits(indexing=rows.FEW + 1))
    with pytest.raises(QueueFull):
        queue.add([new(MANY)], limits=QueueLimits(indexing=2 * rows.FEW))
