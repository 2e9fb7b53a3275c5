"""Contract of a vector store outside the catalog: points by collection, one collection per vector space.

A point is known by the number of its text, which the catalog never uses twice. Scores are inner products, as
in the catalog's own search. Every call may raise ``ServiceUnavailable``: the store is down, slow, refuses the
credentials, or has a collection of another kind. A call that failed may have had an effect; all can be
repeated.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from typing import Protocol

from penstock.errors import InvalidVector
from penstock.named_tuple import NamedTuple

SERVICE = "vector store"
"""Name of the store in circuit breakers and messages."""
PREFIX = "penstock"
FLOAT32 = 4
AT_ONCE = 256
"""Points in one call."""


class Point(NamedTuple):
    """A text's vector (float32, little endian) with what filters compare: the tenant, and the source, or the
    family of sources in several branches that share the text."""

    content_id: int
    tenant_id: str
    source_key: int
    vector: bytes


class NearPoint(NamedTuple):
    """A point near a query."""

    content_id: int
    source_key: int
    score: float


class PointFilter(NamedTuple):
    """Points of a tenant, of some sources, or of some sources of a tenant. None: of all."""

    tenant_id: str | None = None
    sources: Collection[int] | None = None


EVERY_POINT = PointFilter()


class VectorStore(Protocol):
    """A vector store. Not for several threads at once."""

    @property
    def address(self) -> str:
        """URL of the store without password, for messages."""

    def upsert(self, collection: str, points: Sequence[Point]) -> None:
        """Write points of one dimension, replacing those with the same number. The first call makes the
        collection. Raises ``InvalidVector`` for vectors of several lengths."""

    def search(
        self, collection: str, query: Sequence[float], *, limit: int, where: PointFilter
    ) -> list[NearPoint] | None:
        """The points nearest to a query, best first; None: there is no such collection."""

    def delete(self, collection: str, content_ids: Sequence[int]) -> None:
        """Delete points; missing points and collections are ignored."""

    def delete_where(self, collection: str, where: PointFilter) -> None:
        """Delete the points of a tenant or of sources."""

    def count(self, collection: str, where: PointFilter = EVERY_POINT) -> int: ...

    def ids(self, collection: str) -> set[int]:
        """Numbers of all points; empty if there is no such collection."""

    def present(self, collection: str, content_ids: Collection[int]) -> set[int]:
        """Numbers among ``content_ids`` with a point in the collection."""

    def collections(self, prefix: str) -> list[str]:
        """Names of the collections that begin like this."""

    def drop(self, collection: str) -> None:
        """Delete a collection, if there is one."""

    def check(self) -> str:
        """Name and version of the store; raises if it cannot be used."""

    def close(self) -> None: ...


def prefix_of(catalog_id: str) -> str:
    """Beginning of the names of a catalog's collections: several catalogs may share a server."""
    return f"{PREFIX}_{catalog_id}_"


def collection_name(catalog_id: str, space: str) -> str:
    """Name of the collection of a vector space; a valid name in every store."""
    return prefix_of(catalog_id) + hashlib.sha256(space.encode()).hexdigest()[:16]


def dimension_of(points: Sequence[Point]) -> int:
    """The common dimension of points, at least one."""
    lengths = {len(point.vector) for point in points}
    if len(lengths) != 1 or not lengths.isdisjoint({0}) or max(lengths) % FLOAT32:
        raise InvalidVector(f"points of one call have vectors of {sorted(lengths)} bytes")
    return lengths.pop() // FLOAT32
