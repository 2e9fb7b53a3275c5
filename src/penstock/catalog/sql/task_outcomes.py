"""Settlement of claims: outcomes, later phases, pages, documents, and publication."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from penstock.catalog.entities import Extraction
from penstock.catalog.outside_stores import OutsideStore
from penstock.catalog.rules import initial_state
from penstock.catalog.rules.phases import CHUNK_PHASES, FOLLOWERS, LATER_PHASES, PHASES, gate_failed, turns
from penstock.catalog.rules.rollup import COMPLETED, FAILED, PROCESSING, SKIPPED, WAITING, WORDS, kind
from penstock.catalog.sql import graph_rows
from penstock.catalog.sql.chunks import (
    ChunkOwner,
    ChunkRows,
    ExistingChunks,
    RowNumbers,
    find,
    owner_of,
    prepare,
)
from penstock.catalog.sql.outside_stores import RemovalRows
from penstock.catalog.sql.page_rows import kept_texts
from penstock.catalog.sql.read_records import FENCED_CLAIM, DocumentRow, FencedClaim
from penstock.catalog.sql.rollup import Rollup
from penstock.catalog.sql.spaces import Spaces
from penstock.catalog.sql.statements import Statements, listed, readable
from penstock.catalog.sql.written_records import READ_PAGE, EndedTask, PageText, ReadPage, SavedPhase
from penstock.catalog.values import FailureKind, NewChunk, NewPage, Phase, TaskOutcome, TaskStatus
from penstock.clock import format_time


def settle(rows: Statements, outcomes: Sequence[TaskOutcome], now: datetime) -> list[TaskStatus | None]:
    settling = TaskSettlement(rows, now)
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


class TaskSettlement:
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
        self._texts: list[PageText] = []
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
            graph_rows.put(self._rows, tenant_id, graphs)
        for (store, address), first in self._uncopied.items():
            # Other workers may copy these texts to another store than this one.
            self._rows.send("not_copied", first, store, address)

    def fence(self, lane: Phase, outcomes: list[tuple[int, TaskOutcome]]) -> dict[int, FencedClaim]:
        found = self._rows.all(f"fenced_{lane}", listed(outcome.task_id for _, outcome in outcomes))
        return {claim.task_id: claim for claim in FENCED_CLAIM.decode_all(found)}

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
        self._rows.many(f"end_{lane}", list(map(tuple, ended)))

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
        standing = initial_state.page(page, document.wanted, kinds)
        self._write_standing(document, page_id, page, standing)
        self._texts += kept_texts(page_id, page)
        document.chunk_count += len(chunks)
        for phase in CHUNK_PHASES:
            document.chunks[phase] += standing.counts(phase).completed
        document.embedded = True

    def _skip_page(self, document: DocumentRow, page_id: int, reason: str | None) -> None:
        self._write_standing(document, page_id, None, initial_state.skipped_page(reason))

    def _write_standing(
        self, document: DocumentRow, page_id: int, page: NewPage | None, standing: initial_state.InitialPage
    ) -> None:
        before = initial_state.unread_page(document.wanted)
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
        self._standings.append(READ_PAGE.encode(read))
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
