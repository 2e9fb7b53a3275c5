"""Vector search in an outside store, with the catalog's vectors as the fallback."""

from __future__ import annotations

import threading
from collections.abc import Collection
from typing import TYPE_CHECKING

from penstock.catalog.parts import OutsideStore
from penstock.catalog.protocol import Catalog
from penstock.catalog.values import Filters
from penstock.errors import ServiceUnavailable
from penstock.pipeline.endpoint import ServiceGuard
from penstock.pipeline.vectors.protocol import NearestVectors, NearVector, PublishedChunks
from penstock.vector_stores.protocol import SERVICE, PointFilter, VectorStore, collection_name

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

MOST_SOURCES = 256
"""Sources named in one call; more are compared with the hits afterwards."""
SPARE = 20
WIDER = 4
MOST = 20_000
"""Points asked for at most, when the first ones were of documents that are not published or not asked for."""
FILL = "A worker copies them from the catalog; `penstock verify --fix` does it at once."


class StoreSearch:
    """Search in a vector store. ``own``: the search in the catalog's vectors."""

    def __init__(
        self, catalog: Catalog, own: NearestVectors, store: VectorStore, guard: ServiceGuard
    ) -> None:
        self._catalog = catalog
        self._own = own
        self._store = store
        self._guard = guard
        self._turn = threading.Lock()
        self._notice: str | None = None

    def notice(self) -> str | None:
        return self._notice

    def nearest(
        self,
        snapshot: PublishedChunks,
        tenant_id: str,
        space: str,
        query: npt.NDArray[np.float32],
        *,
        limit: int,
        allowed: Collection[int] | None = None,
    ) -> list[NearVector]:
        attached = self._catalog.outside.attached(OutsideStore.VECTOR)
        if attached is None or attached.address != self._store.address or not attached.filled:
            progress = self._catalog.outside.fill_progress(OutsideStore.VECTOR)
            ours = progress is not None and progress.address == self._store.address
            part = f" (about {progress.percent} %)" if progress is not None and ours else ""
            why = f"the vector store {self._store.address} does not hold all vectors{part}. {FILL}"
            return self._instead(why, snapshot, tenant_id, space, query, limit, allowed)
        asking = _Asking(snapshot, tenant_id, None if allowed is None else frozenset(allowed), limit)
        collection = collection_name(attached.catalog_id, space)
        try:
            with self._turn, self._guard.calling(SERVICE):
                found = asking.ask(self._store, collection, query.tolist())
        except ServiceUnavailable as error:
            self._guard.delay(error)
            why = f"{error.message}. {error.remedy}"
            return self._instead(why, snapshot, tenant_id, space, query, limit, allowed)
        if found is None:
            why = f"the vector store {self._store.address} has lost its collection {collection}. {FILL}"
            return self._instead(why, snapshot, tenant_id, space, query, limit, allowed)
        self._notice = None
        return found

    def _instead(
        self,
        why: str,
        snapshot: PublishedChunks,
        tenant_id: str,
        space: str,
        query: npt.NDArray[np.float32],
        limit: int,
        allowed: Collection[int] | None,
    ) -> list[NearVector]:
        self._notice = f"the catalog's own vectors were searched: {why}"
        return self._own.nearest(snapshot, tenant_id, space, query, limit=limit, allowed=allowed)


class _Asking:
    """One search: more points are read from the store until there are enough published chunks."""

    def __init__(
        self, snapshot: PublishedChunks, tenant_id: str, allowed: frozenset[int] | None, limit: int
    ) -> None:
        self._snapshot = snapshot
        self._filters = Filters(tenant_id=tenant_id)
        self._allowed = allowed
        self._limit = limit

    def ask(self, store: VectorStore, collection: str, query: list[float]) -> list[NearVector] | None:
        if self._allowed is not None and not self._allowed:
            return []
        few = self._allowed is not None and len(self._allowed) <= MOST_SOURCES
        where = PointFilter(self._filters.tenant_id, self._allowed if few else None)
        wanted = self._limit + SPARE
        while True:
            points = store.search(collection, query, limit=wanted, where=where)
            if points is None:
                return None
            near = [
                NearVector(point.content_id, point.score)
                for point in points
                # A vector of zeros is near nothing.
                if point.score != 0 and (self._allowed is None or point.source_key in self._allowed)
            ]
            published = self._snapshot.visible(self._filters, [one.content_id for one in near])
            near = [one for one in near if one.content_id in published]
            dry = len(points) < wanted or wanted >= MOST
            if len(near) >= self._limit or dry:
                return sorted(near, key=lambda one: (-one.score, one.content_id))[: self._limit]
            wanted = min(wanted * WIDER, MOST)
