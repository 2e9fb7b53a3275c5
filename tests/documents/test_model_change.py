"""A new model or extractor: only outdated work is repeated, and models are never mixed."""

from __future__ import annotations

import dataclasses
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import pytest

from penstock import Penstock
from penstock.catalog.values import Outcome, Phase, Place, Task, TaskRequest, TaskSource, TaskStatus
from penstock.errors import FingerprintMismatch
from penstock.pipeline.embed import open_embedder, space_of
from penstock.pipeline.embed.static import StaticEmbedder
from penstock.pipeline.pipeline import Pipeline
from penstock.queue.engine import wait_for
from penstock.queue.job import Job, Status
from penstock.service.upkeep import Plan, Rebuilder
from tests.catalog.conftest import generation as new_generation
from tests.catalog.conftest import page as new_page
from tests.documents.conftest import WAIT_S, IndexedFolder, book
from tests.documents.killed_worker import served
from tests.servers.stores import FIRST, others_later

# The queue does not matter here: one per catalog is enough.
pytestmark = pytest.mark.parametrize("docs", others_later(FIRST, ["sqlite"]), indirect=True)

OLD, NEW = space_of(open_embedder("hashing")), space_of(open_embedder("static"))


@contextmanager
def changed(docs: IndexedFolder) -> Iterator[Penstock]:
    """The same store, opened with settings for another model."""
    with Penstock(settings=dataclasses.replace(docs.app.settings, embedder="static")) as app:
        yield app


def rebuilder(app: Penstock) -> Rebuilder:
    return Rebuilder(app.documents.catalog, app, Pipeline(open_embedder(app.settings.embedder)))


def rebuild(app: Penstock) -> tuple[Plan, list[Job]]:
    plan = rebuilder(app).plan()
    receipts = rebuilder(app).start(plan)
    with app.worker_thread():
        return plan, [app.wait(receipt.job_id, timeout=WAIT_S) for receipt in receipts]


def spaces(docs: IndexedFolder) -> dict[str, int]:
    with docs.app.documents.catalog.snapshot() as snapshot:
        return {space.name: space.chunks for space in snapshot.spaces(docs.app.settings.tenant_id)}


def ids(docs: IndexedFolder) -> list[tuple[str, str]]:
    hits = docs.app.search("water wheel oven", mode="keyword", per_source=None, limit=1000)
    return sorted((hit.source_id, hit.chunk_id) for hit in hits)


def mill(docs: IndexedFolder) -> None:
    docs.put("mill.md", "Water drives the wheel.")
    docs.put("bakery.md", "Bread comes out of the oven.")


def test_a_worker_with_another_model_gives_the_jobs_back_and_says_why(docs: IndexedFolder):
    mill(docs)
    docs.index()
    docs.put("new.md", "The wheel turns.")
    with changed(docs) as app, app.worker_thread():
        receipt = app.index(docs.folder)

        assert wait_for(app.queue, lambda: bool(app.job(receipt.job_id).history), WAIT_S)

        job = app.job(receipt.job_id)
        assert (Status.PENDING, 0, "released") == (job.status, job.retry_count, job.history[-1].what)
        assert "penstock rebuild" in (job.history[-1].note or "")
        assert "penstock rebuild" in app.documents.why(docs.folder / "new.md").cause
    assert {OLD: 2} == spaces(docs)


def test_another_model_embeds_what_the_catalog_has_and_reads_nothing(docs: IndexedFolder):
    mill(docs)
    docs.index()
    before = ids(docs)
    for name in ("mill.md", "bakery.md"):
        (docs.folder / name).unlink()
    with changed(docs) as app:
        plan, jobs = rebuild(app)

        assert (2, 2, ["model"]) == (plan.total.documents, plan.total.chunks, list(plan.by_reason))
        assert [(Status.DONE, 0)] == [(job.status, job.priority) for job in jobs]
        assert 0 == rebuilder(app).plan().total.documents
        assert ["mill.md"] == [hit.path.rpartition("/")[2] for hit in app.search("river", mode="vector")][:1]
    assert {NEW: 2} == spaces(docs)
    assert before == ids(docs)


