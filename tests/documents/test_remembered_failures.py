"""Failures are remembered: an unchanged file that failed is not read again, and is shown as a document."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.catalog.values import Phase, TaskStatus
from penstock.handlers import members
from penstock.handlers.members import read_file
from penstock.pipeline.extract.protocol import ExtractLimits
from penstock.queue.job import Job, Status
from tests.documents.conftest import IndexedFolder, ManualWorker
from tests.pipeline.sample_documents import PIXEL, pdf

TORN = b"%PDF-1.4\nnothing of a document"
SCAN = pdf(PIXEL)
LONG_SCAN = pdf(*[PIXEL] * 34)
SQLITE = pytest.mark.parametrize("docs", ["sqlite"], indirect=True)
BOTH_CATALOGS = pytest.mark.parametrize("docs", ["sqlite", "postgres"], indirect=True)


@pytest.fixture
def worker(docs: IndexedFolder) -> Iterator[ManualWorker]:
    with docs.manual_worker() as worker:
        yield worker


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files that jobs have read."""
    names: list[str] = []

    def recorded(path: str, *arguments, **named):
        found = read_file(path, *arguments, **named)
        names.append(Path(path).name)
        return found

    monkeypatch.setattr(members, "read_file", recorded)
    return names


def indexed(docs: IndexedFolder, worker: ManualWorker, path: Path | None = None, **options) -> Job:
    receipt = docs.app.index(path or docs.folder, **options)
    worker.drain()
    return docs.app.job(receipt.job_id)


def file_jobs(docs: IndexedFolder) -> int:
    return len(docs.app.jobs(item_type="file", limit=1000))


def ocr_statuses(docs: IndexedFolder) -> dict[str, tuple[TaskStatus, str]]:
    """Status and error of each document, as the monitoring queries see them."""
    with docs.app.documents.catalog.snapshot() as snapshot:
        return {
            Path(source.path).name: (newest.phases[Phase.OCR].status, newest.phases[Phase.OCR].error or "")
            for source in docs.app.documents.sources(limit=100)
            for newest in snapshot.generations(source.source_id)[:1]
        }


@BOTH_CATALOGS
def test_unchanged_failures_are_neither_read_nor_queued_again(
    docs: IndexedFolder, worker: ManualWorker, opened: list[str]
):
    docs.put("good.md", "Water drives the wheel.")
    docs.put("torn.pdf", TORN)
    docs.put("scan.pdf", SCAN)
    docs.put("long.pdf", LONG_SCAN)
    docs.put("mixed.pdf", pdf("A page with a text layer.", PIXEL))

    first = indexed(docs, worker)

    assert (Status.FAILED, 3) == (first.status, first.children_failed)
    statuses = ocr_statuses(docs)
    assert {"good.md": (TaskStatus.COMPLETED, "")} == {"good.md": statuses["good.md"]}
    assert (TaskStatus.FAILED, True) == (
        statuses["torn.pdf"][0],
        statuses["torn.pdf"][1].startswith("ERR_PARSE: "),
    )
    assert [TaskStatus.FAILED] * 2 == [statuses[name][0] for name in ("scan.pdf", "long.pdf")]
    jobs = file_jobs(docs)
    opened.clear()

    second = indexed(docs, worker)

    assert Status.DONE == second.status
    assert (jobs, []) == (file_jobs(docs), opened)
    assert second.result is not None
    assert (3, 2) == (second.result["failed_before"], second.result["unchanged"])

    third = indexed(docs, worker, retry_failed=True)

    assert (Status.FAILED, 3) == (third.status, third.children_failed)
    assert {"torn.pdf", "scan.pdf", "long.pdf", "mixed.pdf"} == set(opened)
    assert [] == docs.audit()


@SQLITE
def test_many_failures_cost_a_walk_no_more_snapshots_than_one(docs: IndexedFolder, worker: ManualWorker):
    def snapshots() -> int:
        indexed(docs, worker)
        count = worker.paused.counted("snapshot")
        indexed(docs, worker)
        return count()

    docs.put("0.pdf", TORN)
    one = snapshots()
    for number in range(1, 40):
        docs.put(f"{number}.pdf", TORN + b"%d" % number)

    assert one == snapshots()


@SQLITE
def test_a_mended_file_is_indexed_and_a_deleted_one_leaves_no_row(docs: IndexedFolder, worker: ManualWorker):
    docs.put("good.md", "Water drives the wheel.")
    docs.put("mended.pdf", TORN)
    gone = docs.put("gone.pdf", TORN)
    indexed(docs, worker)
    assert {"good.md", "mended.pdf", "gone.pdf"} == set(ocr_statuses(docs))

    docs.put("mended.pdf", pdf("A mended page."))
    gone.unlink()
    job = indexed(docs, worker)

    assert Status.DONE == job.status
    assert {"good.md", "mended.pdf"} == set(ocr_statuses(docs))
    assert ["mended.pdf"] == docs.found("mended", mode="keyword")
    assert [] == docs.app.documents.failures(docs.folder)
    assert [] == docs.audit()


