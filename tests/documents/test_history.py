"""History of a document, from the first indexing to the deletion."""

from __future__ import annotations

import os

import pytest

from penstock.catalog.values import OutboxEntryKind
from penstock.errors import UnknownDocument
from tests.documents.conftest import IndexedFolder, book
from tests.servers.stores import FIRST, others_later

# The queue does not matter here: one per catalog is enough.
pytestmark = pytest.mark.parametrize("docs", others_later(FIRST, ["sqlite"]), indirect=True)


def told(docs: IndexedFolder, name: str) -> list[str]:
    return [entry.what for entry in docs.app.documents.history(str(docs.folder / name))]


def swept(docs: IndexedFolder) -> None:
    catalog = docs.app.documents.catalog
    while entries := catalog.outbox(OutboxEntryKind.LEFTOVER):
        catalog.clear([entry.entry_id for entry in entries])


def test_a_document_is_indexed_updated_renamed_and_removed(docs: IndexedFolder):
    path = docs.put("old.md", "Water drives the wheel.")
    docs.put("other.md", "Bread comes out of the oven.")
    docs.index()
    assert ["indexed"] == told(docs, "old.md")
    path.write_text("Water drives the big wheel.")
    job = docs.index(path)
    path.rename(docs.folder / "new.md")
    docs.index()
    assert ["indexed", "updated", "renamed"] == told(docs, "new.md") == told(docs, "old.md")

    (docs.folder / "new.md").unlink()
    docs.index()
    assert ["indexed", "updated", "renamed", "removed"] == told(docs, "new.md")

    swept(docs)
    _, updated, renamed, removed = docs.app.documents.history(str(docs.folder / "new.md"))
    assert f"1 chunk (job {job.queue_id})" == updated.note
    assert f"{path} → {docs.folder}/new.md" == renamed.note
    assert f"{docs.folder}/new.md" == removed.note
    assert ["indexed"] == told(docs, "other.md")


def test_why_remembers_what_was_moved_and_what_was_removed(docs: IndexedFolder):
    path, moved = docs.put("old.md", "Water drives the wheel."), docs.folder / "new.md"
    docs.index()
    path.rename(moved)
    docs.index()
    reason = docs.app.documents.why(path)
    assert ("moved", True) == (reason.verdict, str(moved) in reason.cause)

    docs.put("other.md", "So that the folder is not empty.")
    moved.unlink()
    docs.index()
    for _ in ("at once", "after its rows are gone"):
        reason = docs.app.documents.why(moved)
        assert ("removed", True) == (reason.verdict, "penstock index" in reason.remedy)
        swept(docs)
    assert "unknown" == docs.app.documents.why(docs.folder / "never.md").verdict


def test_what_is_under_way_is_told_too(docs: IndexedFolder):
    path = docs.put("book.md", book(300))
    with docs.manual_worker() as worker:
        docs.app.index(path)
        worker.run_jobs()
        assert ["being indexed"] == told(docs, "book.md")
        worker.run_tasks()
    assert ["indexed"] == told(docs, "book.md")


def test_a_path_nobody_knows_has_no_history(docs: IndexedFolder):
    with pytest.raises(UnknownDocument):
        told(docs, "never.md")


def test_no_more_than_the_last_events_are_kept(docs: IndexedFolder):
    path = docs.put("a.md", "Text 0.")
    docs.index(path)
    with docs.manual_worker() as worker:
        for number in range(1, 56):
            path.write_text(f"Text {number}.")
            os.utime(path, ns=(number, number))
            docs.app.index(path)
            worker.run_jobs()
    assert ["indexed"] + ["updated"] * 50 == told(docs, "a.md")