def test_a_document_of_many_chunks_is_embedded_by_tasks_of_the_lowest_priority(docs: IndexedFolder):
    docs.put("book.md", book(300))
    docs.index()
    chunks = spaces(docs)[OLD]
    with changed(docs) as app, docs.manual_worker(StaticEmbedder()) as worker, docs.manual_worker() as old:
        rebuilder(app).start(rebuilder(app).plan())
        while worker.run_jobs():
            continue
        with worker.catalog.snapshot() as snapshot:
            assert chunks == snapshot.open_tasks(Phase.VECTOR)
            assert 0 == snapshot.open_tasks(Phase.OCR)

        # A worker with the old model gets none of the tasks; searches still use it for published vectors.
        with pytest.raises(FingerprintMismatch):
            old.catalog.claim(TaskRequest(Phase.VECTOR, "old", 1, old.phases.fingerprint(Phase.VECTOR)))
        assert {OLD: chunks} == spaces(docs)
        assert ["book.md"] == docs.found("subject277", mode="vector")

        worker.run_tasks()
    assert {NEW: chunks} == spaces(docs)


def test_during_the_change_both_spaces_are_asked(docs: IndexedFolder):
    mill(docs)
    docs.index()
    with changed(docs) as app, docs.manual_worker(StaticEmbedder()) as worker:
        rebuilder(app).start(rebuilder(app).plan([str(docs.folder / "mill.md")]))
        while worker.run_jobs():
            continue
        assert {OLD: 1, NEW: 1} == spaces(docs)

        for searcher in (docs.app, app):
            found = {hit.path.rpartition("/")[2] for hit in searcher.search("wheel bread", mode="vector")}
            assert {"mill.md", "bakery.md"} == found


def test_a_space_nobody_here_can_ask_is_said_and_no_error(docs: IndexedFolder):
    mill(docs)
    docs.index()
    place = Place(docs.app.settings.tenant_id, docs.app.settings.collection)
    strange = new_generation("/far.md", new_page("Words from afar."), place=place, space="acme-4-deadbeef")
    docs.app.documents.catalog.store([strange])

    answer = docs.app._assembly.search.ask("afar wheel")

    assert ["far.md", "mill.md"] == sorted(hit.path.rpartition("/")[2] for hit in answer.hits)
    assert [
        "1 chunk searched by words only: the vectors are of acme-4-deadbeef, which is not available here"
    ] == list(answer.notes)


def test_notes_change_their_model_too_and_keep_id_tags_and_text(docs: IndexedFolder):
    docs.run("content", "ingest", {"content": "Buy   flour.\n", "main_tag": "mill", "full_tag": "mill/shop"})
    (before,) = docs.app.documents.sources()
    with changed(docs) as app:
        rebuild(app)
    (after,) = docs.app.documents.sources()

    assert (before.source_id, before.path, before.tags) == (after.source_id, after.path, ("mill/shop",))
    assert {NEW: 1} == spaces(docs)


def read_otherwise(docs: IndexedFolder, name: str, text: str) -> None:
    """A source as left by an earlier version with another extractor."""
    place = Place(docs.app.settings.tenant_id, docs.app.settings.collection)
    with docs.app.documents.catalog.snapshot() as snapshot:
        source = snapshot.find(place, str(docs.folder / name))
    assert source is not None
    older = new_generation(
        source.path,
        new_page(text, vector=None),
        place=place,
        content_hash=source.content_hash,
        fingerprints=msgspec.structs.replace(source.fingerprints, ocr="0123456789abcdef:2048:0"),
        space=OLD,
        asked_at=source.asked_at,
        read_at=source.read_at,
        size=source.size,
        mtime_ns=source.mtime_ns,
    )
    (stored,) = docs.app.documents.catalog.store([older])
    assert Outcome.PUBLISHED is stored.outcome


def test_what_was_read_in_another_way_is_read_again_and_unchanged_texts_keep_their_vectors(
    docs: IndexedFolder,
):
    mill(docs)
    path = docs.put("long.md", book(4))
    docs.index()
    # The chunk sizes come from the request and are not outdated.
    docs.index(path, chunk_size=64)
    read_otherwise(docs, "mill.md", "Water drives the wheel.")

    plan, (job,) = rebuild(docs.app)

    assert {"reading": 1} == {reason: cost.documents for reason, cost in plan.by_reason.items()}
    (child,) = docs.app.jobs(parent_id=job.queue_id)
    assert ("indexed", 1, 0) == tuple((child.result or {})[name] for name in ("outcome", "kept", "embedded"))


