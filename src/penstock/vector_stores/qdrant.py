"""Qdrant, by its official client: a server, or the engine inside the client, which works in a folder."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.vector_stores.client_store import SOURCE, TENANT, ClientStore, other_dimension
from penstock.vector_stores.protocol import (
    EVERY_POINT,
    NearPoint,
    Point,
    PointFilter,
    VectorStoreUrl,
    dimension_of,
)

if TYPE_CHECKING:
    from qdrant_client import QdrantClient, models

SCROLLED = 10_000
"""Points read in one call when all are listed."""


class QdrantStore(ClientStore["QdrantClient"]):
    """Points in Qdrant. Each carries its tenant and source, both indexed."""

    def __init__(self, url: VectorStoreUrl, timeout_s: float) -> None:
        super().__init__(url, timeout_s)
        self._known: dict[str, int] = {}
        """Dimensions of collections that are there."""

    def _open_folder(self, folder: str) -> QdrantClient:
        from qdrant_client import QdrantClient

        return QdrantClient(path=folder)

    def _connect(self) -> QdrantClient:
        from qdrant_client import QdrantClient

        host, port, tls = self._url.server()
        with warnings.catch_warnings():
            # A key without TLS: the user's choice, such as on a private network.
            warnings.simplefilter("ignore")
            return QdrantClient(
                host=host,
                port=port,
                https=tls,
                api_key=self._url.key,
                timeout=max(1, round(self._timeout_s)),
                check_compatibility=False,
            )

    def _close(self, client: QdrantClient) -> None:
        client.close()

    def _status(self, error: Exception) -> int | None:
        from qdrant_client.http.exceptions import UnexpectedResponse

        return error.status_code if isinstance(error, UnexpectedResponse) else None

    def upsert(self, collection: str, points: Sequence[Point]) -> None:
        if not points:
            return
        from qdrant_client import models

        dimension = dimension_of(points)
        with self._client() as client:
            self._make(client, collection, dimension)
            made = [
                models.PointStruct(
                    id=point.content_id,
                    vector=np.frombuffer(point.vector, "<f4").tolist(),
                    payload={TENANT: point.tenant_id, SOURCE: point.source_key},
                )
                for point in points
            ]
            try:
                client.upsert(collection, made, wait=True)
            except Exception:
                # It may have been deleted; the next call makes it again.
                self._known.pop(collection, None)
                raise

    def _make(self, client: QdrantClient, collection: str, dimension: int) -> None:
        """Make the collection if it is not there; refuse one of another dimension."""
        if self._known.get(collection) == dimension:
            return
        from qdrant_client import models

        if not client.collection_exists(collection):
            try:
                client.create_collection(
                    collection,
                    vectors_config=models.VectorParams(size=dimension, distance=models.Distance.DOT),
                )
            except Exception:
                # Another process may have made it meanwhile.
                if not client.collection_exists(collection):
                    raise
            if not self._url.is_local:
                keyword, integer = models.PayloadSchemaType.KEYWORD, models.PayloadSchemaType.INTEGER
                client.create_payload_index(collection, TENANT, keyword)
                client.create_payload_index(collection, SOURCE, integer)
        there = getattr(client.get_collection(collection).config.params.vectors, "size", None)
        if there != dimension:
            raise other_dimension(self._url, collection, there, dimension)
        self._known[collection] = dimension

    def search(
        self, collection: str, query: Sequence[float], *, limit: int, where: PointFilter
    ) -> list[NearPoint] | None:
        with self._client() as client:
            if not self._there(client, collection):
                return None
            found = client.query_points(
                collection,
                query=list(query),
                limit=limit,
                query_filter=_condition(where),
                with_payload=[SOURCE],
            )
            return [
                NearPoint(int(point.id), int((point.payload or {})[SOURCE]), point.score)
                for point in found.points
            ]

    def delete(self, collection: str, content_ids: Sequence[int]) -> None:
        from qdrant_client import models

        self._delete(collection, models.PointIdsList(points=list(content_ids)))

    def delete_where(self, collection: str, where: PointFilter) -> None:
        from qdrant_client import models

        self._delete(collection, models.FilterSelector(filter=_condition(where) or models.Filter()))

    def _delete(self, collection: str, selector: Any) -> None:
        with self._client() as client:
            if self._there(client, collection):
                client.delete(collection, points_selector=selector, wait=True)

    def _there(self, client: QdrantClient, collection: str) -> bool:
        there: bool = client.collection_exists(collection)
        if not there:
            self._known.pop(collection, None)
        return there

    def count(self, collection: str, where: PointFilter = EVERY_POINT) -> int:
        with self._client() as client:
            if not self._there(client, collection):
                return 0
            return int(client.count(collection, count_filter=_condition(where), exact=True).count)

    def ids(self, collection: str) -> set[int]:
        with self._client() as client:
            found: set[int] = set()
            offset: Any = None
            if not self._there(client, collection):
                return found
            while True:
                points, offset = client.scroll(
                    collection, limit=SCROLLED, offset=offset, with_payload=False, with_vectors=False
                )
                found.update(int(point.id) for point in points)
                if offset is None:
                    return found

    def present(self, collection: str, content_ids: Collection[int]) -> set[int]:
        with self._client() as client:
            if not self._there(client, collection):
                return set()
            found = client.retrieve(collection, list(content_ids), with_payload=False, with_vectors=False)
            return {int(point.id) for point in found}

    def collections(self, prefix: str) -> list[str]:
        with self._client() as client:
            names = [one.name for one in client.get_collections().collections]
            return sorted(name for name in names if name.startswith(prefix))

    def drop(self, collection: str) -> None:
        with self._client() as client:
            client.delete_collection(collection)
        self._known.pop(collection, None)

    def check(self) -> str:
        with self._client() as client:
            client.get_collections()
            if self._url.is_local:
                from importlib.metadata import version

                return f"the engine of qdrant-client {version('qdrant-client')}"
            return f"Qdrant {client.info().version}"


def _condition(where: PointFilter) -> models.Filter | None:
    from qdrant_client import models

    must: list[models.Condition] = []
    if where.tenant_id is not None:
        must.append(models.FieldCondition(key=TENANT, match=models.MatchValue(value=where.tenant_id)))
    if where.sources is not None:
        must.append(models.FieldCondition(key=SOURCE, match=models.MatchAny(any=sorted(where.sources))))
    return models.Filter(must=must) if must else None
