"""Contract of a graph store outside the catalog: what was found in each text, written as a whole.

A store has the copies of many catalogs, each identified by the ``catalog_id`` of a call. Texts and
entities have the numbers of the catalog, which are never used twice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Protocol
from urllib.parse import SplitResult, unquote, urlsplit

import msgspec

from penstock.catalog.graph import (
    StoredEntity,
    StoredRelation,
    TextGraph,
)
from penstock.config import GRAPH_STORE_SCHEMES
from penstock.errors import InvalidSetting
from penstock.store_url import ENCODE_PASSWORD, StoreUrl

SERVICE = "graph store"
"""Name of the service in messages and circuit breakers."""


class FoundMention(msgspec.Struct, frozen=True):
    """An entity in a text of the store."""

    entity_id: int
    name: str
    kind: str
    content_id: int
    occurrences: int


class FoundRelation(msgspec.Struct, frozen=True, order=True):
    """A relation in a text of the store."""

    source: int
    target: int
    kind: str
    content_id: int
    weight: float


class CopiedText(msgspec.Struct, frozen=True):
    """The entities and relations of one text in a store."""

    content_id: int
    entities: frozenset[StoredEntity]
    relations: frozenset[StoredRelation]


class GraphCopy(Protocol):
    """A store. Every call raises ServiceUnavailable while it is down or refuses the settings."""

    @property
    def address(self) -> str:
        """The URL of the store, without password."""
        ...

    def prepare(self) -> None:
        """Create constraints and indexes, where they are missing. Fails if the store cannot be used."""

    def ping(self) -> None:
        """Ask for an answer."""

    def write(self, catalog_id: str, texts: Sequence[TextGraph]) -> None:
        """Replace the stored graphs of these texts, except later versions.

        Entities that no text mentions any more are removed.
        """

    def remove(self, catalog_id: str, content_ids: Collection[int]) -> None:
        """Remove texts, and the entities that no other text mentions."""

    def clear(self, catalog_id: str) -> None:
        """Remove everything of a catalog from the store."""

    def texts(self, catalog_id: str) -> Iterator[CopiedText]:
        """All texts in the order of their numbers."""

    def text_ids(self, catalog_id: str, after: int, limit: int) -> list[int]:
        """The numbers of the next texts after a number, in order."""

    def present(self, catalog_id: str, content_ids: Collection[int]) -> set[int]:
        """The texts present in the store, out of the given ones."""

    def idle_entities(self, catalog_id: str) -> int:
        """Number of entities that no text mentions."""

    def drop_idle(self, catalog_id: str) -> None:
        """Remove entities that no text mentions."""

    def named(self, catalog_id: str, tenant_id: str, name_key: str, short_key: str) -> list[FoundMention]:
        """The mentions of entities with one of these keys."""

    def mentions(
        self, catalog_id: str, tenant_id: str, entity_ids: Collection[int]
    ) -> list[FoundMention]: ...

    def relations(self, catalog_id: str, tenant_id: str, entity_ids: Collection[int]) -> list[FoundRelation]:
        """The relations that begin or end at some entities."""

    def all_mentions(self, catalog_id: str, tenant_id: str) -> Iterator[FoundMention]: ...

    def all_relations(self, catalog_id: str, tenant_id: str) -> Iterator[FoundRelation]: ...

    def close(self) -> None: ...


SETTING = "PENSTOCK_GRAPH_STORE"
_REMEDY = f"Set {SETTING} to neo4j://USER:PASSWORD@HOST:7687/DATABASE, or neo4j+s:// for TLS."


class GraphStoreUrl(msgspec.Struct, frozen=True):
    """The address of a graph store, such as ``neo4j://USER:PASSWORD@HOST:PORT/DATABASE``.

    ``text`` may hold a password, ``masked`` does not.
    """

    text: str

    def __repr__(self) -> str:
        return "GraphStoreUrl()"

    @property
    def masked(self) -> str:
        return StoreUrl(self.text).masked

    @property
    def server(self) -> str:
        """The URL for the driver: scheme, host and port."""
        parts = self._parts()
        return f"{parts.scheme}://{_bracketed(parts.hostname or '')}:{parts.port or 7687}"

    @property
    def account(self) -> tuple[str, str] | None:
        """User and password; None: the server asks for none."""
        parts = self._parts()
        if parts.username is None:
            return None
        return unquote(parts.username), unquote(parts.password or "")

    @property
    def database(self) -> str | None:
        """The database on the server; None: its default one."""
        return unquote(self._parts().path.strip("/")) or None

    def mask_in(self, text: str) -> str:
        """Remove the password from a text such as a driver's error message."""
        return StoreUrl(self.text).mask_in(text)

    def _parts(self) -> SplitResult:
        try:
            parts = urlsplit(self.text)
            _ = parts.port
        except ValueError:
            raise InvalidSetting(
                f"{self.masked[:100]} is not a URL that can be read", remedy=ENCODE_PASSWORD
            ) from None
        if parts.scheme not in GRAPH_STORE_SCHEMES or not parts.hostname:
            raise InvalidSetting(f"{self.masked[:100]} is not the URL of a graph store", remedy=_REMEDY)
        return parts


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
