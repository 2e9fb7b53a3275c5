"""Use cases about the graph: entities by name, their neighbours, the way between two, counts and exports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from xml.sax.saxutils import quoteattr

import msgspec

from penstock.catalog.graph import Edge, GraphCounts, GraphReader, GraphStore, Mention, Neighbourhood, Node
from penstock.config import Settings
from penstock.errors import NotInGraph
from penstock.pipeline.extract import file_types
from penstock.pipeline.extract.factory import has_pages
from penstock.service.graph_svg import xml_text

_CANDIDATES = 4
"""Entities read for each one that is wanted, so that there is a choice."""
_NO_GRAPH = "Extract entities first, with `penstock index --graph PATH`."


class EntityReport(msgspec.Struct, frozen=True):
    """An entity with some chunks that mention it."""

    node: Node
    mentions: list[Mention]

    def as_dict(self) -> dict[str, object]:
        return self.node._asdict() | {"mentions": _places(self.mentions)}


class NodeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An entity of the graph, for programs. ``hops``: its distance from the entity asked for."""

    id: int
    name: str
    kind: str
    occurrences: int
    hops: int | None = None


class EdgeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """All relations of one kind between two entities, by their ids."""

    source: int
    target: int
    kind: str
    weight: float


class MentionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A chunk that mentions an entity."""

    source_id: str
    path: str
    page: int | None
    first_line: int | None
    chunk_id: str


class EntityRecord(NodeRecord, frozen=True, kw_only=True):
    """An entity with some chunks that mention it."""

    mentions: list[MentionRecord]


class EntityRecords(msgspec.Struct, frozen=True, kw_only=True):
    """The entities with a name."""

    entities: list[EntityRecord]


class GraphRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Entities, and the relations between them. Both are empty where no way leads from one to another."""

    nodes: list[NodeRecord]
    edges: list[EdgeRecord]


class GraphCountRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of entities and relations by kind, and of chunks with entities."""

    entities: dict[str, int]
    relations: dict[str, int]
    chunks: int


def entity_records(found: Iterable[EntityReport]) -> EntityRecords:
    """Entities for programs."""
    return EntityRecords(
        entities=[
            EntityRecord(
                **one.node._asdict(), mentions=[MentionRecord(**each._asdict()) for each in one.mentions]
            )
            for one in found
        ]
    )


def graph_record(nodes: Iterable[tuple[Node, int | None]], edges: Iterable[Edge]) -> GraphRecord:
    """A part of the graph for programs."""
    return GraphRecord(
        nodes=[NodeRecord(**node._asdict(), hops=hops) for node, hops in nodes],
        edges=[EdgeRecord(**edge._asdict()) for edge in edges],
    )


class Graph:
    """The graph of one catalog."""

    def __init__(self, store: GraphStore, reader: GraphReader, settings: Settings) -> None:
        """``reader``: for queries; ``store``: the catalog's graph, for exports."""
        self._exported = store
        self._store = reader
        self._settings = settings

    def close(self) -> None:
        """Close the connection to a store outside the catalog."""
        self._store.close()

    def entity(
        self, name: str, *, kind: str | None = None, tenant_id: str | None = None, mentions: int = 20
    ) -> list[EntityReport]:
        """The entities with a name, each with some of its mentions. Raises ``NotInGraph``."""
        tenant = tenant_id or self._settings.tenant_id
        return [
            EntityReport(node, list(map(_paged, self._store.mentions(tenant, node.id, limit=mentions))))
            for node in self._find(name, tenant, kind)
        ]

    def neighbours(
        self,
        name: str,
        *,
        hops: int = 1,
        kind: str | None = None,
        limit: int = 50,
        tenant_id: str | None = None,
    ) -> Neighbourhood:
        """The entities around those with a name, nearest first, and of those the most telling."""
        tenant = tenant_id or self._settings.tenant_id
        start = [node.id for node in self._find(name, tenant, kind)]
        found = self._store.neighbours(tenant, start, hops=hops, limit=limit * _CANDIDATES)
        return most_telling(found, limit)

    def path(
        self, source: str, target: str, *, tenant_id: str | None = None
    ) -> tuple[list[Node], list[Edge]] | None:
        """Return the nodes and edges of a shortest path between two names, or None."""
        tenant = tenant_id or self._settings.tenant_id
        starts = self._find(source, tenant, None)
        ends = self._find(target, tenant, None)
        edges = self._store.path(tenant, [one.id for one in starts], [one.id for one in ends])
        if edges is None:
            return None
        if not edges:
            same = {one.id for one in ends}
            return [next(one for one in starts if one.id in same)], []
        known = self._store.named(tenant, {end for edge in edges for end in (edge.source, edge.target)})
        at = next(one.id for one in starts if one.id in (edges[0].source, edges[0].target))
        nodes = [known[at]]
        for edge in edges:
            at = edge.target if edge.source == at else edge.source
            nodes.append(known[at])
        return nodes, edges

    def counts(self, tenant_id: str | None = None) -> GraphCounts:
        return self._store.counts(tenant_id or self._settings.tenant_id)

    def export(self, form: str, tenant_id: str | None = None) -> Iterator[str]:
        """The whole graph as parts of a text, ``json`` or ``graphml``."""
        tenant = tenant_id or self._settings.tenant_id
        nodes, edges = self._exported.nodes(tenant), self._exported.edges(tenant)
        return _graphml(nodes, edges) if form == "graphml" else _json(nodes, edges)

    def _find(self, name: str, tenant: str, kind: str | None) -> Sequence[Node]:
        found = self._store.find(tenant, name, kind=kind)
        if not found:
            what = f"no {kind} is named {name!r}" if kind else f"no entity is named {name!r}"
            raise NotInGraph(what, remedy=self._other_names(name, tenant))
        return found

    def _other_names(self, name: str, tenant: str) -> str | None:
        """A remedy for an unknown name."""
        near = self._store.similar(tenant, name)
        if near:
            named = ", ".join(f"{node.name} ({node.kind})" for node in near)
            return f"Similar names: {named}. {NotInGraph.default_remedy}"
        return None if self._store.counts(tenant).entities else _NO_GRAPH


