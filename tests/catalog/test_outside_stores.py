"""Stores outside the catalog: what is recorded for them, and by which transaction."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from penstock.catalog.parts import OutsideStore, StoredText
from penstock.catalog.protocol import Catalog
from penstock.catalog.rules import publication
from penstock.catalog.sql.outside_stores import LATE_WRITES
from penstock.catalog.values import Outcome, Phase, Removal
from tests.catalog.conftest import (
    DOCS,
    T0,
    VECTOR,
    at,
    begin,
    document,
    embed,
    page,
    put,
    read,
    settle,
    source,
    sweep,
    take,
    vectors,
)

VECTORS, GRAPH = OutsideStore.VECTOR, OutsideStore.GRAPH
LATER = T0 + 2 * LATE_WRITES


def pending(catalog: Catalog, store: OutsideStore = VECTORS, now: datetime = T0) -> set[StoredText]:
    return {one.text for one in catalog.outside.pending_removals(store, 1000, now=now)}


def attach(catalog: Catalog, address: str) -> tuple[str, bool]:
    found = catalog.outside.attach(VECTORS, address)
    return found.address, found.filled


def attached(catalog: Catalog) -> tuple[str, bool]:
    found = catalog.outside.attached(VECTORS)
    assert found is not None
    return found.address, found.filled


def forget(catalog: Catalog, store: OutsideStore = VECTORS) -> None:
    found = catalog.outside.pending_removals(store, 1000, now=LATER)
    catalog.outside.forget_removals(store, [one.removal_id for one in found])


def remove(catalog: Catalog, path: str = "/a.md", asked_at: float = 10) -> None:
    catalog.remove(
        Removal(tenant_id="acme", collection="docs", branch="main", path=path, asked_at=at(asked_at)), now=T0
    )


def texts(catalog: Catalog, path: str = "/a.md") -> list[int]:
    """Numbers of the texts of the published generation of a path."""
    with catalog.snapshot() as snapshot:
        found = snapshot.find(DOCS, path)
        assert found is not None
        pages = snapshot.pages(found.published_id or 0)
        ids = [chunk.chunk_id for one in pages for chunk in snapshot.chunks(one.page_id)]
        return sorted(snapshot.locate(found.source_id, ids).values())


def test_a_store_is_attached_until_another_one_is(catalog: Catalog):
    assert catalog.outside.attached(VECTORS) is None
    assert ("qdrant://a", True) == attach(catalog, "qdrant://a")
    put(catalog)
    embed(catalog, stored="qdrant://a")
    assert ("qdrant://a", True) == attach(catalog, "qdrant://a")

    assert ("qdrant://b", False) == attach(catalog, "qdrant://b")
    catalog.outside.set_filled(VECTORS, "qdrant://a", filled=True)
    assert ("qdrant://b", False) == attached(catalog)
    catalog.outside.set_filled(VECTORS, "qdrant://b", filled=True)
    assert ("qdrant://b", True) == attached(catalog)

    catalog.outside.detach(VECTORS)
    assert catalog.outside.attached(VECTORS) is None


def test_without_a_store_nothing_is_recorded(catalog: Catalog):
    put(catalog, "/a.md", page("one", "two"))
    remove(catalog)
    sweep(catalog)
    assert set() == pending(catalog) == pending(catalog, GRAPH)


def test_the_sweep_records_each_text_for_each_store(catalog: Catalog):
    catalog.outside.attach(VECTORS, "qdrant://a")
    catalog.outside.attach(GRAPH, "bolt://b")
    put(catalog, "/a.md", page("one", "two"))
    embed(catalog)
    numbers = texts(catalog)
    remove(catalog)
    assert set() == pending(catalog), "the texts are still here"

    sweep(catalog)

    assert {StoredText("acme", number, "static") for number in numbers} == pending(catalog)
    assert {StoredText("acme", number) for number in numbers} == pending(catalog, GRAPH)
    forget(catalog)
    assert set() == pending(catalog)
    assert 2 == len(pending(catalog, GRAPH))
    catalog.outside.detach(GRAPH)
    assert set() == pending(catalog, GRAPH)


def test_a_text_that_stays_is_not_recorded(catalog: Catalog):
    catalog.outside.attach(VECTORS, "qdrant://a")
    put(catalog, "/a.md", page("one", "two"))
    embed(catalog)
    kept, _ = texts(catalog)
    put(catalog, "/a.md", page("one", "three"), asked_at=at(1))
    embed(catalog)
    sweep(catalog)
    assert 1 == len(pending(catalog))
    assert kept not in {one.content_id for one in pending(catalog)}


def test_a_text_leaves_the_space_of_the_former_model_only(catalog: Catalog):
    catalog.outside.attach(VECTORS, "qdrant://a")
    put(catalog, "/a.md", page("one"))
    embed(catalog)
    numbers = texts(catalog)
    put(catalog, "/a.md", page("one"), space="other", asked_at=at(1))
    embed(catalog)
    assert numbers == texts(catalog)
    sweep(catalog)
    assert {StoredText("acme", numbers[0], "static")} == pending(catalog)


def test_vectors_are_ended_by_tasks_alone_while_a_store_is_attached(catalog: Catalog):
    put(catalog, "/a.md", page("one"))
    remove(catalog)
    sweep(catalog)  # its vector is in the cache now
    catalog.outside.attach(VECTORS, "qdrant://a")

    given, cached = put(catalog, "/b.md", page("two")), put(catalog, "/c.md", page("one", vector=None))
    read_at_once = begin(catalog, "/d.pdf", 1)
    read(catalog, "three", vector=VECTOR)

    assert Outcome.BUILDING is given.outcome is cached.outcome
    assert "building" == document(catalog, read_at_once).state
    assert 0 == vectors(catalog)
    assert 3 == embed(catalog)
    assert 3 == vectors(catalog)


def test_a_removed_text_whose_task_runs_is_recorded_for_later(catalog: Catalog):
    catalog.outside.attach(VECTORS, "qdrant://a")
    put(catalog, "/a.md", page("one", vector=None))
    (task,) = take(catalog, Phase.VECTOR)
    remove(catalog)
    sweep(catalog)
    assert set() == pending(catalog)
    assert {StoredText("acme", task.content_id, "static")} == pending(catalog, now=LATER)


def test_a_lost_claim_withdraws_only_what_no_document_wants(catalog: Catalog):
    catalog.outside.attach(VECTORS, "qdrant://a")
    put(catalog, "/a.md", page("one"))
    put(catalog, "/b.md", page("two"))
    stays, goes = (StoredText("acme", task.content_id, "static") for task in take(catalog, Phase.VECTOR))
    remove(catalog, "/b.md")
    sweep(catalog)
    forget(catalog)

    catalog.outside.withdraw(VECTORS, [stays, goes, msgspec.structs.replace(stays, space="other")])

    recorded = pending(catalog, now=datetime(9999, 1, 1, tzinfo=UTC))
    assert {goes, msgspec.structs.replace(stays, space="other")} == recorded


@pytest.mark.parametrize("store", [VECTORS, GRAPH])
def test_a_chunk_that_fails_for_good_leaves_the_vector_store(catalog: Catalog, store: OutsideStore):
    catalog.outside.attach(store, "qdrant://a")
    put(catalog, "/a.md", page("one", vector=None), max_retries=0)
    (task,) = take(catalog, Phase.VECTOR)
    settle(catalog, [publication.lost(task)])
    expected = {StoredText("acme", task.content_id, "static")} if store is VECTORS else set()
    assert expected == pending(catalog, store)


def test_a_text_is_not_embedded_before_its_removal_is_done(catalog: Catalog):
    catalog.outside.attach(VECTORS, "qdrant://a")
    put(catalog, "/a.md", page("one"))
    (task,) = take(catalog, Phase.VECTOR)
    settle(catalog, [publication.completed_vector(task, VECTOR)])
    put(catalog, "/a.md", page("one"), space="other", asked_at=at(1))
    embed(catalog)
    sweep(catalog)
    assert {StoredText("acme", task.content_id, "static")} == pending(catalog)

    put(catalog, "/a.md", page("one"), space="static", asked_at=at(2))
    assert [] == take(catalog, Phase.VECTOR)

    forget(catalog)
    assert [task.content_id] == [again.content_id for again in take(catalog, Phase.VECTOR)]


def test_vectors_can_be_copied_to_a_store(catalog: Catalog):
    put(catalog, "/a.md", page("one", "two"))
    numbers = texts(catalog)
    found = source(catalog)
    assert found is not None
    assert ["static"] == catalog.outside.spaces()
    assert set(numbers) == catalog.outside.vector_ids("static") == catalog.outside.wanted("static", numbers)
    assert set() == catalog.outside.vector_ids("other") == catalog.outside.wanted("other", numbers)

    copied = catalog.outside.vectors("static", [*numbers, 999])

    assert set(numbers) == {one.content_id for one in copied}
    assert {("acme", VECTOR)} == {(one.tenant_id, one.vector) for one in copied}
    assert 1 == len({one.source_key for one in copied})


def test_a_catalog_keeps_the_number_that_names_its_copies(catalog: Catalog):
    first = catalog.outside.attach(VECTORS, "qdrant://a").catalog_id
    catalog.outside.detach(VECTORS)
    assert first == catalog.outside.attach(GRAPH, "bolt://b").catalog_id
    assert len(first) == 12
    assert int(first, 16) > 0


MINUTE = timedelta(minutes=1)


def unfilled(catalog: Catalog, *words: str) -> list[int]:
    """Store documents, and attach a store to them; return the numbers of their texts."""
    for number, word in enumerate(words):
        put(catalog, f"/{number}.md", page(word))
    catalog.outside.attach(VECTORS, "qdrant://a")
    return [text for number in range(len(words)) for text in texts(catalog, f"/{number}.md")]


def progress(catalog: Catalog) -> tuple[bool, int, int]:
    found = catalog.outside.fill_progress(VECTORS)
    assert found is not None
    return found.filled, found.copied, found.percent


def test_a_fill_goes_on_after_the_last_copied_text(catalog: Catalog):
    outside = catalog.outside
    first, second, third = unfilled(catalog, "one", "two", "three")
    assert (False, 0, 0) == progress(catalog)
    fill = outside.begin_fill(VECTORS, "qdrant://a", MINUTE)
    assert fill is not None
    found = outside.vectors_after(fill.copied_to, 2)
    assert [first, second] == [one.content_id for one in found["static"]]
    outside.advance_fill(VECTORS, fill, second, 2)
    copied, percent = progress(catalog)[1:]
    assert 2 == copied
    assert 0 < percent < 100

    fill = outside.begin_fill(VECTORS, "qdrant://a", MINUTE)
    assert fill is not None
    assert [third] == [one.content_id for one in outside.vectors_after(fill.copied_to, 2)["static"]]
    outside.advance_fill(VECTORS, fill, third, 1)
    fill = outside.begin_fill(VECTORS, "qdrant://a", MINUTE)
    assert fill is not None
    assert {} == outside.vectors_after(fill.copied_to, 2)
    assert outside.end_fill(VECTORS, fill)
    assert (True, 3, 100) == progress(catalog)
    assert outside.begin_fill(VECTORS, "qdrant://a", MINUTE) is None


def test_one_worker_fills_a_store_at_a_time_and_a_late_one_changes_nothing(catalog: Catalog):
    outside = catalog.outside
    (first, *_) = unfilled(catalog, "one", "two")
    late = outside.begin_fill(VECTORS, "qdrant://a", MINUTE, now=T0)
    assert late is not None
    assert outside.begin_fill(VECTORS, "qdrant://a", MINUTE, now=T0 + MINUTE / 2) is None
    assert outside.begin_fill(VECTORS, "qdrant://other", MINUTE, now=LATER) is None
    other = outside.begin_fill(VECTORS, "qdrant://a", MINUTE, now=T0 + MINUTE)
    assert other is not None
    outside.advance_fill(VECTORS, late, 10**6, 5)
    assert not outside.end_fill(VECTORS, late)
    outside.leave_fill(VECTORS, late)
    assert (False, 0, 0) == progress(catalog)
    outside.advance_fill(VECTORS, other, first, 1)
    assert 1 == progress(catalog)[1]


def test_a_store_that_lost_texts_is_filled_from_the_first_one(catalog: Catalog):
    outside = catalog.outside
    numbers = unfilled(catalog, "one", "two", "three")
    assert {"static": set(numbers)} == outside.outer_texts(VECTORS, 2)
    assert {"static": {numbers[0], numbers[-1]}} == outside.outer_texts(VECTORS, 1)
    fill = outside.begin_fill(VECTORS, "qdrant://a", MINUTE)
    assert fill is not None
    outside.advance_fill(VECTORS, fill, numbers[-1], 3)
    outside.set_filled(VECTORS, "qdrant://a", filled=False)
    assert not outside.end_fill(VECTORS, fill)
    again = outside.begin_fill(VECTORS, "qdrant://a", MINUTE)
    assert again is not None
    assert 0 == again.copied_to


@pytest.mark.parametrize("stored", [None, "qdrant://former"])
def test_a_result_that_was_not_copied_to_the_store_in_use_is_copied_later(
    catalog: Catalog, stored: str | None
):
    """A worker with former settings ends its tasks after the store was changed."""
    catalog.outside.attach(VECTORS, "qdrant://a")
    put(catalog, "/0.md", page("one", vector=None))
    embed(catalog, stored="qdrant://a")
    assert (True, 0, 100) == progress(catalog)
    put(catalog, "/1.md", page("two", vector=None))
    embed(catalog, stored=stored)
    assert not progress(catalog)[0]
    fill = catalog.outside.begin_fill(VECTORS, "qdrant://a", MINUTE)
    assert fill is not None
    found = catalog.outside.vectors_after(fill.copied_to, 10)
    assert texts(catalog, "/1.md") == [one.content_id for one in found["static"]]
