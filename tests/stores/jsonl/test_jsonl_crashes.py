"""JSONL queues after a crash, and with damaged files."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from penstock.errors import (
    SchemaMismatch,
    StateDamaged,
)
from penstock.queue import transitions
from penstock.queue.job import JobQuery, Status
from penstock.queue.jsonl.queue import JsonlQueue
from tests.stores.jsonl.conftest import compact, copied, files, new, opened, reopened, state, work
from tests.stores.new_jobs import T0

DAMAGE = {
    "garbage": lambda line: b"garbage",
    "cut": lambda line: line[:-5],
    "zeros": lambda line: b"\0" * len(line),
    "empty": lambda line: b"",
    "another number": lambda line: line.replace(b'"n":', b'"n":9', 1),
    "an unknown word": lambda line: line.replace(b'"n":', b'"what":1,"n":', 1),
    "not UTF-8": lambda line: line.replace(b"job_", b"job\xff", 1),
}


# What a crash leaves.


def test_a_journal_cut_anywhere_in_its_last_record_loads(place: Path, journal: Path, tmp_path: Path):
    queue = opened(place)
    work(queue)
    before, last = state(queue), journal.stat().st_size
    # It frees the lock that the third job waits for.
    (running,) = queue.find(JobQuery(statuses=frozenset({Status.IN_PROGRESS})))
    queue.settle([transitions.failed(running, "ERR_PARSE", "not a PDF")], now=T0)
    after = state(queue)
    queue.close()
    whole = journal.read_bytes()
    assert before != after

    for size in range(last, len(whole) + 1):
        cut = copied(place, tmp_path / "cut")
        os.truncate(cut / "jobs" / journal.name, size)
        expected = after if size == len(whole) else before
        assert expected == reopened(cut), f"cut at {size - last} of {len(whole) - last} bytes"


def test_half_a_line_is_cut_off_by_the_next_write(place: Path, journal: Path, queue: JsonlQueue):
    queue.add([new(1)])
    queue.close()
    whole = journal.read_bytes()
    journal.write_bytes(whole + b'{"n":2,"at":"20')
    queue.add([new(2)])

    assert journal.read_bytes().startswith(whole + b'{"n":2,"at":"20')
    assert 2 == journal.read_bytes().count(b"\n")
    assert state(queue) == reopened(place)


@pytest.mark.parametrize("hole", [slice(0, 10), slice(10, 40), slice(0, None)])
def test_a_last_line_with_holes_was_cut_by_a_power_failure(
    place: Path, journal: Path, queue: JsonlQueue, hole: slice
):
    queue.add([new(1)])
    before, whole = state(queue), journal.read_bytes()
    queue.add([new(2)])
    queue.close()
    line = bytearray(journal.read_bytes()[len(whole) : -1])
    line[hole] = bytes(len(line[hole]))
    journal.write_bytes(whole + line + b"\n")

    assert before == reopened(place)
    after = opened(place)
    after.add([new(3)])
    assert journal.read_bytes().startswith(whole + b'{"n":2,')
    assert state(after) == reopened(place)


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_line_of_the_journal_is_named_and_left_alone(place: Path, journal: Path, kind: str):
    queue = opened(place)
    work(queue)
    queue.close()
    lines = journal.read_bytes().splitlines(keepends=True)
    for number, line in enumerate(lines, 1):
        broken = DAMAGE[kind](line[:-1]) + b"\n"
        if broken == line or (kind == "zeros" and number == len(lines)):
            continue
        journal.write_bytes(b"".join([*lines[: number - 1], broken, *lines[number:]]))
        before = files(place)
        with pytest.raises(StateDamaged, match=rf"index_queue\.jsonl, line {number}: "):
            opened(place)
        assert before == files(place)


def test_a_line_that_is_missing_is_noticed(place: Path, journal: Path):
    queue = opened(place)
    work(queue)
    queue.close()
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:2] + lines[3:]))

    with pytest.raises(StateDamaged, match=r"index_queue\.jsonl, line 3: record 4 cannot follow record 2"):
        opened(place)


def test_damage_is_told_to_a_process_that_has_read_the_rest(journal: Path, queue: JsonlQueue):
    queue.add([new(1)])
    with journal.open("ab") as file:
        file.write(b"what is this?\n")
    before = journal.read_bytes()
    for _ in range(2):
        with pytest.raises(StateDamaged, match="line 2"):
            queue.get("job_000001")
    with pytest.raises(StateDamaged, match="line 2"):
        queue.add([new(2)])

    assert before == journal.read_bytes()


@pytest.mark.parametrize("number", range(1, 9))
def test_a_damaged_line_of_the_snapshot_is_named_and_left_alone(place: Path, snapshot: Path, number: int):
    queue = opened(place)
    work(queue)
    compact(queue)
    queue.close()
    lines = snapshot.read_bytes().splitlines(keepends=True)
    assert 8 == len(lines)
    snapshot.write_bytes(b"".join([*lines[: number - 1], b"{}\n", *lines[number:]]))
    before = files(place)

    with pytest.raises(StateDamaged, match=rf"index_queue\.snapshot, line {number}: "):
        opened(place)
    assert before == files(place)


def test_a_snapshot_that_breaks_off_is_noticed(place: Path, snapshot: Path):
    queue = opened(place)
    work(queue)
    compact(queue)
    queue.close()
    whole = snapshot.read_bytes()
    for size in range(0, len(whole) - 1, 13):
        snapshot.write_bytes(whole[:size])
        with pytest.raises(StateDamaged, match=r"index_queue\.snapshot, line"):
            opened(place)


def test_a_snapshot_of_a_newer_version_is_left_to_it(place: Path, snapshot: Path):
    opened(place).close()
    text = snapshot.read_text()
    snapshot.write_text(text.replace('"version":1', '"version":2'))
    with pytest.raises(SchemaMismatch, match="version 2"):
        opened(place)
    snapshot.write_text(text.replace('"version":1', '"version":0'))
    with pytest.raises(StateDamaged, match="line 1"):
        opened(place)


class Killed(BaseException):
    """The process ends here."""


STEPS = ("open", "write", "fsync", "rename", "pwrite", "ftruncate")


def killed_at(step: int, monkeypatch: pytest.MonkeyPatch, action: Callable[[], object]) -> bool:
    """Stop the action before the ``step``-th file access; returns whether there was one."""
    calls = iter(range(step))

    def stopping(call: Callable[..., object]) -> Callable[..., object]:
        def stopped(*args: object, **kwargs: object) -> object:
            if next(calls, None) is None:
                raise Killed
            return call(*args, **kwargs)

        return stopped

    with monkeypatch.context() as patch:
        for name in STEPS:
            patch.setattr(os, name, stopping(getattr(os, name)))
        try:
            action()
        except Killed:
            return True
    return False


def test_a_compaction_may_end_at_every_step(place: Path, journal: Path, monkeypatch: pytest.MonkeyPatch):
    step, stopped = 0, True
    while stopped:
        shutil.rmtree(place, ignore_errors=True)
        queue, other, late = opened(place), opened(place), opened(place)
        late.add([new(9)], now=T0)
        work(queue)
        before = state(queue)
        assert before == state(other)

        stopped = killed_at(step, monkeypatch, partial(compact, queue))
        queue.close()

        # One that had read everything, one that had not, and one that comes after.
        for witness in (other, late):
            assert before == state(witness), f"step {step}"
        assert before == reopened(place), f"step {step}"
        other.add([new(10)], now=T0)
        assert state(other) == state(late) == reopened(place), f"step {step}"
        other.close()
        late.close()
        step += 1
    assert step > len(STEPS)