@SQLITE
def test_a_file_with_another_time_and_the_same_content_is_not_parsed_again(
    docs: IndexedFolder, worker: ManualWorker
):
    path = docs.put("torn.pdf", TORN)
    indexed(docs, worker)
    (before,) = docs.app.documents.failures(path)

    os.utime(path, ns=(1, 1))
    second, third = indexed(docs, worker), indexed(docs, worker)

    assert [Status.DONE] * 2 == [second.status, third.status]
    (child,) = docs.app.jobs(item_type="file", parent_id=second.queue_id)
    assert ("failed before", "ERR_PARSE") == (child.result["outcome"], child.result["code"])
    assert third.result["failed_before"] == 1
    assert [before] == docs.app.documents.failures(path)


@SQLITE
def test_another_limit_reads_the_file_again(docs: IndexedFolder, worker: ManualWorker):
    docs.put("torn.pdf", TORN)
    indexed(docs, worker)

    with docs.manual_worker(limits=ExtractLimits(parser_seconds=99)) as other:
        job = indexed(docs, other)

    assert (Status.FAILED, 1) == (job.status, job.children_failed)


@SQLITE
def test_a_job_for_one_file_fails_again_without_reading_and_a_retry_reads(
    docs: IndexedFolder, worker: ManualWorker, opened: list[str]
):
    path = docs.put("torn.pdf", TORN)
    indexed(docs, worker, path)
    (before,) = docs.app.documents.failures(path)
    opened.clear()

    second = indexed(docs, worker, path)

    assert (Status.FAILED, "ERR_PARSE", []) == (second.status, second.error_code, opened)
    assert "not read again" in (second.error_message or "")
    assert [before] == docs.app.documents.failures(path)

    docs.app.documents.retry(second.queue_id)
    worker.drain()

    assert ["torn.pdf"] == opened


@SQLITE
def test_new_content_that_fails_keeps_the_former_version_and_says_so(
    docs: IndexedFolder, worker: ManualWorker
):
    path = docs.put("mill.md", "The former text.")
    indexed(docs, worker)
    former = path.stat()

    docs.put("mill.md", b"\x7fELF" + bytes(range(256)) * 20)
    indexed(docs, worker)

    assert ["mill.md"] == docs.found("former", mode="keyword")
    reason = docs.app.documents.why(path)
    assert ("failed", True) == (reason.verdict, "search still finds the former version" in reason.cause)
    (difference,) = docs.app.verifier.differences()
    assert ("former" in difference.what, True) == (True, difference.left_alone is not None)
    assert ["mill.md"] == [Path(one.path).name for one in docs.app.verifier.unreadable()]
    assert "done" == indexed(docs, worker).status

    docs.put("mill.md", "The former text.")
    os.utime(path, ns=(former.st_atime_ns, former.st_mtime_ns))
    indexed(docs, worker)

    assert ([], []) == (list(docs.app.verifier.differences()), docs.app.documents.failures(path))
    assert [] == docs.audit()


@SQLITE
def test_a_known_file_that_grew_too_large_fails_once(docs: IndexedFolder):
    docs.put("big.html", "The former text.")
    with docs.manual_worker(limits=ExtractLimits(file_bytes=1000)) as worker:
        indexed(docs, worker)
        docs.put("big.html", "Much text. " * 1000)

        first, jobs, second = indexed(docs, worker), file_jobs(docs), indexed(docs, worker)

    assert [Status.FAILED, Status.DONE] == [first.status, second.status]
    assert jobs == file_jobs(docs)


@SQLITE
def test_a_failed_file_follows_a_rename(docs: IndexedFolder, worker: ManualWorker):
    path = docs.put("torn.pdf", TORN)
    indexed(docs, worker)

    target = path.rename(docs.folder / "moved.pdf")
    docs.app.submit(item_type="rename", op="update", payload={"old_path": str(path), "new_path": str(target)})
    worker.drain()

    assert ["moved.pdf"] == list(ocr_statuses(docs))
    assert ("failed", "moved") == (
        docs.app.documents.why(target).verdict,
        docs.app.documents.why(path).verdict,
    )
    assert ["moved.pdf"] == [Path(one.path).name for one in docs.app.documents.failures(docs.folder)]
