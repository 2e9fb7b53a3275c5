"""The graph: entities by name, their neighbours, the way between two, counts, exports, and a picture."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from xml.sax.saxutils import escape, quoteattr

import msgspec

from penstock.catalog.graph import Edge, GraphCounts, GraphReader, GraphStore, Mention, Neighbourhood, Node
from penstock.config import Settings
from penstock.errors import NotInGraph
from penstock.pipeline.extract import file_types
from penstock.pipeline.extract.factory import has_pages

_CANDIDATES = 4
"""Entities read for each one that is wanted, so that there is a choice."""
_NO_GRAPH = "Extract entities first, with `penstock index --graph PATH`."
_RING = 210
"""Least distance of two rings: a label fits in between."""
LINE = 17
"""Room of a label across its direction."""
_DOT = 6
_MARGIN = 230
_MAX_LABEL = 30
_COLOURS = ("#2563a8", "#b4530a", "#25794a", "#9a3a8f", "#a12c2c", "#6f6a14", "#3d5a80", "#7a4b2a")
"""Colours of kinds, in the order of their frequency. Each is readable on white and, brightened, on black."""
_STYLE = """
text { font: 12px system-ui, sans-serif; fill: #1b1f24; }
.start text { font-weight: 700; font-size: 14px; }
.edge { fill: none; stroke: #6b7280; stroke-opacity: .55; }
.head { fill: #6b7280; }
.halo { paint-order: stroke; stroke: #ffffff; stroke-width: 3px; stroke-linejoin: round; }
.page { fill: #ffffff; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6e8eb; }
  .edge { stroke: #9aa4b2; }
  .head { fill: #9aa4b2; }
  .halo { stroke: #14171a; }
  .page { fill: #14171a; }
  circle { filter: brightness(1.5); }
}
"""


class EntityReport(msgspec.Struct, frozen=True):
    """An entity with some chunks that mention it."""

    node: Node
    mentions: list[Mention]

    def as_dict(self) -> dict[str, object]:
        return msgspec.structs.asdict(self.node) | {"mentions": _places(self.mentions)}


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
                **msgspec.structs.asdict(one.node),
                mentions=[MentionRecord(**msgspec.structs.asdict(each)) for each in one.mentions],
            )
            for one in found
        ]
    )


def graph_record(nodes: Iterable[tuple[Node, int | None]], edges: Iterable[Edge]) -> GraphRecord:
    """A part of the graph for programs."""
    return GraphRecord(
        nodes=[NodeRecord(**msgspec.structs.asdict(node), hops=hops) for node, hops in nodes],
        edges=[EdgeRecord(**msgspec.structs.asdict(edge)) for edge in edges],
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
        row = msgspec.structs.asdict(edge) | {"mentions": _places(mentions)}
        yield ("," if number else "") + "\n" + _encode(row).decode()
    yield "\n]}\n"


def _places(mentions: Sequence[Mention]) -> list[dict[str, object]]:
    return [msgspec.structs.asdict(_paged(mention)) for mention in mentions]


def _paged(mention: Mention) -> Mention:
    """A mention without a page, if such files have none."""
    file_type = file_types.by_name(mention.path) or file_types.TEXT
    return mention if has_pages(file_type) else msgspec.structs.replace(mention, page=None)


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
    return "".join(f"<data key={quoteattr(key)}>{_xml_text(text)}</data>" for key, text in values.items())


class _Spot(msgspec.Struct, frozen=True):
    """Position of a node. ``angle``: direction from the centre, in radians."""

    x: float
    y: float
    angle: float


def neighbourhood_svg(found: Neighbourhood) -> str:
    """A neighbourhood as an SVG picture: rings by distance, readable on light and dark pages.

    The layout is a function of nodes and edges alone, so the same neighbourhood gives the same file.
    """
    spots = _layout(found)
    colours = _colours([node for node, _ in found.nodes])
    named = {node.id: node.name for node, _ in found.nodes}
    reach = max((math.hypot(spot.x, spot.y) for spot in spots.values()), default=0) + _MARGIN
    # Room for the list of kinds below.
    height = 2 * reach + LINE * (len(colours) + 1)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{-reach:.0f} {-reach:.0f} {2 * reach:.0f} '
        f'{height:.0f}" role="img">',
        f"<title>{_xml_text(_title(found))}</title>",
        f"<style>{_STYLE}</style>",
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
        'markerUnits="userSpaceOnUse" orient="auto"><path class="head" d="M0 0 8 4 0 8z"/></marker></defs>',
        f'<rect class="page" x="{-reach:.0f}" y="{-reach:.0f}" width="{2 * reach:.0f}" '
        f'height="{height:.0f}"/>',
        *(_edge(edge, spots, named) for edge in found.edges),
        *(_node(node, far, spots[node.id], colours) for node, far in found.nodes),
        *_legend(colours, reach),
        "</svg>\n",
    ]
    return "\n".join(parts)


def _title(found: Neighbourhood) -> str:
    start = ", ".join(dict.fromkeys(node.name for node, far in found.nodes if far == 0))
    return f"Entities around {start}"


def _layout(found: Neighbourhood) -> dict[int, _Spot]:
    """Place nodes on rings by distance, near the related nodes of the inner ring."""
    near: dict[int, list[int]] = {}
    for edge in found.edges:
        near.setdefault(edge.source, []).append(edge.target)
        near.setdefault(edge.target, []).append(edge.source)
    rings: dict[int, list[Node]] = {}
    for node, far in found.nodes:
        rings.setdefault(far, []).append(node)
    spots: dict[int, _Spot] = {}
    radius = 0.0
    for far in sorted(rings):
        ring = rings[far]
        ring.sort(key=lambda node: (_towards(near.get(node.id, ()), spots), node.kind, node.name, node.id))
        around = len(ring) * LINE / (2 * math.pi)
        if far == 0:
            radius = 0.0 if len(ring) == 1 else max(around, 60.0)
        else:
            radius = max(radius + _RING, around)
        for place, node in enumerate(ring):
            angle = 2 * math.pi * (place + 0.5 * (far % 2)) / len(ring)
            spots[node.id] = _Spot(radius * math.cos(angle), radius * math.sin(angle), angle)
    return spots


def _towards(neighbours: Sequence[int], spots: Mapping[int, _Spot]) -> float:
    """Direction of the placed neighbours, from 0 to one turn."""
    known = [spots[number] for number in neighbours if number in spots]
    if not known or all(spot.x == spot.y == 0 for spot in known):
        return 0.0
    return math.atan2(sum(spot.y for spot in known), sum(spot.x for spot in known)) % (2 * math.pi)


def _colours(nodes: Sequence[Node]) -> dict[str, str]:
    counts: dict[str, int] = {}
    for node in nodes:
        counts[node.kind] = counts.get(node.kind, 0) + 1
    kinds = sorted(counts, key=lambda kind: (-counts[kind], kind))
    return {kind: _COLOURS[place % len(_COLOURS)] for place, kind in enumerate(kinds)}


def _edge(edge: Edge, spots: Mapping[int, _Spot], named: Mapping[int, str]) -> str:
    start, end = spots[edge.source], spots[edge.target]
    length = math.hypot(end.x - start.x, end.y - start.y) or 1.0
    # To the rim of both dots.
    dx, dy = (end.x - start.x) / length * (_DOT + 2), (end.y - start.y) / length * (_DOT + 2)
    width = 1 + min(math.log2(1 + max(edge.weight, 0.0)), 4.0)
    told = f"{named[edge.source]} {edge.kind} {named[edge.target]} ({edge.weight:g})"
    return (
        f'<path class="edge" stroke-width="{width:.1f}" marker-end="url(#head)" '
        f'd="M{start.x + dx:.1f} {start.y + dy:.1f}L{end.x - dx:.1f} {end.y - dy:.1f}">'
        f"<title>{_xml_text(told)}</title></path>"
    )


def _node(node: Node, far: int, spot: _Spot, colours: Mapping[str, str]) -> str:
    label = node.name if len(node.name) <= _MAX_LABEL else f"{node.name[: _MAX_LABEL - 1]}…"
    turn = math.degrees(spot.angle) if far else 0.0
    # On the left the label is turned round, so that no text stands on its head.
    flipped = 90 < turn < 270
    turn, x, anchor = (turn - 180, -_DOT - 5, "end") if flipped else (turn, _DOT + 5, "start")
    y = 4
    if far == 0:
        x, y, anchor = 0, -_DOT - 7, "middle"
    return (
        f'<g class="{"node" if far else "start"}" transform="translate({spot.x:.1f} {spot.y:.1f})">'
        f"<title>{_xml_text(f'{node.name} ({node.kind}), {node.occurrences}')}</title>"
        f'<circle r="{_DOT if far else _DOT + 3}" fill="{colours[node.kind]}"/>'
        f'<text class="halo" x="{x}" y="{y}" text-anchor="{anchor}" transform="rotate({turn:.1f})">'
        f"{_xml_text(label)}</text></g>"
    )


def _legend(colours: Mapping[str, str], reach: float) -> Iterator[str]:
    for place, (kind, colour) in enumerate(colours.items()):
        y = reach + place * LINE
        yield (
            f'<circle cx="{-reach + 20:.0f}" cy="{y:.0f}" r="{_DOT}" fill="{colour}"/>'
            f'<text x="{-reach + 34:.0f}" y="{y + 4:.0f}">{_xml_text(kind)}</text>'
        )


def _xml_text(text: str) -> str:
    """Text escaped for XML, with invalid characters replaced."""
    return escape("".join(char if _is_allowed(char) else "\ufffd" for char in text))


def _is_allowed(char: str) -> bool:
    return char in "\t\n\r" or " " <= char <= "\ud7ff" or "\ue000" <= char <= "\ufffd" or char > "\uffff"
