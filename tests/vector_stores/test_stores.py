"""The contract of vector stores on every store, and what is special about some."""

from __future__ import annotations

import pytest

from penstock.testing.vector_stores import VectorStoreContract, near, point
from penstock.vector_stores.protocol import PointFilter, VectorStore, collection_name, prefix_of


class TestEveryStore(VectorStoreContract):
    """Each store of ``conftest.STORES``."""


def test_many_points_are_listed(store: VectorStore, collection: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("penstock.vector_stores.qdrant.SCROLLED", 30)
    monkeypatch.setattr("penstock.vector_stores.chroma.LISTED", 30)
    monkeypatch.setattr("penstock.vector_stores.pgvector.FETCHED", 30)
    store.upsert(collection, [point(number, [1.0]) for number in range(100)])
    assert set(range(100)) == store.ids(collection)
    assert 100 == store.count(collection, PointFilter("acme"))
    assert 70 == len(near(store, collection, PointFilter("acme"), limit=70))


def test_collections_of_catalogs_and_spaces_differ():
    names = {collection_name(catalog, space) for catalog in ("a" * 12, "b" * 12) for space in ("x", "y")}
    assert 4 == len(names)
    assert all(name.startswith((prefix_of("a" * 12), prefix_of("b" * 12))) for name in names)
