"""Rows of the catalog as the values callers get."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from penstock.catalog.values import (
    Fingerprints,
    GenerationState,
    LedgerEntry,
    LedgerKind,
    NewChunk,
    NewPage,
    Place,
    TaskStatus,
)
from penstock.catalog.views import (
    ChunkState,
    ChunkView,
    Document,
    DocumentEvent,
    KnownSource,
    PageState,
    PhaseState,
    Progress,
    Source,
)

Row = tuple[Any, ...]
_known: Any = KnownSource


def known(row: Row) -> KnownSource:
    made: KnownSource = _known(*row[:-1], row[-1] == 1)
    return made


def source(row: Row) -> Source:
    return Source(
        source_id=row[0],
        place=Place(*row[1:4]),
        path=row[4],
        title=row[5],
        file_type=row[6],
        tags=tags(row[7]),
        metadata=row[8],
        size=row[9],
        mtime_ns=row[10],
        content_hash=row[11],
        fingerprints=Fingerprints(*row[12:15]),
        published_id=row[15],
        building_id=row[16],
        partial=row[17] == 1,
        page_count=row[18],
        chunk_count=row[19],
        created_at=datetime.fromisoformat(row[20]),
        asked_at=_time(row[21]),
        read_at=_time(row[22]),
        published_at=_time(row[23]),
        sweeping=row[24] == 1,
    )


def document(row: Row) -> Document:
    return Document(
        document_id=row[0],
        source_id=row[1],
        place=Place(*row[2:5]),
        path=row[5],
        state=GenerationState(row[6]),
        current=row[7] == 1,
        note=row[8],
        content_hash=row[9],
        fingerprints=Fingerprints(*row[10:13]),
        space=row[13],
        job_id=row[14],
        priority=row[15],
        partial=row[16] > 0 and row[6] == GenerationState.PUBLISHED,
        failed_count=row[16],
        page_count=row[17],
        chunk_count=row[18],
        outage=row[19] > 0,
        ocr=_phase(row[20:24]),
        vector=_phase(row[24:28]),
        graphrag=_phase(row[28:32]),
        created_at=datetime.fromisoformat(row[32]),
        asked_at=datetime.fromisoformat(row[33]),
        read_at=datetime.fromisoformat(row[34]),
        published_at=_time(row[35]),
    )


def page(row: Row) -> PageState:
    return PageState(
        page_id=row[0],
        number=row[1],
        chunk_count=row[2],
        ocr=_phase(row[3:7]),
        vector=_phase(row[7:11]),
        graphrag=_phase(row[11:15]),
    )


def chunk_state(row: Row) -> ChunkState:
    return ChunkState(
        chunk_id=row[0],
        chunk_index=row[1],
        content_id=row[2],
        text_hash=row[3],
        held=row[4],
        vector=_phase(row[5:9]),
        vector_retry_count=row[9],
        graphrag=_phase(row[10:14]),
        graphrag_retry_count=row[14],
        entities=row[15],
        relationships=row[16],
    )


def progress(row: Row) -> Progress:
    return Progress(
        document_id=row[0],
        filename=row[1],
        ocr_status=TaskStatus(row[2]),
        vector_index_status=TaskStatus(row[3]),
        graphrag_index_status=TaskStatus(row[4]),
        total_pages=row[5],
        ocr_completed_pages=row[6],
        ocr_failed_pages=row[7],
        total_chunks=row[8],
        vector_completed_chunks=row[9],
        graphrag_completed_chunks=row[10],
    )


def event(row: Row) -> DocumentEvent:
    at, what, path, note, job_id = row
    return DocumentEvent(datetime.fromisoformat(at), what, path, note, job_id)


def content(rows: list[Row]) -> tuple[NewPage, ...]:
    pages: dict[int, NewPage] = {}
    chunks: dict[int, list[NewChunk]] = {}
    for page_id, number, file_path, text, text_hash, *place, chunk_text in rows:
        pages.setdefault(page_id, NewPage(number=number, text=text, file_path=file_path))
        parts = chunks.setdefault(page_id, [])
        if text_hash is not None:
            start, end, first_line, last_line, heading_path, symbols = place
            parts.append(
                NewChunk(
                    text=chunk_text,
                    text_hash=text_hash,
                    start=start,
                    end=end,
                    first_line=first_line,
                    last_line=last_line,
                    heading_path=heading_path,
                    symbols=symbols,
                )
            )
    return tuple(
        msgspec.structs.replace(page, chunks=tuple(chunks[page_id])) for page_id, page in pages.items()
    )


def ledger(place: Place, row: Row) -> LedgerEntry:
    path, kind, rule, cause, remedy, job_id, at = row
    return LedgerEntry(
        place=place,
        path=path,
        kind=LedgerKind(kind),
        rule=rule,
        cause=cause,
        remedy=remedy,
        job_id=job_id,
        at=datetime.fromisoformat(at),
    )


def chunk(row: Row) -> ChunkView:
    return ChunkView(
        content_id=row[0],
        chunk_id=row[1],
        source_id=row[2],
        source_key=row[3],
        place=Place(*row[4:7]),
        path=row[7],
        title=row[8],
        file_type=row[9],
        tags=tags(row[10]),
        page_number=row[11],
        page_count=row[12],
        chunk_index=row[13],
        start=row[14],
        end=row[15],
        first_line=row[16],
        last_line=row[17],
        heading_path=row[18],
        symbols=row[19],
        text=row[20],
    )


def tags(text: str) -> tuple[str, ...]:
    return () if text == "[]" else msgspec.json.decode(text, type=tuple[str, ...])


def _phase(row: Row) -> PhaseState:
    status, started_at, completed_at, error = row
    return PhaseState(
        status=TaskStatus(status),
        started_at=_time(started_at),
        completed_at=_time(completed_at),
        error=error,
    )


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