def test_a_file_that_cannot_be_read_again_keeps_what_was_made_of_it(docs: IndexedFolder):
    path = docs.put("mill.md", "Water drives the wheel.")
    docs.index()
    read_otherwise(docs, "mill.md", "Water drives the wheel.")
    path.unlink()

    rebuild(docs.app)

    assert ["mill.md"] == docs.found("wheel")


def test_another_chunk_size_embeds_only_texts_that_are_new(docs: IndexedFolder):
    docs.put("mill.md", "# One\n\nWater drives the wheel.\n\n" + book(2))
    docs.index()
    docs.put("other.md", "# One\n\nWater drives the wheel.")
    docs.index()

    job = docs.index(chunk_size=100)

    results = [child.result or {} for child in docs.app.jobs(parent_id=job.queue_id, limit=10)]
    assert [True, False] == sorted((result["embedded"] == 0 for result in results), reverse=True)


def test_an_empty_catalog_takes_the_model_of_whoever_comes_first(docs: IndexedFolder):
    mill(docs)
    docs.index()
    docs.run("folder", "delete", {"folder_path": str(docs.folder)})
    with changed(docs) as app, app.worker_thread():
        receipt = app.index(docs.folder)
        assert Status.DONE is app.wait(receipt.job_id, timeout=WAIT_S).status
    assert {NEW: 2} == spaces(docs)


def test_what_was_begun_with_the_former_model_is_begun_anew_and_never_mixed(docs: IndexedFolder):
    docs.put("book.md", book(300))
    with changed(docs) as app, docs.manual_worker() as old, docs.manual_worker(StaticEmbedder()) as worker:
        receipt = app.index(docs.folder / "book.md")
        old.run_jobs()
        rebuilder(app).start(rebuilder(app).plan())

        worker.run_tasks()
        assert {} == spaces(docs)
        assert Status.PENDING is app.job(receipt.job_id).status
        worker.run_jobs()
        worker.run_tasks()

        assert Status.DONE is app.job(receipt.job_id).status
        (source,) = app.documents.sources()
        assert {NEW: source.chunk_count} == spaces(docs)


def test_a_published_document_of_the_former_model_gets_no_vectors_of_the_new_one(docs: IndexedFolder):
    docs.put("book.md", book(3))
    docs.index()
    (source,) = docs.app.documents.sources()
    of_it = TaskSource(
        document_id=source.published_id or 0,
        source_id=source.source_id,
        family_key=1,
        place=source.place,
        path=source.path,
        content_hash=source.content_hash,
        space=OLD,
        job_id=None,
        title="",
        file_type="md",
    )
    task = Task(
        lane=Phase.VECTOR,
        task_id=1,
        claim_number=1,
        page_id=1,
        page_number=1,
        retry_count=0,
        max_retries=3,
        suspect=False,
        source=of_it,
    )
    with docs.manual_worker(StaticEmbedder()) as worker:
        (outcome,) = worker.phases.run(Phase.VECTOR, [task])
    assert (TaskStatus.FAILED, "ERR_OTHER_MODEL") == (outcome.status, outcome.code)


@pytest.mark.long
def test_a_worker_killed_in_the_middle_of_the_change_costs_nothing_but_time(docs: IndexedFolder):
    mill(docs)
    docs.put("book.md", book(300))
    docs.index()
    chunks = spaces(docs)[OLD]
    with changed(docs) as app:
        (receipt,) = rebuilder(app).start(rebuilder(app).plan())

        assert -signal.SIGKILL == served(app.settings, receipt.job_id, "stored, not waiting")
        assert ["book.md"] == docs.found("subject277", mode="keyword")
        assert 0 == served(app.settings, receipt.job_id)

        assert Status.DONE is app.job(receipt.job_id).status
        assert {NEW: chunks} == spaces(docs)
        assert 3 == len(app.documents.sources())
