"""What only the JSONL engine has: its files, what a crash leaves in them, and several processes on them."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock import lifecycle
from penstock.errors import (
    DiskFull,
    PenstockError,
    QueueFull,
    SchemaMismatch,
    StateDamaged,
    StoreDenied,
    StoreReadOnly,
    StoreUnavailable,
)
from penstock.job import ClaimRequest, JobQuery, Limits, NewJob, Scope, Status, WorkerReport
from penstock.queue import audit, jsonl
from penstock.queue.jsonl import JsonlQueue

T0 = datetime(2026, 1, 1, tzinfo=UTC)
NOBODY = 65534
DAMAGE = {
    "garbage": lambda line: b"garbage",
    "cut": lambda line: line[:-5],
    "zeros": lambda line: b"\0" * len(line),
    "empty": lambda line: b"",
    "another number": lambda line: line.replace(b'"n":', b'"n":9', 1),
    "an unknown word": lambda line: line.replace(b'"n":', b'"what":1,"n":', 1),
    "not UTF-8": lambda line: line.replace(b"job_", b"job\xff", 1),
}


def new(number: int, **fields: object) -> NewJob:
    values: dict[str, object] = {
        "queue_id": f"job_{number:06d}",
        "item_type": "file",
        "op": "ingest",
        "tenant_id": "t",
        "collection": "c",
        "idempotency_key": f"key {number}",
        "payload_json": '{"path": "/data/ä \\u2028.txt"}',
    }
    return NewJob(**(values | fields))  # type: ignore[arg-type]


def opened(place: Path) -> JsonlQueue:
    queue = JsonlQueue(place)
    queue.migrate()
    return queue


def state(queue: JsonlQueue) -> object:
    return queue.find(JobQuery(limit=10_000)), queue.paused(), queue.workers()


def compact(queue: JsonlQueue) -> None:
    with queue._writing("compact"):
        queue._compact()


def reopened(place: Path) -> object:
    queue = opened(place)
    found = state(queue)
    queue.close()
    return found


def files(place: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (place / "jobs").iterdir()}


def copied(place: Path, to: Path) -> Path:
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(place, to)
    return to


def work(queue: JsonlQueue) -> None:
    """A little of everything a record can say."""
    queue.add([new(1), new(2, lock_key="lock"), new(3, lock_key="lock"), new(4, tenant_id="u")], now=T0)
    queue.pause(Scope("u"), now=T0)
    claims = queue.claim(ClaimRequest("w1", 10), now=T0)
    queue.settle([lifecycle.done(claims[0], result_json='{"chunks": 3}')], now=T0)
    queue.report(WorkerReport(worker_id="w1", host="h", pid=1, started_at=T0), now=T0)
    queue.add([new(5)], now=T0)
    queue.cancel(["job_000005"], now=T0)
    queue.prune({Status.CANCELLED: datetime(2027, 1, 1, tzinfo=UTC)})


def in_child(action: Callable[[], object]) -> Any:
    """What the action answers in a forked child, or the code of the error it meets."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        signal.alarm(60)
        try:
            answer: object = action()
        except PenstockError as error:
            answer = [error.code, error.message, error.remedy]
        except BaseException as error:
            answer = repr(error)
        os.write(writing, msgspec.json.encode(answer))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return msgspec.json.decode(answer)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def queue(place: Path) -> Iterator[JsonlQueue]:
    queue = opened(place)
    yield queue
    queue.close()


@pytest.fixture
def journal(place: Path) -> Path:
    return place / "jobs" / "index_queue.jsonl"


@pytest.fixture
def snapshot(place: Path) -> Path:
    return place / "jobs" / "index_queue.snapshot"


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
        queue.add([new(2)], limits=Limits(indexing=1))

    assert before == files(place)


# What a crash leaves.


