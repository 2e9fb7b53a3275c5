"""What new pages and documents that stand alike have in common: worked out once a batch, not once a row."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from penstock.catalog.rules import initial_state
from penstock.catalog.rules.initial_state import InitialDocument, InitialPage
from penstock.catalog.rules.publication import Verdict, verdict
from penstock.catalog.rules.rollup import COMPLETED, FAILED, WORDS
from penstock.catalog.sql.statements import readable
from penstock.catalog.values import NO_EMBEDDER, NO_EXTRACTOR, Gate, NewGeneration, Outcome

_OUTCOMES = {
    Verdict.PUBLISH: Outcome.PUBLISHED,
    Verdict.WAIT: Outcome.BUILDING,
    Verdict.KEEP_BACK: Outcome.KEPT_BACK,
}


class RowTemplate(NamedTuple):
    """The last columns of ``add_page`` or ``add_document``; the first are each row's own. ``whole``: of
    ``add_whole_page`` or ``add_whole_document``, which have a third of them."""

    values: tuple[Any, ...]
    whole: bool = False


class RowTemplates:
    def __init__(self, at: str) -> None:
        self._at = at
        self._pages: dict[tuple[Any, ...], RowTemplate] = {}
        self._documents: dict[tuple[Any, ...], tuple[Outcome, RowTemplate]] = {}

    def page(self, new: NewGeneration, standing: InitialPage, turn: int) -> RowTemplate:
        key = (standing, new.max_retries, new.priority, turn)
        found = self._pages.get(key)
        if found is None:
            found = self._pages[key] = self._page(new, standing, turn)
        return found

    def _page(self, new: NewGeneration, standing: InitialPage, turn: int) -> RowTemplate:
        if initial_state.whole(standing) and not turn:
            return RowTemplate((standing.graphrag_error, new.max_retries, new.priority, self._at), whole=True)
        return RowTemplate(
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
        self, new: NewGeneration, space_id: int | None, standing: InitialDocument, numbering: tuple[int, int]
    ) -> tuple[Outcome, RowTemplate]:
        """Also what becomes of it."""
        settings = (space_id, int(new.graph), new.gate.value, new.priority, new.max_retries)
        key = (standing, *settings, numbering, new.fingerprints)
        found = self._documents.get(key)
        if found is None:
            decision, note = verdict(standing.facts)
            published = decision is Verdict.PUBLISH
            if published and initial_state.whole(standing) and new.gate is Gate.PAGE and numbering == (0, 0):
                shared = self._whole_document(new, space_id, standing)
            else:
                shared = self._document(new, standing, (*settings, *numbering), note, published=published)
            found = self._documents[key] = (_OUTCOMES[decision], shared)
        return found

    def begun(self, new: NewGeneration, space_id: int | None) -> RowTemplate:
        """A generation none of whose parts is written yet."""
        settings = (space_id, int(new.graph), new.gate.value, new.priority, new.max_retries, 0, 0)
        return self._document(new, initial_state.document([], (), 0), settings, None, published=False)

    def _whole_document(
        self, new: NewGeneration, space_id: int | None, standing: InitialDocument
    ) -> RowTemplate:
        values = (
            standing.pages,
            standing.vector.completed,
            standing.chunks,
            initial_state.why_skipped(standing.graphrag, standing.chunks, NO_EXTRACTOR),
            space_id,
            new.priority,
            new.max_retries,
            *msgspec.structs.astuple(new.fingerprints),
            self._at,
        )
        return RowTemplate(values, whole=True)

    def _document(
        self,
        new: NewGeneration,
        standing: InitialDocument,
        settings: tuple[Any, ...],
        note: str | None,
        *,
        published: bool,
    ) -> RowTemplate:
        return RowTemplate(
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
                initial_state.why_skipped(standing.vector, standing.chunks, NO_EMBEDDER),
                initial_state.why_skipped(standing.graphrag, standing.chunks, NO_EXTRACTOR),
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
