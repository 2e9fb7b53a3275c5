"""Deletes, renames and the outbox, under concurrency and interruption."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from penstock.catalog.protocol import Catalog
from penstock.catalog.rules import publication
from penstock.catalog.values import (
    GenerationState,
    LedgerEntry,
    LedgerKind,
    NewPage,
    OutboxEntryKind,
    Outcome,
    Phase,
    Place,
    Removal,
    RemovalResult,
    Rename,
)
from penstock.errors import InvalidRequest
from tests.catalog.conftest import (
    DOCS,
    T0,
    at,
    begin,
    chunk,
    document,
    embed,
    found,
    generation,
    page,
    put,
    read,
    settle,
    source,
    sweep,
    take,
    vectors,
)


def folder(path: str, asked_at: float = 1) -> Removal:
    return Removal(tenant_id="acme", collection="docs", branch="main", path=path, asked_at=at(asked_at))


def renamed(old: str, new: str, *, is_folder: bool = False, asked_at: float = 1) -> Rename:
    return Rename(place=DOCS, old=old, new=new, folder=is_folder, asked_at=at(asked_at))


def some(catalog: Catalog, *paths: str) -> None:
    catalog.store([generation(path, page(f"text {path}")) for path in paths])


def known(catalog: Catalog) -> list[str]:
    with catalog.snapshot() as snapshot:
        return [known.path for known in snapshot.known(DOCS) if known.published_id]


def test_a_folder_is_removed_in_batches_and_swept(catalog: Catalog):
    some(catalog, *(f"/a/{n}.md" for n in range(5)), "/ab.md", "/a")

    assert (4, True) == _pair(catalog.remove(folder("/a"), limit=4))
    assert (2, False) == _pair(catalog.remove(folder("/a"), limit=4))
    assert (0, False) == _pair(catalog.remove(folder("/a"), limit=4))

    assert {"text /ab.md"} == found(catalog, "text")
    sweep(catalog)
    with catalog.snapshot() as snapshot:
        assert ["/ab.md"] == [known.path for known in snapshot.known(DOCS)]
    assert 1 == vectors(catalog)


def _pair(removed: RemovalResult) -> tuple[int, bool]:
    return removed.sources, removed.more


@pytest.mark.parametrize(
    ("narrowed", "left"),
    [
        ({}, set()),
        ({"collection": "docs"}, {"text /n"}),
        ({"branch": "dev"}, {"text /a", "text /n"}),
        ({"path": "/a"}, {"text /n"}),
    ],
)
def test_a_delete_is_as_wide_as_it_says(catalog: Catalog, narrowed: dict[str, Any], left: set[str]):
    put(catalog, "/a", page("text /a"))
    put(catalog, "/a", page("text /a"), place=Place("acme", "docs", "dev"))
    put(catalog, "/n", page("text /n"), place=Place("acme", "notes"))
    put(catalog, "/a", page("text other"), place=Place("other", "docs"))

    catalog.remove(Removal(tenant_id="acme", asked_at=at(1), **narrowed))

    assert left == found(catalog, "text")
    assert 1 == vectors(catalog, tenant="other")
    sweep(catalog)


def test_one_source_is_removed_by_its_id(catalog: Catalog):
    some(catalog, "/a.md", "/b.md")
    gone = source(catalog, "/a.md")
    assert gone is not None

    assert (1, False) == _pair(
        catalog.remove(Removal(tenant_id="acme", source_id=gone.source_id, asked_at=at(1)))
    )
    assert (0, False) == _pair(
        catalog.remove(Removal(tenant_id="other", source_id=gone.source_id, asked_at=at(1)))
    )

    assert ["/b.md"] == known(catalog)


def test_what_was_asked_for_before_a_delete_is_not_published_after_it(catalog: Catalog):
    catalog.remove(folder("/a", asked_at=5))

    assert Outcome.REMOVED == put(catalog, "/a/late.md", asked_at=at(4)).outcome
    assert Outcome.REMOVED == put(catalog, "/a/same.md", asked_at=at(5)).outcome
    assert Outcome.PUBLISHED == put(catalog, "/a/again.md", asked_at=at(6)).outcome
    assert Outcome.PUBLISHED == put(catalog, "/b.md", asked_at=at(4)).outcome


def test_delete_then_add_again_leaves_the_new_one_whatever_comes_first(catalog: Catalog):
    some(catalog, "/a/1.md", "/a/2.md")
    put(catalog, "/a/1.md", page("again"), asked_at=at(7))

    catalog.remove(folder("/a", asked_at=5))

    assert ["/a/1.md"] == known(catalog)
    sweep(catalog)
    assert {"again"} == found(catalog, '"again" text')


def test_a_file_is_removed_without_what_lies_below_a_folder_of_its_name(catalog: Catalog):
    some(catalog, "/a", "/a/1.md")
    alone = msgspec.structs.replace(folder("/a", asked_at=5), below=False)

    assert (1, False) == _pair(catalog.remove(alone))

    assert ["/a/1.md"] == known(catalog)
    assert Outcome.REMOVED == put(catalog, "/a", asked_at=at(4)).outcome
    assert Outcome.PUBLISHED == put(catalog, "/a/2.md", asked_at=at(4)).outcome


def test_what_is_being_built_below_a_removed_folder_is_dropped(catalog: Catalog):
    early = begin(catalog, "/a/early.pdf", asked_at=at(1), job_id="job_1")
    late = begin(catalog, "/a/late.pdf", asked_at=at(9))

    catalog.remove(folder("/a", asked_at=5))

    assert ["dropped", "building"] == [document(catalog, number).state for number in (early, late)]
    assert ["job_1"] == [entry.job_id for entry in catalog.outbox(OutboxEntryKind.JOB)]
    sweep(catalog)
    assert ["job_1"] == [entry.job_id for entry in catalog.outbox(OutboxEntryKind.JOB)]


def test_an_early_delete_spares_a_later_publication_but_not_an_earlier_building(catalog: Catalog):
    put(catalog, "/a.md", page("published"), asked_at=at(9))
    building = begin(catalog, "/a.md", asked_at=at(3), read_at=at(10))

    catalog.remove(folder("/a.md", asked_at=5))

    assert GenerationState.DROPPED == document(catalog, building).state
    assert {"published"} == found(catalog, "published")


def test_a_removed_source_that_comes_back_before_the_sweep(catalog: Catalog):
    some(catalog, "/a.md")
    before = source(catalog, "/a.md")
    catalog.remove(folder("/a.md"))

    put(catalog, "/a.md", page("text /a.md", "more"), asked_at=at(2))
    sweep(catalog)

    after = source(catalog, "/a.md")
    assert before is not None
    assert after is not None
    assert before.source_id == after.source_id
    assert {"text /a.md", "more"} == found(catalog, "text") | found(catalog, '"more"')
    assert 2 == vectors(catalog)


def test_a_rename_keeps_everything_but_the_path(catalog: Catalog):
    put(catalog, "/a.md", page("kept"), tags=("x/y",))
    before = source(catalog, "/a.md")

    catalog.rename(renamed("/a.md", "/b.md"))

    after = source(catalog, "/b.md")
    assert before is not None
    assert after is not None
    assert (before.source_id, before.published_id) == (after.source_id, after.published_id)
    assert None is source(catalog, "/a.md")
    assert {"kept"} == found(catalog, "kept", path="/b*")
    assert [] == catalog.outbox()


def test_a_folder_is_renamed_in_batches(catalog: Catalog):
    some(catalog, *(f"/old/sub/{n}.md" for n in range(5)), "/older.md")

    first = catalog.rename(renamed("/old", "/new", is_folder=True), limit=3)
    second = catalog.rename(renamed("/old", "/new", is_folder=True), limit=3)

    assert (3, True, 2, False) == (first.sources, first.more, second.sources, second.more)
    assert [*(f"/new/sub/{n}.md" for n in range(5)), "/older.md"] == known(catalog)


def test_a_rename_over_an_existing_source_removes_that(catalog: Catalog):
    some(catalog, "/a.md", "/b.md")

    assert 1 == catalog.rename(renamed("/a.md", "/b.md")).replaced

    with catalog.snapshot() as snapshot:
        assert ["/b.md"] == [known.path for known in snapshot.known(DOCS)]
    assert {"text /a.md"} == found(catalog, "text")
    assert ["/b.md"] == known(catalog)
    sweep(catalog)
    with catalog.snapshot() as snapshot:
        assert 1 == len(snapshot.known(DOCS))


def test_a_folder_that_takes_its_parents_place_loses_nothing(catalog: Catalog):
    some(catalog, "/a/b/x", "/a/b/b/x", "/a/b/b/b/x")

    while catalog.rename(renamed("/a/b", "/a", is_folder=True), limit=1).more:
        pass

    assert ["/a/b/b/x", "/a/b/x", "/a/x"] == known(catalog)
    assert 3 == len(found(catalog, "text"))
    with pytest.raises(InvalidRequest):
        catalog.rename(renamed("/a", "/a/c", is_folder=True))


def test_what_moved_into_a_removed_folder_afterwards_stays(catalog: Catalog):
    some(catalog, "/b.md")
    catalog.remove(folder("/a", asked_at=5), limit=0)
    catalog.rename(renamed("/b.md", "/a/b.md", asked_at=6))

    assert (0, False) == _pair(catalog.remove(folder("/a", asked_at=5)))
    assert ["/a/b.md"] == known(catalog)


def test_what_is_being_built_moves_with_its_source(catalog: Catalog):
    document_id = begin(catalog, "/a.pdf", count=1)
    (task,) = take(catalog, Phase.OCR)
    catalog.rename(renamed("/a.pdf", "/b.pdf"))

    settle(catalog, [publication.completed_page(task, page("moved"))])

    assert document(catalog, document_id).current
    assert ["/b.pdf"] == known(catalog)


def test_what_was_read_before_a_rename_is_not_published_at_the_old_path(catalog: Catalog):
    catalog.rename(renamed("/a", "/b", is_folder=True, asked_at=5))

    assert Outcome.REMOVED == put(catalog, "/a/late.md", asked_at=at(4)).outcome
    assert Outcome.PUBLISHED == put(catalog, "/b/late.md", asked_at=at(4)).outcome
    assert Outcome.PUBLISHED == put(catalog, "/a/anew.md", asked_at=at(6)).outcome
    catalog.rename(renamed("/c", "/d", asked_at=5))
    assert Outcome.REMOVED == put(catalog, "/c", asked_at=at(4)).outcome
    assert Outcome.PUBLISHED == put(catalog, "/c/1.md", asked_at=at(4)).outcome


def test_leftovers_are_cleared_in_batches_and_once_more(catalog: Catalog):
    put(catalog, "/a.md", *(page(f"old {n}", number=n) for n in range(10)))
    put(catalog, "/a.md", page("new", "old 3"), asked_at=at(1))
    (entry,) = catalog.outbox(OutboxEntryKind.LEFTOVER)

    while not catalog.clear([entry.entry_id], limit=3):
        assert [] == catalog.audit()
        assert {"new", "old 3"} == found(catalog, "new old")
    assert catalog.clear([entry.entry_id])

    assert [] == catalog.outbox()
    assert 2 == vectors(catalog)


def test_a_text_that_comes_back_is_not_among_the_leftovers(catalog: Catalog):
    put(catalog, "/a.md", page("one"))
    put(catalog, "/a.md", page("two"), asked_at=at(1))
    put(catalog, "/a.md", page("one"), asked_at=at(2))

    sweep(catalog)
    assert {"one"} == found(catalog, "one two")


def test_no_vector_task_is_claimed_while_deletes_of_its_source_are_open(catalog: Catalog):
    put(catalog, "/a.md", page("one"))
    put(catalog, "/a.md", page("two"), asked_at=at(1))
    put(catalog, "/a.md", NewPage(number=1, chunks=(chunk("three", None),)), asked_at=at(2))
    put(catalog, "/b.md", NewPage(number=1, chunks=(chunk("free", None),)))

    assert ["free"] == [task.text for task in take(catalog, Phase.VECTOR)]
    shown = source(catalog, "/a.md")
    assert shown is not None
    assert shown.sweeping
    sweep(catalog)
    assert ["three"] == [task.text for task in take(catalog, Phase.VECTOR)]


def test_pages_read_while_deletes_are_open_wait_too(catalog: Catalog):
    put(catalog, "/a.pdf", page("one"))
    put(catalog, "/a.pdf", page("two"), asked_at=at(1))
    begin(catalog, "/a.pdf", asked_at=at(2), count=1)
    read(catalog, "late")

    assert 0 == embed(catalog)
    sweep(catalog)
    assert 1 == embed(catalog)


def test_a_job_entry_goes_when_it_is_cleared(catalog: Catalog):
    begin(catalog, "/a.pdf", count=1, job_id="job_1")
    (task,) = take(catalog, Phase.OCR)
    settle(catalog, [publication.completed_page(task, page("x"))])
    (entry,) = catalog.outbox()

    assert ("job_1", OutboxEntryKind.JOB) == (entry.job_id, entry.kind)
    assert [] == catalog.outbox(after=entry.entry_id)
    assert catalog.clear([entry.entry_id])
    assert [] == catalog.outbox()


def test_old_tombstones_and_cached_vectors_are_forgotten(catalog: Catalog):
    some(catalog, "/a.md")
    catalog.remove(folder("/a.md"), now=at(1))
    sweep(catalog)
    with catalog.snapshot() as snapshot:
        assert not snapshot.changes("acme", 0).reload

    assert 3 == catalog.sweep(at(100))
    assert 0 == catalog.sweep(at(100))
    put(catalog, "/other.md", page("x", vector=b"12345678"), space="other", asked_at=at(2))
    with catalog.snapshot() as snapshot:
        assert snapshot.changes("acme", 0).reload
    assert Outcome.PUBLISHED == put(catalog, "/a.md", asked_at=T0).outcome


def test_why_tells_indexed_waiting_failed_and_skipped(catalog: Catalog):
    catalog.note(
        [
            LedgerEntry(
                place=DOCS, path="/a/x.bin", kind=LedgerKind.SKIPPED, rule="binary", cause="NUL bytes"
            ),
            LedgerEntry(
                place=DOCS,
                path="/a/y.pdf",
                kind=LedgerKind.FAILED,
                rule="ERR_PARSE",
                cause="damaged",
                remedy="repair it",
            ),
        ],
        now=T0,
    )
    put(catalog, "/a/z.md")
    begin(catalog, "/a/w.pdf")

    with catalog.snapshot() as snapshot:
        skipped, failed, indexed, waiting = (
            snapshot.why(DOCS, path) for path in ("/a/x.bin", "/a/y.pdf", "/a/z.md", "/a/w.pdf")
        )
        assert ["/a/x.bin", "/a/y.pdf"] == [entry.path for entry in snapshot.ledger(DOCS, "/a")]
        assert None is snapshot.why(DOCS, "/nowhere").source
    assert skipped.ledger is not None
    assert ("binary", T0) == (skipped.ledger.rule, skipped.ledger.at)
    assert failed.ledger is not None
    assert "repair it" == failed.ledger.remedy
    assert indexed.published is not None
    assert waiting.building is not None


def test_indexing_or_removing_a_path_takes_its_note_back(catalog: Catalog):
    paths = ["/a/1.md", "/a/2.md", "/b.md", "/c.md"]
    notes = [
        LedgerEntry(place=DOCS, path=path, kind=LedgerKind.SKIPPED, rule="size", cause="big")
        for path in paths
    ]
    catalog.note(notes, now=T0)

    put(catalog, "/a/1.md")
    catalog.remove(folder("/a"))
    put(catalog, "/c.md")

    with catalog.snapshot() as snapshot:
        assert ["/b.md"] == [entry.path for entry in snapshot.ledger(DOCS)]
