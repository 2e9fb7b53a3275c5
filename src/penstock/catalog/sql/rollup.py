"""Bringing pages and documents up to their parts, once a transaction and parent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.catalog.rules.initial_state import GATE_VECTOR
from penstock.catalog.rules.rollup import SKIPPED, WORDS, PartChanges, PartCounts, kind
from penstock.catalog.sql import generations
from penstock.catalog.sql.generations import DocumentRow
from penstock.catalog.sql.statements import Statements, listed
from penstock.catalog.values import SETTLED, Phase

_AT = {Phase.VECTOR: (2, 4), Phase.GRAPHRAG: (3, 8)}
"""Where a page's row has the status and the counts of a phase."""


class Rollup:
    def __init__(self, rows: Statements, at: str, *, beginning: bool = False) -> None:
        """``beginning``: parts only begin, so that nothing can be published by it."""
        self._beginning = beginning
        self._rows = rows
        self._at = at
        self._chunks = {Phase.VECTOR: PartChanges(), Phase.GRAPHRAG: PartChanges()}
        self._pages = {phase: PartChanges() for phase in Phase}
        self._errors: dict[tuple[Phase, int], str] = {}
        self._touched: set[int] = set()
        self.documents: dict[int, DocumentRow] = {}

    def load(self, ids: Iterable[int]) -> None:
        """The documents whose parts will move."""
        missing = [number for number in dict.fromkeys(ids) if number not in self.documents]
        if missing:
            self.documents |= generations.load(self._rows, missing, alone=self._beginning)

    def touch(self, document_id: int) -> DocumentRow:
        """A part of this document moves."""
        self._touched.add(document_id)
        return self.documents[document_id]

    def chunk_moved(self, phase: Phase, page_id: int, before: int, after: int) -> None:
        self._chunks[phase].move(page_id, before, after)

    def page_moved(self, phase: Phase, document_id: int, before: int, after: int) -> None:
        self._pages[phase].move(document_id, before, after)

    def failed(self, phase: Phase, page_id: int, error: str) -> None:
        """What a page will say of a phase should it come out failed."""
        self._errors[phase, page_id] = error

    def apply(self) -> None:
        """Pages from their chunks, documents from their pages, then gates and publishing."""
        for phase, tally in self._chunks.items():
            self._apply_to_pages(phase, tally)
        for phase, tally in self._pages.items():
            for number, delta in tally.items():
                document = self.documents[number]
                setattr(document, phase, getattr(document, phase).changed(delta))
        documents = [self.documents[number] for number in self._touched]
        for document in documents:
            self._open_gates(document)
        published = generations.decide(self._rows, documents, self._at)
        generations.save(self._rows, documents, self._at, published)

    def _apply_to_pages(self, phase: Phase, tally: PartChanges) -> None:
        changes = dict(tally.items())
        if not changes:
            return
        status_at, counts_at = _AT[phase]
        saved: list[tuple[Any, ...]] = []
        self._rows.hold("pages", listed(changes))
        for row in self._rows.all("page_rows", listed(changes)):
            page_id, document_id = row[:2]
            counts = PartCounts(*row[counts_at : counts_at + 4]).changed(changes[page_id])
            error = self._errors.get((phase, page_id)) if counts.failed else None
            after = counts.kind
            if phase is Phase.GRAPHRAG and after == SKIPPED:
                error = GATE_VECTOR
            saved.append((WORDS[after], *counts, error, self._at, page_id))
            self.page_moved(phase, document_id, kind(row[status_at]), after)
            if error is not None and counts.failed:
                self.documents[document_id].errors = {
                    **self.documents[document_id].errors,
                    phase: error,
                }
        self._rows.many(f"save_page_{phase}", saved)

    def _open_gates(self, document: DocumentRow) -> None:
        """With ``gate=document`` the next phase begins when the whole document is through with this one."""
        if document.gate != "document" or document.unwritten:
            return
        ocr, vector, _ = document.statuses
        if (ocr not in SETTLED or document.finishes) and document.ocr.status in SETTLED:
            held = "outbox" if self._rows.value("any_leftover", document.source_key) else None
            self._rows.send("release_gate_vector", held, document.id)
            self._rows.tell()
        if (vector not in SETTLED or document.finishes) and document.vector.status in SETTLED:
            self._rows.send("release_gate_graphrag", None, document.id)
            self._rows.tell()
