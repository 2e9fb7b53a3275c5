"""Files and folders: indexed, unchanged and removed files."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from penstock.queue.job import Status
from tests.documents.conftest import QUEUES, IndexedFolder

pytestmark = pytest.mark.parametrize("docs", QUEUES, indirect=True)


def counts(job) -> dict[str, int]:
    told = (job.progress or {}).get("counts") or job.result
    return {name: told[name] for name in ("added", "changed", "unchanged", "vanished") if told.get(name)}


def test_a_folder_becomes_searchable(docs: IndexedFolder):
    docs.put("mill.md", "# The mill\n\nWater drives the wheel.")
    docs.put("deep/down/gate.txt", "The gate holds the water back.")

    job = docs.index()

    assert (Status.DONE, {"added": 2}) == (job.status, counts(job))
    assert ["mill.md"] == docs.found("wheel", mode="keyword")
    assert {"mill.md", "gate.txt"} == set(docs.found("water"))


def test_the_second_time_nothing_is_read(docs: IndexedFolder):
    path = docs.put("mill.md", "Water drives the wheel.")
    docs.index()
    # The unreadable file is not read: size and time are unchanged.
    before = path.stat()
    path.write_text("Water drives the WHEEL.")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    assert {"unchanged": 1} == counts(docs.index())
    assert {"changed": 1} == counts(docs.index(checksum=True))
    assert "WHEEL" in docs.app.search("wheel")[0].text


def test_an_edit_replaces_and_an_addition_joins(docs: IndexedFolder):
    docs.put("mill.md", "Water drives the wheel.")
    docs.index()
    docs.put("mill.md", "Wind drives the sails now.")
    docs.put("oven.md", "Bread comes out of the oven.")

    assert {"added": 1, "changed": 1} == counts(docs.index())

    assert [] == docs.found("wheel", mode="keyword")
    assert ["mill.md"] == docs.found("sails", mode="keyword")
    assert ["oven.md"] == docs.found("bread", mode="keyword")


def test_a_file_that_is_gone_is_forgotten(docs: IndexedFolder):
    path = docs.put("mill.md", "Water drives the wheel.")
    docs.put("oven.md", "Bread.")
    docs.index()
    path.unlink()

    assert {"unchanged": 1, "vanished": 1} == counts(docs.index())
    assert [] == docs.found("wheel")


def test_an_empty_or_missing_root_removes_nothing(docs: IndexedFolder):
    docs.put("mill.md", "Water drives the wheel.")
    docs.index()
    (docs.folder / "mill.md").unlink()

    assert Status.DONE is docs.index().status
    assert ["mill.md"] == docs.found("wheel")

    payload = {"folder_path": str(docs.folder)}
    docs.folder.rmdir()
    job = docs.run("folder", "ingest", payload)
    assert (Status.FAILED, "ERR_FILE_NOT_FOUND") == (job.status, job.error_code)
    assert f"{docs.folder} does not exist" == job.error_message
    assert ["mill.md"] == docs.found("wheel")


def test_a_narrower_request_removes_nothing(docs: IndexedFolder):
    docs.put("mill.md", "Water drives the wheel.")
    docs.put("oven.txt", "Bread comes out of the oven.")
    docs.index()

    docs.index(include=["*.md"])

    assert ["oven.txt"] == docs.found("bread", mode="keyword")


def test_what_is_newly_ignored_goes_with_that_reason(docs: IndexedFolder):
    docs.put("mill.md", "Water drives the wheel.")
    docs.put("private/diary.md", "Dear diary.")
    docs.index()
    docs.put(".penstockignore", "private/\n")

    assert {"unchanged": 1, "vanished": 1} == counts(docs.index())

    assert [] == docs.found("diary", mode="keyword")
    reason = docs.app.documents.why(docs.folder / "private" / "diary.md")
    assert ("skipped", True) == (reason.verdict, "penstockignore" in reason.cause)


def test_what_lies_behind_a_link_now_goes(docs: IndexedFolder, tmp_path: Path):
    for name in ("in/kept.md", "out/left.md", "mill.md"):
        docs.put(name, f"Words of {name} and water.")
    docs.index()
    (docs.folder / "in").rename(docs.folder / "moved")
    (docs.folder / "in").symlink_to("moved")
    (docs.folder / "out").rename(tmp_path / "elsewhere")
    (docs.folder / "out").symlink_to(tmp_path / "elsewhere")

    docs.index()

    assert ["kept.md", "mill.md"] == sorted(docs.found("water"))
    found = {source.path for source in docs.app.documents.sources()}
    assert {str(docs.folder / "moved/kept.md"), str(docs.folder / "mill.md")} == found


def test_a_file_that_outgrew_the_limit_is_told_of_and_found_as_it_was(docs: IndexedFolder):
    path = docs.put("mill.html", "<p>Water drives the wheel.")
    docs.index()
    os.truncate(path, (docs.app.settings.max_file_mb << 20) + 1)

    assert Status.FAILED is docs.index().status

    why = docs.app.documents.why(path)
    assert ("failed", "ERR_TOO_LARGE") == (why.verdict, why.cause.partition(":")[0])
    assert ["mill.html"] == docs.found("wheel")


def test_one_bad_file_never_stops_the_rest(docs: IndexedFolder):
    docs.put("good.md", "Water drives the wheel.")
    docs.put("empty.md", b"")
    docs.put("blank.md", b"  \n\n  ")
    docs.put("liar.txt", b"\x7fELF" + bytes(range(256)) * 20)
    os.mkfifo(docs.folder / "pipe.md")
    (docs.folder / "loop.md").symlink_to(docs.folder / "loop.md")
    (docs.folder / "out.md").symlink_to("/etc/hostname")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(docs.folder / "socket.md"))
    (Path(os.fsencode(docs.folder).decode()) / os.fsdecode(b"bad\xff.md")).write_text("not UTF-8")

    job = docs.index()
    listener.close()

    assert ["good.md"] == docs.found("wheel")
    assert Status.FAILED is job.status
    assert 1 == job.children_failed
    why = {path.name: docs.app.documents.why(path).verdict for path in docs.folder.iterdir()}
    assert "failed" == why["liar.txt"]
    assert {"indexed"} == {why.pop(name) for name in ("good.md", "blank.md", "empty.md")}
    assert {"skipped"} == {verdict for name, verdict in why.items() if name != "liar.txt"}


def test_a_folder_with_nothing_in_it_fails_unless_that_is_fine(docs: IndexedFolder):
    assert "ERR_NOTHING_TO_INDEX" == docs.index().error_code
    assert Status.DONE is docs.index(allow_empty=True).status


@pytest.mark.parametrize("missing", [True, False])
def test_a_file_by_itself(docs: IndexedFolder, missing: bool):
    path = docs.put("mill.md", "Water drives the wheel.")
    payload = {"file_path": str(path)}
    if missing:
        path.unlink()

    job = docs.run("file", "ingest", payload)

    if missing:
        assert (Status.FAILED, "ERR_FILE_NOT_FOUND") == (job.status, job.error_code)
    else:
        assert (Status.DONE, 1) == (job.status, job.result["chunks"])


def test_delete_acts_whatever_the_disk_says(docs: IndexedFolder):
    path = docs.put("mill.md", "Water drives the wheel.")
    docs.index()

    job = docs.run("file", "delete", {"file_path": str(path)})

    assert {"outcome": "removed", "removed": 1} == job.result
    assert [] == docs.found("wheel")
    assert {"added": 1} == counts(docs.index())


def test_the_same_folder_twice_is_one_job(docs: IndexedFolder):
    docs.put("mill.md", "Water drives the wheel.")
    first, second = docs.app.index(docs.folder), docs.app.index(docs.folder)

    assert (first.job_id, True) == (second.job_id, second.dedupe_hit)
    with docs.app.worker_thread():
        docs.app.wait(first.job_id, timeout=60)


def test_force_embeds_nothing_that_is_known_but_builds_anew(docs: IndexedFolder):
    path = docs.put("mill.md", "Water drives the wheel.")
    docs.index()

    job = docs.index(path, force=True)

    assert ("indexed", 0) == (job.result["outcome"], job.result["embedded"])


def test_a_long_document_is_built_by_tasks(docs: IndexedFolder):
    text = "\n\n".join(
        f"# Part {number}\n\n" + f"Sentence about subject{number}. " * 60 for number in range(300)
    )
    path = docs.put("book.md", text)

    job = docs.index(path)

    assert (Status.DONE, "indexed") == (job.status, job.result["outcome"])
    assert job.result["chunks"] > 256
    assert ["book.md"] == docs.found("subject277", mode="keyword")
    assert ["book.md"] == docs.found("subject277", mode="vector")
