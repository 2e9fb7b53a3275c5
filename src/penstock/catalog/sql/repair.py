"""Repair of damage from outside: missing rows, and rows belonging to nothing."""

from __future__ import annotations

from datetime import datetime
from typing import TypeVar

from penstock.catalog.rules.query_terms import keyword_text
from penstock.catalog.rules.rollup import COMPLETED, WAITING
from penstock.catalog.sql import generations
from penstock.catalog.sql.chunks import forget_words
from penstock.catalog.sql.outside_stores import RemovalRows
from penstock.catalog.sql.read_records import (
    MISCOUNTED_DOCUMENT,
    MISCOUNTED_PAGE,
    MISCOUNTED_SOURCE,
    MiscountedDocument,
    MiscountedPage,
)
from penstock.catalog.sql.removals import forget_source
from penstock.catalog.sql.rollup import Rollup
from penstock.catalog.sql.row_types import Row, RowType
from penstock.catalog.sql.statements import Statements, listed
from penstock.catalog.values import Phase
from penstock.clock import format_time

MOST = 1_000_000_000


def repair(rows: Statements, limit: int, now: datetime) -> int:
    """Repair rows and return their number, at most ``limit`` of a kind."""
    at = format_time(now)
    with rows.whole_tables():
        rows.send("forget_stray_words")
        wordless = rows.all("wordless", limit)
    rows.many("add_keyword", [(number, keyword_text(text)) for number, text in wordless])
    # A text goes with its words: in SQLite forgetting words that are not there would break the index.
    texts = _found(rows, "stray_texts", limit) if len(wordless) < limit else []
    _forget_texts(rows, [number for (number,) in texts], now)
    vectors = _found(rows, "stray_vectors", limit)
    rows.many("delete_vectors", vectors)
    documents = _found(rows, "stray_documents", limit)
    for document_id, source_key in documents:
        generations.leave(rows, document_id, source_key, at)
    sources = [key for (key,) in _found(rows, "idle_sources", limit) if forget_source(rows, key, at)]
    again = _embed_again(rows, limit, at)
    recounted = recount(rows, limit, at)
    strays = _forget_strays(rows, limit)
    return (
        strays + len(texts) + len(vectors) + len(wordless) + len(documents) + len(sources) + again + recounted
    )


def _forget_strays(rows: Statements, limit: int) -> int:
    """Delete parts of the graph without a text."""
    texts = {
        number for name in ("stray_mentions", "stray_relations") for (number,) in _found(rows, name, limit)
    }
    rows.send("delete_relations", listed(texts))
    rows.send("delete_mentions", listed(texts))
    entities = _found(rows, "stray_entities", limit)
    for tenant_id in sorted({tenant_id for _, tenant_id in entities}):
        rows.hold("graph", tenant_id)
    rows.send("delete_idle_entities", listed(number for number, _ in entities))
    return len(texts) + len(entities)


def _found(rows: Statements, name: str, limit: int) -> list[Row]:
    with rows.whole_tables():
        return rows.all(name, limit)


def _forget_texts(rows: Statements, ids: list[int], now: datetime) -> None:
    removals = RemovalRows(rows, now)
    removals.add_texts("", ids)
    removals.flush()
    rows.many("delete_vectors", [(number,) for number in ids])
    forget_words(rows, ids)
    rows.many("delete_content", [(number,) for number in ids])


def _embed_again(rows: Statements, limit: int, at: str) -> int:
    """Queue chunks with a lost vector for embedding; the document stays published."""
    found = _found(rows, "vectorless", limit)
    if not found:
        return 0
    rollup = Rollup(rows, at)
    rollup.load(document_id for _, _, document_id in found)
    for _, page_id, document_id in found:
        rollup.chunk_moved(Phase.VECTOR, page_id, COMPLETED, WAITING)
        rollup.touch(document_id).chunks[Phase.VECTOR] -= 1
    rows.many("restart_chunk_vector", [(at, number) for number, _, _ in found])
    rollup.apply()
    rows.notify()
    return len(found)


def forget(rows: Statements, tenant_id: str, asked_before: str, limit: int) -> bool:
    """Remove the traces of a tenant, a batch at a time; returns whether none is left."""
    removed = [
        rows.run(name, tenant_id, limit) for name in ("forget_cached", "forget_events", "forget_tokens")
    ]
    for name in ("forget_notes", "forget_walks", "forget_arrivals", "forget_tombstones"):
        removed.append(rows.run(name, tenant_id, asked_before, limit))
    rows.send("forget_project_roots", tenant_id)
    rows.send("idle_spaces")
    return max(removed) < limit


def complaints(rows: Statements) -> list[str]:
    """One line for each page, document and source with wrong counters."""
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
        *(f"source {source.path} has wrong counters of its published parts" for source in sources),
    ]


def recount(rows: Statements, limit: int, at: str) -> int:
    """Pages first, as documents stand where their pages do. How many rows were put right."""
    pages = _held(rows, "miscounted_pages", MISCOUNTED_PAGE, limit)
    rows.many("recount_page", [MISCOUNTED_PAGE.encode(page) for page in pages])
    documents = _held(rows, "miscounted_documents", MISCOUNTED_DOCUMENT, limit)
    rows.many("recount_document", [MISCOUNTED_DOCUMENT.encode(document) for document in documents])
    _go_on(rows, [document.document_id for document in documents if document.state == "building"], at)
    with rows.whole_tables():
        sources = MISCOUNTED_SOURCE.decode_all(rows.all("miscounted_sources", limit))
    rows.many("recount_source", [MISCOUNTED_SOURCE.encode(source) for source in sources])
    return len(pages) + len(documents) + len(sources)


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
    """Publish documents found complete by the recount; no other transaction would."""
    rollup = Rollup(rows, at)
    rollup.load(building)
    for number in building:
        rollup.touch(number)
    if building:
        rollup.apply()
