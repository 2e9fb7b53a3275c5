"""Generations as rows: taking them over, giving them up, publishing them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from penstock.catalog.rules import publication
from penstock.catalog.rules.initial_state import WantedPhases
from penstock.catalog.rules.path_scope import covered
from penstock.catalog.rules.publication import GenerationFacts, Verdict, superseded, verdict
from penstock.catalog.rules.rollup import WORDS, PartCounts
from penstock.catalog.sql.history import remember
from penstock.catalog.sql.statements import Statements, listed
from penstock.catalog.sql.tombstones import removals
from penstock.catalog.values import SETTLED, Adoption, NewGeneration, Place
from penstock.clock import format_time
from penstock.vocabulary import how_many


class DocumentRow(msgspec.Struct, kw_only=True):
    """One generation inside a transaction; what changes is written back by ``save``."""

    id: int
    source_key: int
    source_id: str
    place: Place
    path: str
    published_id: int | None
    published_read_at: str | None
    state: str
    ocr: PartCounts
    vector: PartCounts
    graphrag: PartCounts
    statuses: tuple[str, str, str]
    page_count: int
    chunk_count: int
    vector_chunks: int
    graphrag_chunks: int
    failed_count: int
    outage_count: int
    space_id: int | None
    graph: bool
    gate: str
    priority: int
    max_retries: int
    turn: int
    given: int
    content_hash: str
    fingerprints: tuple[str, str, str]
    job_id: str | None
    asked_at: str
    read_at: str
    note: str | None
    source_json: str | None
    unwritten: int
    errors: dict[str, str] = {}
    worker_id: str | None = None
    embedded: bool = False
    """Vectors of it were written in this transaction."""
    finishes: bool = False
    """The last part of it is written in this transaction."""

    @property
    def wanted(self) -> WantedPhases:
        return WantedPhases(self.space_id is not None, self.graph)

    @property
    def just_settled(self) -> bool:
        """Ocr and vector have ended in this transaction, not before it."""
        return {self.ocr.status, self.vector.status} <= SETTLED and not set(self.statuses[:2]) <= SETTLED

    @property
    def facts(self) -> GenerationFacts:
        return GenerationFacts(
            ocr=self.ocr.status,
            vector=self.vector.status,
            pages=self.page_count,
            pages_read=self.ocr.completed,
            chunks_embedded=self.vector_chunks,
            outages=self.outage_count,
            unwritten=self.unwritten,
        )


class SourceDescription(msgspec.Struct):
    """What a source will say of itself once the generation is published."""

    size: int
    mtime_ns: int
    file_type: str
    title: str
    tags: str
    metadata: str


def describe(new: NewGeneration) -> str:
    return msgspec.json.encode(
        SourceDescription(
            new.size, new.mtime_ns, new.file_type, new.title, encode_tags(new.tags), new.metadata
        )
    ).decode()


def encode_tags(tags: tuple[str, ...]) -> str:
    return msgspec.json.encode(tags).decode() if tags else "[]"


def load(rows: Statements, ids: list[int], *, alone: bool = False) -> dict[int, DocumentRow]:
    """``alone``: without their sources, as nothing can be published."""
    if not alone:
        rows.hold("sources_of", listed(ids))
    rows.hold("documents", listed(ids))
    return {row[0]: _decoded(row) for row in rows.all("document_rows", listed(ids))}


def _hold(rows: Statements, document_id: int) -> None:
    rows.hold("sources_of", listed([document_id]))
    rows.hold("documents", listed([document_id]))


def _decoded(row: tuple[Any, ...]) -> DocumentRow:
    return DocumentRow(
        id=row[0],
        source_key=row[1],
        source_id=row[2],
        place=Place(row[3], row[4], row[5]),
        path=row[6],
        published_id=row[7],
        published_read_at=row[8],
        state=row[9],
        statuses=row[10:13],
        ocr=PartCounts(*row[13:17]),
        vector=PartCounts(*row[17:21]),
        graphrag=PartCounts(*row[21:25]),
        page_count=row[25],
        chunk_count=row[26],
        vector_chunks=row[27],
        graphrag_chunks=row[28],
        failed_count=row[29],
        outage_count=row[30],
        space_id=row[31],
        graph=row[32] == 1,
        gate=row[33],
        priority=row[34],
        max_retries=row[35],
        turn=row[36],
        given=row[37],
        content_hash=row[38],
        fingerprints=row[39:42],
        job_id=row[42],
        asked_at=row[43],
        read_at=row[44],
        note=row[45],
        source_json=row[46],
        unwritten=row[47],
    )


def save(
    rows: Statements, documents: list[DocumentRow], at: str, published: frozenset[int] = frozenset()
) -> None:
    rows.many(
        "save_document",
        [
            (
                document.state,
                WORDS[document.ocr.kind],
                WORDS[document.vector.kind],
                WORDS[document.graphrag.kind],
                *document.ocr,
                *document.vector,
                *document.graphrag,
                document.chunk_count,
                document.vector_chunks,
                document.graphrag_chunks,
                document.failed_count,
                document.outage_count,
                document.turn,
                document.given,
                document.note,
                document.source_json,
                at if document.id in published else None,
                at,
                document.errors.get("ocr"),
                document.errors.get("vector"),
                document.errors.get("graphrag"),
                document.worker_id,
                document.id,
            )
            for document in documents
        ],
    )


def leave(rows: Statements, document_id: int, source_key: int, at: str) -> None:
    """Nobody will see this generation any more: its parts go through the outbox."""
    rows.send("add_leftover", rows.numbers("row", 1)[0], document_id, source_key, at)
    rows.tell()


def replace(
    rows: Statements, published_id: int, source_key: int, at: str, *, chunks: int, job_id: str | None
) -> None:
    """Another generation has taken the place of the one that was published."""
    leave(rows, published_id, source_key, at)
    remember(rows, source_key, "updated", at, note=how_many(chunks, "chunk"), job_id=job_id)


def tell(rows: Statements, document: DocumentRow, at: str) -> None:
    """Have somebody look at the job that waits for this generation."""
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
    rows.tell()


def adopt_equal(rows: Statements, document_id: int, new: NewGeneration, at: str) -> bool:
    """Take over the generation being built if it is of the same content, made the same way."""
    _hold(rows, document_id)
    found = rows.one("building_of", document_id)
    if found is None:
        return False
    _, content_hash, *fingerprints, space_id, graph = found
    space = None if space_id is None else rows.value("space_name", space_id)
    same = (
        content_hash == new.content_hash
        and tuple(fingerprints) == msgspec.structs.astuple(new.fingerprints)
        and (space, graph == 1) == (new.space, new.graph)
    )
    if not same or _whole(new):
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
    """It can be published as it is; there is nothing to gain from waiting for tasks."""
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
    """Publish what is ready, of documents whose parts have just changed. Answers which were."""
    published = set()
    for document in documents:
        if document.state == "dropped":
            continue
        if document.state == "published":
            if document.embedded and document.published_id == document.id:
                _show_again(rows, document, at)
            if document.just_settled:
                tell(rows, document, at)
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
        tell(rows, document, at)
    return frozenset(published)


def _obstacle(rows: Statements, document: DocumentRow) -> str | None:
    asked_at = datetime.fromisoformat(document.asked_at)
    tombs = removals(rows, document.place, [(document.path, document.source_id)], asked_at)
    if covered(tombs, document.place, document.path, document.source_id, asked_at):
        return publication.REMOVED_WHILE_INDEXING
    published_read_at = document.published_read_at if document.published_id is not None else None
    return publication.SUPERSEDED if superseded(document.read_at, published_read_at) else None


def _publish(rows: Statements, document: DocumentRow, at: str) -> None:
    about = msgspec.json.decode(document.source_json or "", type=SourceDescription)
    rows.send(
        "publish",
        document.id,
        document.space_id,
        int(document.failed_count > 0),
        about.size,
        about.mtime_ns,
        document.page_count,
        document.chunk_count,
        document.content_hash,
        *document.fingerprints,
        document.asked_at,
        document.read_at,
        at,
        rows.numbers("change", 1)[0],
        at,
        about.file_type,
        about.title,
        about.tags,
        about.metadata,
        document.source_key,
    )
    place = document.place
    rows.send("unnote", place.tenant_id, place.collection, place.branch, document.path)
    if document.published_id is not None:
        chunks, job_id = document.chunk_count, document.job_id
        replace(rows, document.published_id, document.source_key, at, chunks=chunks, job_id=job_id)
    document.state, document.source_json = "published", None


def _show_again(rows: Statements, document: DocumentRow, at: str) -> None:
    """Parts of a published generation that had failed were done after all."""
    rows.send(
        "show_partial",
        int(document.failed_count > 0),
        document.chunk_count,
        rows.numbers("change", 1)[0],
        at,
        document.source_key,
        document.id,
    )
