"""The suite of every vector store: each promise of the protocol, tested once, against the real thing.

Qdrant has no server to be had as a wheel: its client's own engine is used, and the server named by
``TEST_PENSTOCK_QDRANT_URL`` where there is one.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.vector_stores.protocol import VectorStore, VectorStoreUrl

QDRANT_SERVER = "TEST_PENSTOCK_QDRANT_URL"


def _qdrant(url: str) -> VectorStore:
    pytest.importorskip("qdrant_client")
    from penstock.vector_stores.qdrant import QdrantStore

    return QdrantStore(VectorStoreUrl(url), 20)


def _chroma(url: str) -> VectorStore:
    from penstock.vector_stores.chroma import ChromaStore

    return ChromaStore(VectorStoreUrl(url), 20)


def _qdrant_server(_: Path) -> VectorStore:
    if not os.environ.get(QDRANT_SERVER):
        pytest.skip(f"no wheel has a Qdrant server; {QDRANT_SERVER} names one")
    return _qdrant(os.environ[QDRANT_SERVER])


def _chroma_local(place: Path) -> VectorStore:
    pytest.importorskip("chromadb")
    return _chroma(f"chroma+local:{place}/chroma")


def _chroma_server(_: Path) -> VectorStore:
    pytest.importorskip("chromadb")
    from tests.servers import chroma

    return _chroma(chroma.shared_url())


def _pgvector(place: Path) -> VectorStore:
    from penstock.vector_stores.pgvector import PgvectorStore
    from tests.servers import postgres

    return PgvectorStore(VectorStoreUrl("pgvector"), postgres.store_at(place), 20)


STORES: dict[str, Callable[[Path], VectorStore]] = {
    "qdrant+local": lambda place: _qdrant(f"qdrant+local:{place}/qdrant"),
    "qdrant": _qdrant_server,
    "chroma+local": _chroma_local,
    "chroma": _chroma_server,
    "pgvector": _pgvector,
}


@pytest.fixture(params=STORES)
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], VectorStore]]:
    """Open the test's store; each call opens the same one again."""
    stores: list[VectorStore] = []

    def open_one() -> VectorStore:
        stores.append(STORES[request.param](tmp_path))
        return stores[-1]

    yield open_one
    for store in stores:
        store.close()


@pytest.fixture
def collection() -> str:
    """The name of a collection that no other test uses."""
    return f"penstock_{secrets.token_hex(6)}_{'0' * 16}"


@pytest.fixture
def store(opened: Callable[[], VectorStore], collection: str) -> Iterator[VectorStore]:
    store = opened()
    yield store
    store.drop(collection)
