"""Publication of a generation: the states of its parts, the ends of its tasks, and when search sees it. Pure.

Also the parts that a large generation is written in, remembered failures, and changes of restored rows.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias, TypeVar

import msgspec

from penstock.catalog.graph import Extraction
from penstock.catalog.rules.phases import CHUNK_PHASES, PHASES, PhaseRule, Unit, WantedPhases, gate_failed
from penstock.catalog.values import (
    NO_TEXT,
    SETTLED,
    Failure,
    FailureKind,
    Fingerprints,
    HeldTask,
    NewChunk,
    NewGeneration,
    NewPage,
    Phase,
    Place,
    SourceFailure,
    Task,
    TaskOutcome,
    TaskStatus,
)
from penstock.errors import PathNotFound, PenstockError, UnreadableDocument
from penstock.queue.retry import JOB_BACKOFF, Classification, delay

REMOVED_WHILE_INDEXING = "removed while indexing"
SUPERSEDED = "a later reading is published"
REPLACED = "replaced by a newer generation"
UNFINISHED = "it was written only in part"
NOTHING_USABLE = "no page could be read"
NO_VECTORS = "no chunk could be embedded"


class Verdict(enum.Enum):
    WAIT = "wait"
    PUBLISH = "publish"
    KEEP_BACK = "keep back"


class GenerationFacts(msgspec.Struct, frozen=True):
    """State of a generation: ocr and vector, the pages and chunks that came through, parts that failed for
    reasons outside the document, and parts that are still to be written."""

    ocr: TaskStatus
    vector: TaskStatus
    pages: int
    pages_read: int
    chunks_embedded: int
    outages: int
    unwritten: int = 0


@lru_cache(1024)
def verdict(facts: GenerationFacts) -> tuple[Verdict, str | None]:
    """Publish once ocr and vector are settled, without the parts that failed by their content. Keep back
    after an outage, and when no part succeeded. The text: why not."""
    if facts.unwritten or facts.ocr not in SETTLED or facts.vector not in SETTLED:
        return Verdict.WAIT, None
    if facts.outages:
        return Verdict.KEEP_BACK, f"{facts.outages} of its parts failed for reasons outside the document"
    if facts.ocr is TaskStatus.FAILED and not facts.pages_read:
        return Verdict.KEEP_BACK, NOTHING_USABLE
    if facts.vector is TaskStatus.FAILED and not facts.chunks_embedded:
        return Verdict.KEEP_BACK, NO_VECTORS
    return Verdict.PUBLISH, None


_Moment = TypeVar("_Moment", str, datetime)


def superseded(read_at: _Moment, published_read_at: _Moment | None) -> bool:
    """Check whether a later reading is published. (Times as text have a fixed width.)"""
    return published_read_at is not None and published_read_at > read_at


PROCESSING, WAITING, FAILED, COMPLETED, SKIPPED = range(5)
"""Counters of the states of parts. A parent keeps the number of parts in each but the last."""

WORDS = ("processing", "pending", "failed", "completed", "skipped")
"""The status of a part that counts so (one that failed with retries left waits, but says ``failed``)."""

_BY_STATUS: dict[str, int] = {
    TaskStatus.PROCESSING: PROCESSING,
    TaskStatus.PENDING: WAITING,
    TaskStatus.COMPLETED: COMPLETED,
    TaskStatus.SKIPPED: SKIPPED,
}


class PartCounts(NamedTuple):
    """The numbers of a parent's parts, of which the status of the parent follows.

    In each phase: any part processing → processing; else any pending or failed with retries left → pending;
    else any failed for good → failed; else any completed → completed; else (all skipped, or there are none) →
    skipped. A tuple, as the numbers are unpacked into columns for each page.
    """

    processing: int = 0
    waiting: int = 0
    failed: int = 0
    completed: int = 0

    def changed(self, delta: Iterable[int]) -> PartCounts:
        return PartCounts(*(count + change for count, change in zip(self, delta, strict=True)))

    @property
    def kind(self) -> int:
        """The counter in which the parent is counted."""
        if self.processing:
            return PROCESSING
        if self.waiting:
            return WAITING
        if self.failed:
            return FAILED
        return COMPLETED if self.completed else SKIPPED

    @property
    def status(self) -> TaskStatus:
        return TaskStatus(WORDS[self.kind])


def kind(status: str, retries_left: bool = False) -> int:
    """The counter in which a part, page or document of this ``status`` is counted."""
    if status == TaskStatus.FAILED:
        return WAITING if retries_left else FAILED
    return _BY_STATUS[status]


_ONE = tuple(PartCounts(*(int(kind == part) for kind in range(4))) for part in range(5))


class PartChanges:
    """Changes of parts, added up per parent."""

    def __init__(self) -> None:
        self._deltas: dict[int, list[int]] = {}

    def move(self, parent: int, before: int, after: int) -> None:
        if before != after:
            delta = self._deltas.setdefault(parent, [0, 0, 0, 0, 0])
            delta[before] -= 1
            delta[after] += 1

    def items(self) -> list[tuple[int, list[int]]]:
        """Parents with the changes of their counts; parents without a change are left out."""
        return [(parent, delta[:4]) for parent, delta in self._deltas.items() if any(delta)]


def counted(parts: Sequence[int]) -> PartCounts:
    if len(parts) == 1:
        return _ONE[parts[0]]
    return PartCounts(
        parts.count(PROCESSING), parts.count(WAITING), parts.count(FAILED), parts.count(COMPLETED)
    )


_NO_CHUNKS = (PartCounts(),) * len(CHUNK_PHASES)
_AT = {phase: at for at, phase in enumerate(PHASES)}
_CHUNK_PHASE_AT = {phase: at for at, phase in enumerate(CHUNK_PHASES)}


class InitialPage(msgspec.Struct, frozen=True):
    """The state of a new page in each phase, the reasons, and the counts of the chunks."""

    kinds: tuple[int, ...]
    errors: tuple[str | None, ...]
    chunks: tuple[PartCounts, ...] = _NO_CHUNKS

    def kind(self, phase: Phase) -> int:
        return self.kinds[_AT[phase]]

    def error(self, phase: Phase) -> str | None:
        return self.errors[_AT[phase]]

    def counts(self, phase: Phase) -> PartCounts:
        """The counts of the page's chunks in a chunk phase."""
        return self.chunks[_CHUNK_PHASE_AT[phase]]


class InitialDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Page counts of a new document in each phase, and completed chunks in each chunk phase."""

    counts: tuple[PartCounts, ...]
    pages: int
    chunks: int
    completed_chunks: tuple[int, ...]
    failed: int
    outages: int
    facts: GenerationFacts
    error: str | None = None
    """Code and message of the first failure."""


def page(new: NewPage, wanted: WantedPhases, chunks: Sequence[tuple[int, ...]] = ()) -> InitialPage:
    """The state of a new page. ``chunks``: the kind of each chunk in each chunk phase."""
    if new.failure is not None:
        return _failed_page(new.failure)
    if new.chunks is None:
        return unread_page(wanted)
    counts = tuple([counted(kinds) for kinds in zip(*chunks, strict=True)]) if chunks else _NO_CHUNKS
    return _read_page(counts, empty=not new.chunks)


@lru_cache(1024)
def _read_page(chunks: tuple[PartCounts, ...], *, empty: bool) -> InitialPage:
    kinds = [counts.kind for counts in chunks]
    reasons = [
        (NO_TEXT if empty else PHASES[phase].unwanted) if kind == SKIPPED else None
        for phase, kind in zip(CHUNK_PHASES, kinds, strict=True)
    ]
    return InitialPage(kinds=(COMPLETED, *kinds), errors=(None, *reasons), chunks=chunks)


def whole(standing: InitialPage | InitialDocument) -> bool:
    """Check whether all is read and embedded and nothing else is wanted, the common case."""
    if isinstance(standing, InitialPage):
        kinds = standing.kinds
    else:
        kinds = tuple([counts.kind for counts in standing.counts])
    first, second, *others = kinds
    return first == second == COMPLETED and all(kind == SKIPPED for kind in others)


@lru_cache(16)
def unread_page(wanted: WantedPhases) -> InitialPage:
    reasons = [
        None if is_wanted else PHASES[phase].unwanted
        for phase, is_wanted in zip(CHUNK_PHASES, wanted, strict=True)
    ]
    kinds = [WAITING if is_wanted else SKIPPED for is_wanted in wanted]
    return InitialPage(kinds=(WAITING, *kinds), errors=(None, *reasons))


def _failed_page(failure: Failure) -> InitialPage:
    return skipped_page(gate_failed(Phase.OCR), error_text(failure))


def error_text(failure: Failure) -> str:
    return f"{failure.code}: {failure.message}"


def skipped_page(reason: str | None, ocr_error: str | None = None) -> InitialPage:
    """A page with failed ocr: the chunk phases are skipped, for this reason."""
    count = len(CHUNK_PHASES)
    return InitialPage(kinds=(FAILED, *[SKIPPED] * count), errors=(ocr_error, *[reason] * count))


def document(pages: list[InitialPage], new: Iterable[NewPage], chunks: int) -> InitialDocument:
    failures = tuple([page.failure for page in new if page.failure is not None])
    # Most documents of a folder have the same state.
    return _document(tuple(pages), failures, chunks)


def failed_document(failure: Failure) -> InitialDocument:
    """The state of a document that failed as a whole: no pages, and one failure in ocr."""
    outages = int(failure.fault is FailureKind.OUTAGE)
    ocr = counted([FAILED])
    return InitialDocument(
        counts=(ocr, *_NO_CHUNKS),
        pages=0,
        chunks=0,
        completed_chunks=(0,) * len(CHUNK_PHASES),
        failed=1,
        outages=outages,
        facts=GenerationFacts(ocr.status, PartCounts().status, 0, 0, 0, outages),
        error=error_text(failure),
    )


@lru_cache(1024)
def _document(pages: tuple[InitialPage, ...], failures: tuple[Failure, ...], chunks: int) -> InitialDocument:
    counts = tuple([counted([page.kinds[at] for page in pages]) for at in _AT.values()])
    completed = tuple([sum([page.chunks[at].completed for page in pages]) for at in _CHUNK_PHASE_AT.values()])
    outages = sum(failure.fault is FailureKind.OUTAGE for failure in failures)
    ocr = counts[_AT[Phase.OCR]]
    return InitialDocument(
        counts=counts,
        pages=len(pages),
        chunks=chunks,
        completed_chunks=completed,
        failed=len(failures),
        outages=outages,
        facts=GenerationFacts(
            ocr=ocr.status,
            vector=counts[_AT[Phase.VECTOR]].status,
            pages=len(pages),
            pages_read=ocr.completed,
            chunks_embedded=completed[_CHUNK_PHASE_AT[Phase.VECTOR]],
            outages=outages,
        ),
        error=error_text(failures[0]) if failures else None,
    )


def error_of(phase: Phase, counts: PartCounts, standing: InitialDocument) -> str | None:
    """The error of a document in ocr, or the reason for a chunk phase in which nothing was done."""
    if phase not in _CHUNK_PHASE_AT:
        return standing.error if counts.kind == FAILED else None
    if any(counts):
        return None
    if not standing.pages and standing.error is not None:
        return gate_failed(Phase.OCR)
    return PHASES[phase].unwanted if standing.chunks else NO_TEXT


_LOST = Failure("ERR_WORKER_LOST", "the worker was lost")


_TaskClaim: TypeAlias = Task | HeldTask


def completed_page(task: _TaskClaim, page: NewPage) -> TaskOutcome:
    """Complete the ocr of a page. ``page.chunks`` become the chunks of the page."""
    return _ended(task, TaskStatus.COMPLETED, page=page)


def needs_ocr(task: _TaskClaim) -> TaskOutcome:
    """Release a page found to be a picture, to be recognized by OCR."""
    return msgspec.structs.replace(released(task), needs_ocr=True)


def completed_vector(task: _TaskClaim, vector: bytes | None, stored: str | None = None) -> TaskOutcome:
    """Complete the embedding of a chunk. ``stored``: the address of the outside store that has the vector."""
    return _ended(task, TaskStatus.COMPLETED, vector=vector, stored=stored)


def completed_graph(task: _TaskClaim, graph: Extraction) -> TaskOutcome:
    """Complete the extraction of a chunk. The entities and relations become those of the chunk's text."""
    return _ended(task, TaskStatus.COMPLETED, graph=graph)


