"""Update, delete and scan, of every item type that has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.queue.job import Status
from tests.documents.conftest import IndexedFolder
from tests.servers.stores import FIRST, others_later

# The queue does not matter here: one per catalog is enough.
pytestmark = pytest.mark.parametrize("docs", others_later(FIRST, ["sqlite"]), indirect=True)


def names(docs: IndexedFolder) -> list[str]:
    return sorted(Path(source.path).name for source in docs.app.documents.sources())


def test_an_updated_file_is_what_the_disk_has(docs: IndexedFolder):
    path = docs.put("a.md", "Water drives the wheel.")
    docs.index()
    (before,) = docs.app.documents.sources()
    path.write_text("Bread comes out of the oven.")

    job = docs.run("file", "update", {"file_path": str(path)})

    assert (Status.DONE, "indexed") == (job.status, (job.result or {})["outcome"])
    (after,) = docs.app.documents.sources()
    assert before.source_id == after.source_id
    assert ([], ["a.md"]) == (docs.found("wheel", mode="keyword"), docs.found("bread", mode="keyword"))


def test_a_deleted_file_is_forgotten_though_it_is_there(docs: IndexedFolder):
    path = docs.put("a.md", "Water drives the wheel.")
    docs.put("b.md", "Bread comes out of the oven.")
    docs.index()

    job = docs.run("file", "delete", {"file_path": str(path)})
    again = docs.run("file", "delete", {"file_path": str(path)})

    assert {"outcome": "removed", "removed": 1} == job.result
    assert {"outcome": "was not indexed", "removed": 0} == again.result
    assert ["b.md"] == names(docs)
    docs.index()
    assert ["a.md", "b.md"] == names(docs)


@pytest.mark.parametrize(("item_type", "key"), [("folder", "folder_path"), ("project", "project_root")])
def test_a_deleted_folder_takes_all_below_it_and_nothing_beside_it(
    docs: IndexedFolder, item_type: str, key: str
):
    for name in ("docs/a.md", "docs/deep/b.md", "docs.md", "docs2/c.md"):
        docs.put(name, f"Text of {name}.")
    docs.index()

    job = docs.run(item_type, "delete", {key: str(docs.folder / "docs")})

    assert {"outcome": "removed", "removed": 2} == job.result
    assert ["c.md", "docs.md"] == names(docs)


@pytest.mark.parametrize(("item_type", "key"), [("folder", "folder_path"), ("project", "project_root")])
def test_a_scan_sends_the_files_for_later(docs: IndexedFolder, item_type: str, key: str):
    docs.put("a.md", "Water drives the wheel.")
    docs.put("b.md", "Bread comes out of the oven.")

    job = docs.run(item_type, "scan", {key: str(docs.folder)}, priority=8)

    children = docs.app.jobs(parent_id=job.queue_id)
    assert [3, 3] == [child.priority for child in children]
    assert ["a.md", "b.md"] == names(docs)
