"""Protocol of the graph: entities found in chunks, and relations between them.

An entity belongs to a tenant and exists as long as a chunk mentions it. Mentions and relations belong to the
text of a chunk: generations of a source that share the text share them, and they go with it.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from penstock.catalog.values import Filters


MODULE, CLASS, FUNCTION, METHOD = "module", "class", "function", "method"
CODE_KINDS = frozenset((MODULE, CLASS, FUNCTION, METHOD))
DOCUMENT, SECTION = "document", "section"
MAX_NAME = 300
"""Characters of a name. Of longer names the end is a checksum, so that no two become one."""


class Entity(msgspec.Struct, frozen=True):
    """An entity as written. Entities of a kind with equal ``name_key`` are the same."""

    name: str
    kind: str


class Relation(msgspec.Struct, frozen=True):
    """A relation between two entities of a chunk. ``weight``: greater is surer."""

    source: Entity
    kind: str
    target: Entity
    weight: float = 1.0


class Extraction(msgspec.Struct, frozen=True):
    """The entities of a chunk with the number of their occurrences, and the relations between them.

    The ends of a relation are among the entities; a target that stands elsewhere has no occurrences.
    """

    entities: Mapping[Entity, int]
    relations: Sequence[Relation]


def name_key(entity: Entity) -> str:
    """The name that identifies an entity in its kind. Only names in code and paths keep their case."""
    name = shortened(written(entity.name))
    return name if entity.kind in CODE_KINDS or entity.kind in (DOCUMENT, SECTION) else name.casefold()


def short_key(entity: Entity) -> str:
    """The name a person would ask for: the last part of a dotted name or a path, or the heading."""
    name = written(entity.name)
    if entity.kind == DOCUMENT or (entity.kind == MODULE and "/" in name):
        name = name.rpartition("/")[2]
    elif entity.kind in CODE_KINDS:
        name = name.rpartition(".")[2]
    elif entity.kind == SECTION:
        name = name.partition("#")[2]
    return shortened(name).casefold()


def written(name: str) -> str:
    """A name with single spaces and in one Unicode normal form: people cannot see the difference."""
    return " ".join((name if name.isascii() else unicodedata.normalize("NFC", name)).split())


def shortened(name: str) -> str:
    """A name, or the beginning of a long one with a checksum."""
    if len(name) <= MAX_NAME:
        return name
    checksum = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{name[: MAX_NAME - len(checksum) - 1]}~{checksum}"


class Node(msgspec.Struct, frozen=True, array_like=True):
    """An entity of the graph with the number of occurrences in published documents."""

    id: int
    name: str
    kind: str
    occurrences: int


class Edge(msgspec.Struct, frozen=True, array_like=True):
    """All relations of one kind between two entities. ``weight``: the sum of their weights."""

    source: int
    target: int
    kind: str
    weight: float


class Neighbourhood(msgspec.Struct, frozen=True, array_like=True):
    """Nodes around an entity with their distance from it, and the edges between these nodes."""

    nodes: list[tuple[Node, int]]
    edges: list[Edge]


class Mention(msgspec.Struct, frozen=True, array_like=True):
    """A published chunk mentioning an entity or a relation."""

    source_id: str
    path: str
    page: int | None
    first_line: int | None
    chunk_id: str


class GraphCounts(msgspec.Struct, frozen=True, array_like=True):
    """Numbers of entities and relations by kind, and of chunks with entities."""

    entities: dict[str, int]
    relations: dict[str, int]
    chunks: int


class StoredEntity(msgspec.Struct, frozen=True):
    """An entity in a text. ``occurrences`` is 0 where it is only the end of a relation."""

    id: int
    kind: str
    name_key: str
    short_key: str
    name: str
    occurrences: int = 0


class StoredRelation(msgspec.Struct, frozen=True):
    """A relation in a text. ``source`` and ``target`` are ids of entities of the text."""

    source: int
    target: int
    kind: str
    weight: float


class GraphRelation(msgspec.Struct, frozen=True):
    """A relation in a text, with the number of the text."""

    content_id: int
    source: int
    target: int
    kind: str


class TextGraph(msgspec.Struct, frozen=True):
    """All entities and relations of one text in the catalog. ``version`` grows with every change."""

    content_id: int
    tenant_id: str
    version: int
    entities: list[StoredEntity]
    relations: list[StoredRelation]


class GraphReads(Protocol):
    """Reads of the graph in a catalog snapshot. The results may include unpublished texts."""

    def has_graph(self, filters: Filters) -> bool:
        """Check whether entities were extracted from a published document that passes the filters."""

    def entities_called(self, tenant_id: str, names: Sequence[str], *, most: int) -> list[StoredEntity]:
        """Entities by their short names, in lower case; at most ``most`` for each."""

    def entities_by_id(self, entity_ids: Sequence[int]) -> list[StoredEntity]: ...

    def entities_in(self, content_ids: Sequence[int]) -> dict[int, list[int]]:
        """Entities defined or mentioned in these texts, the most frequent first."""

    def relations_at(self, entity_ids: Sequence[int], *, most: int) -> dict[int, list[GraphRelation]]:
        """Relations from and to each of these entities, at most ``most`` in each direction."""

    def chunks_of(self, entity_ids: Sequence[int], *, most: int) -> dict[int, list[int]]:
        """The first texts defining or mentioning each entity."""


class GraphReader(Protocol):
    """Read access to the graph of a tenant: published entities and relations only, never stray rows."""

    def find(self, tenant_id: str, name: str, *, kind: str | None = None, limit: int = 50) -> list[Node]:
        """The entities with this name, by ``name_key`` or ``short_key``; most mentioned first."""

    def mentions(self, tenant_id: str, entity_id: int, *, limit: int = 20) -> list[Mention]:
        """The chunks that mention an entity, in the order of their paths."""

    def neighbours(
        self, tenant_id: str, entity_ids: Sequence[int], *, hops: int = 1, limit: int = 50
    ) -> Neighbourhood:
        """The entities within some relations of these, in either direction; nearest and heaviest first."""

    def path(self, tenant_id: str, sources: Sequence[int], targets: Sequence[int]) -> list[Edge] | None:
        """Find a shortest path between two groups of entities, along relations in either direction.

        None: there is none."""

    def named(self, tenant_id: str, entity_ids: Iterable[int]) -> dict[int, Node]:
        """Entities by id, of the given ids."""

    def similar(self, tenant_id: str, name: str, *, limit: int = 5) -> list[Node]:
        """Entities with a name much like this one, the most alike first. Not all names are looked at."""

    def counts(self, tenant_id: str) -> GraphCounts: ...

    def close(self) -> None:
        """Close resources opened for reading; the catalog stays open."""


class GraphStore(GraphReader, Protocol):
    """The graph of the catalog, the truth of every copy."""

    def put(self, tenant_id: str, extractions: Mapping[int, Extraction]) -> None:
        """Replace the entities and relations of texts, by content id. Deleted texts are left out."""

    def remove(self, tenant_id: str, content_ids: Sequence[int]) -> None:
        """Remove the entities and relations of texts, and entities no other text mentions."""

    def nodes(self, tenant_id: str) -> Iterator[tuple[Node, list[Mention]]]: ...

    def edges(self, tenant_id: str) -> Iterator[tuple[Edge, list[Mention]]]: ...


class GraphTexts(Protocol):
    """The graphs of texts, for a copy in another store, and which texts a reader may see."""

    def store(self, tenant_id: str, extractions: Mapping[int, Extraction]) -> list[TextGraph]:
        """Store the entities and relations of texts, as ``GraphStore.put`` does; return them as stored.
        Deleted texts are left out."""

    def copies(self, tenant_id: str, content_ids: Sequence[int]) -> list[TextGraph]:
        """Entities and relations stored for texts, with a version above all former ones."""

    def after(self, content_id: int, limit: int) -> list[TextGraph]:
        """Texts with entities in the order of their ids, for a comparison. They have no version."""

    def there(self, content_ids: Sequence[int]) -> set[int]:
        """Ids of texts still in the catalog, out of the given ones."""

    def shown(self, tenant_id: str, content_ids: Sequence[int] | None = None) -> dict[int, int]:
        """The texts in published documents whose phase is done, with the number of chunks that have them.

        None: of all texts."""

    def mentions(self, tenant_id: str, content_ids: Sequence[int], limit: int) -> list[Mention]:
        """The chunks of texts, as ``GraphReader.mentions`` gives them."""

    def chunks(self, tenant_id: str) -> int:
        """Chunks of published documents whose phase is done."""
