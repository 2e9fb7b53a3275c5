"""Writing generations: whole ones are published by the same transaction, the others get tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

from penstock import clock
from penstock.catalog.rules import initial_state, properties
from penstock.catalog.rules.initial_state import InitialDocument, InitialPage
from penstock.catalog.rules.path_scope import covered
from penstock.catalog.rules.phases import turns, wanted_phases
from penstock.catalog.rules.publication import REPLACED, superseded
from penstock.catalog.sql import generations as building
from penstock.catalog.sql.chunks import (
    OUTBOX_HELD,
    ChunkOwner,
    ChunkRows,
    PreparedChunks,
    RowNumbers,
    find,
    hold_by_gate,
    prepare,
    to_embed,
)
from penstock.catalog.sql.families import Families
from penstock.catalog.sql.page_rows import kept_texts, turns_of_pages
from penstock.catalog.sql.read_records import SOURCE_ROW, SourceRow
from penstock.catalog.sql.retry import restart
from penstock.catalog.sql.row_templates import RowTemplates
from penstock.catalog.sql.spaces import Spaces
from penstock.catalog.sql.statements import Statements, listed
from penstock.catalog.sql.tombstones import removals
from penstock.catalog.sql.written_records import (
    NEW_SOURCE,
    PUBLISHED_SOURCE,
    NewSource,
    OwnDocument,
    OwnPage,
    PageText,
    PublishedSource,
    UnfinishedDocument,
)
from penstock.catalog.values import Gate, NewGeneration, Outcome, Place, Removal, StoreResult
from penstock.clock import format_time
from penstock.named_tuple import NamedTuple


def store(rows: Statements, new: Sequence[NewGeneration], now: datetime) -> list[StoreResult]:
    return GenerationStore(rows, new, format_time(now)).run() if new else []


class Begun(NamedTuple):
    """A large generation without its parts. ``older``: one being built that was dropped for it."""

    document_id: int
    source_id: str
    older: tuple[int, ...]


def begin(rows: Statements, new: NewGeneration, now: datetime) -> StoreResult | Begun:
    """Write only the row of a large generation, or return the reason for a refusal."""
    return GenerationStore(rows, [new], format_time(now), in_parts=True).begin(new)


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
        self._texts: list[PageText] = []
        self._documents: list[tuple[Any, ...]] = []
        self._whole_documents: list[tuple[Any, ...]] = []
        self._sources: list[tuple[Any, ...]] = []
        self._published: list[tuple[Any, ...]] = []
        self._paths: list[tuple[str, str, str, str]] = []
        self._written: set[tuple[Place, str]] = set()
        self._alike = RowTemplates(at)
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

    def begin(self, new: NewGeneration) -> StoreResult | Begun:
        self._look_around()
        source = self._found.get((new.place, new.path))
        refused = self._refused(new, source)
        if refused is not None:
            return refused
        owner = self._owner(new, source, self._source_id(new) or self._new_id())
        if source is None:
            self._flush_bare(new, owner)
        shared = self._alike.begun(new, owner.space_id)
        self._documents.append(self._own(new, owner) + _unfinished(new) + shared.values)
        self._flush_parts()
        self._rows.send("set_building", owner.document_id, self._at, owner.source_key)
        older = () if source is None or source.building_id is None else (source.building_id,)
        return Begun(owner.document_id, owner.source_id, older)

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
        if building.adopt_equal(self._rows, source.building_id, new, self._at):
            restart(self._rows, source.building_id, self._at)
            return StoreResult(
                outcome=Outcome.BUILDING,
                source_id=source.source_id,
                document_id=source.building_id,
                adopted=True,
            )
        building.drop(self._rows, source.building_id, REPLACED, self._at)
        return None

    def _write(self, new: NewGeneration, source: SourceRow | None, source_id: str) -> StoreResult:
        owner = self._owner(new, source, source_id)
        if new.failure is not None:
            failed = initial_state.failed_document(new.failure)
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
        standing = initial_state.document(standings, new.pages, len(chunks))
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
            standing = initial_state.page(page, owner.wanted, kinds)
            standings.append(standing)
            own = OwnPage(page_id, owner.document_id, page.number, page.file_path, page.needs_ocr, len(kinds))
            shared = self._alike.page(new, standing, page_turn)
            (self._whole_pages if shared.whole else self._pages).append(own + shared.values)
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

    def _own(self, new: NewGeneration, owner: ChunkOwner) -> OwnDocument:
        return OwnDocument(
            document_id=owner.document_id,
            source_key=owner.source_key,
            filename=new.path.rpartition("/")[2] or new.path,
            content_hash=new.content_hash,
            job_id=new.job_id,
            asked_at=format_time(new.asked_at),
            read_at=format_time(new.read_at),
        )

    def _flush_bare(self, new: NewGeneration, owner: ChunkOwner) -> None:
        self._rows.send("add_bare_source", *NEW_SOURCE.encode(self._new_source(new, owner)))

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
            tags=building.encode_tags(new.tags),
            metadata=new.metadata,
            properties=properties.encode(new.properties, new.title),
        )
        columns = PUBLISHED_SOURCE.encode(published)
        self._change += 1
        where = (place.tenant_id, place.collection, place.branch, new.path)
        self._paths.append(where)
        if source is None:
            self._sources.append(NEW_SOURCE.encode(self._new_source(new, owner)) + columns)
            return
        self._published.append((*columns, owner.source_key))
        if source.published_id is not None:
            replaced = (source.published_id, owner.source_key, self._at)
            building.replace(self._rows, *replaced, chunks=standing.chunks, job_id=new.job_id)


def _unfinished(new: NewGeneration, *, published: bool = False) -> UnfinishedDocument:
    described = None if published else building.describe(new)
    return UnfinishedDocument(described, new.size, new.mtime_ns, new.read_with)


def _chunk_count(new: NewGeneration) -> int:
    return sum([len(page.chunks) for page in new.pages if page.chunks])


def _vectors(generations: Iterable[NewGeneration]) -> Iterator[bytes | None]:
    return (chunk.vector for new in generations for page in new.pages for chunk in page.chunks or ())
