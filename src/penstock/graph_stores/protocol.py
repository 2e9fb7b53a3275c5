"""Contract of a graph store outside the catalog: what was found in each text, written as a whole.

A store has the copies of many catalogs, each identified by the ``catalog_id`` of a call. Texts and
entities have the numbers of the catalog, which are never used twice.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Protocol
from urllib.parse import SplitResult, unquote, urlsplit

import msgspec

from penstock.catalog.graph import (
    Edge,
    GraphCounts,
    GraphReader,
    GraphTexts,
    Mention,
    Neighbourhood,
    Node,
    StoredEntity,
    StoredRelation,
    TextGraph,
)
from penstock.catalog.rules.graph import EDGES_AT_ONCE, heaviest, neighbourhood, shortest_path
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


# URLs of graph stores: ``neo4j://USER:PASSWORD@HOST:PORT/DATABASE`` and its relatives.


SETTING = "PENSTOCK_GRAPH_STORE"
_REMEDY = f"Set {SETTING} to neo4j://USER:PASSWORD@HOST:7687/DATABASE, or neo4j+s:// for TLS."


@dataclasses.dataclass(frozen=True, slots=True)
class GraphStoreUrl:
    """The address of a graph store. ``text`` may hold a password, ``masked`` does not."""

    text: str = dataclasses.field(repr=False)

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


# The graph of a tenant, read from a copy. The catalog says which texts are published.


NODES_AT_ONCE = 1_000


class CopyReader:
    """Reads a copy. The answers are those of the catalog's own tables."""

    def __init__(self, copy: GraphCopy, catalog_id: str, texts: GraphTexts, names: GraphReader) -> None:
        """``names``: the catalog's own graph, which suggests names."""
        self._names = names
        self._copy = copy
        self._catalog_id = catalog_id
        self._texts = texts

    def find(self, tenant_id: str, name: str, *, kind: str | None = None, limit: int = 50) -> list[Node]:
        asked = " ".join(name.split())
        found = self._copy.named(self._catalog_id, tenant_id, asked, asked.casefold())
        nodes = self._nodes(tenant_id, found)
        nodes.sort(key=lambda node: (-node.occurrences, node.name, node.kind))
        return [node for node in nodes[:NODES_AT_ONCE] if kind in (None, node.kind)][:limit]

    def mentions(self, tenant_id: str, entity_id: int, *, limit: int = 20) -> list[Mention]:
        found = self._copy.mentions(self._catalog_id, tenant_id, [entity_id])
        return self._texts.mentions(tenant_id, [one.content_id for one in found], limit)

    def neighbours(
        self, tenant_id: str, entity_ids: Sequence[int], *, hops: int = 1, limit: int = 50
    ) -> Neighbourhood:
        def nodes_of(ids: Collection[int]) -> list[Node]:
            return list(self.named(tenant_id, ids).values())

        return neighbourhood(
            entity_ids, lambda ids: self._edges(tenant_id, ids), nodes_of, hops=hops, limit=limit
        )

    def path(self, tenant_id: str, sources: Sequence[int], targets: Sequence[int]) -> list[Edge] | None:
        return shortest_path(sources, targets, lambda ids: self._edges(tenant_id, ids))

    def named(self, tenant_id: str, entity_ids: Iterable[int]) -> dict[int, Node]:
        found = self._copy.mentions(self._catalog_id, tenant_id, list(entity_ids))
        return {node.id: node for node in self._nodes(tenant_id, found)}

    def similar(self, tenant_id: str, name: str, *, limit: int = 5) -> list[Node]:
        return self._names.similar(tenant_id, name, limit=limit)

    def counts(self, tenant_id: str) -> GraphCounts:
        shown = self._texts.shown(tenant_id)
        entities = {
            (one.kind, one.entity_id)
            for one in self._copy.all_mentions(self._catalog_id, tenant_id)
            if one.content_id in shown
        }
        relations = {
            (one.kind, one.source, one.target)
            for one in self._copy.all_relations(self._catalog_id, tenant_id)
            if one.content_id in shown
        }
        return GraphCounts(
            _by_kind(kind for kind, _ in entities),
            _by_kind(kind for kind, _, _ in relations),
            self._texts.chunks(tenant_id),
        )

    def close(self) -> None:
        self._copy.close()

    def _nodes(self, tenant_id: str, found: Sequence[FoundMention]) -> list[Node]:
        """Entities with their occurrences in published chunks."""
        shown = self._texts.shown(tenant_id, list({one.content_id for one in found}))
        occurrences: Counter[tuple[int, str, str]] = Counter()
        for one in found:
            if one.content_id in shown:
                occurrences[one.entity_id, one.name, one.kind] += one.occurrences * shown[one.content_id]
        return [Node(*entity, count) for entity, count in occurrences.items()]

    def _edges(self, tenant_id: str, entity_ids: Collection[int]) -> list[Edge]:
        found: Sequence[FoundRelation] = self._copy.relations(self._catalog_id, tenant_id, entity_ids)
        shown = self._texts.shown(tenant_id, list({one.content_id for one in found}))
        weights: Counter[tuple[int, int, str]] = Counter()
        for one in sorted(found):
            if one.content_id in shown:
                weights[one.source, one.target, one.kind] += one.weight * shown[one.content_id]  # type: ignore[assignment]
        edges = [Edge(*ends, round(weight, 3)) for ends, weight in weights.items()]
        return sorted(edges, key=heaviest)[:EDGES_AT_ONCE]


def _by_kind(kinds: Iterable[str]) -> dict[str, int]:
    """Counts by kind, in the order of the catalog."""
    return dict(sorted(Counter(kinds).items(), key=lambda one: (-one[1], one[0])))
