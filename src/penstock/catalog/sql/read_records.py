"""Rows returned by the catalog's statements, by name.

The statements take their select lists from these classes and from the values callers get: ``{Source s.}`` in
an SQL file stands for the columns of a ``Source``.
"""

from __future__ import annotations

import msgspec

from penstock.catalog.rules.phases import PerChunkPhase, PerPhase, WantedPhases, wanted_phases
from penstock.catalog.rules.publication import GenerationFacts
from penstock.catalog.rules.rollup import PartCounts
from penstock.catalog.sql.row_types import INDEX_STATUS, RowType
from penstock.catalog.values import SETTLED, Fingerprints, Gate, LedgerEntry, OutboxEntry, Phase, Place, Walk
from penstock.catalog.views import (
    ChunkState,
    ChunkView,
    Document,
    DocumentEvent,
    KnownSource,
    MissingPart,
    PageState,
    Progress,
    Source,
    TenantCount,
)
from penstock.named_tuple import NamedTuple


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


class SourceRow(NamedTuple):
    """The columns of a source needed to store and move generations."""

    path: str
    key: int
    source_id: str
    family_key: int
    published_id: int | None
    building_id: int | None
    read_at: str | None


class FamilyMember(NamedTuple):
    """A published source of a family. Other sources of the family can share the texts."""

    family_key: int
    source_id: str
    published_id: int


class BuildingRow(NamedTuple):
    """The content and settings of a generation being built."""

    content_hash: str
    fingerprints: Fingerprints
    space_id: int | None


class PageCounts(NamedTuple):
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


class TaskRow(NamedTuple):
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


class TaskSourceRow(NamedTuple):
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


class FencedClaim(NamedTuple):
    """A valid claim."""

    task_id: int
    page_id: int
    document_id: int
    claim_number: int


class LeftoverChunk(NamedTuple):
    """A chunk to be removed. ``shared``: another generation of the source or its family has the same text.
    ``claimed``: a task of it is running."""

    chunk_key: int
    content_id: int
    text_hash: str
    shared: int
    claimed: int


class ContentRow(NamedTuple):
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


class RightCounts(NamedTuple):
    """Counters and status of a phase, recomputed from the parts."""

    processing: int
    waiting: int
    failed: int
    completed: int
    status: str


class MiscountedPage(NamedTuple):
    """A page with wrong counters, and the right values from the chunks."""

    page_id: int
    document_id: int
    counts: PerChunkPhase[RightCounts]
    chunk_count: int


class MiscountedDocument(NamedTuple):
    """A document with wrong counters, and the right values from the pages."""

    document_id: int
    state: str
    path: str | None
    counts: PerPhase[RightCounts]
    page_count: int
    chunk_count: int
    chunks: PerChunkPhase[int]
    failed_count: int


class MiscountedSource(NamedTuple):
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
