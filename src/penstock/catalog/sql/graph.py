"""The graph in the catalog's own tables, read in snapshots."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any

from penstock.catalog.entities import Extraction, shortened, written
from penstock.catalog.graph import Edge, GraphCounts, Mention, Neighbourhood, Node
from penstock.catalog.rules.graph_walk import EDGES_AT_ONCE, neighbourhood, shortest_path
from penstock.catalog.rules.near_names import LOOKED_AT, asked_names, beginnings, most_alike
from penstock.catalog.rules.phases import EXTRACTING
from penstock.catalog.sql import graph_rows
from penstock.catalog.sql.row_types import Row, column
from penstock.catalog.sql.statements import Statements, listed, readable

if TYPE_CHECKING:
    from penstock.catalog.sql.catalog import SqlCatalog

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
            ids = column(snapshot.rows.all("entities_named", tenant_id, asked, asked.casefold()))
            found = _nodes(snapshot.rows, tenant_id, ids) if ids else []
        named = [node for node in found if kind in (None, node.kind)]
        return sorted(named, key=lambda node: (-node.occurrences, node.name, node.kind))[:limit]

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
            edges_of = partial(_edges, snapshot.rows, tenant_id)
            nodes_of = partial(_nodes, snapshot.rows, tenant_id)
            return neighbourhood(entity_ids, edges_of, nodes_of, hops=hops, limit=limit)

    def path(self, tenant_id: str, sources: Sequence[int], targets: Sequence[int]) -> list[Edge] | None:
        with self._catalog.snapshot() as snapshot:
            return shortest_path(sources, targets, partial(_edges, snapshot.rows, tenant_id))

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

    def close(self) -> None:
        """Do nothing: the catalog stays open."""


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


def _weighted(rows: Iterable[Row]) -> tuple[list[Any], list[Mention]]:
    """Weights and mentions of the rows of one entity or relation, without the three leading key columns."""
    weights, mentions = [], []
    for _, _, _, weight, *mention in rows:
        weights.append(weight)
        mentions.append(Mention(*mention))
    return weights, mentions
