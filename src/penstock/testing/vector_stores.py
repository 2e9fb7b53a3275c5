"""Contract of a vector store outside the catalog."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

import msgspec
import numpy as np
import pytest

from penstock import clock
from penstock.errors import InvalidVector, ServiceUnavailable
from penstock.vector_stores.protocol import NearPoint, Point, PointFilter, VectorStore

DIMENSION = 8
QUERY = [1.0] + [0.0] * (DIMENSION - 1)
ALL = PointFilter()


def point(
    number: int,
    vector: Sequence[float] = (1.0,),
    tenant: str = "acme",
    source: int = 1,
    size: int = DIMENSION,
) -> Point:
    """A point whose vector begins with these numbers; the others are 0."""
    values = np.zeros(size, "<f4")
    values[: len(vector)] = vector
    return Point(number, tenant, source, values.tobytes())


def near(store: VectorStore, collection: str, where: PointFilter = ALL, limit: int = 10) -> list[int]:
    """Numbers of the points nearest to ``QUERY``, in a collection that must be there."""
    found = store.search(collection, QUERY, limit=limit, where=where)
    assert found is not None
    return [one.content_id for one in found]


class VectorStoreContract:
    """Promises of a vector store. A subclass has the fixture ``opened``: a function that opens the store of
    the test, each time the same one."""

    @pytest.fixture
    def collection(self) -> str:
        """The name of a collection that no other test uses."""
        return f"penstock_{clock.new_uuids(1)[0][-12:]}_{'0' * 16}"

    @pytest.fixture
    def store(self, opened: Callable[[], VectorStore], collection: str) -> Iterator[VectorStore]:
        store = opened()
        yield store
        store.drop(collection)

    def test_points_are_found_best_first_with_their_score(self, store: VectorStore, collection: str) -> None:
        store.upsert(
            collection, [point(1, [0.5]), point(2, [0.9], source=7), point(3, [0.1, 0.9]), point(4, [-1])]
        )
        found = store.search(collection, QUERY, limit=3, where=ALL)
        assert found is not None
        assert [NearPoint(2, 7, 0.9), NearPoint(1, 1, 0.5), NearPoint(3, 1, 0.1)] == [
            msgspec.structs.replace(one, score=round(one.score, 6)) for one in found
        ]

    def test_a_point_written_again_is_replaced(self, store: VectorStore, collection: str) -> None:
        store.upsert(collection, [point(1, [0.5]), point(2, [0.4])])
        store.upsert(collection, [point(1, [0.1], tenant="other", source=5)])
        assert near(store, collection) == [2, 1]
        assert near(store, collection, PointFilter("other")) == [1]
        assert store.count(collection) == 2

    def test_filters_of_tenant_and_sources(self, store: VectorStore, collection: str) -> None:
        store.upsert(
            collection,
            [
                point(1, [0.1], "acme", 1),
                point(2, [0.2], "acme", 2),
                point(3, [0.3], "acme", 3),
                point(4, [0.4], "other", 4),
            ],
        )
        assert near(store, collection, PointFilter("acme")) == [3, 2, 1]
        assert near(store, collection, PointFilter("acme", [1, 3, 4])) == [3, 1]
        assert near(store, collection, PointFilter(None, {2, 4})) == [4, 2]
        assert near(store, collection, PointFilter("nobody")) == []
        assert near(store, collection, PointFilter("acme", [9])) == []
        assert (
            store.count(collection, PointFilter("acme")),
            store.count(collection, PointFilter(None, [4])),
            store.count(collection),
        ) == (3, 1, 4)

    def test_points_are_deleted_by_number_document_and_tenant(
        self, store: VectorStore, collection: str
    ) -> None:
        points = [point(number, [0.1 * number], tenant, number) for number, tenant in enumerate("aabbcc", 1)]
        store.upsert(collection, points)
        store.delete(collection, [1, 99])
        assert {2, 3, 4, 5, 6} == store.ids(collection)
        store.delete_where(collection, PointFilter(None, [3]))
        assert {2, 4, 5, 6} == store.ids(collection)
        store.delete_where(collection, PointFilter("c"))
        assert {2, 4} == store.ids(collection)
        store.delete_where(collection, PointFilter("a", [4]))
        assert {2, 4} == store.ids(collection)

    def test_points_are_looked_for_by_number(self, store: VectorStore, collection: str) -> None:
        assert set() == store.present(collection, {1, 2})
        store.upsert(collection, [point(1), point(2, tenant="other"), point(3)])
        assert {1, 2} == store.present(collection, {1, 2, 4})
        assert set() == store.present(collection, set())

    def test_a_collection_that_is_not_there(self, store: VectorStore, collection: str) -> None:
        assert store.search(collection, QUERY, limit=3, where=ALL) is None
        assert (0, set(), []) == (
            store.count(collection),
            store.ids(collection),
            store.collections(collection),
        )
        store.delete(collection, [1])
        store.delete_where(collection, PointFilter("acme"))
        store.drop(collection)
        assert store.search(collection, QUERY, limit=3, where=ALL) is None

    def test_a_collection_dropped_elsewhere_is_made_again(
        self, opened: Callable[[], VectorStore], store: VectorStore, collection: str
    ) -> None:
        store.upsert(collection, [point(1)])
        other = opened()
        other.drop(collection)
        assert store.search(collection, QUERY, limit=3, where=ALL) is None
        store.upsert(collection, [point(2)])
        assert {2} == other.ids(collection)
        other.drop(collection)
        with suppress(ServiceUnavailable):
            store.upsert(collection, [point(3)])
        store.upsert(collection, [point(3)])
        assert {3} == other.ids(collection)

    def test_what_was_written_is_there_for_others(
        self, opened: Callable[[], VectorStore], store: VectorStore, collection: str
    ) -> None:
        store.upsert(collection, [point(2**40 + 1)])
        other = opened()
        assert {2**40 + 1} == other.ids(collection)
        assert [collection] == other.collections(collection[:-4])
        assert other.collections("penstock_x") == []
        assert store.check() == other.check()
        assert other.address == store.address

    def test_vectors_of_several_lengths_are_refused(self, store: VectorStore, collection: str) -> None:
        with pytest.raises(InvalidVector, match="32, 36"):
            store.upsert(collection, [point(1), point(2, size=DIMENSION + 1)])
        with pytest.raises(InvalidVector):
            store.upsert(collection, [point(1)._replace(vector=b"")])
        assert store.collections(collection) == []

    def test_a_collection_of_another_dimension_is_named(self, store: VectorStore, collection: str) -> None:
        store.upsert(collection, [point(1)])
        with pytest.raises(ServiceUnavailable) as refused:
            store.upsert(collection, [point(2, size=DIMENSION + 1)])
        assert f"{collection} in {store.address} holds vectors of 8 numbers, not 9" in refused.value.message
        assert "\n" not in refused.value.message
        assert "Delete that collection" in refused.value.remedy
        assert {1} == store.ids(collection)

    def test_the_nearest_are_those_of_a_full_scan(self, store: VectorStore, collection: str) -> None:
        generator = np.random.default_rng(7)
        vectors = generator.normal(size=(240, DIMENSION)).astype("<f4")
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        points = [
            point(number, vector.tolist(), f"t{number % 3}", number % 50)
            for number, vector in enumerate(vectors, 1)
        ]
        for start in range(0, len(points), 120):
            store.upsert(collection, points[start : start + 120])
        found = expected = 0
        for query in generator.normal(size=(20, DIMENSION)).astype(np.float32):
            mine = [number for number in range(1, 241) if number % 3 == 1]
            best = sorted(mine, key=lambda number: -float(vectors[number - 1] @ query))[:10]
            hits = store.search(collection, query.tolist(), limit=10, where=PointFilter("t1"))
            assert hits is not None
            for hit in hits:
                assert hit.score == pytest.approx(float(vectors[hit.content_id - 1] @ query), abs=1e-4)
            found += len({hit.content_id for hit in hits} & set(best))
            expected += 10
        assert found / expected >= 0.98
