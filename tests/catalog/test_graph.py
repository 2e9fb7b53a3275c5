"""The graph of every store: what is kept, what is shown, and what goes with a text."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.catalog.graph import Entity, Extraction, GraphCounts, Mention, Relation
from penstock.catalog.protocol import Catalog
from penstock.catalog.rules import publication
from penstock.catalog.values import Phase, Place, Removal
from tests.catalog.conftest import at, page, put, settle, source, sweep, take
from tests.catalog.test_repair import raw

ANN, BOB, ACME, PORTO = (Entity(name, "name") for name in ("Ann Lee", "Bob Vane", "Acme", "Porto"))
GRAPHS = {
    "ann": Extraction({ANN: 1, ACME: 2}, [Relation(ANN, "related", ACME, 0.5)]),
    "bob": Extraction({BOB: 1, ACME: 1}, [Relation(BOB, "related", ACME, 1.0)]),
    "acme": Extraction({ACME: 1, PORTO: 1}, [Relation(ACME, "related", PORTO, 1.0)]),
    "again": Extraction({Entity("ANN  lee", "name"): 1, ACME: 1}, [Relation(ANN, "related", ACME, 0.25)]),
    "none": Extraction({}, []),
}


def index(catalog: Catalog, path: str, *texts: str, seconds: int = 0, tenant: str = "acme") -> None:
    """Publish a document whose chunks have the entities of ``GRAPHS``, by the first word of their text."""
    put(
        catalog,
        path,
        page(*texts),
        graph=True,
        place=Place(tenant, "docs"),
        asked_at=at(seconds),
        now=at(seconds),
    )
    extract(catalog)


def extract(catalog: Catalog) -> int:
    tasks = take(catalog, Phase.GRAPHRAG)
    settle(catalog, [publication.completed_graph(task, GRAPHS[task.text.split()[0]]) for task in tasks])
    return len(tasks)


def names(catalog: Catalog, tenant: str = "acme") -> dict[str, int]:
    return {node.name: node.occurrences for node, _ in catalog.graph.nodes(tenant)}


def edges(catalog: Catalog) -> set[tuple[str, str, str, float]]:
    named = {node.id: node.name for node, _ in catalog.graph.nodes("acme")}
    return {(named[e.source], e.kind, named[e.target], e.weight) for e, _ in catalog.graph.edges("acme")}


def ids(catalog: Catalog, name: str) -> list[int]:
    return [node.id for node in catalog.graph.find("acme", name)]


def test_entities_are_one_by_normalised_name_and_kind(catalog: Catalog):
    index(catalog, "/a.md", "ann", "again")
    index(catalog, "/b.md", "bob")

    assert names(catalog) == {"Ann Lee": 2, "Acme": 4, "Bob Vane": 1}
    assert edges(catalog) == {
        ("Ann Lee", "related", "Acme", 0.75),
        ("Bob Vane", "related", "Acme", 1.0),
    }
    assert [node.name for node in catalog.graph.find("acme", " ANN lee ")] == ["Ann Lee"]
    assert catalog.graph.find("acme", "Ann Lee", kind="place") == []
    assert catalog.graph.find("other", "Ann Lee") == []


def test_chunks_count_what_was_found_in_them(catalog: Catalog):
    index(catalog, "/a.md", "ann", "none")
    found = source(catalog, "/a.md")
    assert found is not None
    assert found.published_id is not None
    with catalog.snapshot() as snapshot:
        (only,) = snapshot.pages(found.published_id)
        assert [(c.entities, c.relationships) for c in snapshot.chunks(only.page_id)] == [(2, 1), (0, 0)]


def test_a_mention_tells_where(catalog: Catalog):
    index(catalog, "/a.md", "bob", "ann")
    found = source(catalog, "/a.md")
    assert found is not None
    (ann,) = ids(catalog, "ann lee")
    (mention,) = catalog.graph.mentions("acme", ann)
    assert mention == Mention(found.source_id, "/a.md", 1, None, mention.chunk_id)
    (acme,) = ids(catalog, "acme")
    assert len(catalog.graph.mentions("acme", acme)) == 2
    assert len(catalog.graph.mentions("acme", acme, limit=1)) == 1
    assert catalog.graph.mentions("other", acme) == []


def test_a_new_generation_removes_exactly_what_it_must(catalog: Catalog):
    index(catalog, "/a.md", "ann", "bob")
    index(catalog, "/b.md", "acme")

    index(catalog, "/a.md", "bob", "none", seconds=1)
    assert names(catalog) == {"Bob Vane": 1, "Acme": 2, "Porto": 1}
    sweep(catalog, now=at(2))

    assert names(catalog) == {"Bob Vane": 1, "Acme": 2, "Porto": 1}
    assert ids(catalog, "Ann Lee") == []
    assert [] == catalog.audit()


def test_unchanged_chunks_are_not_extracted_again(catalog: Catalog):
    index(catalog, "/a.md", "ann", "bob")
    put(catalog, "/a.md", page("ann", "acme"), graph=True, asked_at=at(1), now=at(1))
    assert 1 == extract(catalog)
    assert names(catalog) == {"Ann Lee": 1, "Acme": 3, "Porto": 1}


def test_a_delete_leaves_nothing_behind(catalog: Catalog, tmp_path: Path):
    index(catalog, "/a.md", "ann")
    index(catalog, "/b.md", "bob")
    catalog.remove(Removal(tenant_id="acme", path="/a.md", asked_at=at(1)), now=at(1))
    assert names(catalog) == {"Bob Vane": 1, "Acme": 1}
    catalog.remove(Removal(tenant_id="acme", asked_at=at(2)), now=at(2))
    sweep(catalog, now=at(3))
    with raw(catalog, tmp_path) as run:
        for table in ("catalog_entity", "catalog_mention", "catalog_relation"):
            assert run(f"SELECT count(*) FROM {table}") == [(0,)]


def test_a_generation_without_the_phase_shows_no_entities(catalog: Catalog):
    index(catalog, "/a.md", "ann")
    put(catalog, "/a.md", page("ann"), asked_at=at(1), now=at(1))
    assert names(catalog) == {}


def test_a_generation_being_built_is_not_shown(catalog: Catalog):
    put(catalog, "/a.md", page("ann"), page("waits", number=2, vector=None), graph=True)
    assert 1 == extract(catalog)
    assert names(catalog) == {}


def test_a_lost_claim_writes_nothing(catalog: Catalog):
    put(catalog, "/a.md", page("ann"), graph=True)
    (task,) = take(catalog, Phase.GRAPHRAG)
    settle(catalog, [publication.released(task)])
    assert [None] == settle(catalog, [publication.completed_graph(task, GRAPHS["ann"])])
    assert names(catalog) == {}


def test_putting_again_replaces(catalog: Catalog):
    index(catalog, "/a.md", "ann")
    with catalog.snapshot() as snapshot:
        found = source(catalog, "/a.md")
        assert found is not None
        (mention,) = catalog.graph.mentions("acme", ids(catalog, "Ann Lee")[0])
        content_id = snapshot.locate(found.source_id, [mention.chunk_id])[mention.chunk_id]
    for _ in range(2):
        catalog.graph.put("acme", {content_id: GRAPHS["bob"], 123456789: GRAPHS["acme"]})
        assert names(catalog) == {"Bob Vane": 1, "Acme": 1}
        assert [] == catalog.audit()
    catalog.graph.remove("acme", [content_id])
    assert names(catalog) == {}
    # The chunk is still said to have entities.
    assert ["has lost its entities"] == [one.partition(" ")[2].partition(" ")[2] for one in catalog.audit()]
    catalog.graph.put("acme", {content_id: GRAPHS["bob"]})


def test_tenants_have_graphs_of_their_own(catalog: Catalog):
    index(catalog, "/a.md", "ann")
    index(catalog, "/a.md", "bob", tenant="other")
    assert names(catalog) == {"Ann Lee": 1, "Acme": 2}
    assert names(catalog, "other") == {"Bob Vane": 1, "Acme": 1}
    (acme,) = ids(catalog, "acme")
    assert catalog.graph.neighbours("other", [acme]).nodes == []


def test_neighbours_within_some_hops(catalog: Catalog):
    index(catalog, "/a.md", "ann", "acme")
    index(catalog, "/b.md", "bob")

    def around(hops: int, limit: int = 50) -> list[tuple[str, int]]:
        near = catalog.graph.neighbours("acme", ids(catalog, "porto"), hops=hops, limit=limit)
        return [(node.name, far) for node, far in near.nodes]

    assert around(1) == [("Porto", 0), ("Acme", 1)]
    assert around(2) == [("Porto", 0), ("Acme", 1), ("Bob Vane", 2), ("Ann Lee", 2)]
    assert around(2, limit=2) == [("Porto", 0), ("Acme", 1), ("Bob Vane", 2)]
    near = catalog.graph.neighbours("acme", ids(catalog, "porto"), hops=2)
    assert [edge.weight for edge in near.edges] == [1.0, 1.0, 0.5]


def test_the_shortest_path_in_either_direction(catalog: Catalog):
    index(catalog, "/a.md", "ann", "acme")
    index(catalog, "/b.md", "bob")
    ann, porto, bob = (ids(catalog, name) for name in ("ann lee", "porto", "bob vane"))
    found = catalog.graph.path("acme", ann, porto)
    assert found is not None
    assert [edge.weight for edge in found] == [0.5, 1.0]
    assert len(catalog.graph.path("acme", porto, bob) or []) == 2
    assert catalog.graph.path("acme", ann, ann) == []
    assert catalog.graph.path("acme", ann, [0]) is None


def test_counts_by_kind(catalog: Catalog):
    assert catalog.graph.counts("acme") == GraphCounts({}, {}, 0)
    index(catalog, "/a.md", "ann", "acme")
    assert catalog.graph.counts("acme") == GraphCounts({"name": 3}, {"related": 2}, 2)


USED = Extraction(
    {Entity("p.a", "function"): 1, Entity("p.thing", "function"): 0},
    [Relation(Entity("p.a", "function"), "calls", Entity("p.thing", "function"))],
)
DEFINED = Extraction(
    {Entity("p", "module"): 1, Entity("p.thing", "class"): 1},
    [Relation(Entity("p", "module"), "defines", Entity("p.thing", "class"))],
)


@pytest.mark.parametrize("order", [("USED", "DEFINED"), ("DEFINED", "USED")])
def test_a_used_name_of_code_has_the_kind_of_its_definition(
    catalog: Catalog, order: tuple[str, str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(GRAPHS, "USED", USED)
    monkeypatch.setitem(GRAPHS, "DEFINED", DEFINED)
    for number, text in enumerate(order):
        index(catalog, f"/{number}.py", text)
    assert {(node.name, node.kind) for node, _ in catalog.graph.nodes("acme")} == {
        ("p.a", "function"),
        ("p", "module"),
        ("p.thing", "class"),
    }
    assert [node.kind for node in catalog.graph.find("acme", "Thing")] == ["class"]


def test_damage_is_told_and_repaired(catalog: Catalog, tmp_path: Path):
    index(catalog, "/a.md", "ann")
    with raw(catalog, tmp_path) as run:
        run("INSERT INTO catalog_entity VALUES (987654, 'acme', 'name', 'x', 'x', 'X')")
        run("INSERT INTO catalog_mention VALUES (99999999, 987654, 1)")
    assert len(catalog.audit()) == 1
    while catalog.repair():
        continue
    assert [] == catalog.audit()
    assert names(catalog) == {"Ann Lee": 1, "Acme": 2}


def test_names_like_another(catalog: Catalog):
    index(catalog, "/a.md", "ann", "acme")
    index(catalog, "/b.md", "bob", tenant="other")

    def similar(name: str, tenant: str = "acme") -> list[str]:
        return [node.name for node in catalog.graph.similar(tenant, name)]

    assert similar("ann") == ["Ann Lee"]
    assert similar("Acne") == ["Acme"]
    assert similar("docs/PROTO") == ["Porto"]
    assert similar("Bob Vain") == []
    assert similar("Bob Vain", "other") == ["Bob Vane"]
    assert similar("") == similar("\0") == similar("a" * 1_000_000) == []
    assert len(catalog.graph.similar("acme", "a", limit=1)) == 1


def test_long_names_are_told_apart(catalog: Catalog):
    """Paths below a deep folder have the same beginning, and are asked for by their end."""
    folder = "/deep" * 70
    one, two = (Entity(f"{folder}/{name}.md", "document") for name in ("one", "two"))
    heading = Entity(f"{folder}/one.md#{'Title ' * 60}", "section")
    put(catalog, "/a.md", page("long"), graph=True, place=Place("acme", "docs"), asked_at=at(0), now=at(0))
    (task,) = take(catalog, Phase.GRAPHRAG)
    found = Extraction({one: 1, two: 1, heading: 1}, [Relation(one, "links", two)])
    settle(catalog, [publication.completed_graph(task, found)])

    (first,), (second,) = ids(catalog, "one.md"), ids(catalog, "TWO.md")
    assert first != second
    assert ids(catalog, one.name) == [first]
    assert len(ids(catalog, "Title " * 60)) == 1
    assert all(len(name) <= 300 for name in names(catalog))
    assert len(names(catalog)) == 3


def test_accents_are_the_same_in_whichever_way_they_are_written(catalog: Catalog):
    """Paths of some systems have the accent apart from its letter, and a keyboard does not."""
    put(catalog, "/a.md", page("long"), graph=True, place=Place("acme", "docs"), asked_at=at(0), now=at(0))
    (task,) = take(catalog, Phase.GRAPHRAG)
    found = Extraction({Entity("Mu\u0308hle", "name"): 1, Entity("/u\u0308.md", "document"): 1}, [])
    settle(catalog, [publication.completed_graph(task, found)])
    assert len(ids(catalog, "M\u00fchle")) == len(ids(catalog, "Mu\u0308hle")) == 1
    assert ids(catalog, "/\u00fc.md") == ids(catalog, "u\u0308.md") != []
