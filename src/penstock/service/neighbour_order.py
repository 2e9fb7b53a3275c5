"""Order of a neighbourhood: by distance, then by how much a relation tells.

What is only used by the documents, such as a module of the language, is related to nearly everything in them.
It comes after what they define or talk about, and so does what is reached only by way of it. Among the
rest, a relation of two entities with few others tells more than one of two with many.
"""

from __future__ import annotations

from collections import Counter

from penstock.catalog.graph import Edge, Neighbourhood
from penstock.named_tuple import NamedTuple

CANDIDATES = 4
"""Entities read for each one that is wanted, so that there is a choice."""


class _Rank(NamedTuple):
    """A place in the order; the least is shown first."""

    hop: int
    only_used: bool
    tells: float
    id: int


def most_telling(found: Neighbourhood, limit: int) -> Neighbourhood:
    """The best nodes of a neighbourhood beside the centre, and the edges between them, in order."""
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
