"""Counters and statuses of pages, documents and sources, told from their parts anew."""

from __future__ import annotations

from typing import TypeVar

from penstock.catalog.sql.read_records import (
    MISCOUNTED_DOCUMENT,
    MISCOUNTED_PAGE,
    MISCOUNTED_SOURCE,
    MiscountedDocument,
    MiscountedPage,
)
from penstock.catalog.sql.rollup import Rollup
from penstock.catalog.sql.row_types import Row, RowType
from penstock.catalog.sql.statements import Statements, listed

MOST = 1_000_000_000


def complaints(rows: Statements) -> list[str]:
    pages = MISCOUNTED_PAGE.decode_all(rows.all("miscounted_pages", MOST))
    documents = MISCOUNTED_DOCUMENT.decode_all(rows.all("miscounted_documents", MOST))
    sources = MISCOUNTED_SOURCE.decode_all(rows.all("miscounted_sources", MOST))
    return [
        *(f"page {page.page_id} does not stand where its chunks do" for page in pages),
        *(
            f"generation {one.document_id}{f' of {one.path}' if one.path else ''}"
            " does not stand where its pages do"
            for one in documents
        ),
        *(f"source {source.path} does not count what is published of it" for source in sources),
    ]


def recount(rows: Statements, limit: int, at: str) -> int:
    """Pages first, as documents stand where their pages do. How many rows were put right."""
    pages = _held(rows, "miscounted_pages", MISCOUNTED_PAGE, limit)
    rows.many(
        "recount_page",
        [(*page.vector, *page.graphrag, page.chunk_count, page.page_id) for page in pages],
    )
    documents = _held(rows, "miscounted_documents", MISCOUNTED_DOCUMENT, limit)
    rows.many("recount_document", [_right(document) for document in documents])
    _go_on(rows, [document.document_id for document in documents if document.state == "building"], at)
    with rows.whole_tables():
        sources = MISCOUNTED_SOURCE.decode_all(rows.all("miscounted_sources", limit))
    rows.many("recount_source", [(one.page_count, one.chunk_count, one.key) for one in sources])
    return len(pages) + len(documents) + len(sources)


def _right(document: MiscountedDocument) -> Row:
    return (
        *document.ocr,
        *document.vector,
        *document.graphrag,
        document.page_count,
        document.chunk_count,
        document.vector_chunks,
        document.graphrag_chunks,
        document.failed_count,
        document.document_id,
    )


Miscounted = TypeVar("Miscounted", MiscountedPage, MiscountedDocument)


def _held(rows: Statements, name: str, row_type: RowType[Miscounted], limit: int) -> list[Miscounted]:
    """The miscounted rows, counted again once nothing can move their parts."""
    with rows.whole_tables():
        found = row_type.decode_all(rows.all(name, limit))
    if not found:
        return []
    held = {row.document_id for row in found}
    rows.hold("sources_of", listed(held))
    rows.hold("documents", listed(held))
    with rows.whole_tables():
        counted = row_type.decode_all(rows.all(name, limit))
    return [row for row in counted if row.document_id in held]


def _go_on(rows: Statements, building: list[int], at: str) -> None:
    """By the right count its last part may have ended: nobody else would notice."""
    bubbling = Rollup(rows, at)
    bubbling.load(building)
    for number in building:
        bubbling.touch(number)
    if building:
        bubbling.apply()