def test_a_journal_cut_anywhere_in_its_last_record_loads(place: Path, journal: Path, tmp_path: Path):
    queue = opened(place)
    work(queue)
    before, last = state(queue), journal.stat().st_size
    # It frees the lock that the third job waits for.
    (running,) = queue.find(JobQuery(statuses=frozenset({Status.IN_PROGRESS})))
    queue.settle([lifecycle.failed(running, "ERR_PARSE", "not a PDF")], now=T0)
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


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_line_of_the_journal_is_named_and_left_alone(place: Path, journal: Path, kind: str):
    queue = opened(place)
    work(queue)
    queue.close()
    lines = journal.read_bytes().splitlines(keepends=True)
    for number, line in enumerate(lines, 1):
        broken = DAMAGE[kind](line[:-1]) + b"\n"
        if broken == line:
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
    """Whether the action was stopped before its ``step``-th call that touches a file."""
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
    for number in range(jsonl.COMPACT_AFTER + 5):
        queue.report(WorkerReport(worker_id="w", host="h", pid=number, started_at=T0))

    # One record for each report; the compaction after the hundredth took those away.
    assert 5 == journal.read_bytes().count(b"\n")
    assert state(queue) == reopened(place)


def test_many_rows_are_compacted_after_as_many_records(place: Path, journal: Path, queue: JsonlQueue):
    rows = jsonl.COMPACT_AFTER + 50
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
    monkeypatch.setattr(jsonl, "COMPACT_AFTER_BYTES", 5_000)
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

    assert queue.wait(30)
    assert not queue.wait(0)


def test_a_claim_that_finds_nothing_wakes_nobody(place: Path, queue: JsonlQueue):
    other = opened(place)
    other.add([new(1)])
    assert queue.wait(30)
    other.claim(ClaimRequest("w1"))
    other.claim(ClaimRequest("w1"))

    assert not queue.wait(0)
    other.close()


# What the disk refuses.


def test_a_full_disk_changes_nothing(place: Path, journal: Path, queue: JsonlQueue):
    queue.add([new(1)])
    size = journal.stat().st_size

    def fill() -> list[object]:
        import resource

        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 700, limits[1]))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        added, refused = 0, ""
        for number in range(2, 10):
            try:
                queue.add([new(number)])
                added += 1
            except DiskFull as error:
                refused = error.code
                break
        found = len(queue.find(JobQuery()))
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        queue.add([new(50)])
        return [added, refused, found, len(queue.find(JobQuery()))]

    added, refused, found, at_last = in_child(fill)
    assert ("ERR_DISK_FULL", 1 + added, 2 + added) == (refused, found, at_last)
    assert added > 0
    assert at_last == len(queue.find(JobQuery()))
    assert state(queue) == reopened(place)


def test_a_compaction_that_finds_no_room_fails_nothing(place: Path, snapshot: Path, queue: JsonlQueue):
    queue.add([new(number) for number in range(20)])
    compact(queue)
    before = snapshot.read_bytes()

    def fill() -> list[object]:
        import resource

        # Room for a record in the empty journal, not for a snapshot of twenty rows.
        limit = len(before) // 2
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        refused = ""
        try:
            compact(queue)
        except DiskFull as error:
            refused = error.code
        jsonl.COMPACT_AFTER_BYTES = 1
        queue._journal._snapshot_size = 0
        queue.add([new(20)])
        return [refused, queue._retry_compaction_at > 0, len(queue.find(JobQuery())), sorted(files(place))]

    refused, tried, found, names = in_child(fill)
    assert (DiskFull.code, True, 21) == (refused, tried, found)
    assert not any(name.endswith(".tmp") for name in names)
    assert before == snapshot.read_bytes()
    assert 21 == len(queue.find(JobQuery()))


@pytest.mark.parametrize("error", ["EIO", "EROFS"])
def test_a_write_that_fails_has_no_effect(
    place: Path, journal: Path, queue: JsonlQueue, monkeypatch: pytest.MonkeyPatch, error: str
):
    import errno

    queue.add([new(1)])
    before, whole = state(queue), journal.read_bytes()

    def refuse(fd: int) -> None:
        raise OSError(getattr(errno, error), "refused")

    with monkeypatch.context() as patch:
        patch.setattr("penstock.queue.journal._sync", refuse)
        with pytest.raises(StoreReadOnly if error == "EROFS" else StoreUnavailable):
            queue.claim(ClaimRequest("w1"))

    assert whole == journal.read_bytes()
    assert before == state(queue)
    assert 1 == len(queue.claim(ClaimRequest("w1")))


