"""usearch over a file of vectors: it only proposes, and what it says is checked before it is believed."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from penstock.catalog.sql.sqlite import SqliteCatalog
from penstock.catalog.values import Removal
from penstock.clock import now
from penstock.pipeline.vectors import ann_index
from penstock.pipeline.vectors.ann_index import damaged
from penstock.pipeline.vectors.cache_directory import CacheDirectory
from penstock.pipeline.vectors.mmap_rows import read_rows
from penstock.worker.vector_upkeep import keep_all
from tests.pipeline.vector_catalog import (
    DIMENSION,
    ROWS,
    SIZES,
    SPACE,
    ask,
    drawing,
    drawn_vectors,
    flip,
    label,
    store,
)


def test_a_wrong_graph_is_noticed_before_it_is_walked(catalog: SqliteCatalog, shelf: CacheDirectory):
    keep_all(catalog, shelf)
    wanted = ask(catalog, None)
    size = shelf.graph("acme", SPACE).stat().st_size
    rows = read_rows(shelf.vectors("acme", SPACE), label(shelf).owner, DIMENSION)
    assert rows is not None
    assert None is not ann_index.read_graph(shelf.graph("acme", SPACE), rows)
    for at in range(100, size - 500, size // 7):
        flip(shelf.graph("acme", SPACE), at)

        assert damaged(shelf.vectors("acme", SPACE))
        assert None is ann_index.read_graph(shelf.graph("acme", SPACE), rows)
        assert wanted == ask(catalog, shelf)


def test_holes_move_up_when_there_are_many(catalog: SqliteCatalog, shelf: CacheDirectory):
    keep_all(catalog, shelf)
    first = label(shelf)
    for start in range(0, 60, 10):
        catalog.remove(Removal(tenant_id="acme", path=f"/a{start}.md", asked_at=now()))
    keep_all(catalog, shelf)
    assert (first.lineage, ROWS, 60) == (label(shelf).lineage, label(shelf).rows, label(shelf).holes)
    assert ask(catalog, None) == ask(catalog, shelf)
    assert not np.frombuffer(shelf.vectors("acme", SPACE).read_bytes()[: 60 * 64], "<f4").any()

    for start in range(60, 120, 10):
        catalog.remove(Removal(tenant_id="acme", path=f"/a{start}.md", asked_at=now()))
    keep_all(catalog, shelf)
    assert (ROWS - 120, 0) == (label(shelf).rows, label(shelf).holes)
    assert first.lineage != label(shelf).lineage
    assert ask(catalog, None) == ask(catalog, shelf)
    found = drawing(shelf)
    assert found is not None
    assert (label(shelf).lineage, ROWS - 120) == (found.lineage, found.covered)


def test_a_graph_finds_nearly_all_and_what_it_does_not_cover_is_found_too(tmp_path: Path):
    """Questions that reach 400 of 4,000 rows; chance is fixed."""
    catalog = SqliteCatalog(tmp_path / "catalog.db", synchronous="NORMAL")
    shelf = CacheDirectory(tmp_path / "vectors", "one", SIZES)
    store(catalog, drawn_vectors(4_000))
    keep_all(catalog, shelf)
    store(catalog, drawn_vectors(100, seed=2), name="behind")
    found = drawing(shelf)
    assert found is not None
    assert 4_000 == found.covered
    assert ann_index.GOOD <= found.found

    exact, near = ask(catalog, None), ask(catalog, shelf)
    assert 0.95 <= sum(len({*a} & {*b}) for a, b in zip(exact, near, strict=True)) / 200
    catalog.close()


def test_a_graph_that_finds_too_little_is_not_used(
    catalog: SqliteCatalog, shelf: CacheDirectory, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(ann_index, "REACHES", (1, 2))
    keep_all(catalog, shelf)
    found = drawing(shelf)

    assert found is not None
    assert (0, ROWS) == (found.reach, found.covered)
    assert ask(catalog, None) == ask(catalog, shelf)


def test_without_usearch_everything_is_looked_at(catalog: SqliteCatalog, shelf: CacheDirectory, monkeypatch):
    keep_all(catalog, shelf)
    monkeypatch.setitem(sys.modules, "usearch", None)

    assert ask(catalog, None) == ask(catalog, shelf)
    shelf.graph("acme", SPACE).unlink()
    keep_all(catalog, shelf)
    assert None is drawing(shelf)
