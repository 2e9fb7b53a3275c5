"""Notes: texts in the payload of a job."""

from __future__ import annotations

import pytest

from penstock.queue.job import Status
from tests.documents.conftest import QUEUES, IndexedFolder
from tests.servers.stores import others_later

pytestmark = pytest.mark.parametrize("docs", others_later(QUEUES), indirect=True)


def add(docs: IndexedFolder, text: str, **payload: str) -> str:
    job = docs.run("content", "ingest", {"content": text, **payload})
    assert Status.DONE is job.status
    return job.queue_id


def notes(docs: IndexedFolder):
    return docs.app.documents.sources()


def test_a_note_is_found_by_its_words_and_its_tag(docs: IndexedFolder):
    add(docs, "The gate sticks when it freezes.", main_tag="mill", full_tag="mill/gate")
    add(docs, "The oven smokes when it freezes.", main_tag="oven", full_tag="oven")

    assert 2 == len(docs.app.search("freezes", mode="keyword"))
    (hit,) = docs.app.search("freezes", tag="mill", mode="keyword")
    assert ("The gate sticks when it freezes.", ("mill/gate",)) == (hit.text, hit.tags)


def test_the_same_text_is_one_note_with_the_newest_tags(docs: IndexedFolder):
    add(docs, "The gate sticks.", main_tag="mill", full_tag="mill")
    add(docs, "The gate sticks.", main_tag="winter", full_tag="winter")

    (note,) = notes(docs)
    assert ("winter",) == note.tags


def test_an_update_replaces_the_note_with_that_id(docs: IndexedFolder):
    add(docs, "The gate sticks.")
    (note,) = notes(docs)

    job = docs.run("content", "update", {"content": "The gate runs well.", "document_id": note.source_id})

    assert Status.DONE is job.status
    (updated,) = notes(docs)
    assert note.source_id == updated.source_id
    assert [] == docs.app.search("sticks", mode="keyword")
    assert 1 == len(docs.app.search("runs", mode="keyword"))


def test_an_unknown_note_is_a_clear_failure(docs: IndexedFolder):
    job = docs.run("content", "update", {"content": "New.", "document_id": "nobody"})

    assert (Status.FAILED, "ERR_UNKNOWN_DOCUMENT") == (job.status, job.error_code)
    assert "no note nobody in collection default" in (job.error_message or "")


def test_the_identical_text_deletes(docs: IndexedFolder):
    add(docs, "The gate sticks.")

    assert Status.DONE is docs.run("content", "delete", {"content": "The gate sticks."}).status
    assert [] == notes(docs)


def test_a_note_is_forgotten_by_its_id_as_well(docs: IndexedFolder):
    add(docs, "The gate sticks.")
    add(docs, "The oven smokes.")
    first, second = notes(docs)

    for text in (first.source_id, "The gate sticks.", "The oven smokes."):
        with docs.app.worker_thread():
            receipt = docs.app.documents.note(text, delete=True)
            docs.app.wait(receipt.job_id, timeout=120)

    assert [] == notes(docs)
    assert first.source_id != second.source_id


def test_a_note_that_was_just_forgotten_is_not_brought_back(docs: IndexedFolder):
    add(docs, "The gate sticks.")
    (note,) = notes(docs)

    with docs.manual_worker() as worker:
        for change in ({"text": note.source_id, "delete": True}, {"text": "Open.", "update": note.source_id}):
            receipt = docs.app.documents.note(**change)
            worker.run_jobs()
        worker.drain()

    assert "ERR_UNKNOWN_DOCUMENT" == docs.app.job(receipt.job_id).error_code
    assert [] == notes(docs)
