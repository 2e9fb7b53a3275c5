"""Sources of several branches: equal texts, their words, vectors and entities are stored once."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from penstock.catalog.protocol import Catalog
from penstock.catalog.values import Filters, NewPage, Phase, Place, StoreResult
from penstock.pipeline.vectors.cache import VectorCache
from tests.catalog.conftest import at, completed_graph, generation, page, put, settle, sweep, take

WIP = Place("acme", "docs", "wip")
OLD = Place("acme", "docs", "old")


def put_beside(catalog: Catalog, other: StoreResult, *parts: NewPage, **fields: Any) -> StoreResult:
    """Store a version of the document for another branch."""
    return put(catalog, "/a.md", *parts, **({"place": WIP, "related_id": other.source_id} | fields))


def texts_of(catalog: Catalog, stored: StoreResult) -> dict[str, int]:
    """Content ids of a document by text."""
    assert stored.document_id is not None
    with catalog.snapshot() as snapshot:
        listed = snapshot.pages(stored.document_id)
        ids = [each.content_id for one in listed for each in snapshot.chunks(one.page_id)]
        views = snapshot.hydrate(ids)
    return {view.text: number for number, view in zip(ids, views, strict=True) if view}


def shown(catalog: Catalog, words: str, branch: str | None) -> list[tuple[str, str]]:
    """Branches and texts of hits."""
    filters = Filters(tenant_id="acme", branch=branch)
    with catalog.snapshot() as snapshot:
        hits = [hit.content_id for hit in snapshot.keyword(words, filters, limit=100)]
        views = snapshot.hydrate(hits, filters)
    return sorted((view.place.branch, view.text) for view in views if view)


def nearest(catalog: Catalog, cache: VectorCache, branch: str | None = None) -> list[int]:
    filters = Filters(tenant_id="acme", branch=branch)
    query = np.array([1, 1, 1, 1], np.float32)
    with catalog.snapshot() as snapshot:
        allowed = snapshot.matching(filters)
        found = cache.nearest(snapshot, "acme", "static", query, limit=100, allowed=allowed)
        seen = snapshot.visible(filters, [hit.content_id for hit in found])
    return sorted(hit.content_id for hit in found if hit.content_id in seen)


def test_equal_texts_are_stored_once_and_found_in_their_branches(catalog: Catalog):
    first = put(catalog, "/a.md", page("mill wheel", "mill gate"))
    second = put_beside(catalog, first, page("mill wheel", "mill weir", vector=None))

    assert (2, 1) == (second.chunks, second.kept)
    here, there = texts_of(catalog, first), texts_of(catalog, second)
    assert here["mill wheel"] == there["mill wheel"]
    assert [("main", "mill gate"), ("main", "mill wheel")] == shown(catalog, "mill", "main")
    assert [] == shown(catalog, "mill", "wip"), "one chunk has no vector yet"
    settled = [task.text for task in take(catalog, Phase.VECTOR)]
    assert ["mill weir"] == settled


def test_a_search_by_branch_shows_the_source_of_that_branch(catalog: Catalog):
    first = put(catalog, "/a.md", page("mill wheel", "mill gate"))
    put_beside(catalog, first, page("mill wheel", "mill weir"))

    assert [("wip", "mill weir"), ("wip", "mill wheel")] == shown(catalog, "mill", "wip")
    assert [("main", "mill gate"), ("main", "mill wheel")] == shown(catalog, "mill", "main")
    every = [("main", "mill gate"), ("main", "mill wheel"), ("wip", "mill weir")]
    assert every == shown(catalog, "mill", None)
    with catalog.snapshot() as snapshot:
        (wheel,) = [hit.content_id for hit in snapshot.keyword("wheel", Filters(tenant_id="acme"))]
        assert {wheel} == snapshot.visible(Filters(tenant_id="acme", branch="wip"), [wheel])
        assert set() == snapshot.visible(Filters(tenant_id="acme", branch="other"), [wheel])


def test_texts_stay_until_the_last_branch_has_left_them(catalog: Catalog):
    first = put(catalog, "/a.md", page("mill wheel", "mill gate"))
    second = put_beside(catalog, first, page("mill wheel"), now=at(1))
    put(catalog, "/a.md", page("something else"), asked_at=at(2), now=at(2))
    sweep(catalog, at(3))

    assert [("wip", "mill wheel")] == shown(catalog, "mill", None)
    assert ["mill wheel"] == list(texts_of(catalog, second))
    put(catalog, "/a.md", page("nothing"), place=WIP, asked_at=at(4), now=at(4))
    sweep(catalog, at(5))
    assert [] == shown(catalog, "mill", None)
    assert [] == catalog.audit()


def test_an_edit_taken_over_by_another_branch_shares_its_texts(catalog: Catalog):
    first = put(catalog, "/a.md", page("mill wheel"))
    put_beside(catalog, first, page("mill weir"), now=at(1))
    merged = put(catalog, "/a.md", page("mill weir", vector=None), asked_at=at(2), now=at(2))

    assert 1 == merged.kept
    assert [] == take(catalog, Phase.VECTOR, now=at(2))
    assert [("main", "mill weir")] == shown(catalog, "mill", "main")
    sweep(catalog, at(3))
    assert [] == catalog.audit()


def test_each_of_several_equal_texts_is_one_of_the_other_branch(catalog: Catalog):
    first = put(catalog, "/a.md", page("mill", "mill", "gate"))
    second = put_beside(catalog, first, page("gate", "mill", "mill", "mill"))

    assert (4, 3) == (second.chunks, second.kept)
    assert second.document_id is not None
    with catalog.snapshot() as snapshot:
        (only,) = snapshot.pages(second.document_id)
        assert 4 == len({one.content_id for one in snapshot.chunks(only.page_id)})


def test_vectors_of_a_family_are_cached_once_and_follow_every_branch(catalog: Catalog):
    first = put(catalog, "/a.md", page("mill wheel", "mill gate"))
    cache = VectorCache()
    here = texts_of(catalog, first)
    assert sorted(here.values()) == nearest(catalog, cache)

    second = put_beside(catalog, first, page("mill wheel", "mill weir"), now=at(1))
    there = texts_of(catalog, second)
    assert sorted({*here.values(), *there.values()}) == nearest(catalog, cache)
    assert sorted(there.values()) == nearest(catalog, cache, "wip")
    put(catalog, "/a.md", page("something else"), asked_at=at(2), now=at(2))
    sweep(catalog, at(3))
    assert sorted(there.values()) == nearest(catalog, cache, "wip")
    assert nearest(catalog, VectorCache()) == nearest(catalog, cache)


def test_entities_found_in_one_branch_serve_the_other(catalog: Catalog):
    first = put(catalog, "/a.md", page("mill wheel"), graph=True)
    settle(catalog, [completed_graph(task, 3, 2) for task in take(catalog, Phase.GRAPHRAG)])

    put_beside(catalog, first, page("mill wheel"), graph=True, now=at(1))

    assert [] == take(catalog, Phase.GRAPHRAG, now=at(1))
    put(catalog, "/a.md", page("something else"), asked_at=at(2), now=at(2))
    sweep(catalog, at(3))
    assert [] == catalog.audit()


def test_a_family_has_one_source_in_a_branch(catalog: Catalog):
    first = put(catalog, "/a.md", page("mill wheel"))
    put_beside(catalog, first, page("mill wheel"))
    other = put(catalog, "/b.md", page("mill wheel"), place=WIP, related_id=first.source_id)
    elsewhere = put(catalog, "/a.md", page("mill wheel"), place=OLD, related_id=first.source_id)

    assert (0, 1) == (other.kept, elsewhere.kept)
    assert [("wip", "mill wheel")] * 2 == shown(catalog, "mill", "wip")


def test_a_source_of_another_tenant_or_none_is_not_shared(catalog: Catalog):
    first = put(catalog, "/a.md", page("mill wheel"))
    away = Place("rival", "docs", "wip")

    assert 0 == put_beside(catalog, first, page("mill wheel"), place=away).kept
    assert 0 == put_beside(catalog, first, page("mill wheel"), related_id="unknown").kept


@pytest.mark.parametrize("rounds", [5, pytest.param(100, marks=pytest.mark.long)])
def test_a_sweep_beside_a_new_branch_loses_no_text(catalog: Catalog, rounds: int):
    for number in range(rounds):
        place, beside = Place("acme", f"c{number}", "main"), Place("acme", f"c{number}", "wip")
        first = put(catalog, "/a.md", page("mill wheel"), place=place)
        new = generation("/a.md", page("mill wheel"), place=beside, related_id=first.source_id)

        def edit(place: Place = place) -> None:
            put(catalog, "/a.md", page("edited"), place=place, asked_at=at(1), now=at(1))
            sweep(catalog, at(1))

        tasks = [threading.Thread(target=edit), threading.Thread(target=catalog.store, args=([new],))]
        for task in tasks:
            task.start()
        for task in tasks:
            task.join(60)
            assert not task.is_alive()
        with catalog.snapshot() as snapshot:
            filters = Filters(tenant_id="acme", collection=place.collection, branch="wip")
            assert 1 == len(snapshot.keyword("wheel", filters))
    assert [] == catalog.audit()
