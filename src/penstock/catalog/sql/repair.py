"""Putting right what no transaction of ours leaves: rows that somebody removed, or that belong to nothing."""

from __future__ import annotations

from penstock.catalog.rules.rollup import COMPLETED, WAITING
from penstock.catalog.sql import generations, recount
from penstock.catalog.sql.removals import forget_source
from penstock.catalog.sql.rollup import Rollup
from penstock.catalog.sql.row_types import Row
from penstock.catalog.sql.statements import Statements, listed
from penstock.catalog.values import Phase


def repair(rows: Statements, limit: int, at: str) -> int:
    """How many rows were put right, at most ``limit`` of a kind."""
    with rows.whole_tables():
        rows.send("forget_stray_words")
        wordless = rows.all("wordless", limit)
    rows.many("add_keyword", wordless)
    # A text goes with its words: in SQLite forgetting words that are not there would break the index.
    texts = _found(rows, "stray_texts", limit) if len(wordless) < limit else []
    _forget_texts(rows, [number for (number,) in texts])
    vectors = _found(rows, "stray_vectors", limit)
    rows.many("delete_vectors", vectors)
    documents = _found(rows, "stray_documents", limit)
    for document_id, source_key in documents:
        generations.leave(rows, document_id, source_key, at)
    sources = [key for (key,) in _found(rows, "idle_sources", limit) if forget_source(rows, key, at)]
    again = _embed_again(rows, limit, at)
    recounted = recount.recount(rows, limit, at)
    return len(texts) + len(vectors) + len(wordless) + len(documents) + len(sources) + again + recounted


def _found(rows: Statements, name: str, limit: int) -> list[Row]:
    with rows.whole_tables():
        return rows.all(name, limit)


def _forget_texts(rows: Statements, ids: list[int]) -> None:
    rows.many("delete_vectors", [(number,) for number in ids])
    rows.many("delete_keyword", rows.all("text_of", listed(ids)))
    rows.many("delete_content", [(number,) for number in ids])


def _embed_again(rows: Statements, limit: int, at: str) -> int:
    """Chunks that lost their vector wait for another; their document stays published."""
    found = _found(rows, "vectorless", limit)
    if not found:
        return 0
    bubbling = Rollup(rows, at)
    bubbling.load(document_id for _, _, document_id in found)
    for _, page_id, document_id in found:
        bubbling.chunk_moved(Phase.VECTOR, page_id, COMPLETED, WAITING)
        bubbling.touch(document_id).vector_chunks -= 1
    rows.many("restart_chunk_vector", [(at, number) for number, _, _ in found])
    bubbling.apply()
    rows.tell()
    return len(found)


def forget(rows: Statements, tenant_id: str, asked_before: str, limit: int) -> bool:
    """Whether nothing is left to forget."""
    removed = [rows.run(name, tenant_id, limit) for name in ("forget_cached", "forget_events")]
    for name in ("forget_notes", "forget_walks", "forget_arrivals", "forget_tombstones"):
        removed.append(rows.run(name, tenant_id, asked_before, limit))
    rows.send("idle_spaces")
    return max(removed) < limit
