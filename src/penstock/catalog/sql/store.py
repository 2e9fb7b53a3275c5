"""The store of generations: whole ones are published at once, others get tasks, large ones come in parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Any

import msgspec

from penstock import clock
from penstock.catalog import values
from penstock.catalog.rules import publication
from penstock.catalog.rules.paths import covered
from penstock.catalog.rules.phases import (
    CHUNK_PHASES,
    LATER_PHASES,
    PHASES,
    PerChunkPhase,
    PerLaterPhase,
    PerPhase,
    turns,
    wanted_phases,
)
from penstock.catalog.rules.publication import (
    COMPLETED,
    FAILED,
    REMOVED_WHILE_INDEXING,
    REPLACED,
    SKIPPED,
    SUPERSEDED,
    WORDS,
    InitialDocument,
    InitialPage,
    PartCounts,
    Portions,
    Slice,
    Verdict,
    count_rows,
    superseded,
    verdict,
)
from penstock.catalog.rules.words import keyword_text
from penstock.catalog.sql import generations
from penstock.catalog.sql.chunks import (
    OUTBOX_HELD,
    ChunkOwner,
    ChunkRows,
    Families,
    PreparedChunks,
    RowNumbers,
    Spaces,
    find,
    hold_by_gate,
    kept_texts,
    owner_of,
    prepare,
    to_embed,
    turns_of_pages,
)
from penstock.catalog.sql.generations import (
    PUBLISHED_SOURCE,
    SOURCE_ROW,
    DocumentRow,
    PublishedSource,
    SourceRow,
    removals,
)
from penstock.catalog.sql.statements import INDEX_STATUS, Row, RowType, Statements, listed, readable
from penstock.catalog.sql.tasks import Rollup, restart
from penstock.catalog.values import (
    NO_TEXT,
    FailureKind,
    Fingerprints,
    Gate,
    NewGeneration,
    NewPage,
    Outcome,
    Phase,
    Place,
    Removal,
    StoreResult,
)
from penstock.clock import format_time


class NewSource(msgspec.Struct, frozen=True, kw_only=True):
    key: int
    source_id: str
    place: Place
    path: str
    family_key: int
    created_at: str


class OwnDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The columns of a new document with different values in each row."""

    document_id: int
    source_key: int
    filename: str
    content_hash: str
    job_id: str | None
    asked_at: str
    read_at: str


class UnfinishedDocument(msgspec.Struct, frozen=True):
    """The columns of a new, incomplete document: the future source, and the file behind it."""

    source_json: str | None
    size: int
    mtime_ns: int
    read_with: str | None


class DocumentPhase(msgspec.Struct, frozen=True):
    status: str
    processing: int
    waiting: int
    failed: int
    completed: int
    completed_at: str | None
    error: str | None


class SharedDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The columns of a new document common to many of a batch."""

    state: str
    phases: PerPhase[DocumentPhase]
    page_count: int
    chunk_count: int
    chunks: PerChunkPhase[int]
    failed_count: int
    outage_count: int
    space_id: int | None
    gate: str
    priority: int
    max_retries: int
    turn: int
    given: int
    fingerprints: Fingerprints
    published_at: str | None
    created_at: str
    updated_at: str
    note: str | None


class WholeDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The common columns of documents complete when written."""

    page_count: int
    vector_completed: int
    chunk_count: int
    error: PerLaterPhase[str | None]
    space_id: int | None
    priority: int
    max_retries: int
    fingerprints: Fingerprints
    at: str


class OwnPage(msgspec.Struct, frozen=True):
    """The columns of a new page with different values in each row."""

    page_id: int
    document_id: int
    page_number: int
    page_file_path: str | None
    needs_ocr: bool
    chunk_count: int


class PageTask(msgspec.Struct, frozen=True):
    status: str
    completed_at: str | None
    error: str | None
    retry_count: int


class PagePhase(msgspec.Struct, frozen=True):
    status: str
    completed_at: str | None
    error: str | None
    processing: int
    waiting: int
    failed: int
    completed: int


class SharedPage(msgspec.Struct, frozen=True, kw_only=True):
    """The columns of a new page common to many of a batch."""

    turn: int
    ocr: PageTask
    phases: PerChunkPhase[PagePhase]
    max_retries: int
    priority: int
    created_at: str
    updated_at: str


class WholePage(msgspec.Struct, frozen=True):
    """The common columns of pages complete when written."""

    error: PerLaterPhase[str | None]
    max_retries: int
    priority: int
    at: str


