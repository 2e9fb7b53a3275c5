"""Protocol of the graph: entities found in chunks, and relations between them.

An entity belongs to a tenant and exists as long as a chunk mentions it. Mentions and relations belong to the
text of a chunk: generations of a source that share the text share them, and they go with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from penstock.catalog.entities import Extraction


class Mention(NamedTuple):
    """A chunk of a published document that an entity or a relation was found in."""

    source_id: str
    path: str
    page: int | None
    first_line: int | None
    chunk_id: str


class Node(NamedTuple):
    """An entity of the graph with the number of its occurrences in published documents."""

    id: int
    name: str
    kind: str
    occurrences: int


class Edge(NamedTuple):
    """All relations of one kind between two entities. ``weight``: the sum of their weights."""

    source: int
    target: int
    kind: str
    weight: float


class Neighbourhood(NamedTuple):
    """Nodes around an entity with their distance from it, and the edges between these nodes."""

    nodes: list[tuple[Node, int]]
    edges: list[Edge]


class GraphCounts(NamedTuple):
    """Numbers of entities and relations by kind, and of chunks with entities."""

    entities: dict[str, int]
    relations: dict[str, int]
    chunks: int


class GraphStore(Protocol):
    """The graph of a tenant. Reads see what is published; a stray row is never shown."""

    def put(self, tenant_id: str, extractions: Mapping[int, Extraction]) -> None:
        """Replace what is stored for texts, by content id. Nothing is stored for a text that is gone."""

    def remove(self, tenant_id: str, content_ids: Sequence[int]) -> None:
        """Remove what was found in texts, and the entities no other text mentions."""

    def find(self, tenant_id: str, name: str, *, kind: str | None = None, limit: int = 50) -> list[Node]:
        """The entities with this name, by ``name_key`` or ``short_key``; most mentioned first."""

    def mentions(self, tenant_id: str, entity_id: int, *, limit: int = 20) -> list[Mention]:
        """The chunks that mention an entity, in the order of their paths."""

    def neighbours(
        self, tenant_id: str, entity_ids: Sequence[int], *, hops: int = 1, limit: int = 50
    ) -> Neighbourhood:
        """The entities within some relations of these, in either direction; nearest and heaviest first."""

    def path(self, tenant_id: str, sources: Sequence[int], targets: Sequence[int]) -> list[Edge] | None:
        """The edges of a shortest path between two entities, in either direction; None: there is none."""

    def named(self, tenant_id: str, entity_ids: Iterable[int]) -> dict[int, Node]:
        """These entities by id."""

    def similar(self, tenant_id: str, name: str, *, limit: int = 5) -> list[Node]:
        """Entities with a name much like this one, the most alike first. Not all names are looked at."""

    def nodes(self, tenant_id: str) -> Iterator[tuple[Node, list[Mention]]]: ...

    def edges(self, tenant_id: str) -> Iterator[tuple[Edge, list[Mention]]]: ...

    def counts(self, tenant_id: str) -> GraphCounts: ...
