"""The graph in the catalog's own tables: written with its texts, read in snapshots."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.catalog.graph import (
    CODE_KINDS,
    Edge,
    Entity,
    Extraction,
    GraphCounts,
    Mention,
    Neighbourhood,
    Node,
    StoredEntity,
    StoredRelation,
    TextGraph,
    name_key,
    short_key,
    shortened,
    written,
)
from penstock.catalog.rules.graph import (
    EDGES_AT_ONCE,
    LOOKED_AT,
    asked_names,
    beginnings,
    most_alike,
    neighbourhood,
    shortest_path,
)
from penstock.catalog.rules.phases import EXTRACTING
from penstock.catalog.sql.statements import Row, Statements, column, listed, readable

if TYPE_CHECKING:
    from penstock.catalog.sql.catalog import SqlCatalog


_Key = tuple[str, str]
"""Kind and normalised name of an entity."""


def put(rows: Statements, tenant_id: str, extractions: Mapping[int, Extraction]) -> None:
    """Replace the entities and relations of texts, by content id.

    This and ``remove`` lock the graph of the tenant, and must be the last in a transaction to take a lock.
    """
    if not extractions:
        return
    rows.hold("graph", tenant_id)
    there = {number for (number,) in rows.all("texts_there", listed(extractions))}
    before = _take_out(rows, extractions)
    found = {content_id: found for content_id, found in extractions.items() if content_id in there}
    keys = {entity: _key(entity) for extraction in found.values() for entity in extraction.entities}
    numbers = _entity_ids(rows, tenant_id, found.values(), keys)
    ids = {entity: numbers[key] for entity, key in keys.items()}
    mentions: dict[tuple[int, int], int] = {}
    relations: dict[tuple[int, int, int, str], float] = {}
    for content_id, extraction in found.items():
        for entity, occurrences in extraction.entities.items():
            mention = (content_id, ids[entity])
            mentions[mention] = mentions.get(mention, 0) + occurrences
        for one in extraction.relations:
            ends = (ids[one.source], ids[one.target])
            if ends[0] != ends[1]:
                relation = (content_id, *ends, one.kind)
                relations[relation] = relations.get(relation, 0.0) + one.weight
    rows.many("add_mention", [(*mention, count) for mention, count in mentions.items()])
    rows.many("add_relation", [(*relation, str(weight)) for relation, weight in relations.items()])
    rows.send("delete_idle_entities", listed(before))


def remove(rows: Statements, tenant_id: str, content_ids: Iterable[int]) -> None:
    """Remove the entities and relations of texts, and entities no other text mentions."""
    content_ids = list(content_ids)
    if content_ids and rows.value("mentioned_in", listed(content_ids)) is not None:
        rows.hold("graph", tenant_id)
        rows.send("delete_idle_entities", listed(_take_out(rows, content_ids)))


def _take_out(rows: Statements, content_ids: Iterable[int]) -> list[int]:
    """Delete mentions and relations of texts; return the entities possibly left without any."""
    texts = listed(content_ids)
    before = [number for (number,) in rows.all("mentioned_in", texts)]
    if before:
        rows.send("delete_relations", texts)
        rows.send("delete_mentions", texts)
    return before


def _key(entity: Entity) -> _Key:
    return entity.kind, readable(name_key(entity))


def _entity_ids(
    rows: Statements, tenant_id: str, extractions: Iterable[Extraction], keys: Mapping[Entity, _Key]
) -> dict[_Key, int]:
    """The ids of entities, new ones for those not known.

    Of a name that is only used in a text, the kind is a guess: it is the one defined elsewhere, if there is
    one. A definition gives its kind to what was only used so far.
    """
    wanted: dict[_Key, Entity] = {}
    defined: set[_Key] = set()
    for extraction in extractions:
        for entity, occurrences in extraction.entities.items():
            wanted.setdefault(keys[entity], entity)
            if occurrences:
                defined.add(keys[entity])
    names = listed({name for _, name in wanted})
    known = {(kind, name): number for number, kind, name in rows.all("known_entities", tenant_id, names)}
    only_used = _only_used(rows, defined - known.keys(), known)
    numbers = iter(rows.numbers("row", len(wanted)) if wanted.keys() - known.keys() else ())
    new: list[tuple[object, ...]] = []
    ids: dict[_Key, int] = {}
    for key in sorted(wanted, key=lambda key: (key not in defined, key)):
        twin = None if key in known else _twin(key, known)
        if twin is not None and key not in defined:
            ids[key] = known[twin]
            continue
        if twin is not None and known[twin] in only_used and twin not in defined:
            known[key] = known.pop(twin)
            rows.many("set_entity_kind", [(key[0], known[key])])
        elif key not in known:
            known[key] = next(numbers)
            new.append(_row(known[key], tenant_id, key, wanted[key]))
        ids[key] = known[key]
    rows.many("add_entity", new)
    return ids


def _row(number: int, tenant_id: str, key: _Key, entity: Entity) -> tuple[object, ...]:
    kind, name = key
    return number, tenant_id, kind, name, readable(short_key(entity)), readable(shortened(entity.name))


def _twin(key: _Key, known: Mapping[_Key, int]) -> _Key | None:
    """The same name of code in another kind."""
    kind, name = key
    others = (one for one in sorted(CODE_KINDS) if one != kind and (one, name) in known)
    found = next(others, None) if kind in CODE_KINDS else None
    return (found, name) if found is not None else None


def _only_used(rows: Statements, defined: Iterable[_Key], known: Mapping[_Key, int]) -> set[int]:
    """Entities without a definition in any text, out of those now defined in another kind.

    Only these are looked up: a name that is used everywhere has very many mentions.
    """
    twins = [known[twin] for twin in (_twin(key, known) for key in defined) if twin is not None]
    return {number for (number,) in rows.all("only_used", listed(twins))} if twins else set()


_ROWS_AT_ONCE = 1_000


class CatalogGraph:
    """The entities and relations of the catalog's texts."""

    def __init__(self, catalog: SqlCatalog) -> None:
        self._catalog = catalog

    def put(self, tenant_id: str, extractions: Mapping[int, Extraction]) -> None:
        self._catalog.write(lambda rows: put(rows, tenant_id, extractions))

    def remove(self, tenant_id: str, content_ids: Sequence[int]) -> None:
        self._catalog.write(lambda rows: remove(rows, tenant_id, content_ids))

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
    for batch in rows.batches(f"{name}_{EXTRACTING}", _ROWS_AT_ONCE, *values):
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


