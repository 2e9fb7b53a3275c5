"""Large generations, written part by part: each transaction leaves all counters correct.

A generation with parts to come (``unwritten``) is not published, and no job adopts it. If it is found
unfinished (by the same job after a crash, another reading of the file, or upkeep), it is dropped, and the
sweep deletes its rows. Tasks of parts already written run meanwhile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Any

from penstock.catalog.rules import initial_state
from penstock.catalog.rules.phases import CHUNK_PHASES, PHASES, turns
from penstock.catalog.rules.portions import Portions, Slice, count_rows
from penstock.catalog.rules.publication import REMOVED_WHILE_INDEXING, REPLACED, SUPERSEDED, Verdict, verdict
from penstock.catalog.rules.query_terms import keyword_text
from penstock.catalog.rules.rollup import COMPLETED, SKIPPED
from penstock.catalog.sql.chunks import (
    ChunkOwner,
    ChunkRows,
    PreparedChunks,
    RowNumbers,
    find,
    owner_of,
    prepare,
    to_embed,
)
from penstock.catalog.sql.generation_store import begin
from penstock.catalog.sql.page_rows import kept_texts, turns_of_pages
from penstock.catalog.sql.read_records import DocumentRow
from penstock.catalog.sql.rollup import Rollup
from penstock.catalog.sql.row_templates import RowTemplates
from penstock.catalog.sql.spaces import Spaces
from penstock.catalog.sql.statements import Statements
from penstock.catalog.sql.written_records import OwnPage, PageText
from penstock.catalog.values import (
    NO_TEXT,
    FailureKind,
    NewGeneration,
    NewPage,
    Outcome,
    Phase,
    StoreResult,
)
from penstock.clock import format_time
from penstock.named_tuple import NamedTuple

_DROPPED = {
    REMOVED_WHILE_INDEXING: Outcome.REMOVED,
    REPLACED: Outcome.SUPERSEDED,
    SUPERSEDED: Outcome.SUPERSEDED,
}


class Written(NamedTuple):
    """A partly written generation. ``stored``: the result, set after the last part.
    ``page_id``: the page that the next part may go on with. ``page_turn``: its first turn in lane ocr."""

    document_id: int = 0
    source_id: str = ""
    older: tuple[int, ...] = ()
    page_id: int = 0
    page_turn: int = 0
    kept: int = 0
    stored: StoreResult | None = None


class Part(NamedTuple):
    """A part, prepared as far as possible before the transaction."""

    slices: Sequence[Slice]
    earlier: Mapping[str, int] | None
    """By text hash, the number of equal chunks in earlier parts. None: tasks add chunks meanwhile, so the
    catalog has to be asked."""
    keyword_texts: Mapping[str, str]
    """Texts for the keyword index, by text hash."""


def parts(new: NewGeneration, portions: Portions) -> Iterator[Part]:
    """The parts of a large generation in order, each prepared when requested."""
    unshared = all(page.chunks is not None for page in new.pages)
    seen: Counter[str] = Counter()
    for slices in portions.parts(new.pages):
        texts = {chunk.text_hash: keyword_text(chunk.text) for one in slices for chunk in one.chunks}
        earlier = {text_hash: seen[text_hash] for text_hash in texts.keys() & seen.keys()}
        yield Part(slices, earlier if unshared else None, texts)
        seen.update(chunk.text_hash for one in slices for chunk in one.chunks)


def write_part(
    rows: Statements, new: NewGeneration, part: Part, so_far: Written | None, now: datetime
) -> Written:
    """Write the next part; the first one begins the generation. The result is valid once the transaction is
    committed: no state is kept here, so that a transaction can be tried again."""
    at = format_time(now)
    unwritten = None
    if so_far is None:
        begun = begin(rows, new, now)
        if isinstance(begun, StoreResult):
            return Written(stored=begun)
        so_far, unwritten = Written(*begun), count_rows(new)
    rollup = Rollup(rows, at)
    rollup.load([so_far.document_id])
    document = rollup.documents.get(so_far.document_id)
    if document is None or document.state != "building":
        return so_far._replace(stored=_interrupted(document, so_far))
    document.unwritten = (document.unwritten if unwritten is None else unwritten) - sum(
        one.rows for one in part.slices
    )
    document.finishes = not document.unwritten
    written = _Part(rows, new, document, rollup, at).write(part, so_far)
    rollup.touch(document.id)
    rollup.apply()
    rows.send("save_part", document.page_count, document.unwritten, document.id)
    rows.notify()
    if not document.finishes:
        return written
    return written._replace(stored=_stored(document, new, written))


def _interrupted(document: DocumentRow | None, so_far: Written) -> StoreResult:
    """Result for a generation dropped by another writer. Without a reason in the note, the job ends like one
    that waits for a document: it may have to begin again."""
    outcome = _DROPPED.get((document and document.note) or "", Outcome.BUILDING)
    return StoreResult(outcome=outcome, source_id=so_far.source_id, document_id=so_far.document_id)


def _stored(document: DocumentRow, new: NewGeneration, written: Written) -> StoreResult:
    if document.state == "published":
        outcome = Outcome.PUBLISHED
    elif document.state == "dropped":
        outcome = _DROPPED[document.note or REPLACED]
    else:
        kept_back = verdict(document.facts)[0] is Verdict.KEEP_BACK
        outcome = Outcome.KEPT_BACK if kept_back else Outcome.BUILDING
    return StoreResult(
        outcome=outcome,
        source_id=written.source_id,
        document_id=written.document_id,
        chunks=sum(len(page.chunks or ()) for page in new.pages),
        kept=written.kept,
        failed=sum(page.failure is not None for page in new.pages),
    )


class _Part:
    """One part of a large generation inside a transaction."""

    def __init__(
        self, rows: Statements, new: NewGeneration, document: DocumentRow, rollup: Rollup, at: str
    ) -> None:
        self._rows = rows
        self._new = new
        self._document = document
        self._rollup = rollup
        self._at = at
        self._alike = RowTemplates(at)
        self._pages: list[tuple[Any, ...]] = []
        self._whole_pages: list[tuple[Any, ...]] = []
        self._texts: list[PageText] = []

    def write(self, part: Part, so_far: Written) -> Written:
        rows, document, slices = self._rows, self._document, part.slices
        chunks = [chunk for one in slices for chunk in one.chunks]
        owner = owner_of(rows, Spaces(rows), document, chunks, so_far.older)
        prepared = prepare(owner, chunks, find(rows, owner, chunks, part.earlier))
        numbers = RowNumbers(rows, len(slices) + 2 * len(chunks))
        chunk_rows = ChunkRows(rows, numbers, self._at, part.keyword_texts)
        ready = iter(zip(prepared.parts, self._chunk_turns(owner, prepared), strict=True))
        page_turn, page_turns = self._page_turns(slices, so_far.page_turn)
        page_id = so_far.page_id
        for one, turn in zip(slices, page_turns, strict=True):
            page_id = page_id if one.first else numbers.next()
            kinds = [
                chunk_rows.add(owner, page_id, index, *known, chunk_turn)
                for index, (known, chunk_turn) in enumerate(islice(ready, len(one.chunks)), one.first)
            ]
            if one.first:
                self._grow(page_id, kinds)
            else:
                self._add(page_id, one.page, kinds, turn)
        rows.many("add_whole_page", self._whole_pages)
        rows.many("add_page", self._pages)
        rows.many("add_page_text", self._texts)
        chunk_rows.flush()
        document.chunk_count += len(chunks)
        self._say_why_skipped()
        return so_far._replace(page_id=page_id, page_turn=page_turn, kept=so_far.kept + prepared.kept)

    def _chunk_turns(self, owner: ChunkOwner, prepared: PreparedChunks) -> list[int]:
        document, count = self._document, len(prepared.parts)
        if not owner.wants_later and (owner.space_id is None or not any(map(to_embed, prepared.parts))):
            return [0] * count
        head = self._rows.value("head_vector", document.priority)
        document.turn, numbers = turns(document.turn, document.given, head, count)
        document.given += count
        return numbers

    def _page_turns(self, slices: Sequence[Slice], first: int) -> tuple[int, list[int]]:
        if not any(one.page.unread for one in slices):
            return first, [0] * len(slices)
        document = self._document
        pages = [one.page for one in slices]
        return turns_of_pages(self._rows, pages, document.priority, first, document.page_count)

    def _add(self, page_id: int, page: NewPage, kinds: list[tuple[int, ...]], turn: int) -> None:
        document = self._document
        standing = initial_state.page(page, document.wanted, kinds)
        own = OwnPage(page_id, document.id, page.number, page.file_path, page.needs_ocr, len(kinds))
        shared = self._alike.page(self._new, standing, turn)
        (self._whole_pages if shared.whole else self._pages).append(own + shared.values)
        self._texts += kept_texts(page_id, page)
        for phase in Phase:
            self._rollup.page_moved(phase, document.id, SKIPPED, standing.kind(phase))
        document.page_count += 1
        for phase in CHUNK_PHASES:
            document.chunks[phase] += standing.counts(phase).completed
        if page.failure is not None:
            if not document.failed_count:
                document.errors = {**document.errors, Phase.OCR: initial_state.error_text(page.failure)}
            document.failed_count += 1
            document.outage_count += page.failure.fault is FailureKind.OUTAGE

    def _grow(self, page_id: int, kinds: list[tuple[int, ...]]) -> None:
        """Add chunks to a page begun by an earlier part."""
        document = self._document
        for by_phase in kinds:
            for phase, kind in zip(CHUNK_PHASES, by_phase, strict=True):
                self._rollup.chunk_moved(phase, page_id, SKIPPED, kind)
                document.chunks[phase] += kind == COMPLETED
        self._rows.send("grow_page", len(kinds), page_id)

    def _say_why_skipped(self) -> None:
        """Record the reason for each skipped phase."""
        document = self._document
        for phase, wanted in zip(CHUNK_PHASES, document.wanted, strict=True):
            if not wanted or not document.chunk_count:
                reason = PHASES[phase].unwanted if document.chunk_count else NO_TEXT
                document.errors = {**document.errors, phase: reason}
