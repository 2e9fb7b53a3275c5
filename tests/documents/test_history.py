"""What happened to a document, from its first indexing to its end."""

from __future__ import annotations

import os

import pytest

from penstock.catalog.values import OutboxEntryKind
from penstock.errors import UnknownDocument
from tests.documents.conftest import IndexedFolder, book

# The queue has no part in it: one with each catalog is enough.
pytestmark = pytest.mark.parametrize("desk", ["sqlite", "postgres"], indirect=True)


def told(desk: IndexedFolder, name: str) -> list[str]:
    return [entry.what for entry in desk.app.documents.history(str(desk.folder / name))]


def swept(desk: IndexedFolder) -> None:
    catalog = desk.app.documents.catalog
    while entries := catalog.outbox(OutboxEntryKind.LEFTOVER):
        catalog.clear([entry.entry_id for entry in entries])


def test_a_document_is_indexed_updated_renamed_and_removed(desk: IndexedFolder):
    path = desk.put("old.md", "Water drives the wheel.")
    desk.put("other.md", "Bread comes out of the oven.")
    desk.index()
    assert ["indexed"] == told(desk, "old.md")
    path.write_text("Water drives the big wheel.")
    job = desk.index(path)
    path.rename(desk.folder / "new.md")
    desk.index()
    assert ["indexed", "updated", "renamed"] == told(desk, "new.md") == told(desk, "old.md")

    (desk.folder / "new.md").unlink()
    desk.index()
    assert ["indexed", "updated", "renamed", "removed"] == told(desk, "new.md")

    swept(desk)
    _, updated, renamed, removed = desk.app.documents.history(str(desk.folder / "new.md"))
    assert f"1 chunk (job {job.queue_id})" == updated.note
    assert f"{path} → {desk.folder}/new.md" == renamed.note
    assert f"{desk.folder}/new.md" == removed.note
    assert ["indexed"] == told(desk, "other.md")


def test_why_remembers_what_was_moved_and_what_was_removed(desk: IndexedFolder):
    path, moved = desk.put("old.md", "Water drives the wheel."), desk.folder / "new.md"
    desk.index()
    path.rename(moved)
    desk.index()
    reason = desk.app.documents.why(path)
    assert ("moved", True) == (reason.verdict, str(moved) in reason.cause)

    desk.put("other.md", "So that the folder is not empty.")
    moved.unlink()
    desk.index()
    for _ in ("at once", "after its rows are gone"):
        reason = desk.app.documents.why(moved)
        assert ("removed", True) == (reason.verdict, "penstock index" in reason.remedy)
        swept(desk)
    assert "unknown" == desk.app.documents.why(desk.folder / "never.md").verdict


def test_what_is_under_way_is_told_too(desk: IndexedFolder):
    path = desk.put("book.md", book(300))
    with desk.by_hand() as hand:
        desk.app.index(path)
        hand.run_jobs()
        assert ["indexed", "being indexed"] == told(desk, "book.md")
        hand.run_tasks()
    assert ["indexed"] == told(desk, "book.md")


def test_a_path_nobody_knows_has_no_history(desk: IndexedFolder):
    with pytest.raises(UnknownDocument):
        told(desk, "never.md")


def test_no_more_than_the_last_events_are_kept(desk: IndexedFolder):
    path = desk.put("a.md", "Text 0.")
    desk.index(path)
    with desk.by_hand() as hand:
        for number in range(1, 56):
            path.write_text(f"Text {number}.")
            os.utime(path, ns=(number, number))
            desk.app.index(path)
            hand.run_jobs()
    assert ["indexed"] + ["updated"] * 50 == told(desk, "a.md")