class CatalogGraphTexts:
    """The graphs of one catalog's texts, for a copy in another store."""

    def __init__(self, catalog: SqlCatalog) -> None:
        self._catalog = catalog

    def store(self, tenant_id: str, extractions: Mapping[int, Extraction]) -> list[TextGraph]:
        def work(rows: Statements) -> list[TextGraph]:
            put(rows, tenant_id, extractions)
            return _copies(rows, tenant_id, list(extractions))

        return self._catalog.write(work)

    def copies(self, tenant_id: str, content_ids: Sequence[int]) -> list[TextGraph]:
        return self._catalog.write(lambda rows: _copies(rows, tenant_id, content_ids))

    def after(self, content_id: int, limit: int) -> list[TextGraph]:
        with self._catalog.snapshot() as snapshot:
            found: dict[int, str] = dict(snapshot.rows.all("texts_with_entities", content_id, limit))
            return _graphs(snapshot.rows, found, version=0)

    def there(self, content_ids: Sequence[int]) -> set[int]:
        with self._catalog.snapshot() as snapshot:
            return set(column(snapshot.rows.all("texts_there", listed(content_ids))))

    def shown(self, tenant_id: str, content_ids: Sequence[int] | None = None) -> dict[int, int]:
        with self._catalog.snapshot() as snapshot:
            if content_ids is None:
                return dict(snapshot.rows.all(f"all_shown_{EXTRACTING}", tenant_id))
            return dict(snapshot.rows.all(f"shown_{EXTRACTING}", tenant_id, listed(content_ids)))

    def mentions(self, tenant_id: str, content_ids: Sequence[int], limit: int) -> list[Mention]:
        with self._catalog.snapshot() as snapshot:
            texts = listed(content_ids)
            found = snapshot.rows.all(f"shown_mentions_{EXTRACTING}", tenant_id, texts, limit)
        return [Mention(*row) for row in found]

    def chunks(self, tenant_id: str) -> int:
        with self._catalog.snapshot() as snapshot:
            return int(snapshot.rows.value(f"extracted_chunks_{EXTRACTING}", tenant_id))


def _copies(rows: Statements, tenant_id: str, content_ids: Sequence[int]) -> list[TextGraph]:
    # Under the lock, so that of two copies of a text the newer one has the greater version.
    rows.hold("graph", tenant_id)
    (version,) = rows.numbers("row", 1)
    there = column(rows.all("texts_there", listed(content_ids)))
    return _graphs(rows, dict.fromkeys(there, tenant_id), version)


def _graphs(rows: Statements, tenants: Mapping[int, str], version: int) -> list[TextGraph]:
    found = {number: TextGraph(number, tenant, version, [], []) for number, tenant in tenants.items()}
    mentions = rows.all("text_mentions", listed(found))
    wanted = listed({entity_id for _, entity_id, _ in mentions})
    known = (StoredEntity(*row) for row in rows.all("stored_entities", wanted))
    entities = {entity.id: entity for entity in known}
    for content_id, entity_id, occurrences in mentions:
        found[content_id].entities.append(
            msgspec.structs.replace(entities[entity_id], occurrences=occurrences)
        )
    for content_id, *relation in rows.all("text_relations", listed(found)):
        found[content_id].relations.append(StoredRelation(*relation))
    return list(found.values())
