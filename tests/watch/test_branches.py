"""The watcher in a git work tree: a checkout lands on its branch, as one set of changes."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import click
import pytest

from penstock import Penstock, config
from penstock.assembly import Assembly
from penstock.errors import UnknownDocument
from penstock.queue.job import Job, Status
from penstock.service.projects import ProjectView
from penstock.watch import _root
from tests.documents.index_contents import fresh_index, read_index
from tests.watch.test_watch import WAIT_S, Watched


def git(root: Path, *arguments: str) -> None:
    who = ("-c", "user.name=Miller", "-c", "user.email=miller@example.org", "-c", "init.defaultBranch=main")
    subprocess.run(["git", *who, *arguments], cwd=root, check=True, capture_output=True)


def texts(app: Penstock, branch: str, name: str = "*") -> dict[str, str]:
    """Texts of the documents of a branch by their names, or of one of them."""
    projects: list[ProjectView] = app.documents.projects.all()
    if not projects:
        return {}
    where = {"tenant_id": projects[0].tenant_id, "branch": branch}
    found = {}
    for source in app.documents.sources(limit=1000, path=f"**/{name}", **where):
        # One that is removed between the two reads is not there.
        with suppress(UnknownDocument):
            found[Path(source.path).name] = app.documents.page(source.source_id, 1, **where).text
    return found


def test_a_checkout_is_one_set_of_changes_of_its_branch(tmp_path: Path):
    watched = Watched(tmp_path)
    root, app = watched.root, watched.app
    git(root, "init")
    for number in range(20):
        (root / f"{number}.md").write_text(f"Page {number} of the mill.\n")
    git(root, "add", ".")
    git(root, "commit", "-m", "one")
    git(root, "checkout", "-b", "wip")
    (root / "3.md").write_text("Page 3 was rewritten.\n")
    (root / "4.md").unlink()
    git(root, "commit", "-am", "two")
    git(root, "checkout", "main")
    main = {f"{number}.md": f"Page {number} of the mill." for number in range(20)}
    wip = {name: text for name, text in main.items() if name != "4.md"} | {"3.md": "Page 3 was rewritten."}
    process = watched.start()
    try:
        watched.until(lambda: main == texts(app, "main"))
        walks, files = watched.jobs("project"), watched.jobs("file")
        git(root, "checkout", "wip")
        watched.until(lambda: wip == texts(app, "wip"))
        watched.until(lambda: all(job.ended for job in app.jobs(limit=1000)))

        assert main == texts(app, "main")
        assert walks + 1 == watched.jobs("project")
        # Events of the two changed files may come late, and are then looked at once more.
        assert files + len(wip) <= watched.jobs("file") <= files + len(wip) + 2
        git(root, "checkout", "main")
        (root / "5.md").write_text("Page 5 on main.\n")
        watched.until(lambda: main | {"5.md": "Page 5 on main."} == texts(app, "main"))
        assert wip == texts(app, "wip")
    finally:
        process.send_signal(signal.SIGTERM)
        assert 0 == process.wait(WAIT_S), watched.log()
        app.close()


def test_without_changes_the_folder_is_not_looked_at(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    root = tmp_path / "notes"
    root.mkdir()
    with closing(Assembly(config.load({}, state_dir=tmp_path / "state"), door="watcher")) as assembly:
        watched = _root(assembly, str(root), str(tmp_path / "state"), {})
        assert 1 == watched.flush(3600.0)
        root.rmdir()

        assert 0 == watched.flush(3600.0)
    assert "" == caplog.text


FILES = ("a.md", "b.py", "docs/a.md", "docs/b.py", "docs/deep/c.md", "tools/d.py")


class RandomChanges:
    """Random edits, renames, removals, folder moves and checkouts in a work tree."""

    def __init__(self, root: Path, seed: int) -> None:
        self._root = root
        self._choose = random.Random(seed)
        self.branch = "main"

    def make(self, step: int) -> None:
        tracked = [path for path in sorted(self._root.rglob("*.*")) if path.suffix in (".md", ".py")]
        files = [path for path in tracked if ".git" not in path.parts]
        folders = sorted({path.parent for path in files} - {self._root})
        what = self._choose.choice(["edit", "edit", "edit", "new", "rename", "move", "delete", "switch"])
        if what == "edit" and files:
            with self._choose.choice(files).open("a") as file:
                file.write(f"\n# Step {step}\n\nThe miller wrote a line at step {step} of many.\n")
        elif what == "rename" and files:
            self._choose.choice(files).rename(self._root / f"renamed{step}.md")
        elif what == "move" and folders:
            self._choose.choice(folders).rename(self._root / f"moved{step}")
        elif what == "delete" and len(files) > 3:
            self._choose.choice(files).unlink()
        elif what == "switch" and self._choose.random() < 0.3:
            self.switch("wip" if self.branch == "main" else "main")
        else:
            (self._root / f"new{step}.md").write_text(f"A page that is new at step {step}.\n")

    def switch(self, branch: str) -> None:
        git(self._root, "add", "--all")
        git(self._root, "commit", "--allow-empty", "--message", "changes")
        git(self._root, "checkout", branch)
        self.branch = branch


def all_jobs(app: Penstock, **filters: Any) -> Iterator[Job]:
    after = None
    while found := app.jobs(limit=1000, after=after, **filters):
        yield from found
        after = found[-1].queue_id


def wait_for_marker(watched: Watched, branch: str, number: int) -> None:
    """Write a file, and wait until it is in the index of the branch and no job is left."""
    marker, app = watched.root / "marker.md", watched.app
    marker.write_text(f"Everything before was written, number {number}.\n")
    watched.until(lambda: texts(app, branch, marker.name).get(marker.name, "").endswith(f" {number}."))
    watched.until(lambda: not app.jobs(status=[Status.PENDING, Status.IN_PROGRESS], limit=1))


@pytest.mark.parametrize("steps", [20, pytest.param(1_000, marks=pytest.mark.long)])
def test_random_changes_and_checkouts_end_as_a_fresh_index(steps: int, tmp_path: Path):
    watched = Watched(tmp_path)
    root, app = watched.root, watched.app
    git(root, "init")
    if steps < 1_000:
        for name in FILES:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(f"# {name}\n\nThe wheel and the gate of {name}.\n")
    else:
        shutil.copytree(Path(click.__file__).parent, root / "click", ignore=shutil.ignore_patterns("*.pyc"))
    git(root, "add", ".")
    git(root, "commit", "--message", "one")
    git(root, "branch", "wip")
    changes = RandomChanges(root, steps)
    process = watched.start("--include-code")
    try:
        for step in range(steps):
            changes.make(step)
            if step % 40 == 10:
                wait_for_marker(watched, changes.branch, step)
        for number, branch in enumerate(("wip", "main"), start=steps):
            wait_for_marker(watched, changes.branch, number)
            changes.switch(branch)
            wait_for_marker(watched, branch, -number)
            tenant_id = app.documents.projects.all()[0].tenant_id
            found = read_index(app.documents.catalog, root, tenant_id, branch=branch)
            assert fresh_index(tmp_path, root, include_code=True) == found, branch
        assert [] == app.documents.catalog.audit()
        results = [job.result or {} for job in all_jobs(app, item_type="file")]
        new = sum(result.get("chunks", 0) - result.get("kept", 0) for result in results)
        assert 0 < sum(result.get("embedded", 0) for result in results) <= new
    finally:
        process.send_signal(signal.SIGTERM)
        assert 0 == process.wait(WAIT_S), watched.log()
        app.close()
