"""Delivered files: read at the current path, indexed under the final path."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.queue.job import Job, Status
from penstock.queue.payloads import ARRIVAL
from tests.documents.conftest import IndexedFolder, book
from tests.pipeline.sample_documents import pdf
from tests.servers.stores import FIRST, others_later

pytestmark = pytest.mark.parametrize("docs", others_later(FIRST, ["sqlite"]), indirect=True)


def brought(docs: IndexedFolder, read_from: Path, known_as: str = "done/a.md", **more: Any) -> Job:
    rebuild = more.pop("rebuild", False)
    return docs.run(
        "file",
        "ingest",
        {"file_path": str(docs.folder / known_as)},
        metadata={ARRIVAL: {"read_from": str(read_from), **more}},
        rebuild=rebuild,
    )


def test_a_file_is_known_by_its_own_path_wherever_it_was_read(docs: IndexedFolder):
    job = brought(docs, docs.put("in/a.md", "Water drives the wheel."), tags=["mill/wheel"], about={"n": 1})

    assert (Status.DONE, "indexed") == (job.status, job.result["outcome"])
    (hit,) = docs.app.search("wheel", mode="keyword")
    assert (str(docs.folder / "done/a.md"), ("mill/wheel",)) == (hit.path, hit.tags)


def test_one_that_is_not_there_fails_and_leaves_what_is_indexed(docs: IndexedFolder):
    path = docs.put("in/a.md", "Water drives the wheel.")
    brought(docs, path)
    path.unlink()

    job = brought(docs, path)

    assert (Status.FAILED, "ERR_FILE_NOT_FOUND") == (job.status, job.error_code)
    assert ["a.md"] == docs.found("wheel", mode="keyword")


def test_tags_and_metadata_stay_unless_they_are_not_wanted(docs: IndexedFolder):
    path = docs.put("in/a.md", "Water drives the wheel.")
    brought(docs, path, tags=["old"], about={"a": 1})

    def described(**more: Any) -> tuple[str, tuple[str, ...], dict[str, int]]:
        outcome = brought(docs, path, **more).result["outcome"]
        source = docs.app.documents.source(str(docs.folder / "done/a.md"))
        return outcome, source.tags, json.loads(source.metadata)

    assert ("unchanged", ("old",), {"a": 1}) == described()
    assert ("indexed", ("old", "new"), {"a": 1, "b": 2}) == described(tags=["new"], about={"b": 2})
    path.write_text("Wind drives it.")
    assert ("indexed", ("old", "new"), {"a": 1, "b": 2}) == described()
    assert ("indexed", ("c",), {}) == described(keep=False, tags=["c"])
    assert ("unchanged", ("c",), {}) == described()


@pytest.mark.parametrize(
    ("source_type", "content", "said"),
    [
        ("pdf", b"Only text.", "is text/plain, not pdf"),
        ("txt", pdf("Words."), "is application/pdf, not txt"),
        ("md", b"\x7fELF" + bytes(200), "an ELF program"),
        ("docx", b"Only text.", "is text/plain, not docx"),
    ],
)
def test_content_of_another_type_than_it_was_said_to_be(
    docs: IndexedFolder, source_type: str, content: bytes, said: str
):
    job = brought(docs, docs.put("in/a", content), source_type=source_type)

    assert (Status.FAILED, "ERR_UNSUPPORTED_TYPE") == (job.status, job.error_code)
    assert said in (job.error_message or "")


def test_a_type_that_was_said_counts_more_than_the_name(docs: IndexedFolder):
    job = brought(docs, docs.put("in/x", "# Wheel\n\nWater."), "done/x", source_type="md")

    assert Status.DONE is job.status
    (hit,) = docs.app.search("water", mode="keyword")
    assert "Wheel" == hit.heading


def test_a_long_file_is_read_page_by_page_from_where_it_lies(docs: IndexedFolder):
    pages = [f"Words of page {number}." for number in range(40)]

    job = brought(docs, docs.put("in/upload", pdf(*pages)), "done/upload", source_type="pdf")

    assert (Status.DONE, 40, 40) == (job.status, job.result["pages"], job.result["chunks"])
    assert (40, True) == (job.result["embedded"], job.result["tokens"] > 40 * 4)


def test_what_was_embedded_counts_also_where_tasks_did_it(docs: IndexedFolder):
    job = brought(docs, docs.put("in/a.md", book(300)))

    assert job.result["chunks"] == job.result["embedded"] > 256
    assert job.result["tokens"] > 300 * 60
