"""Fills of a graph store: of one attached later, emptied, or out of use for a while."""

from __future__ import annotations

import pytest

from penstock.catalog.parts import OutsideStore
from penstock.handlers.outside_stores import GraphCopies
from tests.graph_stores.conftest import GraphUnderTest, needs_bolt

copied = pytest.mark.parametrize("graph", ["sqlite+neo4j", "postgres+neo4j"], indirect=True)
pytestmark = needs_bolt


def kept(copies: GraphCopies) -> tuple[bool, bool]:
    """Whether the store is filled, before and after upkeep."""
    before = copies.filled
    while copies.keep():
        continue
    return before, copies.filled


@copied
def test_a_store_attached_later_is_filled_and_one_that_others_do_not_know_again(graph: GraphUnderTest):
    copies, graph.copies = graph.copies, None
    graph.index("/a.md", "ann")
    graph.copies = copies
    assert copies is not None
    assert kept(copies) == (False, True)
    assert graph.differences() == []
    graph.copies = None
    graph.index("/b.md", "bob")
    graph.copies = copies
    assert kept(copies) == (False, True)


@copied
def test_a_store_is_filled_in_steps_that_go_on_elsewhere_and_again_when_it_was_emptied(
    graph: GraphUnderTest, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("penstock.handlers.outside_stores.TEXTS_AT_ONCE", 1)
    copies, graph.copies = graph.copies, None
    graph.index("/a.md", "ann", "bob")
    graph.index("/b.md", "acme", tenant="other")
    graph.copies = copies
    assert copies is not None
    assert graph.copy is not None
    assert copies.keep()
    progress = graph.catalog.outside.fill_progress(OutsideStore.GRAPH)
    assert progress is not None
    assert (False, 1) == (progress.filled, progress.copied)
    assert "the graph store lacks the entities of 2 texts" in graph.differences()
    # Another worker, after this one was killed.
    assert kept(GraphCopies(graph.catalog, graph.copy)) == (False, True)
    assert graph.differences() == []
    graph.copy.clear(copies.attach())
    assert kept(GraphCopies(graph.catalog, graph.copy)) == (True, True)
    assert graph.differences() == []
    assert graph.ids("ann lee") != []
    # Removed while the store was not in use.
    graph.catalog.outside.detach(OutsideStore.GRAPH)
    graph.copies = None
    graph.remove("/a.md")
    graph.copies = GraphCopies(graph.catalog, graph.copy)
    assert kept(graph.copies) == (False, True)
    assert graph.differences() == []
    assert graph.ids("ann lee") == []