def failed_attempt(task: _TaskClaim, why: Classification, message: str, *, jitter: float = 0) -> TaskOutcome:
    """Record a failure: retry later if the error is transient and retries are left."""
    if why.kind != "transient":
        return failed(task, Failure(why.code, message))
    if task.retry_count >= task.max_retries:
        return failed(task, Failure(why.code, message, FailureKind.OUTAGE))
    wait = why.retry_after or delay(JOB_BACKOFF, task.retry_count + 1, jitter=jitter)
    return _ended(
        task,
        TaskStatus.FAILED,
        retry_count=task.retry_count,
        retry_after=wait,
        code=why.code,
        message=message,
    )


def failed(task: _TaskClaim, failure: Failure) -> TaskOutcome:
    """Fail for good, without using the retries left."""
    return _ended(
        task,
        TaskStatus.FAILED,
        retry_count=task.max_retries,
        code=failure.code,
        message=failure.message,
        fault=failure.fault,
    )


def lost(task: _TaskClaim) -> TaskOutcome:
    """Give back the task of a dead worker: one retry spent, due now, claimed alone as a crash suspect."""
    if task.retry_count >= task.max_retries:
        return failed(task, _LOST)
    return _ended(
        task,
        TaskStatus.FAILED,
        retry_count=task.retry_count,
        retry_after=timedelta(0),
        suspect=True,
        code=_LOST.code,
        message=_LOST.message,
    )


