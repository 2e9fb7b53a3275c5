"""Values given to the catalog: sources, generations, pages, chunks, tasks and outcomes.

All are frozen and know no store and no clock. A *source* is what a user calls a document; one *generation* of
it is a row of ``documents``. Numbers named ``…_id`` without quotes are handles: they are never used again for
another row, and mean nothing outside this catalog. What lasts are ``source_id`` and ``chunk_id``.
"""

from __future__ import annotations

import enum
from datetime import datetime, timedelta

import msgspec

from penstock.catalog.entities import Extraction
from penstock.catalog.rules.phases import Fingerprints as Fingerprints
from penstock.catalog.rules.phases import Phase as Phase
from penstock.catalog.rules.properties import StoredProperties as StoredProperties

NO_TEXT = "no text"


class TaskStatus(enum.StrEnum):
    """The status of a task, or of a page or document in one phase."""

    PENDING = "pending"
    PROCESSING = "processing"
    COMPLETED = "completed"
    FAILED = "failed"
    SKIPPED = "skipped"


SETTLED = frozenset({TaskStatus.COMPLETED, TaskStatus.FAILED, TaskStatus.SKIPPED})
"""Statuses of a page or document with nothing left to do in a phase (a failure with retries left is
``pending``)."""


class Gate(enum.StrEnum):
    """The condition for starting a phase: the phase before is done for the page, or for the document."""

    PAGE = "page"
    DOCUMENT = "document"


class GenerationState(enum.StrEnum):
    """The state of a generation. ``building`` until published or dropped, also while kept back after
    failures. A published generation is the current one only while its source points to it."""

    BUILDING = "building"
    PUBLISHED = "published"
    DROPPED = "dropped"


class FailureKind(enum.StrEnum):
    """The cause of a permanent failure: unreadable content, or an outage of a service."""

    CONTENT = "content"
    OUTAGE = "outage"


class Place(msgspec.Struct, frozen=True, order=True):
    """Tenant, collection and branch of a path. One path is one source per place."""

    tenant_id: str
    collection: str
    branch: str = "main"


