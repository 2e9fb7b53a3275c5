"""Disk errors: full, read-only, of another user, removed."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import (
    DiskFull,
    StoreDenied,
    StoreReadOnly,
    StoreUnavailable,
)
from penstock.queue.job import ClaimRequest, JobQuery
from penstock.queue.jsonl import queue as jsonl_queue
from penstock.queue.jsonl.queue import JsonlQueue
from tests.stores.jsonl.conftest import compact, files, in_child, new, opened, reopened, state

NOBODY = 65534


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
        jsonl_queue.COMPACT_AFTER_BYTES = 1
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
        patch.setattr("penstock.queue.jsonl.journal._sync", refuse)
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
    """A directory reachable by other users, unlike ``tmp_path``."""
    directory = Path(tempfile.mkdtemp(prefix="penstock-test-"))
    directory.chmod(0o755)
    yield directory / "store"
    for path in [directory, *directory.rglob("*")]:
        path.chmod(0o700)
    shutil.rmtree(directory)


def as_nobody(action: Callable[[], object]) -> Any:
    """Run as an unprivileged user: root may do everything."""

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
