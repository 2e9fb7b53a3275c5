"""What new pages and documents that stand alike have in common: worked out once a batch, not once a row."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from penstock.catalog import births
from penstock.catalog.births import DocumentStanding, PageStanding
from penstock.catalog.publishing import Verdict, verdict
from penstock.catalog.rollup import COMPLETED, FAILED, WORDS
from penstock.catalog.sql.statements import readable
from penstock.catalog.values import NO_EMBEDDER, NO_EXTRACTOR, Gate, NewGeneration, Outcome

_OUTCOMES = {
    Verdict.PUBLISH: Outcome.PUBLISHED,
    Verdict.WAIT: Outcome.BUILDING,
    Verdict.KEEP_BACK: Outcome.KEPT_BACK,
}


class Shared(NamedTuple):
    """The last columns of ``add_page`` or ``add_document``; the first are each row's own. ``whole``: of
    ``add_whole_page`` or ``add_whole_document``, which have a third of them."""

    values: tuple[Any, ...]
    whole: bool = False


class Alike:
    def __init__(self, at: str) -> None:
        self._at = at
        self._pages: dict[tuple[Any, ...], Shared] = {}
        self._documents: dict[tuple[Any, ...], tuple[Outcome, Shared]] = {}

    def page(self, new: NewGeneration, standing: PageStanding, turn: int) -> Shared:
        key = (standing, new.max_retries, new.priority, turn)
        found = self._pages.get(key)
        if found is None:
            found = self._pages[key] = self._page(new, standing, turn)
        return found

    def _page(self, new: NewGeneration, standing: PageStanding, turn: int) -> Shared:
        if births.whole(standing) and not turn:
            return Shared((standing.graphrag_error, new.max_retries, new.priority, self._at), whole=True)
        return Shared(
            (
                turn,
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
        )

    def document(
        self, new: NewGeneration, space_id: int | None, standing: DocumentStanding, numbering: tuple[int, int]
    ) -> tuple[Outcome, Shared]:
        """Also what becomes of it."""
        settings = (space_id, int(new.graph), new.gate.value, new.priority, new.max_retries)
        key = (standing, *settings, numbering, new.fingerprints)
        found = self._documents.get(key)
        if found is None:
            decision, note = verdict(standing.facts)
            published = decision is Verdict.PUBLISH
            if published and births.whole(standing) and new.gate is Gate.PAGE and numbering == (0, 0):
                shared = self._whole_document(new, space_id, standing)
            else:
                shared = self._document(new, standing, (*settings, *numbering), note, published=published)
            found = self._documents[key] = (_OUTCOMES[decision], shared)
        return found

    def _whole_document(self, new: NewGeneration, space_id: int | None, standing: DocumentStanding) -> Shared:
        values = (
            standing.pages,
            standing.vector.completed,
            standing.chunks,
            births.why_skipped(standing.graphrag, standing.chunks, NO_EXTRACTOR),
            space_id,
            new.priority,
            new.max_retries,
            *msgspec.structs.astuple(new.fingerprints),
            self._at,
        )
        return Shared(values, whole=True)

    def _document(
        self,
        new: NewGeneration,
        standing: DocumentStanding,
        settings: tuple[Any, ...],
        note: str | None,
        *,
        published: bool,
    ) -> Shared:
        return Shared(
            (
                "published" if published else "building",
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
                *msgspec.structs.astuple(new.fingerprints),
                self._at if published else None,
                self._at,
                self._at,
                note,
            )
        )
