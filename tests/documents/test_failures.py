"""Failures stay local: in a batch, in a document, and at a retry."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from penstock import clock
from penstock.catalog.values import Phase
from penstock.errors import PermanentFailure, TransientFailure
from penstock.handlers import files
from penstock.pipeline.embed.static import HashingEmbedder
from penstock.queue.job import NewJob, Status
from tests.documents.conftest import QUEUES, IndexedFolder, ManualWorker, book
from tests.pipeline.sample_documents import PIXEL, pdf
from tests.servers.stores import others_later

pytestmark = pytest.mark.parametrize("docs", others_later(QUEUES), indirect=True)


class Picky(HashingEmbedder):
    """Refuses every batch with one of these words; counts the embedded texts."""

    def __init__(self, word: str, error: Exception) -> None:
        super().__init__()
        self.word = word
        self.embedded: list[str] = []
        self._error = error

    def embed(self, texts: Sequence[str]):
        if self.word and any(self.word in text for text in texts):
            raise self._error
        self.embedded += texts
        return super().embed(texts)


def refused() -> Picky:
    return Picky("poison", PermanentFailure("cannot be embedded"))


def work_off(worker: ManualWorker) -> None:
    while worker.run_jobs():
        worker.run_tasks()


def test_one_bad_text_fails_none_of_the_files_beside_it(docs: IndexedFolder):
    for number in range(20):
        docs.put(f"{number}.md", f"Water number {number}." + (" poison" if number == 7 else ""))
    with docs.manual_worker(refused()) as worker:
        receipt = docs.app.index(docs.folder)
        work_off(worker)

    job = docs.app.job(receipt.job_id)
    assert (Status.FAILED, 1) == (job.status, job.children_failed)
    assert 19 == len(docs.found("water", mode="keyword", limit=50))
    reason = docs.app.documents.why(docs.folder / "7.md")
    assert ("failed", True) == (reason.verdict, "cannot be embedded" in reason.missing[0])


def test_one_bad_chunk_of_a_long_document_leaves_the_rest_published_and_is_named(docs: IndexedFolder):
    path = docs.put("book.md", book(300).replace("subject123.", "poison."))
    with docs.manual_worker(refused()) as worker:
        receipt = docs.app.index(path)
        work_off(worker)

    job = docs.app.job(receipt.job_id)
    assert (Status.DONE, True, 1) == (job.status, job.result["partial"], job.result["failed"])
    assert ["book.md"] == docs.found("subject277", mode="vector")
    reason = docs.app.documents.why(path)
    assert ("partial", 1) == (reason.verdict, len(reason.missing))
    assert "cannot be embedded" in reason.missing[0]


def test_a_retry_of_a_partial_document_embeds_only_what_had_failed(docs: IndexedFolder):
    path = docs.put("book.md", book(300).replace("subject123.", "poison."))
    embedder = refused()
    with docs.manual_worker(embedder) as worker:
        first = docs.app.index(path)
        work_off(worker)
        embedder.word, embedder.embedded = "", []

        again = docs.app.documents.retry(first.job_id)
        work_off(worker)

    assert 1 == len(embedder.embedded)
    job = docs.app.job(again.queue_id)
    assert (Status.DONE, None) == (job.status, job.result.get("partial"))
    assert ("indexed", ()) == (docs.app.documents.why(path).verdict, docs.app.documents.why(path).missing)
    assert ["book.md"] == docs.found("poison", mode="vector")[:1]


def test_what_passes_is_tried_again_and_what_stays_is_an_outage_that_hides_nothing(docs: IndexedFolder):
    path = docs.put("book.md", "The former version of the book.")
    docs.index(path)
    path.write_text(book(300))
    embedder = Picky("subject123.", TransientFailure("the model is away"))
    with docs.manual_worker(embedder) as worker:
        receipt = docs.app.index(path, priority=5)
        worker.run_jobs()
        worker.run_tasks()
        # One chunk waits for its retry; the others are done.
        assert Status.IN_PROGRESS is docs.app.job(receipt.job_id).status
        assert ["vector_chunks failed"] == docs.unsettled(worker)
        worker.exhaust(Phase.VECTOR)

        job = docs.app.job(receipt.job_id)
        assert (Status.FAILED, "ERR_OUTAGE") == (job.status, job.error_code)
        assert ["book.md"] == docs.found("former", mode="keyword")

        embedder.word, embedder.embedded = "", []
        docs.app.documents.retry(receipt.job_id)
        work_off(worker)

    assert 1 == len(embedder.embedded)
    assert Status.DONE is docs.app.job(receipt.job_id).status
    assert ["book.md"] == docs.found("subject123", mode="keyword")
    assert [] == docs.found("former", mode="keyword")


def test_pages_without_text_leave_the_rest_published_and_listed(docs: IndexedFolder):
    pages: list[str | bytes] = [f"Words of page {number}." for number in range(40)]
    pages[2] = pages[36] = PIXEL
    path = docs.put("paper.pdf", pdf(*pages))

    receipt = docs.app.index(path)
    with docs.manual_worker() as worker:  # OCR is off
        worker.drain()

    job = docs.app.job(receipt.job_id)
    assert job.result is not None
    assert (Status.DONE, True, 2) == (job.status, job.result["partial"], job.result["failed"])
    reason = docs.app.documents.why(path)
    assert ["page 3", "page 37"] == [one.partition(":")[0] for one in reason.missing]
    source = docs.app.documents.source(str(path))
    assert source.partial
    assert source.published_id is not None
    failed = [
        page.number for page in docs.app.documents.pages(source.published_id) if page.phases[Phase.OCR].error
    ]
    assert [3, 37] == failed


def test_long_documents_are_cut_as_the_job_asked(docs: IndexedFolder):
    text = " ".join(f"Sentence {number} of the page." for number in range(60))
    lines = "\n".join(text[at : at + 80] for at in range(0, len(text), 80))
    path = docs.put("paper.pdf", pdf(*(f"Page {number}.\n{lines}" for number in range(36))))

    docs.index(path, chunk_size=32)

    source = docs.app.documents.source(str(path))
    assert source.published_id is not None
    counts = {page.number: page.chunk_count for page in docs.app.documents.pages(source.published_id)}
    assert counts[1] > 5
    assert {counts[1]} == set(counts.values())


def test_files_that_would_add_tasks_wait_while_there_are_many(
    docs: IndexedFolder, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(files, "MAX_OPEN_TASKS", 100)
    first = docs.app.index(docs.put("one.md", book(300)))
    with docs.manual_worker() as worker:
        worker.run_jobs()
        second, small = (
            docs.app.index(docs.put("two.md", book(300))),
            docs.app.index(docs.put("3.md", "Small.")),
        )
        worker.run_jobs()

        held = docs.app.job(second.job_id)
        assert (Status.PENDING, "ERR_TOO_EARLY", 0) == (held.status, held.error_code, held.retry_count)
        assert Status.DONE is docs.app.job(small.job_id).status
        worker.run_tasks()
    assert Status.DONE is docs.app.job(first.job_id).status
    assert Status.DONE is docs.finish(second.job_id).status


def test_pages_do_not_wait_for_the_chunks_of_others(docs: IndexedFolder, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(files, "MAX_OPEN_TASKS", 100)
    docs.app.index(docs.put("one.md", book(300)))
    with docs.manual_worker() as worker:
        worker.run_jobs()
        scan = docs.app.index(docs.put("long.pdf", pdf(*(f"Page {number}." for number in range(36)))))
        worker.run_jobs()

        waiting = docs.app.job(scan.job_id)
        assert (Status.IN_PROGRESS, None) == (waiting.status, waiting.error_code)
        worker.run_tasks()
    assert Status.DONE is docs.finish(scan.job_id).status


def test_a_note_that_cannot_be_kept_is_nobody_elses_trouble(docs: IndexedFolder):
    # This size is refused today, but an older version may have queued it.
    payloads = [{"content": "Good."}, {"content": "Bad.", "chunk_size": 8}, {"content": "Fine."}]
    jobs = docs.app.queue.add(
        [
            NewJob(
                queue_id=clock.new_id(),
                item_type="content",
                op="ingest",
                tenant_id="default",
                collection="default",
                idempotency_key=f"content:default:{number}",
                payload_json=msgspec.json.encode(payload).decode(),
            )
            for number, payload in enumerate(payloads)
        ]
    )
    with docs.manual_worker() as worker:
        worker.run_jobs()

    ended = [docs.app.job(job.queue_id) for job in jobs]
    assert [Status.DONE, Status.FAILED, Status.DONE] == [job.status for job in ended]
