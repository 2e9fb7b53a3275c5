"""Additions on SQLite that take the plain path: the rows are those of the rules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from penstock.errors import DuplicateId, InvalidText
from penstock.queue.job import AddResult, ClaimRequest, Job, JobQuery, NewJob, Scope
from penstock.queue.memory.queue import MemoryQueue
from penstock.queue.sql.statements import ROWS_AT_ONCE
from penstock.queue.sqlite.queue import SqliteQueue
from tests.stores.new_jobs import T0, new

MANY = 2 * ROWS_AT_ONCE + 7
"""Two statements with many rows, and a rest."""


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[SqliteQueue]:
    with closing(SqliteQueue(tmp_path / "queue.db", synchronous="OFF")) as queue:
        yield queue


@pytest.fixture
def statements(sqlite: SqliteQueue) -> list[str]:
    """Statements of the connection for writing, as they run."""
    ran: list[str] = []
    sqlite._connections.get("write").set_trace_callback(ran.append)
    return ran


def _jobs(start: int, number: int) -> list[NewJob]:
    return [
        new(each, tenant_id=f"t{each % 3}", priority=(3, 5)[each % 2], lock_key=f"doc:{each}")
        for each in range(start, start + number)
    ]


def _rows(queue: SqliteQueue | MemoryQueue) -> list[Job]:
    return queue.find(JobQuery(limit=10_000))


def _same(sqlite: SqliteQueue, batches: Sequence[Sequence[NewJob]]) -> list[list[AddResult]]:
    """Add batches to SQLite and to the reference; both have the same answers and rows."""
    memory = MemoryQueue()
    expected = [memory.add(batch, now=T0) for batch in batches]
    added = [sqlite.add(batch, now=T0) for batch in batches]
    assert expected == added
    assert _rows(memory) == _rows(sqlite)
    return added


@pytest.mark.parametrize("number", [1, 2, ROWS_AT_ONCE, MANY])
def test_rows_of_a_batch_are_those_of_the_reference(sqlite: SqliteQueue, number: int) -> None:
    _same(sqlite, [_jobs(0, 5), _jobs(5, number), _jobs(5 + number, 1), _jobs(6 + number, 3)])


def test_a_batch_with_keys_is_added_by_few_statements(sqlite: SqliteQueue, statements: list[str]) -> None:
    sqlite.add(_jobs(0, 2 * ROWS_AT_ONCE))

    # Begin, two for each of six flows, two inserts, commit.
    assert len(statements) == 1 + 12 + 2 + 1, statements


def test_a_job_alone_is_added_by_one_statement(sqlite: SqliteQueue, statements: list[str]) -> None:
    sqlite.add(_jobs(0, 1))

    assert len(statements) == 3, statements


@pytest.mark.parametrize("at", [0, 50, MANY - 1])
def test_a_duplicate_of_a_live_row_in_a_batch_is_merged_and_the_others_are_added(
    sqlite: SqliteQueue, at: int
) -> None:
    batch = _jobs(10, MANY)
    batch[at] = new(10 + at, idempotency_key="known", priority=9, payload_json='{"newer":1}')
    first = [new(0, idempotency_key="known")]

    *_, added = _same(sqlite, [first, _jobs(1, 9), batch])
    assert [at] == [place for place, each in enumerate(added) if each.dedupe_hit]


def test_duplicates_within_a_batch_are_merged(sqlite: SqliteQueue) -> None:
    batch = _jobs(0, 20)
    batch[13] = new(13, tenant_id="t1", idempotency_key=batch[7].idempotency_key, payload_json='{"newer":1}')

    (added,) = _same(sqlite, [batch])
    assert added[7].queue_id == added[13].queue_id


def test_a_batch_after_one_with_duplicates_is_not_written_twice(
    sqlite: SqliteQueue, statements: list[str]
) -> None:
    """Where a batch had duplicates, the next one has some as well: a folder is submitted again."""
    sqlite.add(_jobs(0, 9))
    sqlite.add([new(20 + each, idempotency_key=f"again:{each}") for each in range(3)])
    undone = []
    for start in (30, 40, 50, 60):
        statements.clear()
        keys = [f"again:{each}" if start < 50 else f"other:{start}:{each}" for each in range(3)]
        sqlite.add([new(start + each, idempotency_key=key) for each, key in enumerate(keys)])
        undone.append("ROLLBACK" in statements)

    assert [True, False, False, False] == undone
    assert not sqlite._meets_duplicates


def test_a_taken_id_in_a_batch_is_refused_and_nothing_is_written(sqlite: SqliteQueue) -> None:
    sqlite.add([new(MANY - 3)])
    before = _rows(sqlite)

    with pytest.raises(DuplicateId):
        sqlite.add(_jobs(0, MANY))
    assert before == _rows(sqlite)


def test_text_that_cannot_be_stored_in_a_batch_is_refused(sqlite: SqliteQueue) -> None:
    with pytest.raises(InvalidText, match=new(7).queue_id):
        sqlite.add([*_jobs(0, 7), new(7, tenant_id="a\0b"), *_jobs(8, 50)])
    assert [] == _rows(sqlite)


@pytest.mark.parametrize("number", [1, 5])
def test_jobs_added_during_a_pause_are_held_like_those_of_the_reference(
    sqlite: SqliteQueue, number: int
) -> None:
    memory = MemoryQueue()
    for queue in (memory, sqlite):
        queue.pause(Scope("t1", "*"))
        queue.add(_jobs(0, number), now=T0)
        assert queue.claim(ClaimRequest("w1", 10), now=T0)
        queue.add(_jobs(10, number), now=T0)

    assert _rows(memory) == _rows(sqlite)
