"""Reports on folder jobs while they run and after their end."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec import structs

from penstock.cli.index import reported as job_result_text
from penstock.cli.progress import PageProgress
from penstock.database.factory import open_catalog
from penstock.queue.job import ClaimRequest, Job, Status
from penstock.service.job_views import JobRecords, JobReport, files_indexed, report_of, result_of
from penstock.worker.orphans import end_overdue
from tests.documents.conftest import IndexedFolder
from tests.pipeline.scanned_documents import scan

ONE = ClaimRequest("hand", 1, timedelta(seconds=60))


def put_files(docs: IndexedFolder) -> None:
    for name in ("a.md", "b.md", "c.md"):
        docs.put(name, f"# {name}\n\nWater drives the wheel of {name}.")
    docs.put("tool.py", "print('mill')")
    docs.put(".hidden", "secret")


def reported(docs: IndexedFolder, job_id: str) -> JobReport:
    report = report_of(docs.app.job(job_id), docs.app.queue)
    assert report is not None
    return report


def numbers(report: JobReport) -> tuple[str, int | None, int, int, float]:
    return (
        report.stage,
        report.files_processed,
        report.files_total,
        report.chunks_created,
        report.percent_complete,
    )


def result(job: Job, *names: str) -> tuple[object, ...]:
    return tuple(result_of(job)[name] for name in names)


def test_a_folder_job_reports_while_its_files_are_indexed(docs: IndexedFolder):
    put_files(docs)
    job_id = docs.app.index(docs.folder).job_id
    assert ("waiting", 0, 0, 0, 0.0) == numbers(reported(docs, job_id))
    with docs.manual_worker() as worker:
        worker.run_jobs(1)
        walked = reported(docs, job_id)
        assert ("indexing", 0, 3, 0, 0.0) == numbers(walked)
        assert ({"code": 1, "hidden": 1}, None) == (walked.skipped, walked.current_file)

        (claim,) = docs.app.queue.claim(ONE)
        assert str(docs.folder / "a.md") == reported(docs, job_id).current_file
        (listed,) = JobRecords(docs.app).page([None], top_level=True).jobs
        assert str(docs.folder / "a.md") == listed.progress.current_file
        worker.run(claim)
        assert ("indexing", 1, 3, 1, 33.3) == numbers(reported(docs, job_id))

        worker.drain()
    assert ("ended", 3, 3, 3, 100.0) == numbers(reported(docs, job_id))
    job = docs.app.job(job_id)
    assert ("indexed", 3, 3, 0, 3) == result(job, "outcome", "total", "done", "failed", "chunks")
    assert ({"code": 1, "hidden": 1},) == result(job, "skipped_by")
    assert 3 == files_indexed(job)


def test_a_failed_folder_job_keeps_its_result(docs: IndexedFolder):
    put_files(docs)
    docs.put("liar.txt", b"\x7fELF" + bytes(range(256)))
    job = docs.index()
    assert ("failed", 4, 4, 1, 3) == (str(job.status), *result(job, "total", "done", "failed", "chunks"))
    assert 3 == files_indexed(job)


def test_an_unchanged_folder_is_complete(docs: IndexedFolder):
    put_files(docs)
    docs.index()
    job = docs.index()
    assert ("ended", 3, 3, 0, 100.0) == numbers(reported(docs, job.queue_id))
    assert (0, "unchanged") == (files_indexed(job), *result(job, "outcome"))


def test_a_request_repeated_during_the_run_gets_what_was_done_since(docs: IndexedFolder):
    put_files(docs)
    job_id = docs.app.index(docs.folder).job_id
    with docs.manual_worker() as worker:
        worker.run_jobs(1)
        worker.run_jobs(1)
        again = docs.app.index(docs.folder)
        assert (job_id, 2) == (again.job_id, again.run)
        assert ("indexing", 1, 3, 1, 33.3) == numbers(reported(docs, job_id))
        worker.drain()

    job = docs.app.job(job_id)
    assert (2, 2, 3) == (job.run, files_indexed(job), reported(docs, job_id).files_total)
    assert ("indexed", 2, 3) == result(job, "outcome", "chunks", "unchanged")


def test_a_walk_that_is_repeated_counts_what_came_in_between(docs: IndexedFolder):
    put_files(docs)
    docs.app.index(docs.folder)
    with docs.manual_worker() as worker:
        worker.run_jobs(1)
        again = docs.app.index(docs.folder)
        docs.put("d.md", "The gate holds the water back.")
        worker.drain()
    job = docs.app.job(again.job_id)
    assert (4, 4, 3) == (files_indexed(job), *result(job, "chunks", "resumed"))


def test_a_pending_run_does_not_report_the_result_of_the_run_before(docs: IndexedFolder):
    put_files(docs)
    docs.app.index(docs.folder)
    with docs.manual_worker() as worker:
        worker.run_jobs(1)
        again = docs.app.index(docs.folder)
        worker.run_jobs()
    assert ("pending", 2) == (str(docs.app.job(again.job_id).status), docs.app.job(again.job_id).run)
    assert ("waiting", 0, 0, 0, 0.0) == numbers(reported(docs, again.job_id))


def test_a_cancelled_folder_job_still_knows_what_was_done(docs: IndexedFolder):
    put_files(docs)
    job_id = docs.app.index(docs.folder).job_id
    with docs.manual_worker() as worker:
        worker.run_jobs(1)
        worker.run_jobs(1)
        docs.app.cancel(job_id)
    assert ("ended", 1, 3, 1, 33.3) == numbers(reported(docs, job_id))
    records = JobRecords(docs.app)
    detail = records.detail(docs.app.job(job_id))
    assert "1 file indexed, 1 chunk" == job_result_text(docs.app.job(job_id), reported(docs, job_id))
    assert ("cancelled", 1, 1) == (detail.status, detail.progress.files_processed, detail.result["done"])
    assert 1 == records.page([None], top_level=True).jobs[0].progress.files_processed

    docs.app.retry(job_id)
    with docs.manual_worker() as worker:
        worker.run_jobs(1)
        docs.app.cancel(job_id)
    # The retry continues with the files that were cancelled.
    assert ("ended", 2, 3) == numbers(reported(docs, job_id))[:3]


def test_a_folder_job_that_timed_out_counts_what_was_done(docs: IndexedFolder):
    put_files(docs)
    job_id = docs.app.index(docs.folder).job_id
    with docs.manual_worker() as worker:
        worker.run_jobs(1)
        worker.run_jobs(1)
    assert end_overdue(docs.app.queue, None, docs.app.job(job_id))
    assert ("ended", 1, 3, 1, 33.3) == numbers(reported(docs, job_id))
    remedy = docs.app.details(job_id).remedy
    assert remedy is not None
    assert "PENSTOCK_JOB_TIMEOUT_S" in remedy


def test_a_job_says_what_it_works_with(docs: IndexedFolder):
    records = JobRecords(docs.app)

    def options(job_id: str) -> tuple[bool | None, int | None, int | None]:
        shown = records.detail(docs.app.job(job_id))
        return shown.recursive, shown.chunk_size, shown.chunk_overlap

    put_files(docs)
    usual = docs.app.index(docs.folder)
    flat = docs.app.index(docs.folder, recursive=False, chunk_size=64, chunk_overlap=8, collection="flat")
    file = docs.app.index(docs.folder / "a.md")
    removal = docs.app.submit(item_type="folder", op="delete", payload={"folder_path": "/gone"})
    call = docs.app.submit(item_type="function", op="run", payload={"function_name": "mill"})
    assert [(True, 512, 0), (False, 64, 8), (None, 512, 0), (None, None, None), (None, None, None)] == [
        options(receipt.job_id) for receipt in (usual, flat, file, removal, call)
    ]


def test_a_job_cancelled_during_its_walk_has_counts_and_no_result(docs: IndexedFolder):
    put_files(docs)
    docs.app.index(docs.folder)
    (claim,) = docs.app.queue.claim(ONE)
    docs.app.cancel(claim.queue_id)
    walking = docs.app.job(claim.queue_id)
    cancelled = structs.replace(
        walking, status=Status.CANCELLED, progress_json='{"counts": {"total": 3, "sent": 2}}'
    )
    assert (None, 0) == result(cancelled, "done", "failed")


def test_a_file_job_reports_itself(docs: IndexedFolder):
    path = docs.put("a.md", "Water drives the wheel.")
    job_id = docs.app.index(path).job_id
    assert ("waiting", 0, 1, 0, 0.0) == numbers(reported(docs, job_id))
    docs.finish(job_id)
    assert ("ended", 1, 1, 1, 100.0) == numbers(reported(docs, job_id))


def test_other_jobs_have_no_report(docs: IndexedFolder):
    put_files(docs)
    docs.index()
    removed = docs.run("folder", "delete", {"folder_path": str(docs.folder)})
    assert (None, {"outcome": "removed", "removed": 3}) == (report_of(removed), result_of(removed))


def test_chunks_stored_by_an_interrupted_attempt_are_counted(docs: IndexedFolder):
    put_files(docs)
    job_id = docs.app.index(docs.folder).job_id
    with docs.manual_worker() as worker:
        worker.run_jobs(1)
        (claim,) = docs.app.queue.claim(ONE)
        # The worker dies after the write of the document, before it settles the job.
        worker.files([claim])
        assert {"outcome": "unchanged", "chunks": 1} == worker.run(claim)
        worker.drain()
    assert (3, 3) == (docs.app.job(job_id).total_chunks, *result(docs.app.job(job_id), "chunks"))


def test_chunks_stored_before_the_request_are_not_counted(docs: IndexedFolder):
    put_files(docs)
    docs.index()
    job = docs.index(checksum=True)
    assert (3, 0) == result(job, "sent", "chunks")


@pytest.mark.parametrize("docs", ["sqlite"], indirect=True)
def test_pages_of_documents_that_ended_stay_in_the_count(docs: IndexedFolder):
    for name in ("a.pdf", "b.pdf"):
        docs.put(name, scan("The mill"))
    progress = PageProgress(lambda: open_catalog(docs.app.settings))
    with docs.manual_worker(ocr=True) as worker:
        jobs = [docs.app.index(docs.folder / name).job_id for name in ("a.pdf", "b.pdf")]
        worker.run_jobs()
        seen = [progress.of(docs.app.job(each) for each in jobs)]
        seen.append(progress.of([docs.app.job(jobs[1])]))
        worker.drain()
    assert [(0, 2), (1, 2)] == seen
    assert progress.of(docs.app.job(each) for each in jobs) is None
    progress.close()
