"""Common columns of equal new pages and documents, computed once a batch."""

from __future__ import annotations

from typing import Any

from penstock.catalog.rules import initial_state
from penstock.catalog.rules.initial_state import InitialDocument, InitialPage
from penstock.catalog.rules.phases import CHUNK_PHASES, LATER_PHASES, PHASES
from penstock.catalog.rules.publication import Verdict, verdict
from penstock.catalog.rules.rollup import COMPLETED, FAILED, WORDS, PartCounts
from penstock.catalog.sql.statements import readable
from penstock.catalog.sql.written_records import (
    SHARED_DOCUMENT,
    SHARED_PAGE,
    WHOLE_DOCUMENT,
    WHOLE_PAGE,
    DocumentPhase,
    PagePhase,
    PageTask,
    SharedDocument,
    SharedPage,
    WholeDocument,
    WholePage,
)
from penstock.catalog.values import Gate, NewGeneration, Outcome, Phase
from penstock.named_tuple import NamedTuple

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
                error={phase: standing.error(phase) for phase in LATER_PHASES},
                max_retries=new.max_retries,
                priority=new.priority,
                at=self._at,
            )
            return RowTemplate(WHOLE_PAGE.encode(whole), whole=True)
        ocr, error = standing.kind(Phase.OCR), standing.error(Phase.OCR)
        page = SharedPage(
            turn=turn,
            ocr=PageTask(
                status=WORDS[ocr],
                completed_at=self._at if ocr == COMPLETED else None,
                error=error and readable(error),
                retry_count=new.max_retries if ocr == FAILED else 0,
            ),
            phases={phase: self._page_phase(standing, phase) for phase in CHUNK_PHASES},
            max_retries=new.max_retries,
            priority=new.priority,
            created_at=self._at,
            updated_at=self._at,
        )
        return RowTemplate(SHARED_PAGE.encode(page))

    def document(
        self, new: NewGeneration, space_id: int | None, standing: InitialDocument, numbering: tuple[int, int]
    ) -> tuple[Outcome, RowTemplate]:
        """The outcome and the common columns of a new document."""
        settings = (space_id, new.gate, new.priority, new.max_retries)
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
        """The common columns of a large generation before the first part."""
        standing = initial_state.document([], (), 0)
        return self._document(new, space_id, standing, (0, 0), None, published=False)

    def _whole_document(
        self, new: NewGeneration, space_id: int | None, standing: InitialDocument
    ) -> RowTemplate:
        document = WholeDocument(
            page_count=standing.pages,
            vector_completed=standing.counts[list(PHASES).index(Phase.VECTOR)].completed,
            chunk_count=standing.chunks,
            error={phase: initial_state.error_of(phase, PartCounts(), standing) for phase in LATER_PHASES},
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
            phases={
                phase: self._document_phase(phase, counts, standing)
                for phase, counts in zip(PHASES, standing.counts, strict=True)
            },
            page_count=standing.pages,
            chunk_count=standing.chunks,
            chunks=dict(zip(CHUNK_PHASES, standing.completed_chunks, strict=True)),
            failed_count=standing.failed,
            outage_count=standing.outages,
            space_id=space_id,
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

    def _page_phase(self, standing: InitialPage, phase: Phase) -> PagePhase:
        kind = standing.kind(phase)
        return PagePhase(
            WORDS[kind],
            self._at if kind == COMPLETED else None,
            standing.error(phase),
            *standing.counts(phase),
        )

    def _document_phase(self, phase: Phase, counts: PartCounts, standing: InitialDocument) -> DocumentPhase:
        error = initial_state.error_of(phase, counts, standing)
        return DocumentPhase(
            WORDS[counts.kind],
            *counts,
            completed_at=self._at if counts.kind == COMPLETED else None,
            error=error and readable(error),
        )
