"""The order of entities around another."""

from __future__ import annotations

from penstock.catalog.graph import Edge, Neighbourhood, Node
from penstock.service.graph import most_telling

START, NEAR, HUB, FAR, FAR_BY_HUB = range(5)


def node(number: int, hop: int, *, used: bool = False) -> tuple[Node, int]:
    return Node(number, str(number), "function", 0 if used else 1), hop


NODES = [node(START, 0), node(HUB, 1, used=True), node(NEAR, 1), node(FAR_BY_HUB, 2), node(FAR, 2)]
EDGES = [
    Edge(FAR_BY_HUB, HUB, "calls", 30.0),
    Edge(START, HUB, "calls", 20.0),
    Edge(NEAR, FAR, "calls", 2.0),
    Edge(START, NEAR, "calls", 1.0),
]


def test_the_near_come_first_and_what_is_only_used_last():
    found = most_telling(Neighbourhood(NODES, EDGES), 10)
    assert [(one.id, hop) for one, hop in found.nodes] == [
        (START, 0),
        (NEAR, 1),
        (HUB, 1),
        (FAR, 2),
        (FAR_BY_HUB, 2),
    ]
    assert [{edge.source, edge.target} for edge in found.edges] == [
        {START, NEAR},
        {START, HUB},
        {NEAR, FAR},
        {HUB, FAR_BY_HUB},
    ]


def test_the_limit_leaves_out_what_tells_least():
    found = most_telling(Neighbourhood(NODES, EDGES), 1)
    assert [one.id for one, _ in found.nodes] == [START, NEAR]
    assert found.edges == [Edge(START, NEAR, "calls", 1.0)]


def test_relations_of_an_entity_with_few_others_tell_more():
    rare, common, *others = range(1, 8)
    nodes = [node(0, 0), node(rare, 1), node(common, 1), *(node(one, 2) for one in others)]
    edges = [Edge(0, common, "related", 1.5), Edge(0, rare, "related", 1.0)]
    edges += [Edge(common, other, "related", 1.0) for other in others]
    found = most_telling(Neighbourhood(nodes, edges), 1)
    assert [one.id for one, _ in found.nodes] == [0, rare]
