"""Tasks as rows: claimed in batches across documents, settled with all that follows, and restarted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import msgspec

from penstock.catalog.graph import Extraction
from penstock.catalog.parts import OutsideStore
from penstock.catalog.rules import publication
from penstock.catalog.rules.phases import (
    CHUNK_PHASES,
    FOLLOWERS,
    LATER_PHASES,
    PHASES,
    PerChunkPhase,
    gate_failed,
    turns,
)
from penstock.catalog.rules.publication import (
    COMPLETED,
    FAILED,
    PROCESSING,
    SKIPPED,
    WAITING,
    WORDS,
    PartChanges,
    PartCounts,
    kind,
    unread_page,
)
from penstock.catalog.sql import generations, graph
from penstock.catalog.sql.chunks import (
    ChunkOwner,
    ChunkRows,
    ExistingChunks,
    RowNumbers,
    Spaces,
    find,
    kept_texts,
    owner_of,
    prepare,
)
from penstock.catalog.sql.generations import DocumentRow, SavedPhase
from penstock.catalog.sql.outside_stores import RemovalRows
from penstock.catalog.sql.statements import Row, RowType, Statements, column, listed, readable
from penstock.catalog.values import (
    SETTLED,
    FailureKind,
    Gate,
    NewChunk,
    NewPage,
    Phase,
    Place,
    Task,
    TaskOutcome,
    TaskRequest,
    TaskSource,
    TaskStatus,
)
from penstock.clock import format_time
from penstock.errors import FingerprintMismatch


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


class EndedTask(msgspec.Struct, frozen=True):
    status: str
    retry_count: int
    retry_at: str | None
    suspect: bool
    error: str | None
    at: str
    task_id: int


_PAGE_COUNTS = RowType(PageCounts)
_TASK_ROW = RowType(TaskRow)
_TASK_SOURCE_ROW = RowType(TaskSourceRow)
_FENCED_CLAIM = RowType(FencedClaim)
_READ_PAGE = RowType(ReadPage)
_RESTARTED_PAGE = RowType(RestartedPage)
_SAVED_PAGE = RowType(SavedPage)
_ENDED_TASK = RowType(EndedTask)


class Rollup:
    """Pages and documents brought up to their parts, once a transaction and parent."""

    def __init__(self, rows: Statements, at: str, *, beginning: bool = False) -> None:
        """Start a rollup. ``beginning``: tasks only begin, so nothing can be published."""
        self._beginning = beginning
        self._rows = rows
        self._at = at
        self._chunks = {phase: PartChanges() for phase in CHUNK_PHASES}
        self._pages = {phase: PartChanges() for phase in Phase}
        self._errors: dict[tuple[Phase, int], str] = {}
        self._touched: set[int] = set()
        self.documents: dict[int, DocumentRow] = {}

    def load(self, ids: Iterable[int]) -> None:
        """Load the documents with parts about to change."""
        missing = [number for number in dict.fromkeys(ids) if number not in self.documents]
        if missing:
            self.documents |= generations.load(self._rows, missing, alone=self._beginning)

    def touch(self, document_id: int) -> DocumentRow:
        """A part of this document moves."""
        self._touched.add(document_id)
        return self.documents[document_id]

    def chunk_moved(self, phase: Phase, page_id: int, before: int, after: int) -> None:
        self._chunks[phase].move(page_id, before, after)

    def page_moved(self, phase: Phase, document_id: int, before: int, after: int) -> None:
        self._pages[phase].move(document_id, before, after)

    def explain(self, phase: Phase, page_id: int, error: str) -> None:
        """Record the error of a chunk, kept if the page fails or is skipped in this phase."""
        self._errors[phase, page_id] = error

    def apply(self) -> None:
        """Pages from their chunks, documents from their pages, then gates and publishing."""
        for phase, tally in self._chunks.items():
            self._apply_to_pages(phase, tally)
        for phase, tally in self._pages.items():
            for number, delta in tally.items():
                document = self.documents[number]
                document.counts[phase] = document.counts[phase].changed(delta)
        documents = [self.documents[number] for number in self._touched]
        for document in documents:
            self._open_gates(document)
        published = generations.decide(self._rows, documents, self._at)
        generations.save(self._rows, documents, self._at, published)

    def _apply_to_pages(self, phase: Phase, tally: PartChanges) -> None:
        changes = dict(tally.items())
        if not changes:
            return
        saved: list[Row] = []
        self._rows.hold("pages", listed(changes))
        for page in _PAGE_COUNTS.decode_all(self._rows.all(f"page_rows_{phase}", listed(changes))):
            document_id = page.document_id
            counts = page.counts.changed(changes[page.page_id])
            after = counts.kind
            explained = counts.failed or after == SKIPPED
            error = self._errors.get((phase, page.page_id)) if explained else None
            row = SavedPage(WORDS[after], *counts, error=error, at=self._at, page_id=page.page_id)
            saved.append(_SAVED_PAGE.encode(row))
            self.page_moved(phase, document_id, kind(page.status), after)
            if error is not None and counts.failed:
                self.documents[document_id].errors = {
                    **self.documents[document_id].errors,
                    phase: error,
                }
        self._rows.many(f"save_page_{phase}", saved)

    def _open_gates(self, document: DocumentRow) -> None:
        """With ``gate=document`` the next phase begins when the whole document is through with this one."""
        if document.gate != "document" or document.unwritten:
            return
        for phase in CHUNK_PHASES:
            before = PHASES[phase].after
            assert before is not None
            just_settled = document.status[before] not in SETTLED or document.finishes
            if just_settled and document.counts[before].status in SETTLED:
                # Only vectors are written to outside stores, which are cleared first.
                waits = phase is Phase.VECTOR and self._rows.value("any_leftover", document.source_key)
                self._rows.send(f"release_gate_{phase}", "outbox" if waits else None, document.id)
                self._rows.notify()


_ROUNDS = 16
_EVICTED_AT_ONCE = 1_000
"""Tasks of one dropped generation that a claim takes out of the lane before it looks again."""


def claim(rows: Statements, request: TaskRequest, now: datetime) -> list[Task]:
    """Claim a batch of tasks across documents."""
    _refuse_other_fingerprint(rows, request)
    at = format_time(now)
    for _ in range(_ROUNDS):
        ids = _choose(rows, request, at)
        if not ids:
            return []
        tasks = _TASK_ROW.decode_all(rows.all(f"candidates_{request.lane}", listed(ids)))
        if request.lane is Phase.VECTOR:
            tasks = _writable(rows, tasks)
            if not tasks:
                return []
        found = {task.task_id: task for task in tasks}
        documents = {task.document_id for task in tasks}
        rows.hold("documents", listed(documents))
        about = _sources(rows, documents)
        taken = [found[number] for number in ids if number in found]
        taken = [task for task in taken if about[task.document_id] is not None]
        dropped = [(at, number, _EVICTED_AT_ONCE) for number, source in about.items() if source is None]
        rows.many(f"evict_{request.lane}", dropped)
        if taken:
            _take(rows, request, taken, at)
            return [_task(request.lane, task, about[task.document_id]) for task in taken]
    return []


def _writable(rows: Statements, tasks: list[TaskRow]) -> list[TaskRow]:
    """The tasks, except those with a text awaiting removal from an outside store."""
    texts = listed(task.content_id for task in tasks)
    awaited = set(column(rows.all("awaiting_removal", OutsideStore.VECTOR, texts)))
    return [task for task in tasks if task.content_id not in awaited]


def _refuse_other_fingerprint(rows: Statements, request: TaskRequest) -> None:
    if request.fingerprint is None:
        return
    known: dict[str, str] = dict(rows.all("fingerprints"))
    expected = known.get(request.lane)
    if expected not in (None, request.fingerprint):
        raise FingerprintMismatch(
            f"{request.lane} is done with {expected} here, {request.worker_id} would do it with"
            f" {request.fingerprint}"
        )


def _choose(rows: Statements, request: TaskRequest, at: str) -> list[int]:
    """Choose due retries first, then pending tasks. A crash suspect is claimed alone."""
    chosen: list[int] = []
    kind = (request.needs_ocr,) if request.lane is Phase.OCR else ()
    for number, suspect in rows.all(f"due_{request.lane}", at, request.limit, *kind):
        if suspect:
            # Other due tasks were seen and left: wake another worker for them.
            rows.notify()
            return chosen or [number]
        chosen.append(number)
    if len(chosen) < request.limit:
        waiting = rows.all(f"waiting_{request.lane}", request.limit - len(chosen), *kind)
        chosen += [number for number, _ in waiting]
    return chosen


def _take(rows: Statements, request: TaskRequest, taken: list[TaskRow], at: str) -> None:
    rollup = Rollup(rows, at, beginning=True)
    rollup.load(task.document_id for task in taken)
    rows.many(f"take_{request.lane}", [(request.worker_id, at, task.failed, task.task_id) for task in taken])
    for task in taken:
        if request.lane is Phase.OCR:
            rollup.page_moved(Phase.OCR, task.document_id, WAITING, PROCESSING)
        else:
            rollup.chunk_moved(request.lane, task.page_id, WAITING, PROCESSING)
    for document_id in {task.document_id for task in taken}:
        rollup.touch(document_id).worker_id = request.worker_id
    rollup.apply()


def _sources(rows: Statements, ids: set[int]) -> dict[int, TaskSource | None]:
    """The source of each document; None for dropped generations."""
    found = _TASK_SOURCE_ROW.decode_all(rows.all("task_sources", listed(ids)))
    return {row.document_id: None if row.state == "dropped" else _source(row) for row in found}


def _source(row: TaskSourceRow) -> TaskSource:
    described = msgspec.json.decode(row.source_json) if row.source_json else {}
    return TaskSource(
        document_id=row.document_id,
        source_id=row.source_id,
        family_key=row.family_key,
        place=row.place,
        path=row.path,
        content_hash=row.content_hash,
        space=row.space,
        job_id=row.job_id,
        title=described.get("title", row.title),
        file_type=described.get("file_type", row.file_type),
        gate=row.gate,
    )


def _task(lane: Phase, row: TaskRow, source: TaskSource | None) -> Task:
    assert source is not None
    return Task(
        lane=lane,
        task_id=row.task_id,
        claim_number=row.claim_number,
        page_id=row.page_id,
        page_number=row.page_number,
        retry_count=row.retry_count + row.failed,
        max_retries=row.max_retries,
        suspect=row.suspect == 1,
        source=source,
        file_path=row.file_path,
        needs_ocr=row.needs_ocr == 1,
        chunk_id=row.chunk_id,
        content_id=row.content_id,
        text_hash=row.text_hash,
        text=row.text,
        heading_path=row.heading_path,
        symbols=row.symbols,
    )


def settle(rows: Statements, outcomes: Sequence[TaskOutcome], now: datetime) -> list[TaskStatus | None]:
    settling = _Settlement(rows, now)
    answers: dict[int, TaskStatus | None] = {}
    by_lane = {lane: [each for each in enumerate(outcomes) if each[1].lane is lane] for lane in Phase}
    for lane, mine in by_lane.items():
        if mine:
            rows.hold(lane, listed(outcome.task_id for _, outcome in mine))
    fenced = {lane: settling.fence(lane, mine) for lane, mine in by_lane.items() if mine}
    settling.load(fenced.values())
    for lane, claims in fenced.items():
        answers |= settling.lane(lane, by_lane[lane], claims)
    settling.finish()
    return [answers[index] for index in range(len(outcomes))]


class _Settlement:
    """The outcomes of one call: later phases, pages, documents and publication follow."""

    def __init__(self, rows: Statements, now: datetime) -> None:
        self._rows = rows
        self._now = now
        self._at = format_time(now)
        self._numbers = RowNumbers(rows, 256)
        self._chunks = ChunkRows(rows, self._numbers, self._at)
        self._spaces = Spaces(rows)
        self._rollup = Rollup(rows, self._at)
        self._unwritten: dict[int, list[str]] = {}
        self._owners: dict[int, ChunkOwner] = {}
        self._found: dict[int, ExistingChunks] = {}
        self._heads: dict[int, int | None] = {}
        self._standings: list[tuple[object, ...]] = []
        self._texts: list[Row] = []
        self._skipped: dict[Phase, list[tuple[str, str, int]]] = {phase: [] for phase in LATER_PHASES}
        self._graphs: dict[str, dict[int, Extraction]] = {}
        self._uncopied: dict[tuple[OutsideStore, str], int] = {}
        """The first text by kind and address of the store that has it; the address is empty if none has."""

    def finish(self) -> None:
        self._rows.many("read_page", self._standings)
        self._rows.many("add_page_text", self._texts)
        self._chunks.flush()
        self._rollup.apply()
        for tenant_id, graphs in sorted(self._graphs.items()):
            graph.put(self._rows, tenant_id, graphs)
        for (store, address), first in self._uncopied.items():
            # Other workers may copy these texts to another store than this one.
            self._rows.send("not_copied", first, store, address)

    def fence(self, lane: Phase, outcomes: list[tuple[int, TaskOutcome]]) -> dict[int, FencedClaim]:
        found = self._rows.all(f"fenced_{lane}", listed(outcome.task_id for _, outcome in outcomes))
        return {claim.task_id: claim for claim in _FENCED_CLAIM.decode_all(found)}

    def load(self, fenced: Iterable[dict[int, FencedClaim]]) -> None:
        self._rollup.load(claim.document_id for claims in fenced for claim in claims.values())

    def lane(
        self, lane: Phase, outcomes: list[tuple[int, TaskOutcome]], fenced: dict[int, FencedClaim]
    ) -> dict[int, TaskStatus | None]:
        answers: dict[int, TaskStatus | None] = {}
        held: list[tuple[TaskOutcome, FencedClaim]] = []
        for index, outcome in outcomes:
            claim = fenced.get(outcome.task_id)
            answers[index] = None
            if claim is None or claim.claim_number != outcome.claim_number:
                continue
            if self._rollup.documents[claim.document_id].state == "dropped":
                continue
            # The second of two equal outcomes finds the claim ended.
            del fenced[outcome.task_id]
            held.append((outcome, claim))
            answers[index] = outcome.status
        for document_id in {claim.document_id for _, claim in held}:
            self._rollup.touch(document_id)
        self._end(lane, held)
        if lane is Phase.OCR or FOLLOWERS[lane] or any(o.status is not TaskStatus.COMPLETED for o, _ in held):
            self._rows.notify()
        if lane is Phase.OCR:
            pictures = [outcome.task_id for outcome, _ in held if outcome.needs_ocr]
            if pictures:
                self._rows.send("needs_ocr", listed(pictures))
            self._look_up(held)
            for outcome, claim in held:
                self._page_ended(outcome, claim)
        elif held:
            self._chunks_ended(lane, held)
        return answers

    def _end(self, lane: Phase, held: list[tuple[TaskOutcome, FencedClaim]]) -> None:
        ended = [
            EndedTask(
                outcome.status.value,
                outcome.retry_count,
                None if outcome.retry_after is None else self._after(outcome.retry_after),
                outcome.suspect,
                None if outcome.code is outcome.message is None else _error(outcome),
                self._at,
                outcome.task_id,
            )
            for outcome, _ in held
        ]
        self._rows.many(f"end_{lane}", list(map(_ENDED_TASK.encode, ended)))

    def _after(self, delay: timedelta) -> str:
        return format_time(self._now + delay)

    def _count_failure(self, document: DocumentRow, outcome: TaskOutcome) -> None:
        document.failed_count += 1
        document.outage_count += outcome.fault is FailureKind.OUTAGE

    def _page_ended(self, outcome: TaskOutcome, claim: FencedClaim) -> None:
        document = self._rollup.documents[claim.document_id]
        after = _kind(outcome)
        self._rollup.page_moved(Phase.OCR, document.id, PROCESSING, after)
        if after == COMPLETED and outcome.page is not None:
            self._read(document, claim.page_id, outcome.page)
        elif after in (FAILED, SKIPPED):
            if after == FAILED:
                self._count_failure(document, outcome)
                document.errors = {**document.errors, "ocr": _error(outcome) or ""}
            reason = gate_failed(Phase.OCR) if after == FAILED else _error(outcome)
            self._skip_page(document, claim.page_id, reason)

    def _look_up(self, held: list[tuple[TaskOutcome, FencedClaim]]) -> None:
        """Look up existing chunks of the pages, once a document."""
        chunks: dict[int, list[NewChunk]] = {}
        for outcome, claim in held:
            if outcome.page is not None and outcome.status is TaskStatus.COMPLETED:
                chunks.setdefault(claim.document_id, []).extend(outcome.page.chunks or ())
        for document_id, some in chunks.items():
            document = self._rollup.documents[document_id]
            owner = self._owners[document_id] = owner_of(self._rows, self._spaces, document, some)
            self._found[document_id] = find(self._rows, owner, some)
            if document.priority not in self._heads:
                self._heads[document.priority] = self._rows.value("head_vector", document.priority)

    def _read(self, document: DocumentRow, page_id: int, page: NewPage) -> None:
        """Write the chunks of a page in the transaction of the ocr's end, which opens the gate."""
        chunks = page.chunks or ()
        owner = self._owners[document.id]
        unwritten = self._unwritten.setdefault(document.id, [])
        prepared = prepare(owner, chunks, self._found[document.id], unwritten)
        unwritten += [chunk.text_hash for chunk in chunks]
        head = self._heads[document.priority]
        document.turn, numbers = turns(document.turn, document.given, head, len(chunks))
        document.given += len(chunks)
        kinds = [
            self._chunks.add(owner, page_id, index, chunk, chunk_id, known, turn)
            for index, ((chunk, chunk_id, known), turn) in enumerate(
                zip(prepared.parts, numbers, strict=True)
            )
        ]
        standing = publication.page(page, document.wanted, kinds)
        self._write_standing(document, page_id, page, standing)
        self._texts += kept_texts(page_id, page)
        document.chunk_count += len(chunks)
        for phase in CHUNK_PHASES:
            document.chunks[phase] += standing.counts(phase).completed
        document.embedded = True

    def _skip_page(self, document: DocumentRow, page_id: int, reason: str | None) -> None:
        self._write_standing(document, page_id, None, publication.skipped_page(reason))

    def _write_standing(
        self, document: DocumentRow, page_id: int, page: NewPage | None, standing: publication.InitialPage
    ) -> None:
        before = publication.unread_page(document.wanted)
        read = ReadPage(
            page_file_path=page.file_path if page else None,
            chunk_count=len((page.chunks if page else None) or ()),
            phases={
                phase: SavedPhase(WORDS[standing.kind(phase)], *standing.counts(phase), standing.error(phase))
                for phase in CHUNK_PHASES
            },
            at=self._at,
            page_id=page_id,
        )
        self._standings.append(_READ_PAGE.encode(read))
        for phase in CHUNK_PHASES:
            self._rollup.page_moved(phase, document.id, before.kind(phase), standing.kind(phase))

    def _chunks_ended(self, lane: Phase, held: list[tuple[TaskOutcome, FencedClaim]]) -> None:
        about: dict[int, tuple[int, list[str]]] = {}
        if lane is Phase.VECTOR or FOLLOWERS[lane] or PHASES[lane].extracts:
            found = self._rows.all("content_of", listed(outcome.task_id for outcome, _ in held))
            about = {task_id: (content_id, later) for task_id, content_id, *later in found}
        vectors: list[tuple[int, int, bytes]] = []
        extracted: list[tuple[int, int, int]] = []
        failed: dict[tuple[str, int | None], list[int]] = {}
        for outcome, claim in held:
            document = self._rollup.documents[claim.document_id]
            content_id, later = about.get(outcome.task_id, (0, []))
            after = _kind(outcome)
            self._rollup.chunk_moved(lane, claim.page_id, PROCESSING, after)
            if after == COMPLETED:
                document.chunks[lane] += 1
                document.embedded = document.embedded or lane is Phase.VECTOR
                if outcome.vector and document.space_id is not None:
                    vectors.append((content_id, document.space_id, outcome.vector))
                    self._copied(OutsideStore.VECTOR, outcome, content_id)
                if PHASES[lane].extracts:
                    graph = outcome.graph or Extraction({}, ())
                    if outcome.stored is None:
                        self._graphs.setdefault(document.place.tenant_id, {})[content_id] = graph
                    self._copied(OutsideStore.GRAPH, outcome, content_id)
                    extracted.append((len(graph.entities), len(graph.relations), outcome.task_id))
            elif after in (FAILED, SKIPPED):
                if after == FAILED and lane is Phase.VECTOR:
                    self._count_failure(document, outcome)
                    owner = (document.place.tenant_id, document.space_id)
                    failed.setdefault(owner, []).append(content_id)
                self._skip_followers(outcome, claim, dict(zip(LATER_PHASES, later, strict=False)))
        self._withdraw(failed)
        self._check_lengths(vectors)
        self._rows.many("put_vector", vectors)
        self._rows.many("end_extraction", extracted)
        for phase, rows in self._skipped.items():
            self._rows.many(f"skip_{phase}", rows)
            rows.clear()

    def _copied(self, store: OutsideStore, outcome: TaskOutcome, content_id: int) -> None:
        owner = store, outcome.stored or ""
        self._uncopied[owner] = min(content_id, self._uncopied.get(owner, content_id))

    def _withdraw(self, failed: dict[tuple[str, int | None], list[int]]) -> None:
        """Record the vectors of finally failed tasks for removal from an outside store."""
        removals = RemovalRows(self._rows, self._now) if failed else None
        for (tenant_id, space_id), ids in failed.items():
            if removals is not None and space_id is not None:
                removals.add_vectors(tenant_id, space_id, ids)
                removals.flush()

    def _skip_followers(self, outcome: TaskOutcome, claim: FencedClaim, later: dict[Phase, str]) -> None:
        """Skip the pending later phases of a chunk that failed or was skipped."""
        lane, error = outcome.lane, _error(outcome) or ""
        self._rollup.explain(lane, claim.page_id, error)
        reason = gate_failed(lane) if outcome.status is TaskStatus.FAILED else error
        for phase in FOLLOWERS[lane]:
            if kind(later[phase]) == WAITING:
                self._skipped[phase].append((reason, self._at, outcome.task_id))
                self._rollup.chunk_moved(phase, claim.page_id, WAITING, SKIPPED)
                self._rollup.explain(phase, claim.page_id, reason)

    def _check_lengths(self, vectors: list[tuple[int, int, bytes]]) -> None:
        for space_id in {space_id for _, space_id, _ in vectors}:
            name = self._rows.value("space_name", space_id)
            self._spaces.number(name, (vector for _, owner, vector in vectors if owner == space_id))


