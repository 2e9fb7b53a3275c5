"""The values the catalog answers with: known sources, documents and their progress, hits of a search."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec

from penstock.catalog.rules.phases import LATER_PHASES, PerChunkPhase, PerPhase
from penstock.catalog.values import (
    SETTLED,
    Fingerprints,
    GenerationState,
    LedgerEntry,
    Phase,
    Place,
    StoredProperties,
    TaskStatus,
)
from penstock.named_tuple import NamedTuple


class KnownSource(msgspec.Struct, frozen=True, gc=False):
    """A source as compared by walks. ``published_id`` None: not visible to search (yet)."""

    source_id: str
    path: str
    size: int
    mtime_ns: int
    content_hash: str
    fingerprints: Fingerprints
    published_id: int | None
    building_id: int | None
    chunk_count: int
    partial: bool
    failed_size: int | None
    """Size and time of the file in which all or part of its content failed for good."""
    failed_mtime_ns: int | None
    failed_with: str | None
    """Fingerprint of the parser and the limits it failed with; None: nothing failed for good."""

    @property
    def failure(self) -> SourceFailure:
        return SourceFailure(self.failed_size, self.failed_mtime_ns, None, self.failed_with)


class SourceFailure(msgspec.Struct, frozen=True):
    """The failure for good of a source's newest content, or of parts of it (``Source.partial``).
    ``read_with`` None: nothing failed for good."""

    size: int | None = None
    mtime_ns: int | None = None
    content_hash: str | None = None
    read_with: str | None = None
    error: str | None = None
    """Code and message, as ``ERR_PARSE: the archive is damaged``."""
    at: datetime | None = None
    job_id: str | None = None


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """A source. ``content_hash`` and the fields after describe the published generation."""

    source_id: str
    place: Place
    path: str
    title: str
    file_type: str
    tags: tuple[str, ...]
    metadata: str
    properties: StoredProperties
    size: int
    mtime_ns: int
    content_hash: str
    fingerprints: Fingerprints
    published_id: int | None
    building_id: int | None
    partial: bool
    page_count: int
    chunk_count: int
    created_at: datetime
    asked_at: datetime | None
    read_at: datetime | None
    published_at: datetime | None
    sweeping: bool
    """Leftovers are still in the outbox, and are cleared before the next write to an outside store."""
    failure: SourceFailure

    @property
    def live(self) -> bool:
        """Check whether the source exists. The row of a removed source stays until the sweep."""
        return self.published_id is not None or self.building_id is not None

    @property
    def failed(self) -> bool:
        """Check whether the newest content of the file failed for good, as a whole."""
        return self.building_id is not None and self.failure.read_with is not None


class PhaseState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a page or document in one phase."""

    status: TaskStatus
    started_at: datetime | None = None
    completed_at: datetime | None = None
    error: str | None = None


class ChunkPhaseState(PhaseState, frozen=True, kw_only=True):
    """The state of a chunk in one phase."""

    retry_count: int


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """One generation. ``current``: the generation in search. ``note``: why the generation was dropped or is
    kept back. ``failed_count``: pages and chunks that failed for good, ``outage``: not all by their content.
    """

    document_id: int
    source_id: str
    place: Place
    path: str
    state: GenerationState
    current: bool
    note: str | None
    content_hash: str
    fingerprints: Fingerprints
    space: str | None
    job_id: str | None
    priority: int
    partial: bool
    page_count: int
    chunk_count: int
    failed_count: int
    outage: bool
    phases: PerPhase[PhaseState]
    created_at: datetime
    asked_at: datetime
    read_at: datetime
    published_at: datetime | None
    updated_at: datetime
    """Time of the last change, such as the end of a page or chunk."""

    @property
    def settled(self) -> bool:
        """Ocr and vector have nothing left to do."""
        return all(self.phases[phase].status in SETTLED for phase in (Phase.OCR, Phase.VECTOR))


class DocumentEvent(msgspec.Struct, frozen=True):
    """An event of a document. ``note``: the new size (``updated``), the new path (``renamed``) or the time
    of the first index (``removed``). ``path``: the path before."""

    at: datetime
    what: Literal["updated", "renamed", "removed"]
    path: str
    note: str
    job_id: str | None = None


class MissingPart(msgspec.Struct, frozen=True, kw_only=True):
    """A permanently failed page or chunk (``chunk_index`` None: the whole page)."""

    phase: Phase
    page_number: int
    chunk_index: int | None
    error: str


class PageState(msgspec.Struct, frozen=True, kw_only=True):
    """A page in a document's tree. ``engine`` and ``confidence`` (0 to 100): of recognized text;
    ``file_path``: the Markdown file of the page outside the catalog."""

    page_id: int
    number: int
    chunk_count: int
    needs_ocr: bool
    engine: str
    confidence: float | None
    warnings: tuple[str, ...]
    file_path: str | None
    phases: PerPhase[PhaseState]

    @property
    def error(self) -> str | None:
        """First error of a phase. The reason for skipping a later phase is no error."""
        errors = (
            state.error
            for phase, state in self.phases.items()
            if phase not in LATER_PHASES or state.status is TaskStatus.FAILED
        )
        return next(filter(None, errors), None)


