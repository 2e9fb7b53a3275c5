"""Files written by a JSONL queue, and the audit log."""

from __future__ import annotations

import stat
from pathlib import Path

import msgspec
import pytest

from penstock.errors import (
    QueueFull,
)
from penstock.queue import transitions
from penstock.queue.job import ClaimRequest, JobQuery, QueueLimits, Scope, WorkerReport
from penstock.queue.jsonl import queue as audit_log
from penstock.queue.jsonl import queue as jsonl_queue
from penstock.queue.jsonl.queue import JsonlQueue
from tests.stores.jsonl.conftest import files, new, opened, reopened, state, work
from tests.stores.new_jobs import T0

# What is written.


def test_files_and_directories_are_for_this_user_alone(place: Path, queue: JsonlQueue):
    queue.add([new(1)])
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in [place, *place.rglob("*")]}

    assert {"store": 0o700, "jobs": 0o700} == {name: mode for name, mode in modes.items() if mode != 0o600}
    assert {"index_queue.jsonl", "index_queue.snapshot", "index_queue.log", ".queue.lock"} <= set(modes)


def test_all_there_is_comes_back(place: Path, queue: JsonlQueue):
    work(queue)
    before = state(queue)
    queue.close()

    assert before == reopened(place)


def test_every_text_comes_back_as_it_was(place: Path, queue: JsonlQueue):
    texts = ['{"a": "line\\nbreak"}', '{\n "b" : 1.50e3 }', '{"c":"\\ud83d\\ude00 😀"}', "{}"]
    queue.add([new(n, payload_json=text) for n, text in enumerate(texts)])
    queue.close()
    again = opened(place)

    assert texts == [job.payload_json for job in again.find(JobQuery())]
    again.close()


def test_a_claim_of_many_plain_jobs_is_one_short_line(journal: Path, queue: JsonlQueue):
    queue.add([new(n) for n in range(100)])
    queue.claim(ClaimRequest("w1", 100))
    record = msgspec.json.decode(journal.read_bytes().splitlines()[-1])
    ((ids, changes),) = record["set"]

    assert (2, "claim", 100) == (record["n"], record["do"], len(ids))
    assert ("in_progress", "w1", False) == (changes["status"], changes["worker_id"], changes["lock_held"])


def test_what_changes_nothing_writes_nothing(place: Path, queue: JsonlQueue):
    queue.add([new(1)])
    before = files(place)
    queue.claim(ClaimRequest("w1", 0))
    queue.settle([])
    queue.resume(Scope("x"))
    queue.cancel(["unknown"])
    with pytest.raises(QueueFull):
        queue.add([new(2)], limits=QueueLimits(indexing=1))

    assert before == files(place)


# What people read.


def test_the_audit_tells_what_was_done(place: Path, queue: JsonlQueue):
    queue.add([new(n) for n in range(3)])
    claims = queue.claim(ClaimRequest("w1", 3))
    queue.settle([transitions.done(claims[0]), transitions.failed(claims[1], "ERR_X", "x")])
    queue.pause(Scope("t"))
    lines = [line.partition(" ")[2] for line in (place / "jobs" / "index_queue.log").read_text().splitlines()]

    assert [
        "add: 3 added, job_000000 … job_000002",
        "claim by w1: 3 in_progress, job_000000 … job_000002",
        "settle: 1 done, 1 failed, job_000000 … job_000001",
        "pause: paused t/*",
    ] == lines


def test_the_audit_is_rotated(place: Path, queue: JsonlQueue, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(audit_log, "ROTATE_AT", 500)
    for number in range(3 * audit_log.CHECK_EVERY):
        queue.report(WorkerReport(worker_id="w", host="h", pid=number, started_at=T0))
    log = place / "jobs" / "index_queue.log"

    assert [audit_log.CHECK_EVERY] * 2 == [
        len(path.read_text().splitlines()) for path in (log, log.with_name(log.name + ".1"))
    ]


def test_an_audit_that_cannot_be_written_fails_nothing(place: Path, queue: JsonlQueue):
    (place / "jobs" / "index_queue.log").mkdir()
    queue.add([new(1)])

    assert state(queue) == reopened(place)


def test_the_audit_can_be_left_out(place: Path):
    queue = JsonlQueue(place, audit=False)
    queue.add([new(1)])
    queue.close()

    assert "index_queue.log" not in files(place)


def test_too_many_live_jobs_are_warned_of(queue: JsonlQueue, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(jsonl_queue, "MADE_FOR", 2)
    queue.add([new(1), new(2)])
    assert [] == queue.check()
    queue.add([new(3)])

    assert ["3 live jobs: more than 2 are better kept in sqlite:///"] == queue.check()
