"""Contract of a vector store outside the catalog: points by collection, one collection per vector space.

A point is known by the number of its text, which the catalog never uses twice. Scores are inner products, as
in the catalog's own search. Every call may raise ``ServiceUnavailable``: the store is down, slow, refuses the
credentials, or has a collection of another kind. A call that failed may have had an effect; all can be
repeated.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Protocol
from urllib.parse import unquote, urlsplit

import msgspec

from penstock.config import VECTOR_STORE_SCHEMES
from penstock.errors import InvalidSetting, InvalidVector
from penstock.store_url import ENCODE_PASSWORD, StoreUrl

SERVICE = "vector store"
"""Name of the store in circuit breakers and messages."""
_PREFIX = "penstock"
_FLOAT32 = 4
AT_ONCE = 256
"""Points in one call."""


class Point(NamedTuple):
    """A text's vector (float32, little endian) with what filters compare: the tenant, and the source, or the
    family of sources in several branches that share the text."""

    content_id: int
    tenant_id: str
    source_key: int
    vector: bytes


class NearPoint(msgspec.Struct, frozen=True):
    """A point near a query."""

    content_id: int
    source_key: int
    score: float


class PointFilter(msgspec.Struct, frozen=True):
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
    return f"{_PREFIX}_{catalog_id}_"


def collection_name(catalog_id: str, space: str) -> str:
    """Name of the collection of a vector space; a valid name in every store."""
    return prefix_of(catalog_id) + hashlib.sha256(space.encode()).hexdigest()[:16]


def dimension_of(points: Sequence[Point]) -> int:
    """The common dimension of points, at least one."""
    lengths = {len(point.vector) for point in points}
    if len(lengths) != 1 or not lengths.isdisjoint({0}) or max(lengths) % _FLOAT32:
        raise InvalidVector(f"points of one call have vectors of {sorted(lengths)} bytes")
    return lengths.pop() // _FLOAT32


SETTING = "PENSTOCK_VECTOR_STORE"
_LOCAL = "+local"
TLS = "+https"
_PORTS: Final = {"qdrant": 6333, "chroma": 8000}


class VectorStoreUrl(msgspec.Struct, frozen=True):
    """The address of a vector store: a server, a folder of an embedded engine, or PostgreSQL.

    ``text`` may hold a password, ``masked`` does not.
    """

    text: str

    def __repr__(self) -> str:
        return "VectorStoreUrl()"

    @property
    def scheme(self) -> str:
        """The part before the colon; of the bare word ``pgvector`` the word."""
        return self.text.partition(":")[0]

    @property
    def engine(self) -> str:
        """``qdrant``, ``chroma`` or ``pgvector``."""
        engine = self.scheme.partition("+")[0]
        if self.scheme not in VECTOR_STORE_SCHEMES:
            raise InvalidSetting(f"{self.masked[:100]} is not the URL of a vector store", remedy=_REMEDY)
        return engine

    @property
    def is_local(self) -> bool:
        """True for a folder that an embedded engine works in."""
        return self.scheme.endswith(_LOCAL)

    @property
    def masked(self) -> str:
        """The URL with ``***`` in place of a password or key."""
        return f"{self.scheme}:{self.folder}" if self.is_local else StoreUrl(self.text).masked

    @property
    def folder(self) -> Path:
        """The absolute folder of an embedded engine."""
        name = self.text.partition(":")[2]
        if not name or name.startswith("//"):
            raise InvalidSetting(
                f"{self.text[:100]} names no folder", remedy=f"Write {self.scheme}:/srv/vectors."
            )
        return Path(name).expanduser().absolute()

    @property
    def key(self) -> str | None:
        """The password of the URL, sent as key or token."""
        password = urlsplit(self.text).password
        return unquote(password) if password else None

    def server(self) -> tuple[str, int, bool]:
        """Host and port of a server, and whether it speaks TLS."""
        parts = urlsplit(self.text)
        try:
            port = parts.port
        except ValueError:
            port = 0
        if not parts.hostname or port == 0 or parts.path.strip("/") or parts.query or parts.fragment:
            raise InvalidSetting(
                f"{self.masked[:100]}: expected a host, and a port at most",
                remedy=f"Write {self.scheme}://HOST:PORT, with a key ://:KEY@HOST:PORT. {ENCODE_PASSWORD}",
            )
        return parts.hostname, port or _PORTS[self.engine], self.scheme.endswith(TLS)

    def mask_in(self, text: str) -> str:
        """Remove the password from a text such as an error message of a client."""
        return text if self.is_local else StoreUrl(self.text).mask_in(text)


_REMEDY = (
    f"Set {SETTING} to default, qdrant://HOST:PORT, qdrant+local:FOLDER, chroma://HOST:PORT, "
    "chroma+local:FOLDER, pgvector, or pgvector://USER:PASSWORD@HOST/DATABASE."
)
