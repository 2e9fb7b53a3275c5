"""Chroma, by its official client: a server, or the embedded engine, which works in a folder."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.vector_stores.client_store import SOURCE, TENANT, ClientStore, other_dimension
from penstock.vector_stores.protocol import EVERY_POINT, NearPoint, Point, PointFilter, dimension_of

if TYPE_CHECKING:
    from chromadb.api import ClientAPI
    from chromadb.api.models.Collection import Collection as Points

_DIMENSION = "dimension"
LISTED = 5_000
"""Points or collections read in one call."""
_EF_SEARCH = 400
"""Candidates of the approximate index: four times the default, which misses some of a hundred nearest."""


class ChromaStore(ClientStore["ClientAPI"]):
    """Points in Chroma. The dimension of a collection is in its metadata, and its distance is 1 - score."""

    def _open_folder(self, folder: str) -> ClientAPI:
        import chromadb
        from chromadb.config import Settings

        return chromadb.PersistentClient(folder, settings=Settings(anonymized_telemetry=False))

    def _connect(self) -> ClientAPI:
        from chromadb.config import Settings

        host, port, tls = self._url.server()
        settings = Settings(
            anonymized_telemetry=False,
            chroma_api_impl="chromadb.api.fastapi.FastAPI",
            chroma_server_host=host,
            chroma_server_http_port=port,
            chroma_server_ssl_enabled=tls,
            chroma_server_headers={"Authorization": f"Bearer {self._url.key}"} if self._url.key else {},
        )
        return _timed_client(settings, self._timeout_s)

    def _close(self, client: ClientAPI) -> None:
        if client is self._connected:
            # The client leaves its connections open.
            self._connected._server._session.close()
        client.close()

    def _status(self, error: Exception) -> int | None:
        from chromadb.errors import ChromaError

        code: object = error.code() if isinstance(error, ChromaError) else None
        return code if isinstance(code, int) and code >= 400 else None

    def upsert(self, collection: str, points: Sequence[Point]) -> None:
        if not points:
            return
        dimension = dimension_of(points)
        with self._client() as client:
            there = client.get_or_create_collection(
                collection,
                configuration={"hnsw": {"space": "ip", "ef_search": _EF_SEARCH}},
                metadata={_DIMENSION: dimension},
                embedding_function=None,
            )
            known = (there.metadata or {}).get(_DIMENSION)
            if known != dimension:
                raise other_dimension(self._url, collection, known, dimension)
            there.upsert(
                ids=[str(point.content_id) for point in points],
                embeddings=[np.frombuffer(point.vector, "<f4") for point in points],
                metadatas=[{TENANT: point.tenant_id, SOURCE: point.source_key} for point in points],
            )

    def search(
        self, collection: str, query: Sequence[float], *, limit: int, where: PointFilter
    ) -> list[NearPoint] | None:
        with self._client() as client:
            there = _find(client, collection)
            if there is None:
                return None
            found: Any = there.query(
                query_embeddings=[np.asarray(query, np.float32)],
                n_results=limit,
                where=_condition(where),
                include=["distances", "metadatas"],
            )
            return [
                NearPoint(int(number), int(metadata[SOURCE]), 1.0 - float(distance))
                for number, metadata, distance in zip(
                    found["ids"][0], found["metadatas"][0], found["distances"][0], strict=True
                )
            ]

    def delete(self, collection: str, content_ids: Sequence[int]) -> None:
        with self._client() as client:
            there = _find(client, collection)
            if there is not None and content_ids:
                there.delete(ids=[str(number) for number in content_ids])

    def delete_where(self, collection: str, where: PointFilter) -> None:
        with self._client() as client:
            there = _find(client, collection)
            if there is not None:
                there.delete(where=_condition(where))

    def count(self, collection: str, where: PointFilter = EVERY_POINT) -> int:
        with self._client() as client:
            there = _find(client, collection)
            if there is None:
                return 0
            if where == EVERY_POINT:
                return int(there.count())
            return sum(len(page) for page in _pages(there, where))

    def ids(self, collection: str) -> set[int]:
        with self._client() as client:
            there = _find(client, collection)
            pages = _pages(there, PointFilter()) if there is not None else ()
            return {int(number) for page in pages for number in page}

    def present(self, collection: str, content_ids: Collection[int]) -> set[int]:
        with self._client() as client:
            there = _find(client, collection)
            if there is None or not content_ids:
                return set()
            return {int(number) for number in there.get(ids=list(map(str, content_ids)), include=[])["ids"]}

    def collections(self, prefix: str) -> list[str]:
        with self._client() as client:
            names: list[str] = []
            while page := client.list_collections(limit=LISTED, offset=len(names)):
                names += [one.name for one in page]
            return sorted(name for name in names if name.startswith(prefix))

    def drop(self, collection: str) -> None:
        from chromadb.errors import NotFoundError

        with self._client() as client, suppress(NotFoundError):
            client.delete_collection(collection)

    def check(self) -> str:
        with self._client() as client:
            return f"Chroma {client.get_version()}"


def _timed_client(settings: Any, timeout_s: float) -> ClientAPI:
    """Make a client with timeouts: by default the client waits for ever, from the constructor on."""
    from chromadb.api.client import Client

    class TimedClient(Client):  # type: ignore[misc]
        def get_user_identity(self) -> Any:
            self._server._session.timeout = timeout_s
            return super().get_user_identity()

        def _validate_tenant_database(self, tenant: str, database: str) -> None:
            """Skip a request sent over another connection without a timeout."""

    return TimedClient(settings=settings)


def _find(client: ClientAPI, collection: str) -> Points | None:
    from chromadb.errors import NotFoundError

    try:
        return client.get_collection(collection, embedding_function=None)
    except NotFoundError:
        return None


def _pages(there: Points, where: PointFilter) -> Iterator[list[str]]:
    read = 0
    while page := there.get(limit=LISTED, offset=read, where=_condition(where), include=[])["ids"]:
        yield page
        read += len(page)


def _condition(where: PointFilter) -> Any:
    conditions: list[dict[str, Any]] = []
    if where.tenant_id is not None:
        conditions.append({TENANT: where.tenant_id})
    if where.sources is not None:
        conditions.append({SOURCE: {"$in": sorted(where.sources)}})
    return {"$and": conditions} if len(conditions) > 1 else next(iter(conditions), None)
