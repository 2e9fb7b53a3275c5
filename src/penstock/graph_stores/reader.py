"""The graph of a tenant, read from a copy in an outside store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from penstock.catalog.graph import Edge, GraphCounts, GraphReader, GraphTexts, Mention, Neighbourhood, Node
from penstock.catalog.rules.graph import EDGES_AT_ONCE, heaviest, neighbourhood, shortest_path
from penstock.graph_stores.protocol import FoundMention, FoundRelation, GraphCopy

_NODES_AT_ONCE = 1_000


class CopyReader:
    """Reads a copy. The answers are those of the catalog's own tables, which say what is published."""

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
        return [node for node in nodes[:_NODES_AT_ONCE] if kind in (None, node.kind)][:limit]

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
