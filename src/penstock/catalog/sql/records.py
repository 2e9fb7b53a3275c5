"""Rows returned by the catalog's statements, by name.

The statements take their select lists from these classes and from the values callers get: ``{Source s.}`` in
an SQL file stands for the columns of a ``Source``.
"""

from __future__ import annotations

import msgspec

from penstock.catalog.rules.phases import PerChunkPhase, PerLaterPhase, PerPhase, WantedPhases, wanted_phases
from penstock.catalog.rules.publication import GenerationFacts, PartCounts
from penstock.catalog.sql.statements import INDEX_STATUS, RowType
from penstock.catalog.values import (
    SETTLED,
    ChunkState,
    ChunkView,
    Document,
    DocumentEvent,
    Fingerprints,
    Gate,
    KnownSource,
    LedgerEntry,
    MissingPart,
    OutboxEntry,
    PageState,
    Phase,
    Place,
    Progress,
    Source,
    TenantCount,
    Walk,
)


class DocumentRow(msgspec.Struct, kw_only=True):
    """A generation inside a transaction; ``generations.save`` writes the changes back."""

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


class FamilyMember(msgspec.Struct, frozen=True):
    """A published source of a family. Other sources of the family can share the texts."""

    family_key: int
    source_id: str
    published_id: int


class BuildingRow(msgspec.Struct, frozen=True):
    """The content and settings of a generation being built."""

    content_hash: str
    fingerprints: Fingerprints
    space_id: int | None


class PageCounts(msgspec.Struct, frozen=True):
    """The status and chunk counts of a page in one chunk phase."""

    page_id: int
    document_id: int
    status: str
    processing: int
    waiting: int
    failed: int
    completed: int

    @property
    def counts(self) -> PartCounts:
        return PartCounts(self.processing, self.waiting, self.failed, self.completed)


class TaskRow(msgspec.Struct, frozen=True):
    """A task to be claimed. ``claim_number``: the number after the claim."""

    task_id: int
    page_id: int
    document_id: int
    claim_number: int
    failed: int
    retry_count: int
    max_retries: int
    suspect: int
    page_number: int
    file_path: str | None
    needs_ocr: int
    chunk_id: str
    content_id: int
    text_hash: str
    text: str
    heading_path: str
    symbols: str


class TaskSourceRow(msgspec.Struct, frozen=True):
    """The document and source of tasks. ``source_json`` describes an unpublished source."""

    document_id: int
    source_id: str
    family_key: int
    place: Place
    path: str
    content_hash: str
    space: str | None
    job_id: str | None
    state: str
    source_json: str
    title: str
    file_type: str
    gate: Gate


class FencedClaim(msgspec.Struct, frozen=True):
    """A valid claim."""

    task_id: int
    page_id: int
    document_id: int
    claim_number: int


class LeftoverChunk(msgspec.Struct, frozen=True):
    """A chunk to be removed. ``shared``: another generation of the source or its family has the same text.
    ``claimed``: a task of it is running."""

    chunk_key: int
    content_id: int
    text_hash: str
    shared: int
    claimed: int


class ContentRow(msgspec.Struct, frozen=True):
    """A page joined with one chunk; ``text_hash`` None: the page has no chunks."""

    page_id: int
    number: int
    file_path: str | None
    page_text: str | None
    engine: str
    confidence: float | None
    warnings: tuple[str, ...]
    text: str
    text_hash: str | None
    start: int
    end: int
    first_line: int | None
    last_line: int | None
    heading_path: str
    symbols: str


class RightCounts(msgspec.Struct, frozen=True):
    """Counters and status of a phase, recomputed from the parts."""

    processing: int
    waiting: int
    failed: int
    completed: int
    status: str


class MiscountedPage(msgspec.Struct, frozen=True):
    """A page with wrong counters, and the right values from the chunks."""

    page_id: int
    document_id: int
    counts: PerChunkPhase[RightCounts]
    chunk_count: int


class MiscountedDocument(msgspec.Struct, frozen=True):
    """A document with wrong counters, and the right values from the pages."""

    document_id: int
    state: str
    path: str | None
    counts: PerPhase[RightCounts]
    page_count: int
    chunk_count: int
    chunks: PerChunkPhase[int]
    failed_count: int


class MiscountedSource(msgspec.Struct, frozen=True):
    """A source with wrong counters, and the right values of the published generation."""

    key: int
    path: str
    page_count: int
    chunk_count: int


KNOWN_SOURCE = RowType(KnownSource)
SOURCE = RowType(Source)
DOCUMENT = RowType(Document, renamed=INDEX_STATUS)
PAGE_STATE = RowType(PageState)
CHUNK_STATE = RowType(ChunkState)
CHUNK_VIEW = RowType(ChunkView)
PROGRESS = RowType(Progress, renamed=INDEX_STATUS)
EVENT = RowType(DocumentEvent)
MISSING_PART = RowType(MissingPart)
TENANT_COUNT = RowType(TenantCount)
OUTBOX_ENTRY = RowType(OutboxEntry)
WALK = RowType(Walk)
LEDGER_ENTRY = RowType(LedgerEntry)
DOCUMENT_ROW = RowType(
    DocumentRow, without=("errors", "worker_id", "embedded", "finishes"), renamed=INDEX_STATUS
)
SOURCE_ROW = RowType(SourceRow)
FAMILY_MEMBER = RowType(FamilyMember)
BUILDING_ROW = RowType(BuildingRow)
PAGE_COUNTS = RowType(PageCounts)
TASK_ROW = RowType(TaskRow)
TASK_SOURCE_ROW = RowType(TaskSourceRow)
FENCED_CLAIM = RowType(FencedClaim)
LEFTOVER_CHUNK = RowType(LeftoverChunk)
CONTENT_ROW = RowType(ContentRow)
MISCOUNTED_PAGE = RowType(MiscountedPage)
MISCOUNTED_DOCUMENT = RowType(MiscountedDocument, renamed=INDEX_STATUS)
MISCOUNTED_SOURCE = RowType(MiscountedSource)