def test_an_operation_that_breaks_off_in_the_middle_leaves_no_trace(place: Path, queue: JsonlQueue):
    queue.add([new(1)])
    before = state(queue)

    def break_off() -> None:
        with queue._writing("test") as table:
            table.change(table.rows["job_000001"], {"priority": 9})
            raise RuntimeError

    with pytest.raises(RuntimeError):
        break_off()
    assert before == state(queue) == reopened(place)


@pytest.fixture
def open_place() -> Iterator[Path]:
    """A directory whose parents everybody may pass, unlike those of ``tmp_path``."""
    directory = Path(tempfile.mkdtemp(prefix="penstock-test-"))
    directory.chmod(0o755)
    yield directory / "store"
    for path in [directory, *directory.rglob("*")]:
        path.chmod(0o700)
    shutil.rmtree(directory)


def as_nobody(action: Callable[[], object]) -> Any:
    """Root may do everything, so it has to become somebody else; others are somebody already."""

    def unprivileged() -> object:
        if os.getuid() == 0:
            os.setgid(NOBODY)
            os.setuid(NOBODY)
        return action()

    return in_child(unprivileged)


def test_a_directory_of_somebody_else_is_denied_with_a_remedy(open_place: Path):
    opened(open_place).close()
    (open_place / "jobs").chmod(0o700 if os.getuid() == 0 else 0o000)
    code, message, remedy = as_nobody(lambda: opened(open_place) and None)

    assert StoreDenied.code == code
    assert str(open_place) in message
    assert remedy


def test_a_directory_that_cannot_be_made_is_denied(open_place: Path):
    open_place.parent.chmod(0o555)

    code, message, _ = as_nobody(lambda: opened(open_place) and None)
    assert (StoreDenied.code, True) == (code, str(open_place) in message)


def test_a_queue_that_may_only_be_read_is_read(open_place: Path):
    queue = opened(open_place)
    queue.add([new(1)])
    queue.close()
    for path in [open_place, *open_place.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    before = files(open_place)

    assert "job_000001" == as_nobody(lambda: JsonlQueue(open_place).find(JobQuery())[0].queue_id)
    for action in (lambda: JsonlQueue(open_place).add([new(2)]), lambda: JsonlQueue(open_place).check()):
        assert StoreReadOnly.code == as_nobody(action)[0]
    assert before == files(open_place)


def test_a_directory_that_went_away_is_unavailable(place: Path, queue: JsonlQueue):
    queue.add([new(1)])
    shutil.rmtree(place)

    with pytest.raises(StoreUnavailable):
        queue.add([new(2)])


# What people read.


def test_the_audit_tells_what_was_done(place: Path, queue: JsonlQueue):
    queue.add([new(n) for n in range(3)])
    claims = queue.claim(ClaimRequest("w1", 3))
    queue.settle([lifecycle.done(claims[0]), lifecycle.failed(claims[1], "ERR_X", "x")])
    queue.pause(Scope("t"))
    lines = [line.partition(" ")[2] for line in (place / "jobs" / "index_queue.log").read_text().splitlines()]

    assert [
        "add: 3 added, job_000000 … job_000002",
        "claim by w1: 3 in_progress, job_000000 … job_000002",
        "settle: 1 done, 1 failed, job_000000 … job_000001",
        "pause: paused t/*",
    ] == lines


def test_the_audit_is_rotated(place: Path, queue: JsonlQueue, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(audit, "ROTATE_AT", 500)
    for number in range(3 * audit.LOOK_EVERY):
        queue.report(WorkerReport(worker_id="w", host="h", pid=number, started_at=T0))
    log = place / "jobs" / "index_queue.log"

    assert [audit.LOOK_EVERY] * 2 == [
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
    monkeypatch.setattr(jsonl, "MADE_FOR", 2)
    queue.add([new(1), new(2)])
    assert [] == queue.check()
    queue.add([new(3)])

    assert ["3 live jobs: more than 2 are better kept in sqlite:///"] == queue.check()