class _Rank(msgspec.Struct, frozen=True, order=True):
    """A place in the order; the least is shown first."""

    hop: int
    only_used: bool
    tells: float
    id: int


def most_telling(found: Neighbourhood, limit: int) -> Neighbourhood:
    """The best nodes of a neighbourhood beside the centre, and the edges between them, in order.

    The order is by distance, then by how much a relation tells. What is only used by the documents, such as a
    module of the language, is related to nearly everything in them. It comes after what they define or talk
    about, and so does what is reached only by way of it. Among the rest, a relation of two entities with few
    others tells more than one of two with many.
    """
    ranks = _ranks(found)
    hops = {node.id: hop for node, hop in found.nodes}
    about = [one for one in found.nodes if one[1] == 0]
    others = sorted((one for one in found.nodes if one[0].id in ranks), key=lambda one: ranks[one[0].id])
    nodes = about + others[:limit]
    kept = {node.id for node, _ in nodes}
    edges = [edge for edge in found.edges if edge.source in kept and edge.target in kept]
    # An edge leads to its farther end.
    first = _Rank(0, False, 0.0, 0)
    order = {
        edge: (edge_hop(edge, hops), max(ranks.get(edge.source, first), ranks.get(edge.target, first)))
        for edge in edges
    }
    edges.sort(key=lambda edge: (*order[edge], -edge.weight, edge.kind, edge.source))
    return Neighbourhood(nodes, edges)


def edge_hop(edge: Edge, hops: dict[int, int]) -> int:
    """The number of relations from the start to the end of this one."""
    return min(hops[edge.source], hops[edge.target]) + 1


def _ranks(found: Neighbourhood) -> dict[int, _Rank]:
    """The rank of each node, by the most significant edge to the node. Nearer nodes come first."""
    hops = {node.id: hop for node, hop in found.nodes}
    used = {node.id for node, hop in found.nodes if hop and not node.occurrences}
    degrees = Counter(end for edge in found.edges for end in (edge.source, edge.target))
    ranks: dict[int, _Rank] = {}
    for edge in sorted(found.edges, key=lambda edge: edge_hop(edge, hops)):
        near, far = sorted((edge.source, edge.target), key=lambda end: (hops[end], end))
        if hops[near] == hops[far]:
            continue
        tells = edge.weight / (degrees[near] * degrees[far]) ** 0.5
        by_way = near in ranks and ranks[near].only_used
        rank = _Rank(hops[far], far in used or by_way, -tells, far)
        ranks[far] = min(rank, ranks.get(far, rank))
    return ranks


Nodes = Iterator[tuple[Node, list[Mention]]]
Edges = Iterator[tuple[Edge, list[Mention]]]
_encode = msgspec.json.Encoder().encode


def _json(nodes: Nodes, edges: Edges) -> Iterator[str]:
    yield '{"nodes": ['
    for number, (node, mentions) in enumerate(nodes):
        row = {"id": node.id, "name": node.name, "kind": node.kind, "mentions": _places(mentions)}
        yield ("," if number else "") + "\n" + _encode(row).decode()
    yield '\n], "edges": ['
    for number, (edge, mentions) in enumerate(edges):
        row = edge._asdict() | {"mentions": _places(mentions)}
        yield ("," if number else "") + "\n" + _encode(row).decode()
    yield "\n]}\n"


def _places(mentions: Sequence[Mention]) -> list[dict[str, object]]:
    return [_paged(mention)._asdict() for mention in mentions]


def _paged(mention: Mention) -> Mention:
    """A mention without a page, if such files have none."""
    file_type = file_types.by_name(mention.path) or file_types.TEXT
    return mention if has_pages(file_type) else mention._replace(page=None)


def _graphml(nodes: Nodes, edges: Edges) -> Iterator[str]:
    yield '<?xml version="1.0" encoding="UTF-8"?>\n'
    yield '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">\n'
    for key, whose, kind in (
        ("name", "node", "string"),
        ("kind", "all", "string"),
        ("weight", "edge", "double"),
        ("mentions", "all", "string"),
    ):
        yield f'  <key id="{key}" for="{whose}" attr.name="{key}" attr.type="{kind}"/>\n'
    yield '  <graph edgedefault="directed">\n'
    for node, mentions in nodes:
        data = {"name": node.name, "kind": node.kind, "mentions": _encode(_places(mentions)).decode()}
        yield f'    <node id="n{node.id}">{_data(data)}</node>\n'
    for edge, mentions in edges:
        data = {
            "kind": edge.kind,
            "weight": str(edge.weight),
            "mentions": _encode(_places(mentions)).decode(),
        }
        yield f'    <edge source="n{edge.source}" target="n{edge.target}">{_data(data)}</edge>\n'
    yield "  </graph>\n</graphml>\n"


def _data(values: dict[str, str]) -> str:
    return "".join(f"<data key={quoteattr(key)}>{xml_text(text)}</data>" for key, text in values.items())
