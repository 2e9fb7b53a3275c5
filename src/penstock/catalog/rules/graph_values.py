"""Nodes and edges of the graph, as readers get them."""

from __future__ import annotations

from penstock.named_tuple import NamedTuple


class Node(NamedTuple):
    """An entity of the graph with the number of occurrences in published documents."""

    id: int
    name: str
    kind: str
    occurrences: int


class Edge(NamedTuple):
    """All relations of one kind between two entities. ``weight``: the sum of their weights."""

    source: int
    target: int
    kind: str
    weight: float


class Neighbourhood(NamedTuple):
    """Nodes around an entity with their distance from it, and the edges between these nodes."""

    nodes: list[tuple[Node, int]]
    edges: list[Edge]
