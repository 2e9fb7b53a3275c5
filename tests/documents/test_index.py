"""Files and folders: what is indexed, what is left alone, and what goes."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from penstock.job import Status
from tests.documents.conftest import IndexedFolder


def counts(job) -> dict[str, int]:
    told = (job.progress or {}).get("counts") or job.result
    return {name: told[name] for name in ("added", "changed", "unchanged", "vanished") if told.get(name)}


def test_a_folder_becomes_searchable(desk: IndexedFolder):
    desk.put("mill.md", "# The mill\n\nWater drives the wheel.")
    desk.put("deep/down/gate.txt", "The gate holds the water back.")

    job = desk.index()

    assert (Status.DONE, {"added": 2}) == (job.status, counts(job))
    assert ["mill.md"] == desk.found("wheel", mode="keyword")
    assert {"mill.md", "gate.txt"} == set(desk.found("water"))


def test_the_second_time_nothing_is_read(desk: IndexedFolder):
    path = desk.put("mill.md", "Water drives the wheel.")
    desk.index()
    # Could it be read, it would be: the same size and time say that it need not.
    before = path.stat()
    path.write_text("Water drives the WHEEL.")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    assert {"unchanged": 1} == counts(desk.index())
    assert {"changed": 1} == counts(desk.index(checksum=True))
    assert "WHEEL" in desk.app.search("wheel")[0].text


def test_an_edit_replaces_and_an_addition_joins(desk: IndexedFolder):
    desk.put("mill.md", "Water drives the wheel.")
    desk.index()
    desk.put("mill.md", "Wind drives the sails now.")
    desk.put("oven.md", "Bread comes out of the oven.")

    assert {"added": 1, "changed": 1} == counts(desk.index())

    assert [] == desk.found("wheel", mode="keyword")
    assert ["mill.md"] == desk.found("sails", mode="keyword")
    assert ["oven.md"] == desk.found("bread", mode="keyword")


def test_a_file_that_is_gone_is_forgotten(desk: IndexedFolder):
    path = desk.put("mill.md", "Water drives the wheel.")
    desk.put("oven.md", "Bread.")
    desk.index()
    path.unlink()

    assert {"unchanged": 1, "vanished": 1} == counts(desk.index())
    assert [] == desk.found("wheel")


def test_an_empty_or_missing_root_removes_nothing(desk: IndexedFolder):
    desk.put("mill.md", "Water drives the wheel.")
    desk.index()
    (desk.folder / "mill.md").unlink()

    assert Status.DONE is desk.index().status
    assert ["mill.md"] == desk.found("wheel")

    payload = {"folder_path": str(desk.folder)}
    desk.folder.rmdir()
    job = desk.run("folder", "ingest", payload)
    assert (Status.FAILED, "ERR_FILE_NOT_FOUND") == (job.status, job.error_code)
    assert ["mill.md"] == desk.found("wheel")


def test_a_narrower_request_removes_nothing(desk: IndexedFolder):
    desk.put("mill.md", "Water drives the wheel.")
    desk.put("oven.txt", "Bread comes out of the oven.")
    desk.index()

    desk.index(include=["*.md"])

    assert ["oven.txt"] == desk.found("bread", mode="keyword")


def test_what_is_newly_ignored_goes_with_that_reason(desk: IndexedFolder):
    desk.put("mill.md", "Water drives the wheel.")
    desk.put("private/diary.md", "Dear diary.")
    desk.index()
    desk.put(".penstockignore", "private/\n")

    assert {"unchanged": 1, "vanished": 1} == counts(desk.index())

    assert [] == desk.found("diary", mode="keyword")
    reason = desk.app.documents.why(desk.folder / "private" / "diary.md")
    assert ("skipped", True) == (reason.verdict, "penstockignore" in reason.cause)


def test_what_lies_behind_a_link_now_goes(desk: IndexedFolder, tmp_path: Path):
    for name in ("in/kept.md", "out/left.md", "mill.md"):
        desk.put(name, f"Words of {name} and water.")
    desk.index()
    (desk.folder / "in").rename(desk.folder / "moved")
    (desk.folder / "in").symlink_to("moved")
    (desk.folder / "out").rename(tmp_path / "elsewhere")
    (desk.folder / "out").symlink_to(tmp_path / "elsewhere")

    desk.index()

    assert ["kept.md", "mill.md"] == sorted(desk.found("water"))
    found = {source.path for source in desk.app.documents.sources()}
    assert {str(desk.folder / "moved/kept.md"), str(desk.folder / "mill.md")} == found


def test_a_file_that_outgrew_the_limit_is_told_of_and_found_as_it_was(desk: IndexedFolder):
    path = desk.put("mill.md", "Water drives the wheel.")
    desk.index()
    os.truncate(path, (desk.app.settings.max_file_mb << 20) + 1)

    assert Status.FAILED is desk.index().status

    why = desk.app.documents.why(path)
    assert ("failed", "ERR_TOO_LARGE") == (why.verdict, why.cause.partition(":")[0])
    assert ["mill.md"] == desk.found("wheel")


def test_one_bad_file_never_stops_the_rest(desk: IndexedFolder):
    desk.put("good.md", "Water drives the wheel.")
    desk.put("empty.md", b"")
    desk.put("blank.md", b"  \n\n  ")
    desk.put("liar.txt", b"\x7fELF" + bytes(range(256)) * 20)
    os.mkfifo(desk.folder / "pipe.md")
    (desk.folder / "loop.md").symlink_to(desk.folder / "loop.md")
    (desk.folder / "out.md").symlink_to("/etc/hostname")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(desk.folder / "socket.md"))
    (Path(os.fsencode(desk.folder).decode()) / os.fsdecode(b"bad\xff.md")).write_text("not UTF-8")

    job = desk.index()
    listener.close()

    assert ["good.md"] == desk.found("wheel")
    assert Status.FAILED is job.status
    assert 1 == job.children_failed
    why = {path.name: desk.app.documents.why(path).verdict for path in desk.folder.iterdir()}
    assert "failed" == why["liar.txt"]
    assert {"indexed"} == {why.pop(name) for name in ("good.md", "blank.md", "empty.md")}
    assert {"skipped"} == {verdict for name, verdict in why.items() if name != "liar.txt"}


def test_a_folder_with_nothing_in_it_fails_unless_that_is_fine(desk: IndexedFolder):
    assert "ERR_NOTHING_TO_INDEX" == desk.index().error_code
    assert Status.DONE is desk.index(allow_empty=True).status


@pytest.mark.parametrize("missing", [True, False])
def test_a_file_by_itself(desk: IndexedFolder, missing: bool):
    path = desk.put("mill.md", "Water drives the wheel.")
    payload = {"file_path": str(path)}
    if missing:
        path.unlink()

    job = desk.run("file", "ingest", payload)

    if missing:
        assert (Status.FAILED, "ERR_FILE_NOT_FOUND") == (job.status, job.error_code)
    else:
        assert (Status.DONE, 1) == (job.status, job.result["chunks"])


def test_delete_acts_whatever_the_disk_says(desk: IndexedFolder):
    path = desk.put("mill.md", "Water drives the wheel.")
    desk.index()

    job = desk.run("file", "delete", {"file_path": str(path)})

    assert {"outcome": "removed", "removed": 1} == job.result
    assert [] == desk.found("wheel")
    assert {"added": 1} == counts(desk.index())


def test_the_same_folder_twice_is_one_job(desk: IndexedFolder):
    desk.put("mill.md", "Water drives the wheel.")
    first, second = desk.app.index(desk.folder), desk.app.index(desk.folder)

    assert (first.job_id, True) == (second.job_id, second.dedupe_hit)
    with desk.app.worker_thread():
        desk.app.wait(first.job_id, timeout=60)


def test_force_embeds_nothing_that_is_known_but_builds_anew(desk: IndexedFolder):
    path = desk.put("mill.md", "Water drives the wheel.")
    desk.index()

    job = desk.index(path, force=True)

    assert ("indexed", 0) == (job.result["outcome"], job.result["embedded"])


def test_a_long_document_is_built_by_tasks(desk: IndexedFolder):
    text = "\n\n".join(
        f"# Part {number}\n\n" + f"Sentence about subject{number}. " * 60 for number in range(300)
    )
    path = desk.put("book.md", text)

    job = desk.index(path)

    assert (Status.DONE, "indexed") == (job.status, job.result["outcome"])
    assert job.result["chunks"] > 256
    assert ["book.md"] == desk.found("subject277", mode="keyword")
    assert ["book.md"] == desk.found("subject277", mode="vector")
