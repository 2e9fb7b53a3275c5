"""File watch: wakes for every real change, by inotify or polling, at almost no cost."""

from __future__ import annotations

import gc
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from penstock.queue import file_watch
from penstock.queue.file_watch import FileWatch

LONG = 240.0
SOON = 120.0
"""Far less than ``LONG``, far more than a wake-up takes on a busy machine."""


class Store:
    """A directory with one file; the size is the state."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.asked = 0
        self.then: Callable[[], None] = lambda: None
        self._seen = 0

    def write(self) -> None:
        with (self.directory / "file").open("ab") as file:
            file.write(b".")

    def changed(self) -> bool:
        self.asked += 1
        path = self.directory / "file"
        size = path.stat().st_size if path.exists() else 0
        changed, self._seen = size != self._seen, size
        if not changed:
            then, self.then = self.then, lambda: None
            then()
        return changed


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


@pytest.fixture(params=["inotify", "polling"])
def bell(
    request: pytest.FixtureRequest, store: Store, monkeypatch: pytest.MonkeyPatch
) -> Iterator[FileWatch]:
    # Only the event itself may wake it.
    monkeypatch.setattr(file_watch, "LONGEST_S", 2 * LONG)
    if request.param == "polling":
        monkeypatch.setattr(file_watch, "_Inotify", _unwatchable)
    bell = FileWatch(store.directory, store.changed)
    yield bell
    bell.close()


def _unwatchable(directory: Path) -> None:
    raise OSError(24, "too many watches", str(directory))


def open_descriptors() -> int:
    # What earlier tests left to the collector must not go between two counts.
    gc.collect()
    return len(list(Path("/dev/fd").iterdir()))


def rings(bell: FileWatch) -> bool:
    start = time.monotonic()
    return bell.wait(LONG) and time.monotonic() - start < SOON


def test_what_happened_before_is_answered_at_once(bell: FileWatch, store: Store):
    store.write()

    assert bell.wait(0)
    assert not bell.wait(0)


def test_nothing_is_answered_after_the_time(bell: FileWatch, store: Store):
    assert not bell.wait(0.05)
    assert store.asked >= 2


def test_a_change_between_the_look_and_the_sleep_rings(bell: FileWatch, store: Store):
    store.then = store.write

    assert rings(bell)


def test_a_change_by_another_thread_rings(bell: FileWatch, store: Store):
    looked = threading.Event()
    store.then = looked.set

    def write_after_the_look() -> None:
        looked.wait(LONG)
        store.write()

    writer = threading.Thread(target=write_after_the_look)
    writer.start()

    assert rings(bell)
    writer.join()


def test_a_file_put_in_the_place_of_another_rings(bell: FileWatch, store: Store, tmp_path_factory):
    store.write()
    assert bell.wait(0)
    new = tmp_path_factory.mktemp("elsewhere") / "new"
    new.write_bytes(b"longer")
    store.then = lambda: (new.rename(store.directory / "file"), None)[1]

    assert rings(bell)


def test_a_directory_made_anew_rings(bell: FileWatch, store: Store):
    def replace() -> None:
        store.directory.rmdir()
        store.directory.mkdir()
        store.write()

    store.then = replace

    assert rings(bell)
    store.then = store.write
    assert rings(bell)


def test_it_can_be_used_after_close(bell: FileWatch, store: Store):
    assert not bell.wait(0.01)
    bell.close()
    store.then = store.write

    assert rings(bell)


def test_close_leaves_no_descriptor_open(bell: FileWatch):
    before = open_descriptors()
    bell.wait(0.01)
    bell.close()

    assert before == open_descriptors()


def test_a_forked_child_takes_no_event_from_its_parent(bell: FileWatch, store: Store):
    assert not bell.wait(0.01)
    store.write()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        # Sees the change, and having its own watch reads nothing of the parent's.
        os._exit(0 if bell.wait(LONG) and not bell.wait(0.01) else 1)

    assert (child, 0) == os.waitpid(child, 0)
    assert rings(bell)


def test_an_idle_second_is_slept_not_looked_through(bell: FileWatch, store: Store):
    """Counted, as a busy machine makes each look dearer but not more frequent."""
    assert not bell.wait(1.0)

    assert store.asked < 80


def test_polling_slows_down_and_is_fast_again_after_a_change(store: Store, monkeypatch: pytest.MonkeyPatch):
    # The clock moves by the sleeps alone: on a busy machine the time would be over after a few of them.
    slept: list[float] = []
    monkeypatch.setattr(file_watch, "_Inotify", _unwatchable)
    monkeypatch.setattr(file_watch, "time", SimpleNamespace(sleep=slept.append, monotonic=lambda: sum(slept)))
    bell = FileWatch(store.directory, store.changed)
    assert not bell.wait(1.0)
    assert slept[0] == file_watch.FASTEST_S
    assert max(slept) == file_watch.SLOWEST_S
    slept.clear()
    store.write()
    assert bell.wait(0)

    assert not bell.wait(1.0)
    assert slept[0] == file_watch.FASTEST_S


def test_with_inotify_it_still_looks_now_and_then(store: Store, monkeypatch: pytest.MonkeyPatch):
    # What another host writes makes no event.
    monkeypatch.setattr(file_watch, "LONGEST_S", 0.01)
    bell = FileWatch(store.directory, store.changed)

    def write_unseen() -> None:
        store._seen = -1

    store.then = write_unseen
    assert rings(bell)
    bell.close()


def test_a_change_that_shows_only_after_its_event_is_not_slept_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite writes before the sync: the event comes first, the commit is visible later."""
    monkeypatch.setattr(file_watch, "LONGEST_S", 2 * LONG)
    shown = threading.Event()
    bell = FileWatch(tmp_path, shown.is_set)

    def write_then_show() -> None:
        (tmp_path / "wal").write_bytes(b"x")
        time.sleep(0.1)
        shown.set()

    writer = threading.Timer(0.1, write_then_show)
    writer.start()

    assert rings(bell)
    writer.join()
    bell.close()
