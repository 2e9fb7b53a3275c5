"""Values that a catalog takes and answers with: generations, tasks and outcomes; sources, documents and hits.

All are frozen and know no store and no clock. A *source* is what a user calls a document; one *generation* of
it is a row of ``documents``. Numbers named ``…_id`` without quotes are handles: they are never used again for
another row, and mean nothing outside this catalog. What lasts are ``source_id`` and ``chunk_id``.
"""

from __future__ import annotations

import enum
import unicodedata
from datetime import UTC, datetime, timedelta
from typing import Literal

import msgspec

from penstock.catalog.graph import Extraction
from penstock.catalog.rules.phases import LATER_PHASES, PerChunkPhase, PerPhase
from penstock.catalog.rules.phases import Fingerprints as Fingerprints
from penstock.catalog.rules.phases import Phase as Phase

MAX_CHARS = 500
"""Maximum length of a property or a warning."""
MAX_WARNINGS = 20
NOTHING_STORED = "{}"


class Properties(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Facts about a document, as far as the source states them. Dates are ISO 8601."""

    author: str = ""
    created: str = ""
    modified: str = ""
    language: str = ""
    encoding: str = ""
    """Encoding of the bytes, where it is not UTF-8."""
    replaced: int = 0
    """Number of characters that could not be decoded and were replaced."""


class StoredProperties(Properties, frozen=True, kw_only=True, omit_defaults=True):
    """Properties as the catalog keeps them, with the warnings of the reading."""

    media_type: str = ""
    """Type of the content, where the name stands for another one."""
    warnings: tuple[str, ...] = ()
    """Losses and guesses, as messages for people."""
    url: str = ""
    """Address of a web page, or path of a page of a library."""
    anchors: dict[str, str] = {}
    """Anchors of a web page by path of headings."""

    def address(self, heading_path: str) -> str:
        """The address of a part of a web page: with the anchor of its heading, or of one above."""
        while heading_path and heading_path not in self.anchors:
            heading_path = heading_path.rpartition(" > ")[0]
        anchor = self.anchors.get(heading_path, "")
        return f"{self.url}#{anchor}" if self.url and anchor else self.url


class _Row(StoredProperties, frozen=True, kw_only=True, omit_defaults=True):
    """The column: the properties, and the keys for filters."""

    author_folded: str = ""
    title_folded: str = ""
    language_folded: str = ""
    created_at: str = ""


def encode(properties: StoredProperties, title: str) -> str:
    """The column for the properties and the title of a document, as JSON.

    What is filtered stands in it a second time, in the form in which filters compare it. No store has to fold
    letters or to convert times by itself, so a filter means the same in all of them.
    """
    if not title and properties == StoredProperties():
        return NOTHING_STORED
    row = _Row(
        author=_line(properties.author),
        created=_line(properties.created),
        modified=_line(properties.modified),
        language=_line(properties.language),
        encoding=_line(properties.encoding),
        replaced=properties.replaced,
        media_type=_line(properties.media_type),
        warnings=shortened(properties.warnings),
        url=properties.url,
        anchors=properties.anchors,
        author_folded=folded(properties.author),
        title_folded=folded(title),
        language_folded=language_key(properties.language),
        created_at=time_key(properties.created),
    )
    return msgspec.json.encode(row).decode()


_NOTHING = StoredProperties()


def decode(column: str) -> StoredProperties:
    # A decoder of the module would evaluate the annotations in each command.
    return _NOTHING if column == NOTHING_STORED else msgspec.json.decode(column, type=StoredProperties)


def folded(text: str) -> str:
    """Text for a comparison without case, width and accents of single letters."""
    apart = unicodedata.normalize("NFKD", _line(text)).casefold()
    return unicodedata.normalize("NFC", "".join(char for char in apart if not unicodedata.combining(char)))


def language_key(tag: str) -> str:
    """A language tag in one spelling: ``en_US`` and ``EN-us`` are ``en-us``."""
    return _line(tag).replace("_", "-").lower()


def time_key(text: str) -> str:
    """A time as ``2024-05-01T10:00:00`` in UTC, of a year or a month its start; empty if it is no date."""
    given = _line(text)
    if given[:4].isdecimal() and len(given) in (4, 7):
        given = f"{given}-01-01"[:10] if len(given) == 4 else f"{given}-01"
    try:
        time = datetime.fromisoformat(given)
        time = time.astimezone(UTC) if time.tzinfo is not None else time
    except (ValueError, OverflowError):
        return ""
    return time.replace(tzinfo=None).isoformat(timespec="seconds")


def _line(text: str) -> str:
    """Text on one line, without characters refused by a store."""
    kept = "".join(char if unicodedata.category(char)[0] != "C" else " " for char in text[: 4 * MAX_CHARS])
    return " ".join(kept.split())[:MAX_CHARS]


def shortened(warnings: tuple[str, ...]) -> tuple[str, ...]:
    """The warnings in single lines, each once, and not too many."""
    kept = tuple(dict.fromkeys(map(_line, warnings)))
    if len(kept) <= MAX_WARNINGS:
        return kept
    return (*kept[: MAX_WARNINGS - 1], f"and {len(kept) - MAX_WARNINGS + 1:,} more warnings")


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

    ``text`` holds no NUL and no lone surrogate; ``text_hash`` is what ``paths.text_hash`` makes of it.
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
    """The end of a claim, made by ``catalog.rules.publication``. ``stored``: address of the outside store."""

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


class Holding(msgspec.Struct, frozen=True):
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


class SourceMark(msgspec.Struct, frozen=True, array_like=True):
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
