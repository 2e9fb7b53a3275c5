"""Walks through a graph whose edges are read step by step: neighbourhoods and shortest paths. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeAlias

from penstock.catalog.rules.graph_values import Edge, Neighbourhood, Node

MAX_SEEN = 100_000
"""Entities looked at for a path."""
EDGES_AT_ONCE = 10_000
"""Edges read in one step of a walk, the heaviest first."""

EdgesOf: TypeAlias = Callable[[Collection[int]], Sequence[Edge]]
"""The edges at some entities, heaviest first."""
NodesOf: TypeAlias = Callable[[Collection[int]], Sequence[Node]]


def neighbourhood(
    start: Sequence[int], edges_of: EdgesOf, nodes_of: NodesOf, *, hops: int, limit: int
) -> Neighbourhood:
    """The entities within some relations of these, in either direction; nearest and heaviest first."""
    distances = dict.fromkeys(start, 0)
    frontier = set(start)
    kept: set[Edge] = set()
    for distance in range(1, hops + 1):
        for edge in edges_of(frontier):
            kept.add(edge)
            for end in (edge.source, edge.target):
                if end not in distances and len(distances) < limit + len(start):
                    distances[end] = distance
        frontier = {number for number, far in distances.items() if far == distance}
    nodes = {node.id: node for node in nodes_of(distances)}
    edges = [edge for edge in kept if edge.source in nodes and edge.target in nodes]
    edges.sort(key=heaviest)
    return Neighbourhood([(nodes[one], far) for one, far in distances.items() if one in nodes], edges)


def shortest_path(sources: Sequence[int], targets: Sequence[int], edges_of: EdgesOf) -> list[Edge] | None:
    """Find a shortest path between two groups of entities, in either direction; None without a path."""
    wanted = set(targets)
    if wanted & set(sources):
        return []
    came_by: dict[int, tuple[int, Edge] | None] = dict.fromkeys(sources)
    frontier = set(sources)
    while frontier and len(came_by) < MAX_SEEN:
        reached: set[int] = set()
        for edge in edges_of(frontier):
            for here, there in ((edge.source, edge.target), (edge.target, edge.source)):
                if here in frontier and there not in came_by:
                    came_by[there] = (here, edge)
                    reached.add(there)
        ends = sorted(reached & wanted)
        if ends:
            return _way(came_by, ends[0])
        frontier = reached
    return None


def heaviest(edge: Edge) -> tuple[float, int, int, str]:
    """Sort key: heaviest first, then by ends and kind."""
    return -edge.weight, edge.source, edge.target, edge.kind


def _way(came_by: Mapping[int, tuple[int, Edge] | None], end: int) -> list[Edge]:
    edges: list[Edge] = []
    step = came_by[end]
    while step is not None:
        before, edge = step
        edges.append(edge)
        step = came_by[before]
    return edges[::-1]
