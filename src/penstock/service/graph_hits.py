"""Ranking of a search by the graph: chunks reached along relations of entities in the query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.catalog.graph import StoredEntity
from penstock.catalog.protocol import CatalogSnapshot
from penstock.catalog.rules import graph
from penstock.catalog.rules.graph import AskedRelation, GraphMatch
from penstock.catalog.values import Filters
from penstock.errors import NotInGraph
from penstock.named_tuple import NamedTuple

ASKED_WEIGHT = 2.0
"""Weight of the best chunk of the graph beside the best keyword score, where a relation is asked for."""
PLAIN_WEIGHT = 0.1
"""The same for other queries; see ``bench/graph_search.py``."""


class GraphRanking(NamedTuple):
    """Chunks that the graph leads to, each with a score up to 1 and the relation that was followed.

    ``asked``: the query asks for a relation. ``best``: the best hit without the graph, if it was the start.
    """

    matches: Mapping[int, GraphMatch]
    weight: float
    asked: bool = False
    best: int | None = None

    def ranks(self) -> dict[int, int]:
        """Places by score, from 1; equal scores have equal places."""
        scores = sorted({match.score for match in self.matches.values()}, reverse=True)
        places: dict[float, int] = {}
        above = 0
        for score in scores:
            places[score] = above + 1
            above += sum(match.score == score for match in self.matches.values())
        return {content_id: places[match.score] for content_id, match in self.matches.items()}


NO_RANKING = GraphRanking({}, 0.0)


def require_graph(snapshot: CatalogSnapshot, filters: Filters) -> None:
    """Refuse a search by the graph where no entities were extracted."""
    if not snapshot.has_graph(filters):
        raise NotInGraph(
            "search by the graph: no entities were extracted from the documents that are searched",
            remedy="Extract them with `penstock index --graph PATH`, or search without the graph.",
        )


def rank_by_graph(
    snapshot: CatalogSnapshot, query: str, filters: Filters, ranked: Sequence[tuple[int, float]]
) -> GraphRanking:
    """Rank the chunks around the entities of a query and of its best hits. ``ranked``: hits with scores."""
    named, certain_at = _named(snapshot, query, filters.tenant_id)
    asked = graph.asked_relation(query, certain_at)
    starts = graph.start_weights(named, _of_hits(snapshot, ranked, filters.tenant_id), asked)
    if not starts:
        return NO_RANKING
    relations = {
        start: graph.followed(start, found, asked)
        for start, found in snapshot.relations_at(list(starts), most=graph.MOST_RELATIONS).items()
    }
    reached = _reached(starts, relations, asked)
    own_chunks = snapshot.chunks_of(reached, most=graph.MOST_CHUNKS) if reached else {}
    found = graph.expand(starts, relations, own_chunks, asked)
    seen = snapshot.visible(filters, list(found))
    matches = {content_id: match for content_id, match in found.items() if content_id in seen}
    weight = PLAIN_WEIGHT if asked is None else ASKED_WEIGHT
    best = ranked[0][0] if ranked and certain_at is None else None
    return GraphRanking(matches, weight, asked is not None, best)


def relation_texts(
    snapshot: CatalogSnapshot, ranking: GraphRanking, content_ids: Sequence[int]
) -> dict[int, str]:
    """The relations that led to chunks, as text: source, kind and target."""
    shown = {number: ranking.matches[number] for number in content_ids if number in ranking.matches}
    ends = sorted({end for match in shown.values() for end in (match.source, match.target)})
    names = {each.id: each.name for each in snapshot.entities_by_id(ends)} if ends else {}
    return {
        number: f"{names.get(match.source, '?')} {match.kind} {names.get(match.target, '?')}"
        for number, match in shown.items()
    }


def _named(snapshot: CatalogSnapshot, query: str, tenant_id: str) -> tuple[dict[int, float], int | None]:
    """Entities named in a query, with weights; and the position of a certain name."""
    names = graph.query_names(query)
    lasts = sorted({name.last for name in names})
    by_short: dict[str, list[StoredEntity]] = {}
    for entity in snapshot.entities_called(tenant_id, lasts, most=graph.MOST_NAMESAKES + 1):
        by_short.setdefault(entity.short_key, []).append(entity)
    weights: dict[int, float] = {}
    certain_at = None
    for name in names:
        namesakes = by_short.get(name.last, [])
        meant = [each for each in namesakes if graph.is_named(name, each.name, each.short_key)]
        if not meant or (len(namesakes) > graph.MOST_NAMESAKES and name.name == name.last):
            continue
        if name.certainty == 1.0 and certain_at is None:
            certain_at = name.at
        for each in meant:
            weights[each.id] = max(weights.get(each.id, 0.0), name.certainty)
    return weights, certain_at


def _of_hits(
    snapshot: CatalogSnapshot, ranked: Sequence[tuple[int, float]], tenant_id: str
) -> list[tuple[float, list[int]]]:
    """Entities of the best hits, and the names by which others import them."""
    best = ranked[: graph.SEED_HITS]
    if not best or best[0][1] <= 0:
        return []
    inside = snapshot.entities_in([content_id for content_id, _ in best])
    chosen = {number for found in inside.values() for number in found[: graph.SEED_ENTITIES]}
    aliases = _aliases(snapshot, tenant_id, sorted(chosen))
    return [
        (score / best[0][1], [*found, *(other for one in found for other in aliases.get(one, ()))])
        for content_id, score in best
        if (found := inside.get(content_id, [])[: graph.SEED_ENTITIES])
    ]


def _aliases(snapshot: CatalogSnapshot, tenant_id: str, entity_ids: list[int]) -> dict[int, list[int]]:
    """Entities of code by other names: ``mill.open`` for ``mill.gate.open`` exported by the package."""
    known = [each for each in snapshot.entities_by_id(entity_ids) if "." in each.name]
    shorts = sorted({each.short_key for each in known})
    others = snapshot.entities_called(tenant_id, shorts, most=graph.MOST_NAMESAKES)
    return {
        each.id: [other.id for other in others if graph.is_alias(each.name, other.name)] for each in known
    }


def _reached(
    starts: Mapping[int, float],
    relations: Mapping[int, Sequence[graph.GraphRelation]],
    asked: AskedRelation | None,
) -> list[int]:
    """Entities at the other ends of relations, for a lookup of their chunks; best starts first."""
    reached: dict[int, None] = {}
    for start in sorted(starts, key=lambda number: (-starts[number], number)):
        for relation in relations.get(start, ()):
            if asked is None or relation.source == start:
                reached.setdefault(graph.other_end(start, relation))
    return list(reached)[: graph.MOST_REACHED]