class ChunkState(msgspec.Struct, frozen=True, kw_only=True):
    """A chunk in a document's tree. ``held``: the reason the vector task cannot be claimed."""

    chunk_id: str
    chunk_index: int
    content_id: int
    text_hash: str
    held: str | None
    phases: PerChunkPhase[ChunkPhaseState]
    entities: int
    relationships: int


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """Progress of a document, in the terms of the task queue's specification."""

    document_id: int
    filename: str
    status: PerPhase[TaskStatus]
    total_pages: int
    ocr_completed_pages: int
    ocr_failed_pages: int
    total_chunks: int
    completed_chunks: PerChunkPhase[int]


class ChunkOrigins(msgspec.Struct, frozen=True):
    """Origins of a document's chunks: chunks handled by the document's own tasks, which embedded them or
    found them embedded, and the characters of all its chunks."""

    embedded: int
    characters: int


class TenantCount(msgspec.Struct, frozen=True, kw_only=True):
    """Searchable sources, pages and chunks of a tenant's collection."""

    tenant_id: str
    collection: str
    branch: str
    sources: int
    partial: int
    failed: int
    """Sources whose newest content failed for good. Not searchable, or only in a former version."""
    pages: int
    chunks: int


class PublishedCount(msgspec.Struct, frozen=True):
    """Published sources and their chunks."""

    sources: int
    chunks: int


class PublishedPath(msgspec.Struct, frozen=True):
    """Path and chunks of a published source."""

    path: str
    chunks: int


class RecognizedPages(msgspec.Struct, frozen=True):
    """Pages in search with recognized text, their mean confidence (0 to 100; None: unknown), and the
    number of pages with a low one."""

    pages: int
    confidence: float | None = None
    low: int = 0


class Filters(msgspec.Struct, frozen=True, kw_only=True):
    """Filters of a search. ``path``: a glob as in SQLite and fnmatch, ``*`` crosses slashes.
    ``tag``: itself and all below it. ``author`` and ``title``: a part of the text, in any case. ``language``:
    ``en`` includes ``en-US``. ``created_from`` and ``created_before``: dates as ``time_key`` writes them."""

    tenant_id: str
    collection: str | None = None
    branch: str | None = None
    path: str | None = None
    file_type: str | None = None
    tag: str | None = None
    author: str | None = None
    title: str | None = None
    language: str | None = None
    created_from: str | None = None
    created_before: str | None = None


class KeywordHit(msgspec.Struct, frozen=True, gc=False):
    """``score``: higher is better. ``snippet``: a window around the terms, each between the marks given."""

    content_id: int
    score: float
    snippet: str


class ChunkView(msgspec.Struct, frozen=True, kw_only=True):
    """A published chunk, as shown in a hit."""

    content_id: int
    chunk_id: str
    source_id: str
    family_key: int
    place: Place
    path: str
    title: str
    file_type: str
    tags: tuple[str, ...]
    properties: StoredProperties
    page_number: int
    page_count: int
    chunk_index: int
    start: int
    end: int
    first_line: int | None
    last_line: int | None
    heading_path: str
    symbols: str
    text: str


class Holding(NamedTuple):
    """Published chunks that hold a word, compared as a keyword search does, by id.

    ``cut``: the index has more texts with the word, perhaps of other tenants, that were not looked at.
    """

    content_ids: list[int]
    cut: bool


class VectorBatch(msgspec.Struct, frozen=True):
    """Vectors of published chunks, ready for ``numpy.frombuffer``: ``content_ids`` and ``family_keys`` as
    int64, ``vectors`` as float32, one row after the other. A text that several sources of a family have is
    in it once."""

    content_ids: bytes
    family_keys: bytes
    vectors: bytes


class VectorChanges(msgspec.Struct, frozen=True):
    """Changes after a sequence number: forget all vectors of the families in ``stale``, then load the
    families in ``fresh``. ``reload``: too much time has passed, or nothing was known: forget everything."""

    sequence: int
    reload: bool
    stale: tuple[int, ...] = ()
    fresh: tuple[int, ...] = ()


class SourceMark(NamedTuple):
    """A source after the last change. ``mark`` identifies the publication."""

    family_key: int
    sequence: int
    mark: str


class Space(msgspec.Struct, frozen=True):
    """A vector space with published chunks of a tenant."""

    name: str
    dimension: int
    chunks: int


class PathReport(msgspec.Struct, frozen=True, kw_only=True):
    """All facts about one path; the service puts them into words."""

    source: Source | None
    published: Document | None
    building: Document | None
    missing: tuple[MissingPart, ...]
    ledger: LedgerEntry | None
    postponed: str | None = None
    """Error of a part that is tried again later."""
