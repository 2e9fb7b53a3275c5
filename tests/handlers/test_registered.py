"""Every item type and operation of documents has a handler."""

from __future__ import annotations

from pathlib import Path

from penstock.catalog.sql.sqlite import SqliteCatalog
from penstock.handlers import documents
from penstock.handlers.context import Registry
from penstock.pipeline.embed.static import HashingEmbedder
from penstock.pipeline.pipeline import Pipeline
from penstock.queue import payloads

ELSEWHERE = {"function"}
"""Item types for handlers of an application."""


def test_every_pair_of_the_matrix_has_a_handler(tmp_path: Path):
    registry, catalog = Registry(), SqliteCatalog(tmp_path / "catalog.db", synchronous="NORMAL")
    documents.register(registry, catalog, Pipeline(HashingEmbedder()), (), checkpoint_interval=50)

    wanted = {
        f"{item_type}/{op}"
        for item_type, ops in payloads.MATRIX.items()
        for op in ops
        if item_type not in ELSEWHERE
    }
    assert wanted == set(registry.pairs())
    catalog.close()