# Rows written by the catalog's statements, by name: ``{NewSource}`` in an SQL file stands for the columns.
#
# Where many rows of a batch are alike, their common columns are a record of their own (``Shared…``), which
# is made once for all of them. ``Whole…``: rows that are complete when they are written have a third of the
# columns.


class NewSource(msgspec.Struct, frozen=True, kw_only=True):
    key: int
    source_id: str
    place: Place
    path: str
    family_key: int
    created_at: str


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


class OwnPage(msgspec.Struct, frozen=True):
    """The columns of a new page with different values in each row."""

    page_id: int
    document_id: int
    page_number: int
    page_file_path: str | None
    needs_ocr: bool
    chunk_count: int


class PageText(msgspec.Struct, frozen=True):
    """The kept Markdown of a page. ``warnings``: a JSON list."""

    page_id: int
    text: str
    engine: str
    confidence: float | None
    warnings: str


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


class ReadPage(msgspec.Struct, frozen=True):
    """The columns of a page set at the end of ocr."""

    page_file_path: str | None
    chunk_count: int
    phases: PerChunkPhase[SavedPhase]
    at: str
    page_id: int


class RestartedPhase(msgspec.Struct, frozen=True):
    status: str
    error: str | None


class RestartedPage(msgspec.Struct, frozen=True):
    """The columns of a page set by an ocr retry."""

    phases: PerChunkPhase[RestartedPhase]
    at: str
    page_id: int


class SavedPage(msgspec.Struct, frozen=True):
    """The columns of a page set by a change of chunks in one phase."""

    status: str
    processing: int
    waiting: int
    failed: int
    completed: int
    error: str | None
    at: str
    page_id: int


class NewChunkRow(msgspec.Struct, frozen=True):
    """The first columns of a new chunk; ``ChunkText`` and ``ChunkDocument`` follow."""

    chunk_key: int
    page_id: int
    content_id: int
    text_key: int
    chunk_id: str
    chunk_index: int


class ChunkText(msgspec.Struct, frozen=True):
    """The columns of a new chunk taken from ``NewChunk``."""

    text_hash: str
    start: int
    end: int
    first_line: int | None
    last_line: int | None
    heading_path: str
    symbols: str


class ChunkDocument(msgspec.Struct, frozen=True):
    """The columns common to all new chunks of a document."""

    document_id: int
    max_retries: int
    priority: int
    at: str


class ChunkTask(msgspec.Struct, frozen=True):
    status: str
    completed_at: str | None
    held: str | None


class ChunkTasks(msgspec.Struct, frozen=True):
    """The task columns of a new chunk."""

    tasks: PerChunkPhase[ChunkTask]
    entities_extracted: int
    relationships_extracted: int


class EndedTask(msgspec.Struct, frozen=True):
    status: str
    retry_count: int
    retry_at: str | None
    suspect: bool
    error: str | None
    at: str
    task_id: int


NEW_SOURCE = RowType(NewSource, renamed={"source_id": "id"})
PUBLISHED_SOURCE = RowType(PublishedSource)
OWN_DOCUMENT = RowType(OwnDocument)
UNFINISHED_DOCUMENT = RowType(UnfinishedDocument)
SHARED_DOCUMENT = RowType(SharedDocument, renamed=INDEX_STATUS)
WHOLE_DOCUMENT = RowType(WholeDocument)
SAVED_DOCUMENT = RowType(SavedDocument, renamed=INDEX_STATUS)
OWN_PAGE = RowType(OwnPage)
PAGE_TEXT = RowType(PageText)
SHARED_PAGE = RowType(SharedPage)
WHOLE_PAGE = RowType(WholePage)
READ_PAGE = RowType(ReadPage)
RESTARTED_PAGE = RowType(RestartedPage)
SAVED_PAGE = RowType(SavedPage)
NEW_CHUNK_ROW = RowType(NewChunkRow)
CHUNK_TEXT = RowType(
    ChunkText, renamed={"text_hash": "chunk_content_hash", "start": "start_char", "end": "end_char"}
)
CHUNK_DOCUMENT = RowType(ChunkDocument)
CHUNK_TASKS = RowType(ChunkTasks)
ENDED_TASK = RowType(EndedTask)


# The row of the ledger of unindexed paths.
#
# Apart from ``written_records``: a walk in which no file has changed may write it, and no other row.


class LedgerRow(msgspec.Struct, frozen=True):
    place: Place
    path: str
    kind: str
    rule: str
    cause: str
    remedy: str
    job_id: str | None
    at: str


LEDGER_ROW = RowType(LedgerRow)
