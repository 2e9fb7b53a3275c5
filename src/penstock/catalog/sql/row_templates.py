"""What new pages and documents that stand alike have in common: worked out once a batch, not once a row."""

from __future__ import annotations

from typing import Any, NamedTuple

from penstock.catalog.rules import initial_state
from penstock.catalog.rules.initial_state import InitialDocument, InitialPage
from penstock.catalog.rules.publication import Verdict, verdict
from penstock.catalog.rules.rollup import COMPLETED, FAILED, WORDS, PartCounts
from penstock.catalog.sql.statements import readable
from penstock.catalog.sql.written_records import (
    SHARED_DOCUMENT,
    SHARED_PAGE,
    WHOLE_DOCUMENT,
    DocumentPhase,
    PagePhase,
    PageTask,
    SharedDocument,
    SharedPage,
    WholeDocument,
    WholePage,
)
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
            whole = WholePage(
                graphrag_error=standing.graphrag_error,
                max_retries=new.max_retries,
                priority=new.priority,
                at=self._at,
            )
            return RowTemplate(whole, whole=True)
        page = SharedPage(
            turn=turn,
            ocr=PageTask(
                status=WORDS[standing.ocr],
                completed_at=self._at if standing.ocr == COMPLETED else None,
                error=standing.ocr_error and readable(standing.ocr_error),
                retry_count=new.max_retries if standing.ocr == FAILED else 0,
            ),
            vector=PagePhase(
                WORDS[standing.vector],
                self._at if standing.vector == COMPLETED else None,
                standing.vector_error,
                *standing.vector_chunks,
            ),
            graphrag=PagePhase(
                WORDS[standing.graphrag], None, standing.graphrag_error, *standing.graphrag_chunks
            ),
            max_retries=new.max_retries,
            priority=new.priority,
            created_at=self._at,
            updated_at=self._at,
        )
        return RowTemplate(SHARED_PAGE.encode(page))

    def document(
        self, new: NewGeneration, space_id: int | None, standing: InitialDocument, numbering: tuple[int, int]
    ) -> tuple[Outcome, RowTemplate]:
        """Also what becomes of it."""
        settings = (space_id, new.graph, new.gate, new.priority, new.max_retries)
        key = (standing, *settings, numbering, new.fingerprints)
        found = self._documents.get(key)
        if found is None:
            decision, note = verdict(standing.facts)
            published = decision is Verdict.PUBLISH
            if published and initial_state.whole(standing) and new.gate is Gate.PAGE and numbering == (0, 0):
                shared = self._whole_document(new, space_id, standing)
            else:
                shared = self._document(new, space_id, standing, numbering, note, published=published)
            found = self._documents[key] = (_OUTCOMES[decision], shared)
        return found

    def begun(self, new: NewGeneration, space_id: int | None) -> RowTemplate:
        """A generation none of whose parts is written yet."""
        standing = initial_state.document([], (), 0)
        return self._document(new, space_id, standing, (0, 0), None, published=False)

    def _whole_document(
        self, new: NewGeneration, space_id: int | None, standing: InitialDocument
    ) -> RowTemplate:
        document = WholeDocument(
            page_count=standing.pages,
            vector_completed=standing.vector.completed,
            chunk_count=standing.chunks,
            graphrag_error=initial_state.why_skipped(standing.graphrag, standing.chunks, NO_EXTRACTOR),
            space_id=space_id,
            priority=new.priority,
            max_retries=new.max_retries,
            fingerprints=new.fingerprints,
            at=self._at,
        )
        return RowTemplate(WHOLE_DOCUMENT.encode(document), whole=True)

    def _document(
        self,
        new: NewGeneration,
        space_id: int | None,
        standing: InitialDocument,
        numbering: tuple[int, int],
        note: str | None,
        *,
        published: bool,
    ) -> RowTemplate:
        turn, given = numbering
        document = SharedDocument(
            state="published" if published else "building",
            ocr=self._phase(standing.ocr, None),
            vector=self._phase(
                standing.vector, initial_state.why_skipped(standing.vector, standing.chunks, NO_EMBEDDER)
            ),
            graphrag=self._phase(
                standing.graphrag,
                initial_state.why_skipped(standing.graphrag, standing.chunks, NO_EXTRACTOR),
            )._replace(completed_at=None),
            page_count=standing.pages,
            chunk_count=standing.chunks,
            vector_chunks=standing.vector_chunks,
            graphrag_chunks=standing.graphrag_chunks,
            failed_count=standing.failed,
            outage_count=standing.outages,
            space_id=space_id,
            graph=new.graph,
            gate=new.gate.value,
            priority=new.priority,
            max_retries=new.max_retries,
            turn=turn,
            given=given,
            fingerprints=new.fingerprints,
            published_at=self._at if published else None,
            created_at=self._at,
            updated_at=self._at,
            note=note,
        )
        return RowTemplate(SHARED_DOCUMENT.encode(document))

    def _phase(self, counts: PartCounts, error: str | None) -> DocumentPhase:
        completed_at = None if counts.waiting else self._at
        return DocumentPhase(WORDS[counts.kind], *counts, completed_at=completed_at, error=error)
