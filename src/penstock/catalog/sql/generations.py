"""Generations as rows: taken over, given up and published; deletes and walks that stand against it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Literal

import msgspec

from penstock.catalog import values
from penstock.catalog.rules import publication
from penstock.catalog.rules.paths import at_and_above, contests, covered
from penstock.catalog.rules.phases import PerChunkPhase, PerPhase, WantedPhases, wanted_phases
from penstock.catalog.rules.publication import (
    WORDS,
    GenerationFacts,
    PartCounts,
    Verdict,
    superseded,
    verdict,
)
from penstock.catalog.sql.snapshot import WALK
from penstock.catalog.sql.statements import INDEX_STATUS, RowType, Statements, listed
from penstock.catalog.values import (
    SETTLED,
    Adoption,
    Fingerprints,
    NewGeneration,
    Phase,
    Place,
    Removal,
    Walk,
)
from penstock.clock import format_time, read_time
from penstock.vocabulary import how_many


class DocumentRow(msgspec.Struct, kw_only=True):
    """A generation inside a transaction; ``save`` writes the changes back."""

    id: int
    source_key: int
    source_id: str
    family_key: int
    place: Place
    path: str
    published_id: int | None
    published_read_at: str | None
    state: str
    counts: PerPhase[PartCounts]
    """The counts of the document's pages."""
    status: PerPhase[str]
    """The statuses at the beginning of the transaction."""
    page_count: int
    chunk_count: int
    chunks: PerChunkPhase[int]
    """The number of completed chunks."""
    failed_count: int
    outage_count: int
    space_id: int | None
    gate: str
    priority: int
    max_retries: int
    turn: int
    given: int
    content_hash: str
    fingerprints: Fingerprints
    job_id: str | None
    asked_at: str
    read_at: str
    note: str | None
    source_json: str | None
    unwritten: int
    errors: dict[str, str] = {}
    worker_id: str | None = None
    embedded: bool = False
    """Vectors of the document were written in this transaction."""
    finishes: bool = False
    """The last part of the document is written in this transaction."""

    @property
    def wanted(self) -> WantedPhases:
        return wanted_phases(self.fingerprints, vectors=self.space_id is not None)

    @property
    def just_settled(self) -> bool:
        """Check whether ocr and vector ended in this transaction, not before."""
        phases = (Phase.OCR, Phase.VECTOR)
        after = {self.counts[phase].status for phase in phases}
        return after <= SETTLED and not {self.status[phase] for phase in phases} <= SETTLED

    @property
    def facts(self) -> GenerationFacts:
        return GenerationFacts(
            ocr=self.counts[Phase.OCR].status,
            vector=self.counts[Phase.VECTOR].status,
            pages=self.page_count,
            pages_read=self.counts[Phase.OCR].completed,
            chunks_embedded=self.chunks[Phase.VECTOR],
            outages=self.outage_count,
            unwritten=self.unwritten,
        )


class SourceRow(msgspec.Struct, frozen=True):
    """The columns of a source needed to store and move generations."""

    path: str
    key: int
    source_id: str
    family_key: int
    published_id: int | None
    building_id: int | None
    read_at: str | None


class SavedPhase(msgspec.Struct, frozen=True):
    status: str
    processing: int
    waiting: int
    failed: int
    completed: int
    error: str | None


class SavedDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The columns of a document changed by a transaction."""

    state: str
    phases: PerPhase[SavedPhase]
    chunk_count: int
    chunks: PerChunkPhase[int]
    failed_count: int
    outage_count: int
    turn: int
    given: int
    note: str | None
    source_json: str | None
    published_at: str | None
    at: str
    worker_id: str | None
    document_id: int


class BuildingRow(msgspec.Struct, frozen=True):
    """The content and settings of a generation being built."""

    content_hash: str
    fingerprints: Fingerprints
    space_id: int | None


class PublishedSource(msgspec.Struct, frozen=True, kw_only=True):
    """The columns of a source set by a publication."""

    published_id: int
    space_id: int | None
    partial: bool
    size: int
    mtime_ns: int
    page_count: int
    chunk_count: int
    content_hash: str
    fingerprints: Fingerprints
    asked_at: str
    read_at: str
    published_at: str
    change_seq: int
    updated_at: str
    file_type: str
    title: str
    tags: str
    metadata: str
    properties: str


_DOCUMENT_ROW = RowType(
    DocumentRow, without=("errors", "worker_id", "embedded", "finishes"), renamed=INDEX_STATUS
)
SOURCE_ROW = RowType(SourceRow)
_SAVED_DOCUMENT = RowType(SavedDocument, renamed=INDEX_STATUS)
_BUILDING_ROW = RowType(BuildingRow)
PUBLISHED_SOURCE = RowType(PublishedSource)


ALONE = "\x01"
"""Last character of the path of a delete without the paths below. No requested path has it."""


def add(rows: Statements, removal: Removal, at: str) -> None:
    """Record a delete that was asked for. It spares the paths of walks announced later."""
    # As ``at_and_above`` names it.
    path = (removal.path.rstrip("/") or "/") if removal.path else ""
    rows.send(
        "add_tombstone",
        removal.tenant_id,
        removal.collection or "",
        removal.branch or "",
        path if removal.below else path + ALONE,
        removal.source_id or "",
        format_time(removal.asked_at),
        removal.reason,
        at,
    )


def removals(
    rows: Statements, place: Place, wanted: Iterable[tuple[str, str | None]], since: datetime
) -> list[Removal]:
    """Not older than ``since``, and about these paths, or their sources. Usually none."""
    asked_at = format_time(since)
    if not rows.value("any_tombstone", place.tenant_id, asked_at):
        return []
    # Looked up by path and by each folder above, so the cost does not depend on the number of tombstones.
    paths, sources = {""}, set()
    for path, source_id in wanted:
        paths |= {path + ALONE, *at_and_above(path)}
        sources.add(source_id or "")
    scope = (place.tenant_id, place.collection, place.branch)
    return [
        Removal(
            tenant_id=tenant_id,
            collection=collection or None,
            branch=branch or None,
            path=path.removesuffix(ALONE) or None,
            source_id=source_id or None,
            below=not path.endswith(ALONE),
            asked_at=read_time(asked_at),
        )
        for tenant_id, collection, branch, path, source_id, asked_at in rows.all(
            "tombstones", *scope, listed(sorted(paths)), listed(sorted(sources)), asked_at
        )
    ]


def announce(rows: Statements, walk: Walk) -> None:
    place = walk.place
    # A delete that is under way is waited for: what it removed is seen to be gone, or it hears of this.
    rows.hold("tenant", place.tenant_id)
    where = (place.tenant_id, place.collection, place.branch)
    rows.send("announce", *where, walk.root, walk.rules, format_time(walk.asked_at))


def newer_walks(rows: Statements, removal: Removal) -> tuple[Walk, ...]:
    """Unheard walks requested after the delete. Usually none."""
    scope = (removal.collection or "", removal.branch or "")
    found = rows.all("walks_since", removal.tenant_id, format_time(removal.asked_at), *scope)
    walks = WALK.decode_all(found)
    if not walks:
        return ()
    path = removal.path
    if removal.source_id is not None:
        row = rows.one("whereabouts", removal.source_id)
        if row is None:
            return ()
        *place, path = row
        walks = [walk for walk in walks if walk.place == Place(*place)]
    wanting = (walk for walk in walks if contests(walk, removal, path))
    return tuple(walk for walk in wanting if walk not in removal.heard)


_MOST_EVENTS = 50
"""Maximum number of events kept for one source."""


class SourceDescription(msgspec.Struct):
    """The description of a source to store when the generation is published."""

    size: int
    mtime_ns: int
    file_type: str
    title: str
    tags: str
    metadata: str
    properties: str


def describe(new: NewGeneration) -> str:
    return msgspec.json.encode(
        SourceDescription(
            new.size,
            new.mtime_ns,
            new.file_type,
            new.title,
            encode_tags(new.tags),
            new.metadata,
            values.encode(new.properties, new.title),
        )
    ).decode()


def encode_tags(tags: tuple[str, ...]) -> str:
    return msgspec.json.encode(tags).decode() if tags else "[]"


def load(rows: Statements, ids: list[int], *, alone: bool = False) -> dict[int, DocumentRow]:
    """``alone``: without their sources, as nothing can be published."""
    if not alone:
        rows.hold("sources_of", listed(ids))
    rows.hold("documents", listed(ids))
    found = _DOCUMENT_ROW.decode_all(rows.all("document_rows", listed(ids)))
    return {document.id: document for document in found}


def _hold(rows: Statements, document_id: int) -> None:
    rows.hold("sources_of", listed([document_id]))
    rows.hold("documents", listed([document_id]))


def save(
    rows: Statements, documents: list[DocumentRow], at: str, published: frozenset[int] = frozenset()
) -> None:
    rows.many(
        "save_document",
        [
            _SAVED_DOCUMENT.encode(_saved(document, at, at if document.id in published else None))
            for document in documents
        ],
    )


def _saved(document: DocumentRow, at: str, published_at: str | None) -> SavedDocument:
    return SavedDocument(
        state=document.state,
        phases={
            phase: SavedPhase(WORDS[counts.kind], *counts, document.errors.get(phase))
            for phase, counts in document.counts.items()
        },
        chunk_count=document.chunk_count,
        chunks=document.chunks,
        failed_count=document.failed_count,
        outage_count=document.outage_count,
        turn=document.turn,
        given=document.given,
        note=document.note,
        source_json=document.source_json,
        published_at=published_at,
        at=at,
        worker_id=document.worker_id,
        document_id=document.id,
    )


def leave(rows: Statements, document_id: int, source_key: int, at: str) -> None:
    """Add an outbox entry to remove the parts of a generation no longer visible."""
    rows.send("add_leftover", rows.numbers("row", 1)[0], document_id, source_key, at)
    rows.notify()


def replace(
    rows: Statements, published_id: int, source_key: int, at: str, *, chunks: int, job_id: str | None
) -> None:
    """Replace the published generation by a newer one."""
    leave(rows, published_id, source_key, at)
    record_event(rows, source_key, "updated", at, note=how_many(chunks, "chunk"), job_id=job_id)


def _inform_job(rows: Statements, document: DocumentRow, at: str) -> None:
    """Add an outbox entry for the job waiting for this generation."""
    if document.job_id is not None:
        _look_at(rows, document.id, document.source_key, document.job_id, at)


def drop(rows: Statements, document_id: int, note: str, at: str, *, inform: bool = False) -> bool:
    _hold(rows, document_id)
    found = rows.one("source_of", document_id)
    if found is None or rows.run("drop_document", note, at, document_id) == 0:
        return False
    source_key, job_id = found
    rows.send("forget_building", at, document_id)
    leave(rows, document_id, source_key, at)
    if inform and job_id is not None:
        _look_at(rows, document_id, source_key, job_id, at)
    return True


def _look_at(rows: Statements, document_id: int, source_key: int, job_id: str, at: str) -> None:
    rows.send("add_job_entry", rows.numbers("row", 1)[0], document_id, source_key, job_id, at)
    rows.notify()


def adopt_equal(rows: Statements, document_id: int, new: NewGeneration, at: str) -> bool:
    """Adopt the generation being built if content, fingerprints and settings are equal."""
    _hold(rows, document_id)
    found = rows.one("building_of", document_id)
    if found is None:
        return False
    begun = _BUILDING_ROW.decode(found)
    space = None if begun.space_id is None else rows.value("space_name", begun.space_id)
    same = (begun.content_hash, begun.fingerprints, space) == (new.content_hash, new.fingerprints, new.space)
    if not same or _whole(new) or new.failure is not None:
        return False
    return adopt(
        rows,
        Adoption(
            document_id=document_id,
            job_id=new.job_id,
            priority=new.priority,
            asked_at=new.asked_at,
            read_at=new.read_at,
        ),
        at,
    )


def _whole(new: NewGeneration) -> bool:
    """Check whether a generation can be published at once, without waiting for tasks."""
    return all(
        page.chunks is not None
        and (new.space is None or all(chunk.vector is not None for chunk in page.chunks))
        for page in new.pages
    )


def building(rows: Statements, document_id: int) -> bool:
    return rows.one("building_of", document_id) is not None


def adopt(rows: Statements, adoption: Adoption, at: str) -> bool:
    _hold(rows, adoption.document_id)
    taken = rows.run(
        "adopt",
        adoption.job_id,
        adoption.priority,
        format_time(adoption.asked_at),
        format_time(adoption.read_at),
        at,
        adoption.document_id,
    )
    if not taken:
        return False
    rows.send("raise_page_priority", adoption.priority, adoption.document_id)
    rows.send("raise_chunk_priority", adoption.priority, adoption.document_id)
    return True


def decide(rows: Statements, documents: list[DocumentRow], at: str) -> frozenset[int]:
    """Publish documents made ready by this transaction. Return their ids."""
    published = set()
    for document in documents:
        if document.state == "dropped":
            continue
        if document.state == "published":
            if document.embedded and document.published_id == document.id:
                _show_again(rows, document, at)
            if document.just_settled:
                _inform_job(rows, document, at)
            continue
        decision, note = verdict(document.facts)
        document.note = note
        if decision is Verdict.WAIT:
            continue
        if decision is Verdict.PUBLISH:
            obstacle = _obstacle(rows, document)
            if obstacle is not None:
                drop(rows, document.id, obstacle, at)
                document.state, document.note = "dropped", obstacle
            else:
                _publish(rows, document, at)
                published.add(document.id)
        _inform_job(rows, document, at)
    return frozenset(published)


def _obstacle(rows: Statements, document: DocumentRow) -> str | None:
    asked_at = read_time(document.asked_at)
    tombs = removals(rows, document.place, [(document.path, document.source_id)], asked_at)
    if covered(tombs, document.place, document.path, document.source_id, asked_at):
        return publication.REMOVED_WHILE_INDEXING
    published_read_at = document.published_read_at if document.published_id is not None else None
    return publication.SUPERSEDED if superseded(document.read_at, published_read_at) else None


def _publish(rows: Statements, document: DocumentRow, at: str) -> None:
    about = msgspec.json.decode(document.source_json or "", type=SourceDescription)
    published = PublishedSource(
        published_id=document.id,
        space_id=document.space_id,
        partial=document.failed_count > 0,
        size=about.size,
        mtime_ns=about.mtime_ns,
        page_count=document.page_count,
        chunk_count=document.chunk_count,
        content_hash=document.content_hash,
        fingerprints=document.fingerprints,
        asked_at=document.asked_at,
        read_at=document.read_at,
        published_at=at,
        change_seq=rows.numbers("change", 1)[0],
        updated_at=at,
        file_type=about.file_type,
        title=about.title,
        tags=about.tags,
        metadata=about.metadata,
        properties=about.properties,
    )
    rows.send("publish", *PUBLISHED_SOURCE.encode(published), document.source_key)
    place = document.place
    rows.send("unnote", place.tenant_id, place.collection, place.branch, document.path)
    if document.published_id is not None:
        chunks, job_id = document.chunk_count, document.job_id
        replace(rows, document.published_id, document.source_key, at, chunks=chunks, job_id=job_id)
    document.state, document.source_json = "published", None


def _show_again(rows: Statements, document: DocumentRow, at: str) -> None:
    """Update a published source after a retry completed failed parts."""
    rows.send(
        "show_partial",
        int(document.failed_count > 0),
        document.chunk_count,
        rows.numbers("change", 1)[0],
        at,
        document.source_key,
        document.id,
    )


def record_event(
    rows: Statements,
    source_key: int,
    what: Literal["updated", "renamed", "removed"],
    at: str,
    *,
    note: str | None = None,
    job_id: str | None = None,
) -> None:
    """Record an event in the history of a source, in the transaction of the change."""
    rows.send("add_event", rows.numbers("row", 1)[0], what, note, job_id, at, source_key)
    if what == "updated":
        rows.send("trim_events", source_key, _MOST_EVENTS)
