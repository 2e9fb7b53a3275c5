"""Documents as records for programs: one shape for lists, and the tree of one document."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal, TypeAlias, Unpack

import msgspec

from penstock import clock
from penstock.catalog.rules.phases import CHUNK_PHASES
from penstock.catalog.values import (
    ChunkState,
    ChunkView,
    Document,
    GenerationState,
    PageState,
    Phase,
    Progress,
    Source,
    StoredProperties,
    TaskStatus,
)
from penstock.errors import InvalidRequest, UnknownDocument
from penstock.service.documents import Documents
from penstock.service.failures import FailedPath
from penstock.service.options import DocumentFilters
from penstock.service.reasons import Below, Reason, Verdict

MAX_DOCUMENTS = 1_000
MAX_PAGES = 1_000


DocumentStatus: TypeAlias = Literal["indexed", "partial", "failed", "indexing"]


class DocumentRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A document. ``error`` is the failure of its newest content; then search has the former one, or none."""

    source_id: str
    path: str
    title: str
    file_type: str
    tags: tuple[str, ...]
    tenant_id: str
    collection: str
    branch: str
    status: DocumentStatus
    error: str | None
    size: int
    pages: int
    chunks: int
    created_at: datetime
    indexed_at: datetime | None
    properties: StoredProperties


class GenerationRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a document, with the status of each phase."""

    number: int
    state: GenerationState
    current: bool
    note: str | None
    job_id: str | None
    pages: int
    chunks: int
    failed: int
    phases: dict[str, TaskStatus]
    created_at: datetime
    published_at: datetime | None


class PageRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the newest version."""

    number: int
    chunks: int
    phases: dict[str, TaskStatus]
    engine: str | None
    confidence: float | None
    warnings: tuple[str, ...]
    error: str | None


class DocumentDetail(DocumentRecord, frozen=True, kw_only=True):
    """A document with its versions, newest first, and progress and pages of the newest one.

    ``progress`` has ``filename``, the status of each phase, and its counts of pages and chunks.
    ``time_left_s``: estimate of the time until the newest version is searchable, from the ``rate`` of its
    slowest phase in ``rate_unit`` (pages or chunks) a second, over ``rate_window_s``.
    ``next_page``: the page from which to go on, None at the end.
    """

    generations: list[GenerationRecord]
    progress: dict[str, str | int]
    time_left_s: float | None
    rate: float | None
    rate_window_s: int | None
    rate_unit: str | None
    tree: list[PageRecord]
    next_page: int | None


ChunkRecord = msgspec.defstruct(
    "ChunkRecord",
    [
        ("chunk_id", str),
        ("heading", str | None),
        ("preview", str | None),
        ("first_line", int | None),
        ("last_line", int | None),
        *((str(phase), TaskStatus) for phase in CHUNK_PHASES),
        ("error", str | None),
    ],
    namespace={"__doc__": "A chunk in a tree, with its status by phase."},
    frozen=True,
    kw_only=True,
)


class TreePage(msgspec.Struct, frozen=True, kw_only=True):
    """A page in a tree, with its chunks."""

    page: int
    chunks: list[ChunkRecord]  # type: ignore[valid-type]


class DocumentTree(msgspec.Struct, frozen=True, kw_only=True):
    """The newest version of a document: the status of all pages, and chunks of some.

    ``states`` has one letter a page: p pending, r running, d done, f failed, s skipped, c cancelled, - none.
    """

    source_id: str
    page_count: int
    phases: list[str]
    states: dict[str, str]
    pages: list[TreePage]


class DocumentPage(msgspec.Struct, frozen=True, kw_only=True):
    """Documents, ordered by id. ``next``: the cursor of the next page, None at the end."""

    documents: list[DocumentRecord]
    limit: int
    next: str | None


class ProjectRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A folder that was indexed as a project, and the tenant of its documents."""

    root: str
    tenant_id: str
    name: str
    remote: str


class ProjectList(msgspec.Struct, frozen=True, kw_only=True):
    """The folders of projects, by name and folder."""

    projects: list[ProjectRecord]


class ReasonRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The reason why search does or does not find a path; for a folder with counts, and paths below it."""

    path: str
    verdict: Verdict
    cause: str
    remedy: str
    job_id: str | None
    source_id: str | None
    warnings: tuple[str, ...]
    missing: tuple[str, ...]
    failed_inside: tuple[FailedPath, ...]
    counts: dict[str, int]
    below: tuple[Below, ...]


def reason_record(reason: Reason) -> ReasonRecord:
    """The record of a reason."""
    shared = {name: getattr(reason, name) for name in ReasonRecord.__struct_fields__ if name != "source_id"}
    return ReasonRecord(**shared, source_id=reason.source.source_id if reason.source else None)


