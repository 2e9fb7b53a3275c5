"""What new pages and documents that stand alike have in common: worked out once a batch, not once a row."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.catalog import births
from penstock.catalog.births import DocumentStanding, PageStanding
from penstock.catalog.publishing import Verdict, verdict
from penstock.catalog.rollup import COMPLETED, FAILED, WORDS
from penstock.catalog.sql.statements import readable
from penstock.catalog.values import NO_EMBEDDER, NO_EXTRACTOR, NewGeneration, Outcome

_OUTCOMES = {
    Verdict.PUBLISH: Outcome.PUBLISHED,
    Verdict.WAIT: Outcome.BUILDING,
    Verdict.KEEP_BACK: Outcome.KEPT_BACK,
}


class Alike:
    """The last columns of ``add_page`` and ``add_document``; the first are each row's own."""

    def __init__(self, at: str) -> None:
        self._at = at
        self._pages: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        self._documents: dict[tuple[Any, ...], tuple[Outcome, tuple[Any, ...]]] = {}

    def page(self, new: NewGeneration, standing: PageStanding) -> tuple[Any, ...]:
        key = (standing, new.max_retries, new.priority)
        found = self._pages.get(key)
        if found is None:
            found = self._pages[key] = (
                WORDS[standing.ocr],
                self._at if standing.ocr == COMPLETED else None,
                standing.ocr_error and readable(standing.ocr_error),
                new.max_retries if standing.ocr == FAILED else 0,
                WORDS[standing.vector],
                self._at if standing.vector == COMPLETED else None,
                standing.vector_error,
                WORDS[standing.graphrag],
                standing.graphrag_error,
                *standing.vector_chunks,
                *standing.graphrag_chunks,
                new.max_retries,
                new.priority,
                self._at,
                self._at,
            )
        return found

    def document(
        self, new: NewGeneration, space_id: int | None, standing: DocumentStanding, numbering: tuple[int, int]
    ) -> tuple[Outcome, tuple[Any, ...]]:
        """Also what becomes of it."""
        settings = (space_id, int(new.graph), new.gate.value, new.priority, new.max_retries)
        key = (standing, *settings, numbering, new.fingerprints)
        found = self._documents.get(key)
        if found is None:
            decision, note = verdict(standing.facts)
            values = (
                "published" if decision is Verdict.PUBLISH else "building",
                WORDS[standing.ocr.kind],
                WORDS[standing.vector.kind],
                WORDS[standing.graphrag.kind],
                *standing.ocr,
                *standing.vector,
                *standing.graphrag,
                None if standing.ocr.waiting else self._at,
                None if standing.vector.waiting else self._at,
                None,
                births.why_skipped(standing.vector, standing.chunks, NO_EMBEDDER),
                births.why_skipped(standing.graphrag, standing.chunks, NO_EXTRACTOR),
                standing.pages,
                standing.chunks,
                standing.vector_chunks,
                standing.graphrag_chunks,
                standing.failed,
                standing.outages,
                *settings,
                *numbering,
                *msgspec.structs.astuple(new.fingerprints),
                self._at if decision is Verdict.PUBLISH else None,
                self._at,
                self._at,
                note,
            )
            found = self._documents[key] = (_OUTCOMES[decision], values)
        return found
