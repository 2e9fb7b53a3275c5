"""Stores from settings. Nothing is connected, and no client imported, before the first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.config import NO_STORE, VECTOR_STORE_SCHEMES, Settings
from penstock.errors import DriverMissing, InvalidSetting
from penstock.extensions import ExtensionKind, find, install_remedy
from penstock.vector_stores.protocol import SETTING, VectorStoreUrl

if TYPE_CHECKING:
    from penstock.vector_stores.protocol import VectorStore

_EXTRAS = {
    "qdrant": ("qdrant", "qdrant_client"),
    "chroma": ("chroma", "chromadb"),
    "pgvector": ("postgres", "psycopg"),
}
"""Extra and module of the client of each engine."""


def open_vector_store(settings: Settings) -> VectorStore | None:
    """Make the store of the settings; None: the catalog itself is searched."""
    if settings.vector_store == NO_STORE:
        return None
    url = VectorStoreUrl(settings.vector_store)
    added = None if url.scheme in VECTOR_STORE_SCHEMES else find(ExtensionKind.VECTOR_STORE, url.scheme)
    if added is not None:
        store: VectorStore = added.call(settings.vector_store, settings.vector_store_timeout_s)
        return store
    _refuse_missing(url.engine)
    timeout_s = settings.vector_store_timeout_s
    if url.engine == "qdrant":
        from penstock.vector_stores.qdrant import QdrantStore

        return QdrantStore(url, timeout_s)
    if url.engine == "chroma":
        from penstock.vector_stores.chroma import ChromaStore

        return ChromaStore(url, timeout_s)
    from penstock.vector_stores.pgvector import PgvectorStore

    return PgvectorStore(url, _database(url, settings), timeout_s)


def _refuse_missing(engine: str) -> None:
    from importlib.util import find_spec

    extra, module = _EXTRAS[engine]
    if find_spec(module) is None:
        raise DriverMissing(
            f"the vector store {engine} needs the package {module}, which is not installed",
            remedy=install_remedy(extra),
        )


def _database(url: VectorStoreUrl, settings: Settings) -> str:
    """The URL of the PostgreSQL server: the one given, or the catalog's."""
    if url.text != url.engine:
        return url.text.replace(url.scheme, "postgresql", 1)
    if settings.catalog_store.engine != "postgres":
        raise InvalidSetting(
            f"{SETTING} is pgvector, but the catalog is not in PostgreSQL",
            remedy="Write pgvector://USER:PASSWORD@HOST/DATABASE, or move the catalog to PostgreSQL.",
        )
    return settings.catalog_store.text