_NEW_SOURCE = RowType(NewSource, renamed={"source_id": "id"})
_OWN_DOCUMENT = RowType(OwnDocument)
_UNFINISHED_DOCUMENT = RowType(UnfinishedDocument)
_SHARED_DOCUMENT = RowType(SharedDocument, renamed=INDEX_STATUS)
_WHOLE_DOCUMENT = RowType(WholeDocument)
_OWN_PAGE = RowType(OwnPage)
_SHARED_PAGE = RowType(SharedPage)
_WHOLE_PAGE = RowType(WholePage)


_OUTCOMES = {
    Verdict.PUBLISH: Outcome.PUBLISHED,
    Verdict.WAIT: Outcome.BUILDING,
    Verdict.KEEP_BACK: Outcome.KEPT_BACK,
}


class _RowTemplate(msgspec.Struct, frozen=True):
    """The last columns of ``add_page`` or ``add_document``; the first are each row's own. ``whole``: of
    ``add_whole_page`` or ``add_whole_document``, which have a third of them."""

    values: tuple[Any, ...]
    whole: bool = False


class _RowTemplates:
    """Common columns of equal new pages and documents, computed once a batch."""

    def __init__(self, at: str) -> None:
        self._at = at
        self._pages: dict[tuple[Any, ...], _RowTemplate] = {}
        self._documents: dict[tuple[Any, ...], tuple[Outcome, _RowTemplate]] = {}

    def page(self, new: NewGeneration, standing: InitialPage, turn: int) -> _RowTemplate:
        key = (standing, new.max_retries, new.priority, turn)
        found = self._pages.get(key)
        if found is None:
            found = self._pages[key] = self._page(new, standing, turn)
        return found

    def _page(self, new: NewGeneration, standing: InitialPage, turn: int) -> _RowTemplate:
        if publication.whole(standing) and not turn:
            whole = WholePage(
                error={phase: standing.error(phase) for phase in LATER_PHASES},
                max_retries=new.max_retries,
                priority=new.priority,
                at=self._at,
            )
            return _RowTemplate(_WHOLE_PAGE.encode(whole), whole=True)
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
        return _RowTemplate(_SHARED_PAGE.encode(page))

    def document(
        self, new: NewGeneration, space_id: int | None, standing: InitialDocument, numbering: tuple[int, int]
    ) -> tuple[Outcome, _RowTemplate]:
        """The outcome and the common columns of a new document."""
        settings = (space_id, new.gate, new.priority, new.max_retries)
        key = (standing, *settings, numbering, new.fingerprints)
        found = self._documents.get(key)
        if found is None:
            decision, note = verdict(standing.facts)
            published = decision is Verdict.PUBLISH
            if published and publication.whole(standing) and new.gate is Gate.PAGE and numbering == (0, 0):
                shared = self._whole_document(new, space_id, standing)
            else:
                shared = self._document(new, space_id, standing, numbering, note, published=published)
            found = self._documents[key] = (_OUTCOMES[decision], shared)
        return found

    def begun(self, new: NewGeneration, space_id: int | None) -> _RowTemplate:
        """The common columns of a large generation before the first part."""
        standing = publication.document([], (), 0)
        return self._document(new, space_id, standing, (0, 0), None, published=False)

    def _whole_document(
        self, new: NewGeneration, space_id: int | None, standing: InitialDocument
    ) -> _RowTemplate:
        document = WholeDocument(
            page_count=standing.pages,
            vector_completed=standing.counts[list(PHASES).index(Phase.VECTOR)].completed,
            chunk_count=standing.chunks,
            error={phase: publication.error_of(phase, PartCounts(), standing) for phase in LATER_PHASES},
            space_id=space_id,
            priority=new.priority,
            max_retries=new.max_retries,
            fingerprints=new.fingerprints,
            at=self._at,
        )
        return _RowTemplate(_WHOLE_DOCUMENT.encode(document), whole=True)

    def _document(
        self,
        new: NewGeneration,
        space_id: int | None,
        standing: InitialDocument,
        numbering: tuple[int, int],
        note: str | None,
        *,
        published: bool,
    ) -> _RowTemplate:
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
        return _RowTemplate(_SHARED_DOCUMENT.encode(document))

    def _page_phase(self, standing: InitialPage, phase: Phase) -> PagePhase:
        kind = standing.kind(phase)
        return PagePhase(
            WORDS[kind],
            self._at if kind == COMPLETED else None,
            standing.error(phase),
            *standing.counts(phase),
        )

    def _document_phase(self, phase: Phase, counts: PartCounts, standing: InitialDocument) -> DocumentPhase:
        error = publication.error_of(phase, counts, standing)
        return DocumentPhase(
            WORDS[counts.kind],
            *counts,
            completed_at=self._at if counts.kind == COMPLETED else None,
            error=error and readable(error),
        )


