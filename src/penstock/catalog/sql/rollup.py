"""Bringing pages and documents up to their parts, once a transaction and parent."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.catalog.rules.phases import CHUNK_PHASES, PHASES
from penstock.catalog.rules.rollup import SKIPPED, WORDS, PartChanges, kind
from penstock.catalog.sql import generations
from penstock.catalog.sql.read_records import PAGE_COUNTS, DocumentRow
from penstock.catalog.sql.statements import Statements, listed
from penstock.catalog.sql.written_records import SavedPage
from penstock.catalog.values import SETTLED, Phase


class Rollup:
    def __init__(self, rows: Statements, at: str, *, beginning: bool = False) -> None:
        """Start a rollup. ``beginning``: tasks only begin, so nothing can be published."""
        self._beginning = beginning
        self._rows = rows
        self._at = at
        self._chunks = {phase: PartChanges() for phase in CHUNK_PHASES}
        self._pages = {phase: PartChanges() for phase in Phase}
        self._errors: dict[tuple[Phase, int], str] = {}
        self._touched: set[int] = set()
        self.documents: dict[int, DocumentRow] = {}

    def load(self, ids: Iterable[int]) -> None:
        """Load the documents with parts about to change."""
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

    def explain(self, phase: Phase, page_id: int, error: str) -> None:
        """Record the error of a chunk, kept if the page fails or is skipped in this phase."""
        self._errors[phase, page_id] = error

    def apply(self) -> None:
        """Pages from their chunks, documents from their pages, then gates and publishing."""
        for phase, tally in self._chunks.items():
            self._apply_to_pages(phase, tally)
        for phase, tally in self._pages.items():
            for number, delta in tally.items():
                document = self.documents[number]
                document.counts[phase] = document.counts[phase].changed(delta)
        documents = [self.documents[number] for number in self._touched]
        for document in documents:
            self._open_gates(document)
        published = generations.decide(self._rows, documents, self._at)
        generations.save(self._rows, documents, self._at, published)

    def _apply_to_pages(self, phase: Phase, tally: PartChanges) -> None:
        changes = dict(tally.items())
        if not changes:
            return
        saved: list[SavedPage] = []
        self._rows.hold("pages", listed(changes))
        for page in PAGE_COUNTS.decode_all(self._rows.all(f"page_rows_{phase}", listed(changes))):
            document_id = page.document_id
            counts = page.counts.changed(changes[page.page_id])
            after = counts.kind
            explained = counts.failed or after == SKIPPED
            error = self._errors.get((phase, page.page_id)) if explained else None
            saved.append(SavedPage(WORDS[after], *counts, error=error, at=self._at, page_id=page.page_id))
            self.page_moved(phase, document_id, kind(page.status), after)
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
        for phase in CHUNK_PHASES:
            before = PHASES[phase].after
            assert before is not None
            just_settled = document.status[before] not in SETTLED or document.finishes
            if just_settled and document.counts[before].status in SETTLED:
                # Only vectors are written to outside stores, which are cleared first.
                waits = phase is Phase.VECTOR and self._rows.value("any_leftover", document.source_key)
                self._rows.send(f"release_gate_{phase}", "outbox" if waits else None, document.id)
                self._rows.notify()