def _kind(outcome: TaskOutcome) -> int:
    return kind(outcome.status, outcome.retry_after is not None)


def _error(outcome: TaskOutcome) -> str | None:
    if outcome.code is None:
        return outcome.message and readable(outcome.message)
    return readable(f"{outcome.code}: {outcome.message}")


def restart(rows: Statements, document_id: int, at: str) -> int:
    """Restart the failed tasks of a document and the tasks skipped behind them; return their number."""
    rollup = Rollup(rows, at)
    rollup.load([document_id])
    document = rollup.documents.get(document_id)
    if document is None or document.state == "dropped":
        return 0
    restarted = _pages(rows, rollup, document_id, at)
    for phase in CHUNK_PHASES:
        restarted += _chunks(rows, rollup, document_id, phase, at)
    if restarted:
        rows.notify()
        rollup.touch(document_id)
        document.failed_count = document.outage_count = 0
        rollup.apply()
    return restarted


def _pages(rows: Statements, rollup: Rollup, document_id: int, at: str) -> int:
    standing = unread_page(rollup.documents[document_id].wanted)
    found = rows.all("failed_pages", document_id)
    for _, waits, *statuses in found:
        rollup.page_moved(Phase.OCR, document_id, WAITING if waits else FAILED, WAITING)
        for phase, status in zip(CHUNK_PHASES, statuses, strict=True):
            rollup.page_moved(phase, document_id, kind(status), standing.kind(phase))
    phases = {
        phase: RestartedPhase(WORDS[standing.kind(phase)], standing.error(phase)) for phase in CHUNK_PHASES
    }
    restarted = [_RESTARTED_PAGE.encode(RestartedPage(phases, at, page_id)) for page_id, *_ in found]
    rows.many("restart_page", restarted)
    return len(found)


def _chunks(rows: Statements, rollup: Rollup, document_id: int, phase: Phase, at: str) -> int:
    found = rows.all(f"failed_chunks_{phase}", document_id)
    behind: dict[Phase, list[tuple[str, int]]] = {follower: [] for follower in FOLLOWERS[phase]}
    for chunk_id, page_id, waits, *later in found:
        rollup.chunk_moved(phase, page_id, WAITING if waits else FAILED, WAITING)
        why_skipped = dict(zip(LATER_PHASES, later, strict=True))
        for follower, unskipped in behind.items():
            if why_skipped[follower] == gate_failed(phase):
                unskipped.append((at, chunk_id))
                rollup.chunk_moved(follower, page_id, SKIPPED, WAITING)
    rows.many(f"restart_chunk_{phase}", [(at, number) for number, *_ in found])
    for follower, unskipped in behind.items():
        rows.many(f"unskip_{follower}", unskipped)
    return len(found)
