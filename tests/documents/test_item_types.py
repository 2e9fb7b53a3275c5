"""Update, delete and scan, of every item type that has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.job import Status
from tests.documents.conftest import IndexedFolder

# The queue has no part in it: one with each catalog is enough.
pytestmark = pytest.mark.parametrize("desk", ["sqlite", "postgres"], indirect=True)


def names(desk: IndexedFolder) -> list[str]:
    return sorted(Path(source.path).name for source in desk.app.documents.sources())


def test_an_updated_file_is_what_the_disk_has(desk: IndexedFolder):
    path = desk.put("a.md", "Water drives the wheel.")
    desk.index()
    (before,) = desk.app.documents.sources()
    path.write_text("Bread comes out of the oven.")

    job = desk.run("file", "update", {"file_path": str(path)})

    assert (Status.DONE, "indexed") == (job.status, (job.result or {})["outcome"])
    (after,) = desk.app.documents.sources()
    assert before.source_id == after.source_id
    assert ([], ["a.md"]) == (desk.found("wheel", mode="keyword"), desk.found("bread", mode="keyword"))


def test_a_deleted_file_is_forgotten_though_it_is_there(desk: IndexedFolder):
    path = desk.put("a.md", "Water drives the wheel.")
    desk.put("b.md", "Bread comes out of the oven.")
    desk.index()

    job = desk.run("file", "delete", {"file_path": str(path)})
    again = desk.run("file", "delete", {"file_path": str(path)})

    assert {"outcome": "removed", "removed": 1} == job.result
    assert {"outcome": "was not indexed", "removed": 0} == again.result
    assert ["b.md"] == names(desk)
    desk.index()
    assert ["a.md", "b.md"] == names(desk)


@pytest.mark.parametrize(("item_type", "key"), [("folder", "folder_path"), ("project", "project_root")])
def test_a_deleted_folder_takes_all_below_it_and_nothing_beside_it(
    desk: IndexedFolder, item_type: str, key: str
):
    for name in ("docs/a.md", "docs/deep/b.md", "docs.md", "docs2/c.md"):
        desk.put(name, f"Text of {name}.")
    desk.index()

    job = desk.run(item_type, "delete", {key: str(desk.folder / "docs")})

    assert {"outcome": "removed", "removed": 2} == job.result
    assert ["c.md", "docs.md"] == names(desk)


@pytest.mark.parametrize(("item_type", "key"), [("folder", "folder_path"), ("project", "project_root")])
def test_a_scan_sends_the_files_for_later(desk: IndexedFolder, item_type: str, key: str):
    desk.put("a.md", "Water drives the wheel.")
    desk.put("b.md", "Bread comes out of the oven.")

    job = desk.run(item_type, "scan", {key: str(desk.folder)}, priority=8)

    children = desk.app.jobs(parent_id=job.queue_id)
    assert [3, 3] == [child.priority for child in children]
    assert ["a.md", "b.md"] == names(desk)