def store(rows: Statements, new: Sequence[NewGeneration], now: datetime) -> list[StoreResult]:
    return GenerationStore(rows, new, format_time(now)).run() if new else []


class GenerationStore:
    """One call of ``store``. Rows are collected over all generations and written table by table."""

    def __init__(
        self, rows: Statements, new: Sequence[NewGeneration], at: str, *, in_parts: bool = False
    ) -> None:
        self._rows = rows
        self._new = new
        self._at = at
        needed = 0 if in_parts else sum(4 + len(g.pages) + 2 * _chunk_count(g) for g in new)
        self._numbers = RowNumbers(rows, needed)
        self._spaces = Spaces(rows)
        self._chunks = ChunkRows(rows, self._numbers, at)
        self._change = rows.numbers("change", len(new))[0]
        self._pages: list[tuple[Any, ...]] = []
        self._whole_pages: list[tuple[Any, ...]] = []
        self._texts: list[Row] = []
        self._documents: list[tuple[Any, ...]] = []
        self._whole_documents: list[tuple[Any, ...]] = []
        self._sources: list[tuple[Any, ...]] = []
        self._published: list[tuple[Any, ...]] = []
        self._paths: list[tuple[str, str, str, str]] = []
        self._written: set[tuple[Place, str]] = set()
        self._alike = _RowTemplates(at)
        self._ids: list[str] = []
        self._found: dict[tuple[Place, str], SourceRow] = {}
        self._families = Families(rows)
        self._removals: list[Removal] = []

    def run(self) -> list[StoreResult]:
        self._look_around()
        answers = [self._store(new) for new in self._new]
        self._flush()
        if self._paths and self._rows.value("any_ledger"):
            self._rows.many("unnote", self._paths)
        return answers

    def begin(self, new: NewGeneration) -> Written:
        """Write only the row of a large generation; ``stored`` is the reason for a refusal."""
        self._look_around()
        source = self._found.get((new.place, new.path))
        refused = self._refused(new, source)
        if refused is not None:
            return Written(stored=refused)
        owner = self._owner(new, source, self._source_id(new) or self._new_id())
        if source is None:
            self._flush_bare(new, owner)
        shared = self._alike.begun(new, owner.space_id)
        self._documents.append(self._own(new, owner) + _unfinished(new) + shared.values)
        self._flush_parts()
        self._rows.send("set_building", owner.document_id, self._at, owner.source_key)
        older = () if source is None or source.building_id is None else (source.building_id,)
        return Written(owner.document_id, owner.source_id, older)

    def _look_around(self) -> None:
        """Read and lock the sources, deletes and spaces of these generations."""
        earliest = min(new.asked_at for new in self._new)
        for tenant_id in sorted({new.place.tenant_id for new in self._new}):
            self._rows.hold("tenant_shared", tenant_id)
        by_place: dict[Place, list[NewGeneration]] = {}
        for new in self._new:
            by_place.setdefault(new.place, []).append(new)
        for place, some in sorted(by_place.items()):
            self._look_up(place, [new.path for new in some])
            named = [(new.path, self._source_id(new)) for new in some]
            self._removals += removals(self._rows, place, named, earliest)
        begun = [source.building_id for source in self._found.values() if source.building_id is not None]
        if begun:
            self._rows.hold("documents", listed(begun))
        for space in sorted({new.space for new in self._new if new.space is not None}):
            self._spaces.number(space, _vectors(new for new in self._new if new.space == space))
        self._families.look_up(self._new, self._found)

    def _source_id(self, new: NewGeneration) -> str | None:
        found = self._found.get((new.place, new.path))
        return found.source_id if found is not None else new.source_id

    def _look_up(self, place: Place, paths: list[str]) -> None:
        where = (place.tenant_id, place.collection, place.branch)
        for source in SOURCE_ROW.decode_all(self._rows.all("sources_at", *where, listed(paths))):
            self._found[place, source.path] = source

    def _flush(self) -> None:
        self._flush_parts()
        self._flush_as("add_source", self._sources)
        self._flush_as("publish", self._published)

    def _flush_parts(self) -> None:
        """Write all rows but the sources: a change number is locked from the write to the commit."""
        if not self._rows.references_checked_late:
            self._flush_as("add_source", self._sources)
        self._flush_as("add_whole_document", self._whole_documents)
        self._flush_as("add_document", self._documents)
        self._flush_as("add_whole_page", self._whole_pages)
        self._flush_as("add_page", self._pages)
        self._flush_as("add_page_text", self._texts)
        self._chunks.flush()

    def _flush_as(self, name: str, rows: list[Any]) -> None:
        self._rows.many(name, rows)
        rows.clear()

    def _store(self, new: NewGeneration) -> StoreResult:
        where = (new.place, new.path)
        if where in self._written:
            # Once more in the same batch: the rows of the first are needed now.
            self._flush()
            self._look_up(new.place, [new.path])
        source = self._found.get(where)
        refused = self._refused(new, source)
        if refused is not None:
            return refused
        self._written.add(where)
        return self._write(new, source, self._source_id(new) or self._new_id())

    def _refused(self, new: NewGeneration, source: SourceRow | None) -> StoreResult | None:
        source_id = self._source_id(new)
        if self._removals and covered(self._removals, new.place, new.path, source_id, new.asked_at):
            return StoreResult(outcome=Outcome.REMOVED, source_id=source_id)
        return self._earlier(new, source) if source is not None else None

    def _new_id(self) -> str:
        if not self._ids:
            self._ids = clock.new_uuids(len(self._new))[::-1]
        return self._ids.pop()

    def _earlier(self, new: NewGeneration, source: SourceRow) -> StoreResult | None:
        """The result for a new generation blocked by the published or unfinished one of the source."""
        other_id = new.source_id not in (None, source.source_id)
        published_read_at = source.read_at if source.published_id is not None else None
        if other_id or superseded(format_time(new.read_at), published_read_at):
            return StoreResult(outcome=Outcome.SUPERSEDED, source_id=source.source_id)
        if source.building_id is None:
            return None
        if generations.adopt_equal(self._rows, source.building_id, new, self._at):
            restart(self._rows, source.building_id, self._at)
            return StoreResult(
                outcome=Outcome.BUILDING,
                source_id=source.source_id,
                document_id=source.building_id,
                adopted=True,
            )
        generations.drop(self._rows, source.building_id, REPLACED, self._at)
        return None

    def _write(self, new: NewGeneration, source: SourceRow | None, source_id: str) -> StoreResult:
        owner = self._owner(new, source, source_id)
        if new.failure is not None:
            failed = publication.failed_document(new.failure)
            outcome = self._write_document(new, owner, source, failed, (0, 0))
            return StoreResult(
                outcome=outcome, source_id=source_id, document_id=owner.document_id, failed=failed.failed
            )
        chunks = [chunk for page in new.pages for chunk in page.chunks or ()]
        prepared = prepare(owner, chunks, find(self._rows, owner, chunks))
        unread = any(page.unread for page in new.pages)
        missing = 0 if owner.space_id is None else sum([to_embed(part) for part in prepared.parts])
        tasks = len(chunks) if owner.wants_later else missing
        first, chunk_turns = 0, [0] * len(chunks)
        if tasks:
            self._hold(new, owner, source, prepared, unread=unread)
            first, chunk_turns = turns(0, 0, self._rows.value("head_vector", new.priority), len(chunks))
        page_turns = [0] * len(new.pages)
        if unread:
            _, page_turns = turns_of_pages(self._rows, new.pages, new.priority)
        standings = self._write_pages(new, owner, prepared, page_turns, chunk_turns)
        standing = publication.document(standings, new.pages, len(chunks))
        given = len(chunks) if tasks else 0
        outcome = self._write_document(new, owner, source, standing, (first, given))
        return StoreResult(
            outcome=outcome,
            source_id=source_id,
            document_id=owner.document_id,
            chunks=len(chunks),
            kept=prepared.kept,
            failed=standing.failed,
        )

    def _owner(self, new: NewGeneration, source: SourceRow | None, source_id: str) -> ChunkOwner:
        relatives = () if source is None else (source.published_id, source.building_id)
        space_id = self._spaces.number(new.space)
        source_key = source.key if source else self._numbers.next()
        family_key = source.family_key if source else self._families.of_new(new, source_key)
        return ChunkOwner(
            document_id=self._numbers.next(),
            source_key=source_key,
            source_id=source_id,
            family_key=family_key,
            tenant_id=new.place.tenant_id,
            space_id=space_id,
            fingerprints=new.fingerprints,
            wanted=wanted_phases(new.fingerprints, vectors=space_id is not None),
            priority=new.priority,
            max_retries=new.max_retries,
            relatives=tuple([number for number in relatives if number is not None]),
            shared=self._families.others(family_key, source_id),
            outside=self._spaces.outside,
        )

    def _hold(
        self,
        new: NewGeneration,
        owner: ChunkOwner,
        source: SourceRow | None,
        prepared: PreparedChunks,
        *,
        unread: bool,
    ) -> None:
        if source is not None and self._rows.value("any_leftover", source.key):
            owner.held = OUTBOX_HELD
        if new.gate is Gate.DOCUMENT:
            hold_by_gate(owner, prepared, unread=unread)

    def _write_pages(
        self,
        new: NewGeneration,
        owner: ChunkOwner,
        prepared: PreparedChunks,
        page_turns: list[int],
        chunk_turns: list[int],
    ) -> list[InitialPage]:
        standings = []
        parts = iter(zip(prepared.parts, chunk_turns, strict=True))
        for page, page_turn in zip(new.pages, page_turns, strict=True):
            page_id = self._numbers.next()
            kinds = []
            for index in range(len(page.chunks or ())):
                (chunk, chunk_id, known), turn = next(parts)
                kinds.append(self._chunks.add(owner, page_id, index, chunk, chunk_id, known, turn))
            standing = publication.page(page, owner.wanted, kinds)
            standings.append(standing)
            own = OwnPage(page_id, owner.document_id, page.number, page.file_path, page.needs_ocr, len(kinds))
            shared = self._alike.page(new, standing, page_turn)
            (self._whole_pages if shared.whole else self._pages).append(_OWN_PAGE.encode(own) + shared.values)
            self._texts += kept_texts(page_id, page)
        return standings

    def _write_document(
        self,
        new: NewGeneration,
        owner: ChunkOwner,
        source: SourceRow | None,
        standing: InitialDocument,
        numbering: tuple[int, int],
    ) -> Outcome:
        outcome, shared = self._alike.document(new, owner.space_id, standing, numbering)
        published = outcome is Outcome.PUBLISHED
        own = self._own(new, owner)
        if shared.whole:
            self._whole_documents.append(own + shared.values)
        else:
            self._documents.append(own + _unfinished(new, published=published) + shared.values)
        if published:
            self._publish(new, owner, source, standing)
            return outcome
        if source is None:
            self._flush_bare(new, owner)
        self._flush_parts()
        self._rows.notify()
        self._rows.send("set_building", owner.document_id, self._at, owner.source_key)
        return outcome

    def _own(self, new: NewGeneration, owner: ChunkOwner) -> Row:
        own = OwnDocument(
            document_id=owner.document_id,
            source_key=owner.source_key,
            filename=new.path.rpartition("/")[2] or new.path,
            content_hash=new.content_hash,
            job_id=new.job_id,
            asked_at=format_time(new.asked_at),
            read_at=format_time(new.read_at),
        )
        return _OWN_DOCUMENT.encode(own)

    def _flush_bare(self, new: NewGeneration, owner: ChunkOwner) -> None:
        self._rows.send("add_bare_source", *_NEW_SOURCE.encode(self._new_source(new, owner)))

    def _new_source(self, new: NewGeneration, owner: ChunkOwner) -> NewSource:
        return NewSource(
            key=owner.source_key,
            source_id=owner.source_id,
            place=new.place,
            path=new.path,
            family_key=owner.family_key,
            created_at=self._at,
        )

    def _publish(
        self, new: NewGeneration, owner: ChunkOwner, source: SourceRow | None, standing: InitialDocument
    ) -> None:
        place = new.place
        published = PublishedSource(
            published_id=owner.document_id,
            space_id=owner.space_id,
            partial=standing.failed > 0,
            size=new.size,
            mtime_ns=new.mtime_ns,
            page_count=standing.pages,
            chunk_count=standing.chunks,
            content_hash=new.content_hash,
            fingerprints=new.fingerprints,
            asked_at=format_time(new.asked_at),
            read_at=format_time(new.read_at),
            published_at=self._at,
            change_seq=self._change,
            updated_at=self._at,
            file_type=new.file_type,
            title=new.title,
            tags=generations.encode_tags(new.tags),
            metadata=new.metadata,
            properties=values.encode(new.properties, new.title),
        )
        columns = PUBLISHED_SOURCE.encode(published)
        self._change += 1
        where = (place.tenant_id, place.collection, place.branch, new.path)
        self._paths.append(where)
        if source is None:
            self._sources.append(_NEW_SOURCE.encode(self._new_source(new, owner)) + columns)
            return
        self._published.append((*columns, owner.source_key))
        if source.published_id is not None:
            replaced = (source.published_id, owner.source_key, self._at)
            generations.replace(self._rows, *replaced, chunks=standing.chunks, job_id=new.job_id)