class DocumentRecords:
    """Records of documents, as shown by the HTTP server and other interfaces."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents

    def own(self, source_id: str, tenants: Sequence[str]) -> Source:
        """The document with this id (of ``sources`` or ``documents``), of these tenants (none: of any)."""
        with self._documents.catalog.snapshot() as snapshot:
            found = snapshot.identified(source_id)
        if found is None or not found.live or (tenants and found.place.tenant_id not in tenants):
            raise UnknownDocument(f"no document {source_id[:80]!a}")
        return found

    def page(self, *, cursor: str = "", limit: int = 50, **narrowed: Unpack[DocumentFilters]) -> DocumentPage:
        """A page of the documents of one tenant."""
        if not 1 <= limit <= MAX_DOCUMENTS:
            raise InvalidRequest(f"limit: expected 1 to {MAX_DOCUMENTS:,}, got {limit}")
        found = self._documents.sources(after=cursor, limit=limit + 1, **narrowed)
        return DocumentPage(
            documents=[DocumentRecord(**_columns(source)) for source in found[:limit]],
            limit=limit,
            next=found[limit - 1].source_id if len(found) > limit else None,
        )

    def ready(
        self, phase: Phase, tenant_id: str, *, collection: str | None = None, limit: int = 50
    ) -> DocumentPage:
        """Documents ready for a phase, oldest first, out of the first 1,000 of all tenants."""
        found: list[DocumentRecord] = []
        with self._documents.catalog.snapshot() as snapshot:
            for progress in snapshot.ready(phase, limit=MAX_DOCUMENTS):
                document = snapshot.document(progress.document_id)
                source = snapshot.get(document.source_id) if document is not None else None
                if source is None or source.place.tenant_id != tenant_id:
                    continue
                if collection is None or source.place.collection == collection:
                    found.append(DocumentRecord(**_columns(source)))
                if len(found) == limit:
                    break
        return DocumentPage(documents=found, limit=limit, next=None)

    def detail(self, source: Source, *, from_page: int = 1, limit: int = 100) -> DocumentDetail:
        """One document with a part of the pages."""
        if from_page < 1 or not 1 <= limit <= MAX_PAGES:
            raise InvalidRequest(f"pages: expected a page from 1 on, and a limit of 1 to {MAX_PAGES:,}")
        with self._documents.catalog.snapshot() as snapshot:
            generations = snapshot.generations(source.source_id)
            newest = generations[0].document_id if generations else None
            progress = snapshot.progress(newest) if newest is not None else None
            pages = snapshot.pages(newest, after=from_page - 1, limit=limit + 1) if newest is not None else []
        return DocumentDetail(
            **_columns(source),
            generations=[_generation(each) for each in generations],
            progress=_progress(progress) if progress is not None else {},
            **time_estimate(generations[0], progress, clock.now()) if progress is not None else _UNKNOWN,
            tree=[_page(page) for page in pages[:limit]],
            next_page=pages[limit].number if len(pages) > limit else None,
        )

    def tree(self, source: Source, *, first: int = 1, last: int = 200) -> DocumentTree:
        """The newest version of one document in compact form; pages first to last have their chunks."""
        if first < 1 or not 0 <= last - first < MAX_PAGES:
            raise InvalidRequest(f"first, last: expected a range of 1 to {MAX_PAGES:,} pages")
        with self._documents.catalog.snapshot() as snapshot:
            generations = snapshot.generations(source.source_id)
            if not generations:
                return DocumentTree(
                    source_id=source.source_id, page_count=0, phases=PHASE_NAMES, states={}, pages=[]
                )
            newest = generations[0].document_id
            statuses = snapshot.page_statuses(newest)
            pages = snapshot.pages(newest, after=first - 1, limit=last - first + 1)
            chunks = {page.number: snapshot.chunks(page.page_id) for page in pages}
            shown = [chunk.content_id for page in chunks.values() for chunk in page]
            texts = dict(zip(shown, snapshot.hydrate(shown), strict=True))
        return DocumentTree(
            source_id=source.source_id,
            page_count=len(statuses),
            phases=PHASE_NAMES,
            states=_letters(statuses),
            pages=[
                TreePage(page=number, chunks=[_chunk(chunk, texts[chunk.content_id]) for chunk in own])
                for number, own in chunks.items()
                if number <= last
            ],
        )


PHASE_NAMES = [str(phase) for phase in Phase]
LETTERS = {"pending": "p", "processing": "r", "completed": "d", "failed": "f", "skipped": "s"}
PREVIEW = 200


def _letters(statuses: Sequence[tuple[int, Sequence[str]]]) -> dict[str, str]:
    """One letter for each page from the first number on, by phase."""
    numbers = [row[0] for row in statuses]
    found = {phase: ["-"] * (max(numbers) - min(numbers) + 1 if numbers else 0) for phase in PHASE_NAMES}
    for number, states in statuses:
        for phase, state in zip(PHASE_NAMES, states, strict=True):
            found[phase][number - numbers[0]] = LETTERS.get(state, "-")
    return {phase: "".join(letters) for phase, letters in found.items()}


def _chunk(chunk: ChunkState, text: ChunkView | None) -> Any:
    states = {str(phase): state for phase, state in chunk.phases.items()}
    errors = [state.error for state in states.values() if state.status is TaskStatus.FAILED]
    return ChunkRecord(
        chunk_id=chunk.chunk_id,
        heading=text.heading_path or None if text else None,
        preview=text.text[:PREVIEW] if text else None,
        first_line=text.first_line if text else None,
        last_line=text.last_line if text else None,
        **{phase: state.status for phase, state in states.items()},
        error=next((error for error in errors if error), None),
    )


def _columns(source: Source) -> dict[str, Any]:
    return {
        "source_id": source.source_id,
        "path": source.path,
        "title": source.title,
        "file_type": source.file_type,
        "tags": source.tags,
        "tenant_id": source.place.tenant_id,
        "collection": source.place.collection,
        "branch": source.place.branch,
        "status": _status(source),
        "error": source.failure.error,
        "size": source.size,
        "pages": source.page_count,
        "chunks": source.chunk_count,
        "created_at": source.created_at,
        "indexed_at": source.published_at,
        "properties": source.properties,
    }


def _status(source: Source) -> DocumentStatus:
    if source.failed:
        return "failed"
    if source.published_id is None:
        return "indexing"
    return "partial" if source.partial else "indexed"


def _generation(document: Document) -> GenerationRecord:
    return GenerationRecord(
        number=document.document_id,
        state=document.state,
        current=document.current,
        note=document.note,
        job_id=document.job_id,
        pages=document.page_count,
        chunks=document.chunk_count,
        failed=document.failed_count,
        phases={str(phase): state.status for phase, state in document.phases.items()},
        created_at=document.created_at,
        published_at=document.published_at,
    )


_UNKNOWN = dict.fromkeys(("time_left_s", "rate", "rate_window_s", "rate_unit"))
_OPEN = (TaskStatus.PENDING, TaskStatus.PROCESSING)


def time_estimate(document: Document, progress: Progress, now: datetime) -> dict[str, Any]:
    """The time until a version is searchable; unknown before every phase has completed a page or chunk."""
    if document.state is not GenerationState.BUILDING:
        return _UNKNOWN
    window = max((now - document.created_at).total_seconds(), 1.0)
    pages = progress.ocr_completed_pages + progress.ocr_failed_pages
    reads = progress.status[Phase.OCR] in _OPEN
    # Pages that are not yet read will have chunks as well.
    chunks = (
        progress.total_chunks * progress.total_pages / pages if reads and pages else progress.total_chunks
    )
    embedded = progress.completed_chunks[Phase.VECTOR]
    phases: list[tuple[str, float, int]] = [("pages", progress.total_pages, pages)] if reads else []
    if progress.status[Phase.VECTOR] in _OPEN:
        phases.append(("chunks", chunks, embedded))
    if not phases or any(not ended for _, _, ended in phases):
        return _UNKNOWN
    left, unit, ended = max(
        (max(total - ended, 0) * window / ended, unit, ended) for unit, total, ended in phases
    )
    return {
        "time_left_s": round(left, 1),
        "rate": round(ended / window, 3),
        "rate_window_s": round(window),
        "rate_unit": unit,
    }


def _page(page: PageState) -> PageRecord:
    return PageRecord(
        number=page.number,
        chunks=page.chunk_count,
        phases={str(phase): state.status for phase, state in page.phases.items()},
        engine=page.engine or None,
        confidence=page.confidence,
        warnings=page.warnings,
        error=page.error,
    )


def _progress(progress: Progress) -> dict[str, str | int]:
    found: dict[str, str | int] = {"filename": progress.filename}
    found |= {f"{phase}_status": str(status) for phase, status in progress.status.items()}
    for name in ("total_pages", "ocr_completed_pages", "ocr_failed_pages", "total_chunks"):
        found[name] = getattr(progress, name)
    found |= {f"{phase}_completed_chunks": number for phase, number in progress.completed_chunks.items()}
    return found
