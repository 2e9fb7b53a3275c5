"""``penstock watch`` over real folders: afterwards the index equals a fresh one."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import watchfiles

from penstock import Penstock, config, watch
from penstock.assembly import Assembly
from penstock.errors import UnknownDocument
from penstock.queue.job import WorkerReport

WAIT_S = 120.0


def documents(app: Penstock) -> dict[str, str]:
    """Texts by path."""
    found = {}
    for source in app.documents.sources(limit=10_000):
        # One that is removed between the two reads is not there.
        with suppress(UnknownDocument):
            found[source.path] = app.documents.page(source.source_id, 1).text
    return found


def on_disk(root: Path) -> dict[str, str]:
    return {str(path): path.read_text().strip() for path in root.rglob("*.md")}


class Watched:
    def __init__(self, folder: Path) -> None:
        self.root = folder / "notes"
        self.root.mkdir()
        self.app = Penstock(state_dir=folder / "state")
        self._folder = folder

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
        command = [sys.executable, "-m", "penstock", "--state", str(self._folder / "state"), "watch"]
        with (self._folder / "log").open("ab") as log:
            return subprocess.Popen(
                [*command, str(self.root), *arguments],
                env=kept | {"PENSTOCK_EMBEDDER": "hashing", "PENSTOCK_POLL_S": "0.05"},
                stdout=log,
                stderr=log,
            )

    def until_equal(self) -> None:
        self.until(lambda: on_disk(self.root) == documents(self.app))

    def until(self, reached: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WAIT_S
        while not reached():
            assert time.monotonic() < deadline, (on_disk(self.root), documents(self.app), self.log())
            time.sleep(0.1)

    def log(self) -> str:
        return (self._folder / "log").read_text()

    def source_id(self, name: str) -> str:
        return self.app.documents.source(str(self.root / name)).source_id

    def workers(self) -> list[WorkerReport]:
        with closing(Assembly(config.load({}, state_dir=self._folder / "state"))) as assembly:
            return assembly.queue.workers()

    def jobs(self, item_type: str) -> int:
        return len(self.app.jobs(item_type=item_type, limit=1000))


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    found = Watched(tmp_path_factory.mktemp("watched"))
    (found.root / "first.md").write_text("The first note.\n")
    process = found.start()
    try:
        found.until_equal()
        yield found
    finally:
        process.send_signal(signal.SIGTERM)
        code = process.wait(WAIT_S)
        found.app.close()
    assert 0 == code, found.log()
    assert "Traceback" not in found.log()


def test_new_changed_and_removed_files_are_followed(watched: Watched):
    note = watched.root / "second.md"
    note.write_text("Once.\n")
    watched.until_equal()
    note.write_text("Twice, and longer.\n")
    watched.until_equal()
    note.unlink()
    watched.until_equal()


def test_one_worker_does_all_changes(watched: Watched):
    note = watched.root / "often.md"
    for number in range(3):
        note.write_text(f"Change {number}.\n")
        watched.until_equal()
        watched.until(lambda: all(job.ended for job in watched.app.jobs(limit=1000)))

    assert 1 == len(watched.workers())


def test_the_worker_ends_with_a_killed_watcher(tmp_path: Path):
    watched = Watched(tmp_path)
    (watched.root / "note.md").write_text("A note.\n")
    process = watched.start()
    watched.until_equal()
    (report,) = watched.workers()
    process.kill()
    process.wait(WAIT_S)

    watched.until(lambda: not Path(f"/proc/{report.pid}").exists())
    watched.app.close()


def test_a_renamed_file_and_folder_keep_their_documents(watched: Watched):
    folder = watched.root / "plans"
    folder.mkdir()
    (folder / "mill.md").write_text("The plan of the mill.\n")
    (watched.root / "loose.md").write_text("A loose note.\n")
    watched.until_equal()
    loose, mill = watched.source_id("loose.md"), watched.source_id("plans/mill.md")

    (watched.root / "loose.md").rename(watched.root / "bound.md")
    watched.until_equal()
    folder.rename(watched.root / "drawings")
    watched.until_equal()

    assert (loose, mill) == (watched.source_id("bound.md"), watched.source_id("drawings/mill.md"))
    assert 2 == watched.jobs("rename")


def test_an_ignore_file_is_applied_again(watched: Watched):
    (watched.root / "draft.md").write_text("A draft.\n")
    watched.until_equal()
    (watched.root / ".gitignore").write_text("draft.md\n")
    watched.until(lambda: str(watched.root / "draft.md") not in documents(watched.app))
    (watched.root / ".gitignore").unlink()
    watched.until_equal()


def test_random_changes_end_as_a_fresh_index(watched: Watched):
    choose = random.Random(7)
    for step in range(60):
        _change(choose, watched.root, step)
    watched.until_equal()


def _change(choose: random.Random, root: Path, step: int) -> None:
    files = sorted(root.rglob("*.md"))
    folders = sorted(path for path in root.rglob("*") if path.is_dir())
    kind = choose.choice(["write", "write", "folder", "rename", "move", "delete", "remove"])
    name = f"{step}.md"
    if kind == "folder":
        (root / f"f{step}").mkdir()
        (root / f"f{step}" / name).write_text(f"Inside, at step {step}.\n")
    elif kind == "write" or not files:
        place = choose.choice([root, *folders])
        choose.choice([place / name, *files]).write_text(f"Written at step {step}.\n")
    elif kind == "rename":
        choose.choice(files).rename(root / f"r{step}.md")
    elif kind == "move" and folders:
        choose.choice(folders).rename(root / f"m{step}")
    elif kind == "delete":
        choose.choice(files).unlink()
    elif kind == "remove" and folders:
        shutil.rmtree(choose.choice(folders))


def test_a_folder_that_does_not_exist_is_refused(tmp_path: Path):
    watched = Watched(tmp_path)
    shutil.rmtree(watched.root)
    process = watched.start()

    assert 0 != process.wait(WAIT_S)
    assert "is not a folder" in watched.log()
    watched.app.close()


def test_a_folder_that_is_away_for_a_while_is_compared_when_it_is_back(tmp_path: Path):
    watched = Watched(tmp_path)
    (watched.root / "first.md").write_text("The first note.\n")
    process = watched.start("--rescan", "1s")
    try:
        watched.until_equal()
        watched.root.rename(tmp_path / "away")
        watched.until(lambda: "compared as a whole later" in watched.log())
        (tmp_path / "away" / "second.md").write_text("Written meanwhile.\n")
        (tmp_path / "away").rename(watched.root)
        watched.until_equal()
        assert process.poll() is None
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(WAIT_S)
        watched.app.close()


def test_the_limit_of_a_file_is_that_of_the_setting(tmp_path: Path):
    watched = Watched(tmp_path)
    (watched.root / "large.pdf").write_bytes(b"%PDF-1.4\n" + b" " * (2 << 20))
    one_mb = config.load({"PENSTOCK_MAX_FILE_MB": "1"}, state_dir=tmp_path / "other")

    for settings, skipped in ((one_mb, {"too_large": 1}), (watched.app.settings, {})):
        with Penstock(settings=settings) as app:
            assert skipped == app.documents.preview(watched.root).skipped
    watched.app.close()


@pytest.mark.parametrize(
    ("error", "setting"),
    [
        (watchfiles._rust_notify.WatchfilesRustInternalError(
            "Error creating recommended watcher: Too many open files (os error 24)"), "max_user_instances"),
        (OSError("OS file watch limit reached. about [\"notes\"]"), "max_user_watches"),
    ],
    ids=["instances", "folders"],
)  # fmt: skip
def test_files_are_compared_where_the_system_gives_no_watch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, setting: str
):
    """The errors of the library at each of the two limits of a user."""
    real = watchfiles.watch

    def limited(*paths: str, force_polling: bool, **options: Any) -> Iterator[Any]:
        if not force_polling:
            raise error
        return real(*paths, force_polling=force_polling, **options)

    monkeypatch.setattr(watchfiles, "watch", limited)
    monkeypatch.setattr(watch, "POLL_MS", 20)
    stop = Event()
    reports: list[str] = []
    ticks = watch._events([str(tmp_path)], stop, reports.append)
    assert [] == next(ticks)
    written = tmp_path / "a.md"
    written.write_text("sluice")
    assert any(str(written) in changed for changed in ticks)
    stop.set()
    for _ in ticks:
        pass
    assert [True] == [setting in report for report in reports]