def _unfinished(new: NewGeneration, *, published: bool = False) -> Row:
    described = None if published else generations.describe(new)
    row = UnfinishedDocument(described, new.size, new.mtime_ns, new.read_with)
    return _UNFINISHED_DOCUMENT.encode(row)


def _chunk_count(new: NewGeneration) -> int:
    return sum([len(page.chunks) for page in new.pages if page.chunks])


def _vectors(generations: Iterable[NewGeneration]) -> Iterator[bytes | None]:
    return (chunk.vector for new in generations for page in new.pages for chunk in page.chunks or ())


_DROPPED = {
    REMOVED_WHILE_INDEXING: Outcome.REMOVED,
    REPLACED: Outcome.SUPERSEDED,
    SUPERSEDED: Outcome.SUPERSEDED,
}


class Written(msgspec.Struct, frozen=True):
    """A partly written generation. ``stored``: the result, set after the last part.

    ``older``: a generation being built that was dropped for this one. ``page_id``: the page that the next
    part may go on with. ``page_turn``: its first turn in lane ocr.
    """

    document_id: int = 0
    source_id: str = ""
    older: tuple[int, ...] = ()
    page_id: int = 0
    page_turn: int = 0
    kept: int = 0
    stored: StoreResult | None = None


class Part(msgspec.Struct, frozen=True):
    """A part, prepared as far as possible before the transaction."""

    slices: Sequence[Slice]
    earlier: Mapping[str, int] | None
    """By text hash, the number of equal chunks in earlier parts. None: tasks add chunks meanwhile, so the
    catalog has to be asked."""
    keyword_texts: Mapping[str, str]
    """Texts for the keyword index, by text hash."""


