"""Rows written by the catalog's statements, by name: ``{NewSource}`` in an SQL file stands for the columns.

Where many rows of a batch are alike, their common columns are a record of their own (``Shared…``), which is
made once for all of them. ``Whole…``: rows that are complete when they are
written have a third of the columns.
"""

from __future__ import annotations

from penstock.catalog.rules.phases import PerChunkPhase, PerLaterPhase, PerPhase
from penstock.catalog.sql.row_types import INDEX_STATUS, RowType
from penstock.catalog.values import Fingerprints, Place
from penstock.named_tuple import NamedTuple


class NewSource(NamedTuple):
    key: int
    source_id: str
    place: Place
    path: str
    family_key: int
    created_at: str


class PublishedSource(NamedTuple):
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


class OwnDocument(NamedTuple):
    """The columns of a new document with different values in each row."""

    document_id: int
    source_key: int
    filename: str
    content_hash: str
    job_id: str | None
    asked_at: str
    read_at: str


class UnfinishedDocument(NamedTuple):
    """The columns of a new, incomplete document: the future source, and the file behind it."""

    source_json: str | None
    size: int
    mtime_ns: int
    read_with: str | None


class DocumentPhase(NamedTuple):
    status: str
    processing: int
    waiting: int
    failed: int
    completed: int
    completed_at: str | None
    error: str | None


class SharedDocument(NamedTuple):
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


class WholeDocument(NamedTuple):
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


class SavedPhase(NamedTuple):
    status: str
    processing: int
    waiting: int
    failed: int
    completed: int
    error: str | None


class SavedDocument(NamedTuple):
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


class OwnPage(NamedTuple):
    """The columns of a new page with different values in each row."""

    page_id: int
    document_id: int
    page_number: int
    page_file_path: str | None
    needs_ocr: bool
    chunk_count: int


class PageText(NamedTuple):
    """The kept Markdown of a page. ``warnings``: a JSON list."""

    page_id: int
    text: str
    engine: str
    confidence: float | None
    warnings: str


class PageTask(NamedTuple):
    status: str
    completed_at: str | None
    error: str | None
    retry_count: int


class PagePhase(NamedTuple):
    status: str
    completed_at: str | None
    error: str | None
    processing: int
    waiting: int
    failed: int
    completed: int


class SharedPage(NamedTuple):
    """The columns of a new page common to many of a batch."""

    turn: int
    ocr: PageTask
    phases: PerChunkPhase[PagePhase]
    max_retries: int
    priority: int
    created_at: str
    updated_at: str


class WholePage(NamedTuple):
    """The common columns of pages complete when written."""

    error: PerLaterPhase[str | None]
    max_retries: int
    priority: int
    at: str


class ReadPage(NamedTuple):
    """The columns of a page set at the end of ocr."""

    page_file_path: str | None
    chunk_count: int
    phases: PerChunkPhase[SavedPhase]
    at: str
    page_id: int


class RestartedPhase(NamedTuple):
    status: str
    error: str | None


class RestartedPage(NamedTuple):
    """The columns of a page set by an ocr retry."""

    phases: PerChunkPhase[RestartedPhase]
    at: str
    page_id: int


class SavedPage(NamedTuple):
    """The columns of a page set by a change of chunks in one phase."""

    status: str
    processing: int
    waiting: int
    failed: int
    completed: int
    error: str | None
    at: str
    page_id: int


class NewChunkRow(NamedTuple):
    """The first columns of a new chunk; ``ChunkText`` and ``ChunkDocument`` follow."""

    chunk_key: int
    page_id: int
    content_id: int
    text_key: int
    chunk_id: str
    chunk_index: int


class ChunkText(NamedTuple):
    """The columns of a new chunk taken from ``NewChunk``."""

    text_hash: str
    start: int
    end: int
    first_line: int | None
    last_line: int | None
    heading_path: str
    symbols: str


class ChunkDocument(NamedTuple):
    """The columns common to all new chunks of a document."""

    document_id: int
    max_retries: int
    priority: int
    at: str


class ChunkTask(NamedTuple):
    status: str
    completed_at: str | None
    held: str | None


class ChunkTasks(NamedTuple):
    """The task columns of a new chunk."""

    tasks: PerChunkPhase[ChunkTask]
    entities_extracted: int
    relationships_extracted: int


class EndedTask(NamedTuple):
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
