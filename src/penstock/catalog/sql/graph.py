"""The graph in the catalog's own tables, read in snapshots."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from penstock.catalog.entities import Extraction, shortened, written
from penstock.catalog.graph import Edge, GraphCounts, Mention, Neighbourhood, Node
from penstock.catalog.rules.near_names import LOOKED_AT, asked_names, beginnings, most_alike
from penstock.catalog.rules.phases import EXTRACTING
from penstock.catalog.sql import graph_rows
from penstock.catalog.sql.row_types import Row
from penstock.catalog.sql.statements import Statements, listed, readable

if TYPE_CHECKING:
    from penstock.catalog.sql.catalog import SqlCatalog

EDGES_AT_ONCE = 10_000
"""Edges read in one step of a search, the heaviest first."""
MAX_SEEN = 100_000
"""Entities looked at for a path."""
ROWS_AT_ONCE = 1_000


class CatalogGraph:
    """The entities and relations of the catalog's texts."""

    def __init__(self, catalog: SqlCatalog) -> None:
        self._catalog = catalog

    def put(self, tenant_id: str, extractions: Mapping[int, Extraction]) -> None:
        self._catalog.write(lambda rows: graph_rows.put(rows, tenant_id, extractions))

    def remove(self, tenant_id: str, content_ids: Sequence[int]) -> None:
        self._catalog.write(lambda rows: graph_rows.remove(rows, tenant_id, content_ids))

    def find(self, tenant_id: str, name: str, *, kind: str | None = None, limit: int = 50) -> list[Node]:
        asked = readable(shortened(written(name)))
        with self._catalog.snapshot() as snapshot:
            found = _all(snapshot.rows, "entities_named", tenant_id, asked, asked.casefold(), 1_000)
        return [node for node in map(_node, found) if kind in (None, node.kind)][:limit]

    def similar(self, tenant_id: str, name: str, *, limit: int = 5) -> list[Node]:
        parts = asked_names(readable(name))
        with self._catalog.snapshot() as snapshot:
            ids: dict[str, list[int]] = {}
            for first, last in beginnings(parts):
                for number, key in snapshot.rows.all("entities_between", tenant_id, first, last, LOOKED_AT):
                    ids.setdefault(key, []).append(number)
            chosen = [number for key in most_alike(parts, ids, limit) for number in sorted(set(ids[key]))]
            nodes = {node.id: node for node in _nodes(snapshot.rows, tenant_id, chosen)}
        return [nodes[number] for number in chosen if number in nodes][:limit]

    def mentions(self, tenant_id: str, entity_id: int, *, limit: int = 20) -> list[Mention]:
        with self._catalog.snapshot() as snapshot:
            return [Mention(*row) for row in _all(snapshot.rows, "mentions_of", tenant_id, entity_id, limit)]

    def neighbours(
        self, tenant_id: str, entity_ids: Sequence[int], *, hops: int = 1, limit: int = 50
    ) -> Neighbourhood:
        with self._catalog.snapshot() as snapshot:
            distances = dict.fromkeys(entity_ids, 0)
            frontier = set(entity_ids)
            kept: set[Edge] = set()
            for distance in range(1, hops + 1):
                for edge in _edges(snapshot.rows, tenant_id, frontier):
                    kept.add(edge)
                    for end in (edge.source, edge.target):
                        if end not in distances and len(distances) < limit + len(entity_ids):
                            distances[end] = distance
                frontier = {number for number, far in distances.items() if far == distance}
            nodes = {node.id: node for node in _nodes(snapshot.rows, tenant_id, distances)}
        edges = [edge for edge in kept if edge.source in nodes and edge.target in nodes]
        edges.sort(key=lambda edge: (-edge.weight, edge.source, edge.target, edge.kind))
        return Neighbourhood([(nodes[one], far) for one, far in distances.items() if one in nodes], edges)

    def path(self, tenant_id: str, sources: Sequence[int], targets: Sequence[int]) -> list[Edge] | None:
        wanted = set(targets)
        if wanted & set(sources):
            return []
        came_by: dict[int, tuple[int, Edge] | None] = dict.fromkeys(sources)
        frontier = set(sources)
        with self._catalog.snapshot() as snapshot:
            while frontier and len(came_by) < MAX_SEEN:
                reached: set[int] = set()
                for edge in _edges(snapshot.rows, tenant_id, frontier):
                    for here, there in ((edge.source, edge.target), (edge.target, edge.source)):
                        if here in frontier and there not in came_by:
                            came_by[there] = (here, edge)
                            reached.add(there)
                ends = sorted(reached & wanted)
                if ends:
                    return _way(came_by, ends[0])
                frontier = reached
        return None

    def named(self, tenant_id: str, entity_ids: Iterable[int]) -> dict[int, Node]:
        with self._catalog.snapshot() as snapshot:
            return {node.id: node for node in _nodes(snapshot.rows, tenant_id, entity_ids)}

    def nodes(self, tenant_id: str) -> Iterator[tuple[Node, list[Mention]]]:
        with self._catalog.snapshot() as snapshot:
            for (number, name, kind), rows in groupby(
                _batches(snapshot.rows, "graph_nodes", tenant_id), key=lambda row: row[:3]
            ):
                counts, mentions = _weighted(rows)
                yield Node(number, name, kind, sum(counts)), mentions

    def edges(self, tenant_id: str) -> Iterator[tuple[Edge, list[Mention]]]:
        with self._catalog.snapshot() as snapshot:
            for (source, target, kind), rows in groupby(
                _batches(snapshot.rows, "graph_edges", tenant_id), key=lambda row: row[:3]
            ):
                weights, mentions = _weighted(rows)
                yield Edge(source, target, kind, round(sum(weights), 3)), mentions

    def counts(self, tenant_id: str) -> GraphCounts:
        with self._catalog.snapshot() as snapshot:
            entities: dict[str, int] = dict(_all(snapshot.rows, "entities_by_kind", tenant_id))
            relations: dict[str, int] = dict(_all(snapshot.rows, "relations_by_kind", tenant_id))
            (chunks,) = _all(snapshot.rows, "extracted_chunks", tenant_id)
        return GraphCounts(entities, relations, chunks[0])