def released(task: _TaskClaim) -> TaskOutcome:
    """Give a task back unspent: in the state before the claim, due now."""
    if task.retry_count == 0:
        return _ended(task, TaskStatus.PENDING)
    # A claimed task with a count came from the retry pool, and the claim had added one.
    return _ended(
        task, TaskStatus.FAILED, retry_count=task.retry_count - 1, retry_after=timedelta(0), code=None
    )


def postponed(task: _TaskClaim, failure: Failure, wait: timedelta) -> TaskOutcome:
    """Try again later, without spending a retry: a service needed by the task is down."""
    if task.max_retries == 0:
        return failed(task, failure)
    return _ended(
        task,
        TaskStatus.FAILED,
        # A claim of a failed task adds one.
        retry_count=max(task.retry_count - 1, 0),
        retry_after=wait,
        code=failure.code,
        message=failure.message,
    )


def skipped(task: _TaskClaim, reason: str) -> TaskOutcome:
    """Not wanted or not possible here."""
    return _ended(task, TaskStatus.SKIPPED, message=reason)


def _ended(task: _TaskClaim, status: TaskStatus, **what: object) -> TaskOutcome:
    return TaskOutcome(
        lane=task.lane,
        task_id=task.task_id,
        claim_number=task.claim_number,
        status=status,
        **what,  # type: ignore[arg-type]
    )


class Slice(msgspec.Struct, frozen=True):
    """Consecutive chunks of a page. ``first``: the index of the first of them; 0: the page itself is new."""

    page: NewPage
    first: int
    chunks: tuple[NewChunk, ...]

    @property
    def rows(self) -> int:
        return len(self.chunks) + (self.first == 0)


