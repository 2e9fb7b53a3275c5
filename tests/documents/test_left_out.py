"""What the next walk would leave out is left out by a rename that is told, and by a file's own job."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.job import Job, Status
from tests.documents.conftest import IndexedFolder

pytestmark = pytest.mark.parametrize("desk", ["sqlite", "postgres"], indirect=True)


def moved(desk: IndexedFolder, old: str, new: str, *, folder: bool = False) -> Job:
    """On the disk, and told."""
    here, there = desk.folder / old, desk.folder / new
    there.parent.mkdir(parents=True, exist_ok=True)
    here.rename(there)
    paths = {"old_path": str(here), "new_path": str(there), "is_folder": folder}
    return desk.run("rename", "update", paths)


@pytest.mark.parametrize(
    ("new", "rule"),
    [
        (".hidden/mill.md", "its name begins with a dot"),
        (".mill.md", "its name begins with a dot"),
        ("ignored/mill.md", "a .penstockignore leaves it out"),
        ("node_modules/mill.md", "a tool made or installed it"),
        ("mill.png", "holds no text"),
        ("narrow/mill.md", "an exclude pattern matches it"),
    ],
)
def test_a_file_moved_to_where_no_walk_finds_it_goes_with_the_reason(
    desk: IndexedFolder, new: str, rule: str
):
    desk.put(".penstockignore", "ignored/\n")
    desk.put("sub/mill.md", "Water drives the wheel.")
    desk.index(exclude=["narrow/"])

    job = moved(desk, "sub/mill.md", new)

    assert ("removed", 1) == (job.result["outcome"], job.result["removed"])
    assert rule in job.result["note"]
    assert [] == desk.found("wheel", mode="keyword")
    why = desk.app.documents.why(desk.folder / new)
    assert ("skipped", True) == (why.verdict, rule in why.cause)
    # As a walk sees it, too.
    desk.index(exclude=["narrow/"], allow_empty=True)
    assert [] == desk.found("wheel", mode="keyword")


def test_a_folder_moved_to_where_no_walk_finds_it_goes_whole(desk: IndexedFolder):
    desk.put("sub/mill.md", "Water drives the wheel.")
    desk.put("sub/deep/gate.md", "Another wheel.")
    desk.put("other.md", "A third wheel.")
    desk.index()

    assert 2 == moved(desk, "sub", ".attic/sub", folder=True).result["removed"]

    assert ["other.md"] == desk.found("wheel", mode="keyword")


def test_a_copy_left_out_leaves_the_original(desk: IndexedFolder):
    desk.put("mill.md", "Water drives the wheel.")
    desk.index()
    desk.put(".attic/mill.md", "Water drives the wheel.")
    paths = {"old_path": f"{desk.folder}/mill.md", "new_path": f"{desk.folder}/.attic/mill.md"}

    assert Status.DONE is desk.run("rename", "update", paths | {"is_folder": False}).status

    assert [str(desk.folder / "mill.md")] == [hit.path for hit in desk.app.search("wheel", mode="keyword")]


def test_what_was_asked_for_by_its_name_keeps_its_document(desk: IndexedFolder):
    desk.put("other.md", "Something else.")
    desk.put(".attic/mill.md", "Water drives the wheel.")
    desk.index()
    desk.index(desk.folder / ".attic/mill.md")

    moved(desk, ".attic/mill.md", ".attic/old.md")
    desk.index()

    assert ["old.md"] == desk.found("wheel", mode="keyword")


def test_two_walks_find_what_one_of_them_leaves_out(desk: IndexedFolder):
    desk.put("sub/mill.md", "Water drives the wheel.")
    desk.put(".attic/gate.md", "Another text.")
    desk.index()
    desk.index(desk.folder / ".attic")

    moved(desk, "sub/mill.md", ".attic/mill.md")

    assert ["mill.md"] == desk.found("wheel", mode="keyword")


def test_a_job_for_a_link_reads_nothing_through_it(desk: IndexedFolder, tmp_path: Path):
    outside = tmp_path / "outside.md"
    outside.write_text("Water drives the wheel.")
    desk.put("other.md", "Something else.")
    link = desk.folder / "link.md"
    link.symlink_to(outside)

    job = desk.run("file", "ingest", {"file_path": str(link)})

    assert (Status.FAILED, "ERR_UNSUPPORTED_TYPE") == (job.status, job.error_code)
    assert "is a link" in (job.error_message or "")
    assert [] == desk.found("wheel", mode="keyword")
    # By its name a person means what it leads to.
    desk.index(link)
    assert [str(outside)] == [hit.path for hit in desk.app.search("wheel", mode="keyword")]


def test_a_link_in_the_place_of_a_file_takes_it_out_of_the_index(desk: IndexedFolder, tmp_path: Path):
    path = desk.put("mill.md", "Water drives the wheel.")
    desk.put("other.md", "Something else.")
    desk.index()
    path.rename(tmp_path / "mill.md")
    path.symlink_to(tmp_path / "mill.md")
    found = list(desk.app.verifier.differences())
    assert ["is indexed, but is not a file any more"] == [one.what for one in found]

    (receipt,) = desk.app.verifier.fix(found)

    assert "removed" == desk.finish(receipt.job_id).result["outcome"]
    assert [] == list(desk.app.verifier.differences())


def test_a_folder_made_anew_and_emptied_after_its_rename_keeps_nothing(desk: IndexedFolder):
    desk.put("sub/mill.md", "Water drives the wheel.")
    desk.put("other.md", "Something else.")
    desk.index()
    (desk.folder / "sub").rename(desk.folder / "moved")
    (desk.folder / "sub").mkdir()
    paths = {"old_path": f"{desk.folder}/sub", "new_path": f"{desk.folder}/moved", "is_folder": True}

    desk.run("rename", "update", paths)

    hits = desk.app.search("wheel", mode="keyword")
    assert [str(desk.folder / "moved/mill.md")] == [hit.path for hit in hits]
