"""Several processes at one JSONL queue."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest

from penstock.queue.job import ClaimRequest, JobQuery, WorkerReport
from penstock.queue.jsonl import queue as jsonl_queue
from penstock.queue.jsonl.queue import JsonlQueue
from tests.stores.jsonl.conftest import compact, copied, in_child, new, opened, reopened, state
from tests.stores.new_jobs import T0

# Several processes.


def test_processes_see_what_the_others_wrote(place: Path, queue: JsonlQueue):
    queue.add([new(1)], now=T0)

    def elsewhere() -> list[str]:
        queue.add([new(2)], now=T0)
        return [job.queue_id for job in queue.find(JobQuery())]

    assert ["job_000001", "job_000002"] == in_child(elsewhere)
    queue.add([new(3)], now=T0)
    assert 3 == in_child(lambda: len(opened(place).find(JobQuery())))
    assert ["job_000001", "job_000002", "job_000003"] == [job.queue_id for job in queue.find(JobQuery())]


@pytest.mark.parametrize("reads_all", [True, False])
def test_a_compaction_is_noticed_by_who_slept(
    place: Path, journal: Path, queue: JsonlQueue, monkeypatch: pytest.MonkeyPatch, reads_all: bool
):
    other = opened(place)
    other.add([new(1), new(2)], now=T0)
    if reads_all:
        queue.get("job_000001")
    size = journal.stat().st_size
    compact(other)
    assert 0 == journal.stat().st_size
    # Grown again to the same size: nothing but the number in the lock file tells.
    number = 3
    while journal.stat().st_size < size:
        other.add([new(number)], now=T0)
        number += 1
    shorter = journal.stat().st_size - size

    assert shorter >= 0
    assert state(other) == state(queue)
    queue.add([new(99)], now=T0)
    assert state(other) == state(queue) == reopened(place)
    other.close()


def test_the_journal_is_compacted_by_itself(place: Path, journal: Path, queue: JsonlQueue):
    for number in range(jsonl_queue.COMPACT_AFTER + 5):
        queue.report(WorkerReport(worker_id="w", host="h", pid=number, started_at=T0))

    # One record for each report; the compaction after the hundredth took those away.
    assert 5 == journal.read_bytes().count(b"\n")
    assert state(queue) == reopened(place)


def test_many_rows_are_compacted_after_as_many_records(place: Path, journal: Path, queue: JsonlQueue):
    rows = jsonl_queue.COMPACT_AFTER + 50
    queue.add([new(n) for n in range(rows)])
    for number in range(rows - 2):
        queue.report(WorkerReport(worker_id="w", host="h", pid=number, started_at=T0))
    assert rows - 1 == journal.read_bytes().count(b"\n")
    queue.report(WorkerReport(worker_id="w", host="h", pid=0, started_at=T0))

    assert b"" == journal.read_bytes()
    assert state(queue) == reopened(place)


def test_few_large_records_are_compacted_too(
    place: Path, journal: Path, queue: JsonlQueue, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(jsonl_queue, "COMPACT_AFTER_BYTES", 5_000)
    for number in range(3):
        queue.add([new(number, payload_json='{"text":"' + "x" * 2_000 + '"}')])

    assert b"" == journal.read_bytes()
    assert state(queue) == reopened(place)


def test_a_forked_child_works_on_though_a_thread_of_its_parent_held_the_lock(place: Path, queue: JsonlQueue):
    queue.add([new(1)])
    inside, over = threading.Event(), threading.Event()

    def hold() -> None:
        with queue._changed:
            inside.set()
            over.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    inside.wait(60)

    def elsewhere() -> int:
        queue.add([new(2)])
        return len(queue.find(JobQuery()))

    assert 2 == in_child(elsewhere)
    over.set()
    thread.join()
    queue.add([new(3)])
    assert 3 == len(opened(place).find(JobQuery()))


def test_a_lock_file_made_anew_keeps_everybody_together(place: Path, queue: JsonlQueue):
    other = opened(place)
    queue.add([new(1)])
    (place / "jobs" / ".queue.lock").unlink()
    other.add([new(2)])
    queue.add([new(3)])
    compact(other)
    queue.add([new(4)])

    assert state(queue) == state(other) == reopened(place)
    assert 4 == len(queue.find(JobQuery()))
    other.close()


def test_files_put_back_from_a_backup_count(place: Path, tmp_path: Path, queue: JsonlQueue):
    queue.add([new(1)])
    backup = copied(place, tmp_path / "backup")
    queue.add([new(2)])
    for name in ("index_queue.jsonl", "index_queue.snapshot"):
        shutil.copy(backup / "jobs" / name, tmp_path / name)
        (tmp_path / name).rename(place / "jobs" / name)

    assert ["job_000001"] == [job.queue_id for job in queue.find(JobQuery())]
    queue.add([new(3)])
    assert state(queue) == reopened(place)


def test_waiting_ends_when_another_process_adds(place: Path, queue: JsonlQueue):
    assert not queue.wait(0)
    in_child(lambda: opened(place).add([new(1)]) and None)

    assert queue.wait(120)
    assert not queue.wait(0)


def test_a_claim_that_finds_nothing_wakes_nobody(place: Path, queue: JsonlQueue):
    other = opened(place)
    other.add([new(1)])
    assert queue.wait(120)
    other.claim(ClaimRequest("w1"))
    other.claim(ClaimRequest("w1"))

    assert not queue.wait(0)
    other.close()