class Portions(msgspec.Struct, frozen=True):
    """Transaction sizes of ``store``: small generations share one, a large one gets several.

    While a transaction writes, no other writer of a SQLite catalog gets on, nor of a queue in the same file.
    ``rows`` and ``chars``: the most page and chunk rows, and characters, in a part of a large generation.
    ``uncut``: parts that one transaction may hold all the same, where that is all there is to write.
    """

    rows: int = 64
    chars: int = 128 << 10
    uncut: int = 16

    def large(self, new: NewGeneration) -> bool:
        """Check whether a generation is written in parts: one of up to ``uncut`` parts is not."""
        rows, chars = _size(new)
        return rows > self.uncut * self.rows or chars > self.uncut * self.chars

    def groups(self, generations: Iterable[NewGeneration]) -> Iterator[Sequence[NewGeneration]]:
        """Group generations into transactions, in order; a large one is alone."""
        most_rows, most_chars = self.uncut * self.rows, self.uncut * self.chars
        group: list[NewGeneration] = []
        rows = chars = 0
        for new in generations:
            own_rows, own_chars = _size(new)
            if group and (rows + own_rows > most_rows or chars + own_chars > most_chars):
                yield group
                group, rows, chars = [], 0, 0
            group.append(new)
            rows, chars = rows + own_rows, chars + own_chars
        if group:
            yield group

    def parts(self, pages: Sequence[NewPage]) -> Iterator[list[Slice]]:
        """The pages and chunks of a large generation, in their order. A page may stretch over many parts."""
        part: list[Slice] = []
        rows = chars = 0
        for page in pages:
            first, chunks = 0, page.chunks or ()
            while first < len(chunks) or first == 0:
                if part and (rows >= self.rows or chars >= self.chars):
                    yield part
                    part, rows, chars = [], 0, 0
                taken = self._fitting(chunks, first, self.rows - rows, self.chars - chars)
                part.append(Slice(page, first, taken))
                rows += part[-1].rows
                chars += sum([len(chunk.text) for chunk in taken]) + (
                    len(page.text or "") if not first else 0
                )
                if not taken:
                    break
                first += len(taken)
        if part:
            yield part

    def _fitting(self, chunks: Sequence[NewChunk], first: int, rows: int, chars: int) -> tuple[NewChunk, ...]:
        """At least one, where there is one: a chunk is not cut."""
        end = first
        while end < len(chunks) and (end == first or (end - first < rows and chars > 0)):
            chars -= len(chunks[end].text)
            end += 1
        return tuple(chunks[first:end])


def count_rows(new: NewGeneration) -> int:
    return len(new.pages) + sum([len(page.chunks) for page in new.pages if page.chunks])


def _size(new: NewGeneration) -> tuple[int, int]:
    """Number of page and chunk rows, and of characters. Most generations have one page with one chunk."""
    rows = chars = 0
    for page in new.pages:
        rows += 1
        if page.text:
            chars += len(page.text)
        for chunk in page.chunks or ():
            rows += 1
            chars += len(chunk.text)
    return rows, chars


_CLAIM_STEP = 1_000
"""Added to claim numbers of open tasks, so that no claim made after the backup fits one made here."""
_SETTLED = ("completed", "skipped")

_Values: TypeAlias = list[Any]
_Change: TypeAlias = Callable[[_Values], None]


class RestoredRows:
    """Changes the rows of one table as they are restored.

    Running tasks are released, and outside stores are filled again.
    """

    def __init__(self, table: str, columns: Sequence[str]) -> None:
        place = {name: number for number, name in enumerate(columns)}
        self._changes = _CHANGES[table](place) if table in _CHANGES else []

    def apply(self, rows: Sequence[Sequence[Any]]) -> list[_Values]:
        """The rows as they are inserted."""
        changed = [list(row) for row in rows]
        for change in self._changes:
            for row in changed:
                change(row)
        return changed


def _of_tasks(unit: Unit) -> Callable[[dict[str, int]], list[_Change]]:
    def changes(place: dict[str, int]) -> list[_Change]:
        own = [_released(place, rule) for rule in PHASES.values() if rule.unit is unit]
        above = [_counted(place, rule, f"{rule.phase}_status") for rule in PHASES.values()]
        return [*own, *(above if unit is Unit.PAGE else [])]

    return changes


def _released(place: dict[str, int], rule: PhaseRule) -> _Change:
    """A task held by a worker becomes pending; the number of retries stays."""
    status, number = place[f"{rule.phase}_status"], place[f"{rule.phase}_claim_number"]
    emptied = [
        place[f"{rule.phase}_{name}"] for name in ("worker_id", "started_at", "last_heartbeat", "retry_at")
    ]

    def change(row: _Values) -> None:
        if row[status] in _SETTLED:
            return
        row[number] += _CLAIM_STEP
        if row[status] == "processing":
            row[status] = "pending"
            for column in emptied:
                row[column] = None

    return change


def _counted(place: dict[str, int], rule: PhaseRule, status_name: str) -> _Change:
    """The counters of a page or document; parts in progress count as pending."""
    if f"{rule.phase}_processing" not in place:
        return lambda _: None
    status = place[status_name]
    processing, waiting = place[f"{rule.phase}_processing"], place[f"{rule.phase}_waiting"]

    def change(row: _Values) -> None:
        if row[processing]:
            row[waiting] += row[processing]
            row[processing] = 0
        if row[status] == "processing":
            row[status] = "pending"

    return change


