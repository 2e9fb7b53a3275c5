"""Rows of the graph: entities, mentions and relations, written and removed with the texts they belong to.

Each function locks the graph of the tenant, and must be the last in its transaction to take a lock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.catalog.entities import CODE_KINDS, Entity, Extraction, name_key, short_key, shortened
from penstock.catalog.sql.statements import Statements, listed, readable

Key = tuple[str, str]
"""Kind and normalised name of an entity."""


def put(rows: Statements, tenant_id: str, extractions: Mapping[int, Extraction]) -> None:
    """Replace the entities and relations of texts, by content id."""
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
        for source, kind, target, weight in extraction.relations:
            ends = (ids[source], ids[target])
            if ends[0] != ends[1]:
                relation = (content_id, *ends, kind)
                relations[relation] = relations.get(relation, 0.0) + weight
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


def _key(entity: Entity) -> Key:
    return entity.kind, readable(name_key(entity))


def _entity_ids(
    rows: Statements, tenant_id: str, extractions: Iterable[Extraction], keys: Mapping[Entity, Key]
) -> dict[Key, int]:
    """The ids of entities, new ones for those not known.

    Of a name that is only used in a text, the kind is a guess: it is the one defined elsewhere, if there is
    one. A definition gives its kind to what was only used so far.
    """
    wanted: dict[Key, Entity] = {}
    defined: set[Key] = set()
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
    ids: dict[Key, int] = {}
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


def _row(number: int, tenant_id: str, key: Key, entity: Entity) -> tuple[object, ...]:
    kind, name = key
    return number, tenant_id, kind, name, readable(short_key(entity)), readable(shortened(entity.name))


def _twin(key: Key, known: Mapping[Key, int]) -> Key | None:
    """The same name of code in another kind."""
    kind, name = key
    others = (one for one in sorted(CODE_KINDS) if one != kind and (one, name) in known)
    found = next(others, None) if kind in CODE_KINDS else None
    return (found, name) if found is not None else None


def _only_used(rows: Statements, defined: Iterable[Key], known: Mapping[Key, int]) -> set[int]:
    """Entities without a definition in any text, out of those now defined in another kind.

    Only these are looked up: a name that is used everywhere has very many mentions.
    """
    twins = [known[twin] for twin in (_twin(key, known) for key in defined) if twin is not None]
    return {number for (number,) in rows.all("only_used", listed(twins))} if twins else set()
