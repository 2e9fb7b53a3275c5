"""The graph in every store: the same answers from the catalog's tables and from a copy."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.catalog.graph import Entity, Extraction, GraphCounts, Mention
from penstock.catalog.values import Removal
from penstock.graph_stores.neo4j import Neo4jCopy
from penstock.testing import GraphStoreContract
from tests.catalog.conftest import at, page, put, source
from tests.catalog.test_graph import DEFINED, USED
from tests.graph_stores.conftest import GraphUnderTest, needs_bolt


def test_entities_are_found_by_name_most_mentioned_first(graph: GraphUnderTest):
    graph.index("/a.md", "ann", "again")
    graph.index("/b.md", "bob")
    (ann,) = graph.reader.find("acme", " ANN lee ")
    assert (ann.name, ann.kind, ann.occurrences) == ("Ann Lee", "name", 2)
    assert graph.reader.find("acme", "Acme")[0].occurrences == 4
    assert graph.reader.find("acme", "Ann Lee", kind="place") == []
    assert graph.reader.find("other", "Ann Lee") == []
    assert graph.reader.find("acme", "nobody") == []
    assert graph.reader.named("acme", [ann.id, 0]) == {ann.id: ann}


def test_equal_chunks_count_each(graph: GraphUnderTest):
    graph.index("/a.md", "ann", "ann")
    graph.index("/b.md", "ann")
    (ann,) = graph.reader.find("acme", "Ann Lee")
    assert ann.occurrences == 3
    assert len(graph.reader.mentions("acme", ann.id)) == 3
    near = graph.reader.neighbours("acme", [ann.id])
    assert [edge.weight for edge in near.edges] == [1.5]


def test_mentions_tell_where_in_the_order_of_paths(graph: GraphUnderTest):
    graph.index("/b.md", "bob", "ann")
    graph.index("/a.md", "acme")
    found = source(graph.catalog, "/b.md")
    assert found is not None
    (ann,) = graph.ids("ann lee")
    (mention,) = graph.reader.mentions("acme", ann)
    assert mention == Mention(found.source_id, "/b.md", 1, None, mention.chunk_id)
    (acme,) = graph.ids("acme")
    assert [one.path for one in graph.reader.mentions("acme", acme)] == ["/a.md", "/b.md", "/b.md"]
    assert len(graph.reader.mentions("acme", acme, limit=1)) == 1
    assert graph.reader.mentions("other", acme) == []


def test_neighbours_within_some_hops(graph: GraphUnderTest):
    graph.index("/a.md", "ann", "acme")
    graph.index("/b.md", "bob")

    def around(hops: int, limit: int = 50) -> list[tuple[str, int]]:
        near = graph.reader.neighbours("acme", graph.ids("porto"), hops=hops, limit=limit)
        return [(node.name, far) for node, far in near.nodes]

    assert around(1) == [("Porto", 0), ("Acme", 1)]
    assert around(2) == [("Porto", 0), ("Acme", 1), ("Bob Vane", 2), ("Ann Lee", 2)]
    assert around(2, limit=2) == [("Porto", 0), ("Acme", 1), ("Bob Vane", 2)]
    near = graph.reader.neighbours("acme", graph.ids("porto"), hops=2)
    assert [edge.weight for edge in near.edges] == [1.0, 1.0, 0.5]
    assert graph.reader.neighbours("other", graph.ids("porto")).nodes == []


def test_the_shortest_path_in_either_direction(graph: GraphUnderTest):
    graph.index("/a.md", "ann", "acme")
    graph.index("/b.md", "bob")
    ann, porto, bob = (graph.ids(name) for name in ("ann lee", "porto", "bob vane"))
    assert [edge.weight for edge in graph.reader.path("acme", ann, porto) or []] == [0.5, 1.0]
    assert len(graph.reader.path("acme", porto, bob) or []) == 2
    assert graph.reader.path("acme", ann, ann) == []
    assert graph.reader.path("acme", ann, [0]) is None


def test_counts_by_kind(graph: GraphUnderTest):
    assert graph.reader.counts("acme") == GraphCounts({}, {}, 0)
    graph.index("/a.md", "ann", "acme", "none")
    graph.index("/b.md", "ann", tenant="other")
    assert graph.reader.counts("acme") == GraphCounts({"name": 3}, {"related": 2}, 3)
    assert graph.reader.counts("other") == GraphCounts({"name": 2}, {"related": 1}, 1)


def test_a_new_generation_and_a_delete_remove_exactly_what_they_must(graph: GraphUnderTest):
    graph.index("/a.md", "ann", "bob")
    graph.index("/b.md", "acme")
    graph.index("/a.md", "bob", "none", seconds=1)
    assert graph.ids("Ann Lee") == []
    assert graph.reader.counts("acme").entities == {"name": 3}
    graph.clear(seconds=2)
    assert graph.reader.counts("acme").entities == {"name": 3}
    graph.remove("/b.md", seconds=3)
    assert [graph.ids(name) != [] for name in ("porto", "bob vane", "acme")] == [False, True, True]
    graph.remove(seconds=5)
    assert graph.reader.counts("acme") == GraphCounts({}, {}, 0)


def test_what_is_not_published_is_not_shown(graph: GraphUnderTest):
    put(graph.catalog, "/a.md", page("ann"), page("waits", number=2, vector=None), graph=True)
    assert graph.extract() == 1
    assert graph.ids("ann lee") == []
    assert graph.reader.counts("acme") == GraphCounts({}, {}, 0)
    graph.index("/b.md", "bob")
    graph.catalog.remove(Removal(tenant_id="acme", path="/b.md", asked_at=at(1)), now=at(1))
    assert graph.ids("bob vane") == []
    graph.clear()


def test_hostile_names_are_values(graph: GraphUnderTest):
    name = "x'}) MATCH (n) DETACH DELETE n // \\u0027 \" `$name` 東京 \U0001f600"
    hostile = Entity(name, "name")
    graph.graphs["hostile"] = Extraction({hostile: 1}, [])
    graph.index("/a.md", "hostile")
    graph.index("/b.md", "ann")
    assert [node.name for node in graph.reader.find("acme", name)] == [name]
    assert graph.ids("ann lee") != []


@pytest.mark.parametrize("order", ["USED DEFINED", "DEFINED USED"])
def test_a_used_name_of_code_has_the_kind_of_its_definition(graph: GraphUnderTest, order: str):
    graph.graphs |= {"USED": USED, "DEFINED": DEFINED}
    for number, text in enumerate(order.split()):
        graph.index(f"/{number}.py", text)
    assert [node.kind for node in graph.reader.find("acme", "Thing")] == ["class"]
    (thing,) = graph.ids("thing")
    near = graph.reader.neighbours("acme", [thing])
    assert {(node.name, node.kind) for node, _ in near.nodes} == {
        ("p.thing", "class"),
        ("p.a", "function"),
        ("p", "module"),
    }


@needs_bolt
class TestBoltServer(GraphStoreContract):
    """The contract of a copy, on a real Bolt server."""

    @pytest.fixture
    def opened(self, open_copy: Callable[[], Neo4jCopy]) -> Callable[[], Neo4jCopy]:
        return open_copy
