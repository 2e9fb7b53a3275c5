"""The approximate index over a vector file: candidates only, and checked before use."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from penstock.catalog.sql.sqlite import SqliteCatalog
from penstock.catalog.values import Removal
from penstock.clock import now
from penstock.pipeline.vectors import nearest
from penstock.pipeline.vectors.directory import CacheDirectory
from penstock.pipeline.vectors.nearest import read_rows
from penstock.worker.vector_upkeep import keep_all
from tests.pipeline.vector_catalog import (
    DIMENSION,
    ROWS,
    SIZES,
    SPACE,
    ask,
    flip,
    index_stamp,
    label,
    sample_vectors,
    store,
)


def test_a_wrong_graph_is_noticed_before_it_is_walked(catalog: SqliteCatalog, directory: CacheDirectory):
    keep_all(catalog, directory)
    wanted = ask(catalog, None)
    size = directory.index("acme", SPACE).stat().st_size
    rows = read_rows(directory.vectors("acme", SPACE), label(directory).owner, DIMENSION)
    assert rows is not None
    assert None is not nearest.open_index(directory.index("acme", SPACE), rows)
    for at in range(100, size - 500, size // 7):
        flip(directory.index("acme", SPACE), at)

        assert directory.damaged()
        assert None is nearest.open_index(directory.index("acme", SPACE), rows)
        assert wanted == ask(catalog, directory)


def test_holes_move_up_when_there_are_many(catalog: SqliteCatalog, directory: CacheDirectory):
    keep_all(catalog, directory)
    first = label(directory)
    for start in range(0, 60, 10):
        catalog.remove(Removal(tenant_id="acme", path=f"/a{start}.md", asked_at=now()))
    keep_all(catalog, directory)
    assert (first.lineage, ROWS, 60) == (
        label(directory).lineage,
        label(directory).rows,
        label(directory).holes,
    )
    assert ask(catalog, None) == ask(catalog, directory)
    assert not np.frombuffer(directory.vectors("acme", SPACE).read_bytes()[: 60 * 64], "<f4").any()

    for start in range(60, 120, 10):
        catalog.remove(Removal(tenant_id="acme", path=f"/a{start}.md", asked_at=now()))
    keep_all(catalog, directory)
    assert (ROWS - 120, 0) == (label(directory).rows, label(directory).holes)
    assert first.lineage != label(directory).lineage
    assert ask(catalog, None) == ask(catalog, directory)
    found = index_stamp(directory)
    assert found is not None
    assert (label(directory).lineage, ROWS - 120) == (found.lineage, found.covered)


def test_a_graph_finds_nearly_all_and_what_it_does_not_cover_is_found_too(tmp_path: Path):
    """Queries with 400 candidates of 4,000 rows, with a fixed seed."""
    catalog = SqliteCatalog(tmp_path / "catalog.db", synchronous="NORMAL")
    directory = CacheDirectory(tmp_path / "vectors", "one", SIZES)
    store(catalog, sample_vectors(4_000))
    keep_all(catalog, directory)
    store(catalog, sample_vectors(100, seed=2), name="behind")
    found = index_stamp(directory)
    assert found is not None
    assert 4_000 == found.covered
    assert nearest.MIN_RECALL <= found.found

    exact, near = ask(catalog, None), ask(catalog, directory)
    assert 0.95 <= sum(len({*a} & {*b}) for a, b in zip(exact, near, strict=True)) / 200
    catalog.close()


def test_a_graph_that_finds_too_little_is_not_used(
    catalog: SqliteCatalog, directory: CacheDirectory, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(nearest, "REACHES", (1, 2))
    keep_all(catalog, directory)
    found = index_stamp(directory)

    assert found is not None
    assert (0, ROWS) == (found.reach, found.covered)
    assert ask(catalog, None) == ask(catalog, directory)


def test_without_usearch_everything_is_looked_at(
    catalog: SqliteCatalog, directory: CacheDirectory, monkeypatch
):
    keep_all(catalog, directory)
    monkeypatch.setitem(sys.modules, "usearch", None)

    assert ask(catalog, None) == ask(catalog, directory)
    directory.index("acme", SPACE).unlink()
    keep_all(catalog, directory)
    assert None is index_stamp(directory)
