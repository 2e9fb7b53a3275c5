"""The time until a document is searchable, from what its phases have ended."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.catalog.protocol import Catalog
from penstock.catalog.rules import publication
from penstock.catalog.sql.sqlite import SqliteCatalog
from penstock.catalog.values import NewPage, Phase
from penstock.service.documents import time_estimate
from tests.catalog.conftest import VECTOR, at, begin, chunk, embed, settle, take


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    opened = SqliteCatalog(tmp_path / "catalog.db", synchronous="NORMAL")
    yield opened
    opened.close()


def estimate(catalog: Catalog, document_id: int, seconds: float) -> list[object]:
    with catalog.snapshot() as snapshot:
        document, progress = snapshot.document(document_id), snapshot.progress(document_id)
    assert document is not None
    assert progress is not None
    return list(time_estimate(document, progress, at(seconds)).values())


def read_pages(catalog: Catalog, number: int) -> None:
    tasks = take(catalog, Phase.OCR, number)
    made = [NewPage(number=one.page_number, chunks=(chunk(f"{one.page_number} x", None),)) for one in tasks]
    settle(catalog, [publication.completed_page(*each) for each in zip(tasks, made, strict=True)])


def test_the_slowest_phase_decides_and_unread_pages_count_with_their_chunks(catalog: Catalog):
    document_id = begin(catalog, count=10)
    unknown = [None] * 4
    assert unknown == estimate(catalog, document_id, 10)

    read_pages(catalog, 4)
    # No chunk has ended yet, so nothing is known about that phase.
    assert unknown == estimate(catalog, document_id, 10)

    (first, *_) = take(catalog, Phase.VECTOR, 1)
    settle(catalog, [publication.completed_vector(first, VECTOR)])
    # 4 of 10 pages in 20 s would leave 30 s; 1 of 10 expected chunks leaves 180 s.
    assert [180.0, 0.05, 20, "chunks"] == estimate(catalog, document_id, 20)

    embed(catalog)
    assert [30.0, 0.2, 20, "pages"] == estimate(catalog, document_id, 20)

    read_pages(catalog, 10)
    embed(catalog)
    assert unknown == estimate(catalog, document_id, 60)