def parts(new: NewGeneration, portions: Portions) -> Iterator[Part]:
    """The parts of a large generation in order, each prepared when requested.

    Each transaction leaves all counters correct. A generation with parts to come (``unwritten``) is not
    published, and no job adopts it. If it is found unfinished (by the same job after a crash, another reading
    of the file, or upkeep), it is dropped, and the sweep deletes its rows. Tasks of parts already written run
    meanwhile.
    """
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
        so_far = GenerationStore(rows, [new], at, in_parts=True).begin(new)
        if so_far.stored is not None:
            return so_far
        unwritten = count_rows(new)
    rollup = Rollup(rows, at)
    rollup.load([so_far.document_id])
    document = rollup.documents.get(so_far.document_id)
    if document is None or document.state != "building":
        return msgspec.structs.replace(so_far, stored=_interrupted(document, so_far))
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
    return msgspec.structs.replace(written, stored=_stored(document, new, written))


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
        self._alike = _RowTemplates(at)
        self._pages: list[tuple[Any, ...]] = []
        self._whole_pages: list[tuple[Any, ...]] = []
        self._texts: list[Row] = []

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
        return msgspec.structs.replace(
            so_far, page_id=page_id, page_turn=page_turn, kept=so_far.kept + prepared.kept
        )

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
        standing = publication.page(page, document.wanted, kinds)
        own = OwnPage(page_id, document.id, page.number, page.file_path, page.needs_ocr, len(kinds))
        shared = self._alike.page(self._new, standing, turn)
        (self._whole_pages if shared.whole else self._pages).append(_OWN_PAGE.encode(own) + shared.values)
        self._texts += kept_texts(page_id, page)
        for phase in Phase:
            self._rollup.page_moved(phase, document.id, SKIPPED, standing.kind(phase))
        document.page_count += 1
        for phase in CHUNK_PHASES:
            document.chunks[phase] += standing.counts(phase).completed
        if page.failure is not None:
            if not document.failed_count:
                document.errors = {**document.errors, Phase.OCR: publication.error_text(page.failure)}
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