def _all(rows: Statements, name: str, *values: object) -> list[Row]:
    return rows.all(f"{name}_{EXTRACTING}", *values)


def _batches(rows: Statements, name: str, *values: object) -> Iterator[Row]:
    for batch in rows.batches(f"{name}_{EXTRACTING}", ROWS_AT_ONCE, *values):
        yield from batch


def _node(row: Row) -> Node:
    number, name, kind, count = row
    return Node(number, name, kind, int(count))


def _nodes(rows: Statements, tenant_id: str, entity_ids: Iterable[int]) -> list[Node]:
    return [_node(row) for row in _all(rows, "entities_of", tenant_id, listed(entity_ids))]


def _edges(rows: Statements, tenant_id: str, entity_ids: Iterable[int]) -> list[Edge]:
    found = _all(rows, "edges_of", listed(sorted(entity_ids)), tenant_id, EDGES_AT_ONCE)
    return [Edge(source, target, kind, round(weight, 3)) for source, target, kind, weight in found]


def _way(came_by: Mapping[int, tuple[int, Edge] | None], end: int) -> list[Edge]:
    edges: list[Edge] = []
    step = came_by[end]
    while step is not None:
        before, edge = step
        edges.append(edge)
        step = came_by[before]
    return edges[::-1]


def _weighted(rows: Iterable[Row]) -> tuple[list[Any], list[Mention]]:
    """Weights and mentions of the rows of one entity or relation, which begin with three columns of it."""
    weights, mentions = [], []
    for _, _, _, weight, *mention in rows:
        weights.append(weight)
        mentions.append(Mention(*mention))
    return weights, mentions