class NewChunk(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A piece of a page. ``start`` and ``end`` are characters of the page's text, lines count from 1.

    ``text`` holds no NUL and no lone surrogate; ``text_hash`` is what ``identity.text_hash`` makes of it.
    ``vector``: float32, little endian; empty: it is in an outside store already. None: to be embedded, unless
    the source's own chunks or the cache know the text, or the generation has no space.
    """

    text: str
    text_hash: str
    start: int
    end: int
    first_line: int | None = None
    last_line: int | None = None
    heading_path: str = ""
    symbols: str = ""
    vector: bytes | None = None


class Failure(msgspec.Struct, frozen=True):
    code: str
    message: str
    fault: FailureKind = FailureKind.CONTENT


class NewPage(msgspec.Struct, frozen=True, kw_only=True):
    """A new page. ``chunks=None``: ocr is still to be done, or (with ``failure``) has permanently failed.

    ``text`` is kept beside the page when given, with ``engine``, ``confidence`` (0 to 100) and ``warnings``:
    for text that was recognized, and for pages with warnings. ``needs_ocr``: the page is a picture, whose
    text a task of lane ocr must recognize. ``file_path``: where the Markdown of a page that was read lies
    outside the catalog; for a page still to be read, where its file lies if not at the source's path.
    """

    number: int
    chunks: tuple[NewChunk, ...] | None = None
    text: str | None = None
    file_path: str | None = None
    failure: Failure | None = None
    needs_ocr: bool = False
    engine: str = ""
    confidence: float | None = None
    warnings: tuple[str, ...] = ()

    @property
    def unread(self) -> bool:
        """Check whether a task is needed to read the page."""
        return self.chunks is None and self.failure is None


class NewGeneration(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a source, read at ``read_at`` for a request made at ``asked_at``.

    ``space``: name of the vector space its chunks belong to; None: no vectors wanted. ``fingerprints``: also
    say which later phases are wanted. Of a new path, ``source_id`` is the id to give, if any, and
    ``related_id`` the source in another branch whose texts it shares. ``tags`` are slash-separated and
    filtered by prefix. ``failure``: the file as a whole could not be read; there are no pages.
    ``read_with``: fingerprint of the parser and its limits: what failed is not read again with the same.
    """

    place: Place
    path: str
    content_hash: str
    asked_at: datetime
    read_at: datetime
    pages: tuple[NewPage, ...]
    space: str | None = None
    fingerprints: Fingerprints = Fingerprints()
    size: int = 0
    mtime_ns: int = 0
    file_type: str = ""
    title: str = ""
    tags: tuple[str, ...] = ()
    metadata: str = "{}"
    properties: StoredProperties = StoredProperties()
    source_id: str | None = None
    related_id: str | None = None
    job_id: str | None = None
    priority: int = 5
    max_retries: int = 3
    gate: Gate = Gate.PAGE
    failure: Failure | None = None
    read_with: str | None = None


class Outcome(enum.StrEnum):
    """The outcome of a generation given to ``store``."""

    PUBLISHED = "published"
    BUILDING = "building"
    KEPT_BACK = "kept_back"
    SUPERSEDED = "superseded"
    REMOVED = "removed"


class StoreResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of storing one generation. ``kept``: chunks with a text stored before; the others are new.

    ``published``: also partial ones, whose missing parts are in ``failed``. ``building``: wait for
    ``document_id``; ``adopted`` when it is a generation begun before. ``kept_back``: settled, but too much
    failed to show it; what was published stays. ``superseded``: a later reading of the source is published,
    or the path belongs to another source than the ``source_id`` given. ``removed``: the source was deleted by
    a request not older than this one.
    """

    outcome: Outcome
    source_id: str | None = None
    document_id: int | None = None
    chunks: int = 0
    kept: int = 0
    failed: int = 0
    adopted: bool = False


class Adoption(msgspec.Struct, frozen=True, kw_only=True):
    """A job taking over a generation begun before."""

    document_id: int
    asked_at: datetime
    read_at: datetime
    job_id: str | None = None
    priority: int = 5


class TaskRequest(msgspec.Struct, frozen=True):
    """A worker's request for tasks of a lane. ``fingerprint``: the worker's model and settings.

    ``needs_ocr``: in lane ocr the pages whose text must be recognized, else only the others.
    """

    lane: Phase
    worker_id: str
    limit: int = 1
    fingerprint: str | None = None
    needs_ocr: bool = False


class TaskSource(msgspec.Struct, frozen=True, kw_only=True):
    """The document and source of a task."""

    document_id: int
    source_id: str
    family_key: int
    place: Place
    path: str
    content_hash: str
    space: str | None
    job_id: str | None
    title: str
    file_type: str
    gate: Gate = Gate.PAGE


class Task(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A claimed (page, phase) or (chunk, phase). ``chunk_id`` and the fields after are empty in lane ocr."""

    lane: Phase
    task_id: int
    claim_number: int
    page_id: int
    page_number: int
    retry_count: int
    max_retries: int
    suspect: bool
    source: TaskSource
    file_path: str | None = None
    needs_ocr: bool = False
    chunk_id: str = ""
    content_id: int = 0
    text_hash: str = ""
    text: str = ""
    heading_path: str = ""
    symbols: str = ""


class HeldTask(msgspec.Struct, frozen=True, gc=False):
    """The fields of a claimed task needed to renew or settle. A ``Task`` has them too."""

    lane: Phase
    task_id: int
    claim_number: int
    retry_count: int = 0
    max_retries: int = 3


class TaskOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a claim, made by ``catalog.rules.outcomes``. ``stored``: address of the outside store."""

    lane: Phase
    task_id: int
    claim_number: int
    status: TaskStatus
    retry_count: int = 0
    retry_after: timedelta | None = None
    suspect: bool = False
    code: str | None = None
    message: str | None = None
    fault: FailureKind | None = None
    page: NewPage | None = None
    needs_ocr: bool = False
    vector: bytes | None = None
    graph: Extraction | None = None
    stored: str | None = None


class OutboxEntryKind(enum.StrEnum):
    """Kind of an outbox entry: a job that may have ended, or parts of an unpublished generation."""

    JOB = "job"
    LEFTOVER = "leftover"


class OutboxEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of the outbox. Processing an entry twice does no harm. A job's entry outlives its source;
    the fields of the source are empty then."""

    entry_id: int
    kind: OutboxEntryKind
    document_id: int
    source_id: str
    place: Place
    job_id: str | None = None
    space: str | None = None


class Removal(msgspec.Struct, frozen=True, kw_only=True):
    """A delete: everything of a tenant, narrowed by the given fields. ``path`` means the path and, unless
    ``below`` is false, all below it.

    Only what was asked for before or at ``asked_at`` goes; later generations stay. So does, until it was
    heard, what a walk asked for later may want. ``heard`` names them: of two the one asked first may begin
    last, so that no time says which were.
    """

    tenant_id: str
    asked_at: datetime
    collection: str | None = None
    branch: str | None = None
    path: str | None = None
    source_id: str | None = None
    below: bool = True
    reason: str = ""
    heard: frozenset[Walk] = frozenset()


class Walk(msgspec.Struct, frozen=True, kw_only=True):
    """Request to compare everything below ``root`` with the catalog. ``rules``: the rules of the walk."""

    place: Place
    root: str
    rules: str
    asked_at: datetime


class RemovalResult(msgspec.Struct, frozen=True):
    """``sources`` became invisible in this call; ``more`` are left for the next. ``newer``: nothing was done,
    as these walks were asked for after the delete and may want what it would remove."""

    sources: int
    more: bool
    newer: tuple[Walk, ...] = ()


class Rename(msgspec.Struct, frozen=True, kw_only=True):
    """A renamed path, or a renamed folder with all paths below."""

    place: Place
    old: str
    new: str
    asked_at: datetime
    folder: bool = False


class RenameResult(msgspec.Struct, frozen=True):
    """Counts of a rename. ``replaced``: sources removed from a new path; ``more``: call again."""

    sources: int
    replaced: int
    more: bool


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """A known source found at another path. ``published_id``: the generation published at that time; ``size``
    and ``mtime_ns``: of the file at the new path."""

    source_id: str
    published_id: int
    old: str
    new: str
    size: int
    mtime_ns: int


class Touch(msgspec.Struct, frozen=True, gc=False):
    """Change of a file's size or time without a change of content; or (``asked_at``) a repeated request for
    an unchanged file."""

    source_id: str
    size: int
    mtime_ns: int
    asked_at: datetime | None = None
    failed: bool = False
    """The unchanged content is the one that failed: size and time of the published one stay."""


class LedgerKind(enum.StrEnum):
    SKIPPED = "skipped"
    FAILED = "failed"


class TokenUse(msgspec.Struct, frozen=True):
    """Tokens of a tenant sent to a service in a month, such as ``2026-11``, for a job."""

    tenant_id: str
    service: str
    month: str
    job_id: str
    """Empty: without a job."""
    tokens: int


class LedgerEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The reason a path is not indexed: a skip rule, or the code of a failure."""

    place: Place
    path: str
    kind: LedgerKind
    rule: str
    cause: str
    remedy: str = ""
    job_id: str | None = None
    at: datetime | None = None
