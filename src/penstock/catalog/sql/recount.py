"""Counters and statuses of pages, documents and sources, told from their parts anew."""

from __future__ import annotations

from penstock.catalog.sql.rollup import Rollup
from penstock.catalog.sql.statements import Row, Statements, listed

MOST = 1_000_000_000


def complaints(rows: Statements) -> list[str]:
    pages = [
        f"page {row[0]} does not stand where its chunks do" for row in rows.all("miscounted_pages", MOST)
    ]
    documents = [
        f"generation {number}{f' of {path}' if path else ''} does not stand where its pages do"
        for number, _, path, *_ in rows.all("miscounted_documents", MOST)
    ]
    sources = [
        f"source {path} does not count what is published of it"
        for _, path, *_ in rows.all("miscounted_sources", MOST)
    ]
    return pages + documents + sources


def recount(rows: Statements, limit: int, at: str) -> int:
    """Pages first, as documents stand where their pages do. How many rows were put right."""
    pages = _held(rows, "miscounted_pages", 1, limit)
    rows.many("recount_page", [(*row[2:], row[0]) for row in pages])
    documents = _held(rows, "miscounted_documents", 0, limit)
    rows.many("recount_document", [(*row[3:], row[0]) for row in documents])
    _go_on(rows, [row[0] for row in documents if row[1] == "building"], at)
    with rows.whole_tables():
        sources = rows.all("miscounted_sources", limit)
    rows.many("recount_source", [(*row[2:], row[0]) for row in sources])
    return len(pages) + len(documents) + len(sources)


def _held(rows: Statements, name: str, document_at: int, limit: int) -> list[Row]:
    """Counted again once nobody can move their parts."""
    with rows.whole_tables():
        found = rows.all(name, limit)
    if not found:
        return []
    held = {row[document_at] for row in found}
    rows.hold("sources_of", listed(held))
    rows.hold("documents", listed(held))
    with rows.whole_tables():
        return [row for row in rows.all(name, limit) if row[document_at] in held]


def _go_on(rows: Statements, building: list[int], at: str) -> None:
    """By the right count its last part may have ended: nobody else would notice."""
    bubbling = Rollup(rows, at)
    bubbling.load(building)
    for number in building:
        bubbling.touch(number)
    if building:
        bubbling.apply()
