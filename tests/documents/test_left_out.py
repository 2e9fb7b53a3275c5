"""Skipped paths: a rename or a file's own job applies the same rules as the next walk."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.queue.job import Job, Status
from tests.documents.conftest import IndexedFolder
from tests.servers.stores import FIRST, others_later

pytestmark = pytest.mark.parametrize("docs", others_later(FIRST, ["sqlite"]), indirect=True)


def moved(docs: IndexedFolder, old: str, new: str, *, folder: bool = False) -> Job:
    """Move a file on disk and report the rename."""
    here, there = docs.folder / old, docs.folder / new
    there.parent.mkdir(parents=True, exist_ok=True)
    here.rename(there)
    paths = {"old_path": str(here), "new_path": str(there), "is_folder": folder}
    return docs.run("rename", "update", paths)


@pytest.mark.parametrize(
    ("new", "rule"),
    [
        (".hidden/mill.md", "its name begins with a dot"),
        (".mill.md", "its name begins with a dot"),
        ("ignored/mill.md", "a .penstockignore excludes it"),
        ("node_modules/mill.md", "a tool made or installed it"),
        ("mill.mp3", "hold no text"),
        ("narrow/mill.md", "an exclude pattern matches it"),
    ],
)
def test_a_file_moved_to_where_no_walk_finds_it_goes_with_the_reason(
    docs: IndexedFolder, new: str, rule: str
):
    docs.put(".penstockignore", "ignored/\n")
    docs.put("sub/mill.md", "Water drives the wheel.")
    docs.index(exclude=["narrow/"])

    job = moved(docs, "sub/mill.md", new)

    assert ("removed", 1) == (job.result["outcome"], job.result["removed"])
    assert rule in job.result["note"]
    assert [] == docs.found("wheel", mode="keyword")
    why = docs.app.documents.why(docs.folder / new)
    assert ("skipped", True) == (why.verdict, rule in why.cause)
    # A walk decides the same.
    docs.index(exclude=["narrow/"], allow_empty=True)
    assert [] == docs.found("wheel", mode="keyword")


def test_a_folder_moved_to_where_no_walk_finds_it_goes_whole(docs: IndexedFolder):
    docs.put("sub/mill.md", "Water drives the wheel.")
    docs.put("sub/deep/gate.md", "Another wheel.")
    docs.put("other.md", "A third wheel.")
    docs.index()

    assert 2 == moved(docs, "sub", ".attic/sub", folder=True).result["removed"]

    assert ["other.md"] == docs.found("wheel", mode="keyword")


def test_a_copy_left_out_leaves_the_original(docs: IndexedFolder):
    docs.put("mill.md", "Water drives the wheel.")
    docs.index()
    docs.put(".attic/mill.md", "Water drives the wheel.")
    paths = {"old_path": f"{docs.folder}/mill.md", "new_path": f"{docs.folder}/.attic/mill.md"}

    assert Status.DONE is docs.run("rename", "update", paths | {"is_folder": False}).status

    assert [str(docs.folder / "mill.md")] == [hit.path for hit in docs.app.search("wheel", mode="keyword")]


def test_what_was_asked_for_by_its_name_keeps_its_document(docs: IndexedFolder):
    docs.put("other.md", "Something else.")
    docs.put(".attic/mill.md", "Water drives the wheel.")
    docs.index()
    docs.index(docs.folder / ".attic/mill.md")

    moved(docs, ".attic/mill.md", ".attic/old.md")
    docs.index()

    assert ["old.md"] == docs.found("wheel", mode="keyword")


def test_two_walks_find_what_one_of_them_leaves_out(docs: IndexedFolder):
    docs.put("sub/mill.md", "Water drives the wheel.")
    docs.put(".attic/gate.md", "Another text.")
    docs.index()
    docs.index(docs.folder / ".attic")

    moved(docs, "sub/mill.md", ".attic/mill.md")

    assert ["mill.md"] == docs.found("wheel", mode="keyword")


def test_a_job_for_a_link_reads_nothing_through_it(docs: IndexedFolder, tmp_path: Path):
    outside = tmp_path / "outside.md"
    outside.write_text("Water drives the wheel.")
    docs.put("other.md", "Something else.")
    link = docs.folder / "link.md"
    link.symlink_to(outside)

    job = docs.run("file", "ingest", {"file_path": str(link)}, exact=True)

    assert (Status.FAILED, "ERR_UNSUPPORTED_TYPE") == (job.status, job.error_code)
    assert "is a link" in (job.error_message or "")
    assert [] == docs.found("wheel", mode="keyword")
    # A link named by a user means its target.
    docs.index(link)
    assert [str(outside)] == [hit.path for hit in docs.app.search("wheel", mode="keyword")]


def test_a_link_in_the_place_of_a_file_takes_it_out_of_the_index(docs: IndexedFolder, tmp_path: Path):
    path = docs.put("mill.md", "Water drives the wheel.")
    docs.put("other.md", "Something else.")
    docs.index()
    path.rename(tmp_path / "mill.md")
    path.symlink_to(tmp_path / "mill.md")
    found = list(docs.app.verifier.differences())
    assert ["is indexed, but is not a file any more"] == [one.what for one in found]

    (receipt,) = docs.app.verifier.fix(found)

    assert "removed" == docs.finish(receipt.job_id).result["outcome"]
    assert [] == list(docs.app.verifier.differences())


def test_a_folder_made_anew_and_emptied_after_its_rename_keeps_nothing(docs: IndexedFolder):
    docs.put("sub/mill.md", "Water drives the wheel.")
    docs.put("other.md", "Something else.")
    docs.index()
    (docs.folder / "sub").rename(docs.folder / "moved")
    (docs.folder / "sub").mkdir()
    paths = {"old_path": f"{docs.folder}/sub", "new_path": f"{docs.folder}/moved", "is_folder": True}

    docs.run("rename", "update", paths)

    hits = docs.app.search("wheel", mode="keyword")
    assert [str(docs.folder / "moved/mill.md")] == [hit.path for hit in hits]
