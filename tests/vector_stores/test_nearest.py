"""Searches for the nearest vectors: the same hits from the catalog's own vectors and from every store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from penstock.catalog.parts import OutsideStore
from penstock.catalog.protocol import Catalog
from penstock.catalog.rules.identity import text_hash
from penstock.catalog.sql.sqlite import SqliteCatalog
from penstock.catalog.values import NewChunk, NewGeneration, NewPage, Place, Removal
from penstock.handlers.outside_stores import StoreComparison
from penstock.pipeline.vectors.cache import VectorCache
from penstock.pipeline.vectors.protocol import NearestVectors
from penstock.service.search import StoreSearch
from penstock.testing.vector_stores import DIMENSION
from penstock.vector_stores.protocol import VectorStore, prefix_of
from penstock.worker.executor import Breakers
from tests.catalog.conftest import T0, at
from tests.vector_stores.conftest import STORES

DOCUMENTS, CHUNKS = 12, 10
SPACE = "static"
DEFAULT = "default"


def vector(text: str) -> np.ndarray:
    """A vector of length 1 that belongs to a text."""
    made = np.random.default_rng(int(text_hash(text)[:8], 16)).normal(size=DIMENSION).astype("<f4")
    unit: np.ndarray = made / np.linalg.norm(made)
    return unit


def text(tenant: str, number: int, part: int) -> str:
    return f"{tenant} document {number} part {part}"


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    catalog = SqliteCatalog(tmp_path / "catalog.db", synchronous="NORMAL")
    for tenant in ("acme", "other"):
        catalog.store([document(tenant, number) for number in range(DOCUMENTS)], now=T0)
    yield catalog
    catalog.close()


def document(tenant: str, number: int) -> NewGeneration:
    texts = [text(tenant, number, part) for part in range(CHUNKS)]
    chunks = [
        NewChunk(text=one, text_hash=text_hash(one), start=0, end=len(one), vector=vector(one).tobytes())
        for one in texts
    ]
    return NewGeneration(
        place=Place(tenant, "docs"),
        path=f"/{number}.md",
        pages=(NewPage(number=1, chunks=tuple(chunks)),),
        content_hash=str(number),
        asked_at=T0,
        read_at=T0,
        space=SPACE,
    )


@pytest.fixture(params=[DEFAULT, *STORES])
def search(request: pytest.FixtureRequest, tmp_path: Path, catalog: Catalog) -> Iterator[NearestVectors]:
    own = VectorCache(None)
    if request.param == DEFAULT:
        yield own
        return
    open_store: Callable[[Path], VectorStore] = STORES[request.param]
    store = open_store(tmp_path)
    assert 2 * DOCUMENTS * CHUNKS == StoreComparison(catalog.outside, store).fix()
    yield StoreSearch(catalog, own, store, Breakers())
    attached = catalog.outside.attached(OutsideStore.VECTOR)
    assert attached is not None
    for collection in store.collections(prefix_of(attached.catalog_id)):
        store.drop(collection)
    store.close()


def found(
    catalog: Catalog, search: NearestVectors, query: np.ndarray, limit: int, allowed: list[int] | None = None
) -> list[tuple[str, float]]:
    with catalog.snapshot() as snapshot:
        near = search.nearest(snapshot, "acme", SPACE, query, limit=limit, allowed=allowed)
        views = snapshot.hydrate([one.content_id for one in near])
    assert search.notice() is None
    return [(view.text, one.score) for view, one in zip(views, near, strict=True) if view is not None]


def expected(query: np.ndarray, numbers: list[int], limit: int) -> list[tuple[str, float]]:
    """What a full scan finds."""
    texts = [text("acme", number, part) for number in numbers for part in range(CHUNKS)]
    scored = sorted(((float(vector(one) @ query), one) for one in texts), reverse=True)
    return [(one, score) for score, one in scored[:limit]]


def assert_alike(hits: list[tuple[str, float]], wanted: list[tuple[str, float]]) -> None:
    assert [one for one, _ in hits] == [one for one, _ in wanted]
    assert [score for _, score in hits] == pytest.approx([score for _, score in wanted], abs=1e-5)


def test_the_nearest_published_chunks_of_a_tenant(catalog: Catalog, search: NearestVectors):
    for part in range(3):
        query = vector(f"query {part}")
        everything = list(range(DOCUMENTS))
        assert_alike(found(catalog, search, query, 10), expected(query, everything, 10))
        # More than there are.
        assert_alike(found(catalog, search, query, 1000), expected(query, everything, 1000))


def test_only_chunks_of_the_documents_asked_for(
    catalog: Catalog, search: NearestVectors, monkeypatch: pytest.MonkeyPatch
):
    query = vector("a query")
    with catalog.snapshot() as snapshot:
        keys = {
            view.text: key
            for batch in snapshot.load("acme", SPACE)
            for number, key in zip(
                np.frombuffer(batch.content_ids, np.int64),
                np.frombuffer(batch.family_keys, np.int64),
                strict=True,
            )
            for view in snapshot.hydrate([int(number)])
            if view is not None
        }
    some = [int(keys[text("acme", number, 0)]) for number in (2, 5)]
    assert_alike(found(catalog, search, query, 5, some), expected(query, [2, 5], 5))
    assert [] == found(catalog, search, query, 5, [])
    # Too many to be named in one call.
    monkeypatch.setattr("penstock.service.search.MOST_SOURCES", 1)
    assert_alike(found(catalog, search, query, 5, some), expected(query, [2, 5], 5))


def test_removed_chunks_are_not_found_though_the_store_has_them(catalog: Catalog, search: NearestVectors):
    query = vector(text("acme", 3, 3))
    for number in (3, 4, 5):
        removal = Removal(
            tenant_id="acme",
            collection="docs",
            branch="main",
            path=f"/{number}.md",
            asked_at=at(9),
            below=False,
        )
        catalog.remove(removal, now=T0)
    left = [number for number in range(DOCUMENTS) if number not in (3, 4, 5)]
    assert_alike(found(catalog, search, query, 30), expected(query, left, 30))
