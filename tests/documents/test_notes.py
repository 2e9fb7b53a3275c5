"""Notes: text that comes with the job."""

from __future__ import annotations

from penstock.job import Status
from tests.documents.conftest import IndexedFolder


def add(desk: IndexedFolder, text: str, **payload: str) -> str:
    job = desk.run("content", "ingest", {"content": text, **payload})
    assert Status.DONE is job.status
    return job.queue_id


def notes(desk: IndexedFolder):
    return desk.app.documents.sources()


def test_a_note_is_found_by_its_words_and_its_tag(desk: IndexedFolder):
    add(desk, "The gate sticks when it freezes.", main_tag="mill", full_tag="mill/gate")
    add(desk, "The oven smokes when it freezes.", main_tag="oven", full_tag="oven")

    assert 2 == len(desk.app.search("freezes", mode="keyword"))
    (hit,) = desk.app.search("freezes", tag="mill", mode="keyword")
    assert ("The gate sticks when it freezes.", ("mill/gate",)) == (hit.text, hit.tags)


def test_the_same_text_is_one_note_with_the_newest_tags(desk: IndexedFolder):
    add(desk, "The gate sticks.", main_tag="mill", full_tag="mill")
    add(desk, "The gate sticks.", main_tag="winter", full_tag="winter")

    (note,) = notes(desk)
    assert ("winter",) == note.tags


def test_an_update_replaces_the_note_with_that_id(desk: IndexedFolder):
    add(desk, "The gate sticks.")
    (note,) = notes(desk)

    job = desk.run("content", "update", {"content": "The gate runs well.", "document_id": note.source_id})

    assert Status.DONE is job.status
    (updated,) = notes(desk)
    assert note.source_id == updated.source_id
    assert [] == desk.app.search("sticks", mode="keyword")
    assert 1 == len(desk.app.search("runs", mode="keyword"))


def test_an_unknown_note_is_a_clear_failure(desk: IndexedFolder):
    job = desk.run("content", "update", {"content": "New.", "document_id": "nobody"})

    assert (Status.FAILED, "ERR_UNKNOWN_DOCUMENT") == (job.status, job.error_code)
    assert "no note nobody in collection default" in (job.error_message or "")


def test_the_identical_text_deletes(desk: IndexedFolder):
    add(desk, "The gate sticks.")

    assert Status.DONE is desk.run("content", "delete", {"content": "The gate sticks."}).status
    assert [] == notes(desk)


def test_a_note_is_forgotten_by_its_id_as_well(desk: IndexedFolder):
    add(desk, "The gate sticks.")
    add(desk, "The oven smokes.")
    first, second = notes(desk)

    for text in (first.source_id, "The gate sticks.", "The oven smokes."):
        with desk.app.worker_thread():
            receipt = desk.app.documents.note(text, delete=True)
            desk.app.wait(receipt.job_id, timeout=30)

    assert [] == notes(desk)
    assert first.source_id != second.source_id


def test_a_note_that_was_just_forgotten_is_not_brought_back(desk: IndexedFolder):
    add(desk, "The gate sticks.")
    (note,) = notes(desk)

    with desk.by_hand() as hand:
        for change in ({"text": note.source_id, "delete": True}, {"text": "Open.", "update": note.source_id}):
            receipt = desk.app.documents.note(**change)
            hand.run_jobs()
        hand.drain()

    assert "ERR_UNKNOWN_DOCUMENT" == desk.app.job(receipt.job_id).error_code
    assert [] == notes(desk)
