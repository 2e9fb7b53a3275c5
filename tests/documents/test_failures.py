"""What fails costs what failed, and nothing else: in a batch, in a document, at a retry."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from penstock import clock
from penstock.catalog.values import Phase
from penstock.errors import PermanentFailure, TransientFailure
from penstock.handlers import files
from penstock.job import NewJob, Status
from penstock.pipeline.embed.hash_embedder import HashingEmbedder
from tests.documents.conftest import Hand, IndexedFolder, book
from tests.pipeline.sample_documents import PIXEL, pdf


class Picky(HashingEmbedder):
    """Refuses every batch with a text that has one of these words in it; counts what it embedded."""

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


def work_off(hand: Hand) -> None:
    while hand.run_jobs():
        hand.run_tasks()


def test_one_bad_text_fails_none_of_the_files_beside_it(desk: IndexedFolder):
    for number in range(20):
        desk.put(f"{number}.md", f"Water number {number}." + (" poison" if number == 7 else ""))
    with desk.by_hand(refused()) as hand:
        receipt = desk.app.index(desk.folder)
        work_off(hand)

    job = desk.app.job(receipt.job_id)
    assert (Status.FAILED, 1) == (job.status, job.children_failed)
    assert 19 == len(desk.found("water", mode="keyword", limit=50))
    reason = desk.app.documents.why(desk.folder / "7.md")
    assert ("failed", True) == (reason.verdict, "cannot be embedded" in reason.missing[0])


def test_one_bad_chunk_of_a_long_document_leaves_the_rest_published_and_is_named(desk: IndexedFolder):
    path = desk.put("book.md", book(300).replace("subject123.", "poison."))
    with desk.by_hand(refused()) as hand:
        receipt = desk.app.index(path)
        work_off(hand)

    job = desk.app.job(receipt.job_id)
    assert (Status.DONE, True, 1) == (job.status, job.result["partial"], job.result["failed"])
    assert ["book.md"] == desk.found("subject277", mode="vector")
    reason = desk.app.documents.why(path)
    assert ("partial", 1) == (reason.verdict, len(reason.missing))
    assert "cannot be embedded" in reason.missing[0]


def test_a_retry_of_a_partial_document_embeds_only_what_had_failed(desk: IndexedFolder):
    path = desk.put("book.md", book(300).replace("subject123.", "poison."))
    embedder = refused()
    with desk.by_hand(embedder) as hand:
        first = desk.app.index(path)
        work_off(hand)
        embedder.word, embedder.embedded = "", []

        again = desk.app.documents.retry(first.job_id)
        work_off(hand)

    assert 1 == len(embedder.embedded)
    job = desk.app.job(again.queue_id)
    assert (Status.DONE, None) == (job.status, job.result.get("partial"))
    assert ("indexed", ()) == (desk.app.documents.why(path).verdict, desk.app.documents.why(path).missing)
    assert ["book.md"] == desk.found("poison", mode="vector")[:1]


def test_what_passes_is_tried_again_and_what_stays_is_an_outage_that_hides_nothing(desk: IndexedFolder):
    path = desk.put("book.md", "The former version of the book.")
    desk.index(path)
    path.write_text(book(300))
    embedder = Picky("subject123.", TransientFailure("the model is away"))
    with desk.by_hand(embedder) as hand:
        receipt = desk.app.index(path, priority=5)
        hand.run_jobs()
        hand.run_tasks()
        # One chunk waits for its next try; the others are done.
        assert Status.IN_PROGRESS is desk.app.job(receipt.job_id).status
        assert ["vector_chunks failed"] == desk.unsettled(hand)
        hand.exhaust(Phase.VECTOR)

        job = desk.app.job(receipt.job_id)
        assert (Status.FAILED, "ERR_OUTAGE") == (job.status, job.error_code)
        assert ["book.md"] == desk.found("former", mode="keyword")

        embedder.word, embedder.embedded = "", []
        desk.app.documents.retry(receipt.job_id)
        work_off(hand)

    assert 1 == len(embedder.embedded)
    assert Status.DONE is desk.app.job(receipt.job_id).status
    assert ["book.md"] == desk.found("subject123", mode="keyword")
    assert [] == desk.found("former", mode="keyword")


def test_pages_without_text_leave_the_rest_published_and_listed(desk: IndexedFolder):
    pages: list[str | bytes] = [f"Words of page {number}." for number in range(40)]
    pages[2] = pages[36] = PIXEL
    path = desk.put("paper.pdf", pdf(*pages))

    job = desk.index(path)

    assert (Status.DONE, True, 2) == (job.status, job.result["partial"], job.result["failed"])
    reason = desk.app.documents.why(path)
    assert ["page 3", "page 37"] == [one.partition(":")[0] for one in reason.missing]
    source = desk.app.documents.source(str(path))
    assert source.partial
    assert source.published_id is not None
    failed = [page.number for page in desk.app.documents.pages(source.published_id) if page.ocr.error]
    assert [3, 37] == failed


def test_long_documents_are_cut_as_the_job_asked(desk: IndexedFolder):
    text = " ".join(f"Sentence {number} of the page." for number in range(60))
    lines = "\n".join(text[at : at + 80] for at in range(0, len(text), 80))
    path = desk.put("paper.pdf", pdf(*(f"Page {number}.\n{lines}" for number in range(36))))

    desk.index(path, chunk_size=32)

    source = desk.app.documents.source(str(path))
    assert source.published_id is not None
    counts = {page.number: page.chunk_count for page in desk.app.documents.pages(source.published_id)}
    assert counts[1] > 5
    assert {counts[1]} == set(counts.values())


def test_files_that_would_add_tasks_wait_while_there_are_many(
    desk: IndexedFolder, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(files, "MOST_OPEN_TASKS", 100)
    first = desk.app.index(desk.put("one.md", book(300)))
    with desk.by_hand() as hand:
        hand.run_jobs()
        second, small = (
            desk.app.index(desk.put("two.md", book(300))),
            desk.app.index(desk.put("3.md", "Small.")),
        )
        hand.run_jobs()

        held = desk.app.job(second.job_id)
        assert (Status.PENDING, "ERR_TOO_EARLY", 0) == (held.status, held.error_code, held.retry_count)
        assert Status.DONE is desk.app.job(small.job_id).status
        hand.run_tasks()
    assert Status.DONE is desk.app.job(first.job_id).status
    assert Status.DONE is desk.finish(second.job_id).status


def test_a_note_that_cannot_be_kept_is_nobody_elses_trouble(desk: IndexedFolder):
    # Such a size is refused; but it may have been queued by an older version.
    payloads = [{"content": "Good."}, {"content": "Bad.", "chunk_size": 8}, {"content": "Fine."}]
    jobs = desk.app.queue.add(
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
    with desk.by_hand() as hand:
        hand.run_jobs()

    ended = [desk.app.job(job.queue_id) for job in jobs]
    assert [Status.DONE, Status.FAILED, Status.DONE] == [job.status for job in ended]
