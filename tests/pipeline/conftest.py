"""Fixtures: a catalog and a cache directory for vector files. Finds the test corpus.

The corpus is not part of this repository; without it, its tests are not collected.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.catalog.sql.sqlite import SqliteCatalog
from penstock.pipeline.vectors.directory import CacheDirectory
from tests.pipeline.vector_catalog import ROWS, SIZES, sample_vectors, store

CORPUS = Path(
    os.environ.get("TEST_PENSTOCK_CORPUS") or Path(__file__).resolve().parents[2].parent / "shared" / "corpus"
)

_NEED_CORPUS = ["test_corpus.py", "test_corpus_pdf.py", "test_corpus_text.py"]
collect_ignore = [] if (CORPUS / "MANIFEST.jsonl").is_file() else _NEED_CORPUS


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqliteCatalog]:
    catalog = SqliteCatalog(tmp_path / "catalog.db", synchronous="NORMAL")
    store(catalog, sample_vectors(ROWS))
    yield catalog
    catalog.close()


@pytest.fixture
def directory(tmp_path: Path) -> CacheDirectory:
    return CacheDirectory(tmp_path / "vectors", "one", SIZES)