def _of_documents(place: dict[str, int]) -> list[_Change]:
    def forget_worker(row: _Values) -> None:
        row[place["current_worker_id"]] = row[place["last_heartbeat"]] = None

    return [*(_counted(place, rule, rule.document_status) for rule in PHASES.values()), forget_worker]


def _of_outside_stores(place: dict[str, int]) -> list[_Change]:
    def refill(row: _Values) -> None:
        row[place["filled"]] = row[place["copied_to"]] = row[place["copied"]] = 0
        row[place["fill_number"]] += 1
        row[place["fill_until"]] = None

    return [refill]


_CHANGES: dict[str, Callable[[dict[str, int]], list[_Change]]] = {
    "documents": _of_documents,
    "task_queue_page": _of_tasks(Unit.PAGE),
    "task_queue_chunk": _of_tasks(Unit.CHUNK),
    "catalog_outside_store": _of_outside_stores,
}


MAX_MESSAGE = 1_000
_NO_FILE = frozenset({"ERR_FILE_NOT_FOUND", "ERR_BAD_PATH", "ERR_OUTSIDE_RAG", PathNotFound.code})
"""Codes of failures without a file: there is nothing to show as a document."""


def _remedies(error_class: type[PenstockError]) -> dict[str, str]:
    remedies = {error_class.code: error_class.default_remedy}
    for below in error_class.__subclasses__():
        remedies |= _remedies(below)
    return remedies


_REMEDIES = _remedies(UnreadableDocument)
CONTENT_CODES = frozenset(_REMEDIES)
"""Codes of failures of the content. A part of Penstock that is not installed counts: see ``read_with``."""


def remedy_for(code: str) -> str:
    """The usual remedy for a failure of the content, by code."""
    return _REMEDIES.get(code, "")


class ReadFile(msgspec.Struct, frozen=True):
    """A file as it was read. ``read_with``: fingerprint of the parser, its limits and its components."""

    size: int
    mtime_ns: int
    read_with: str
    content_hash: str = ""


def fails_again(failure: SourceFailure, size: int, mtime_ns: int, read_with: str) -> bool:
    """Check whether reading the file would fail as before: file, parser and limits are unchanged.

    Only a failure of the content is remembered. Any other (permissions, a lost worker, a full disk) may be
    gone at the next try.
    """
    return failure.read_with == read_with and (failure.size, failure.mtime_ns) == (size, mtime_ns)


def same_content_fails_again(failure: SourceFailure, content_hash: str, read_with: str) -> bool:
    """Check whether this content failed before with the same parser. The file's time does not count."""
    return failure.read_with == read_with and bool(content_hash) and failure.content_hash == content_hash


def kind_of(code: str) -> FailureKind:
    return FailureKind.CONTENT if code in CONTENT_CODES else FailureKind.OUTAGE


def becomes_document(code: str, *, known: bool) -> bool:
    """Check whether a failed file is stored as a failed generation.

    Every new file is. A failure outside the content says nothing about the content of a known source, and
    leaves its generations alone.
    """
    return code not in _NO_FILE and (kind_of(code) is FailureKind.CONTENT or not known)


class FailedReading(msgspec.Struct, frozen=True, kw_only=True):
    """A permanent failure to read a file. ``fault``: by default the one of the code."""

    place: Place
    path: str
    code: str
    message: str
    file: ReadFile
    asked_at: datetime
    read_at: datetime
    job_id: str | None = None
    fault: FailureKind | None = None
    fingerprints: Fingerprints = Fingerprints()
    file_type: str = ""


def failed_generation(reading: FailedReading) -> NewGeneration:
    """The generation of an unreadable file: without pages, and never published."""
    file = reading.file
    return NewGeneration(
        place=reading.place,
        path=reading.path,
        content_hash=file.content_hash,
        asked_at=reading.asked_at,
        read_at=reading.read_at,
        pages=(),
        fingerprints=reading.fingerprints,
        size=file.size,
        mtime_ns=file.mtime_ns,
        file_type=reading.file_type,
        job_id=reading.job_id,
        failure=Failure(reading.code, reading.message[:MAX_MESSAGE], reading.fault or kind_of(reading.code)),
        read_with=file.read_with,
    )
