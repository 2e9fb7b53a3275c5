"""Task lanes: claim tasks of the catalog, run them and settle them, one batch at a time.

A batch is claimed and settled as a whole, but run in short pieces, so that a small job need not wait for it.
Tasks that wait for a slow service are run in a thread meanwhile. Lanes take turns. A lane without tasks is
not asked again for a moment, since asking costs more than waiting.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from penstock import clock
from penstock.catalog.protocol import Catalog
from penstock.catalog.rules import publication
from penstock.catalog.rules.phases import LATER_PHASES, PHASES, RECOGNITION_BATCH
from penstock.catalog.rules.publication import CONTENT_CODES, MAX_MESSAGE, remedy_for
from penstock.catalog.values import (
    ChunkOrigins,
    Document,
    GenerationState,
    LedgerEntry,
    LedgerKind,
    MissingPart,
    OutboxEntryKind,
    Phase,
    Task,
    TaskOutcome,
    TaskRequest,
    TaskStatus,
)
from penstock.errors import FingerprintMismatch, InvalidText, NoText, StoreError, TokenLimitReached
from penstock.handlers.source_files import NO_FILES, UnusedFiles
from penstock.pipeline.chunk.text import CHARS_PER_TOKEN
from penstock.queue import transitions
from penstock.queue.job import Job, JobQuery, Settlement, Status
from penstock.queue.protocol import Queue
from penstock.queue.transitions import TIMED_OUT
from penstock.vocabulary import how_many, none_read, split_remedy, with_remedy
from penstock.worker.orphans import JobPages, document_of
from penstock.worker.shared_state import TASKS, ExecutingJob, SharedState

if TYPE_CHECKING:
    from penstock.handlers.phases import Phases

log = logging.getLogger("penstock.worker")


class BackgroundBatch:
    """Tasks waiting for a service, run and settled in a thread. The process may end before it does."""

    def __init__(
        self, catalog: Catalog, tasks: list[Task], run: Callable[[Sequence[Task]], list[TaskOutcome]]
    ) -> None:
        self._catalog = catalog
        self._tasks = tasks
        self._run = run
        self._left = [publication.released(task) for task in tasks]
        """Outcomes not settled: to give the tasks back, until there are better ones."""
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="penstock-service-tasks", daemon=True)
        self._thread.start()

    @property
    def done(self) -> bool:
        return not self._thread.is_alive()

    @property
    def held(self) -> frozenset[tuple[Phase, int]]:
        """Lane and id of its tasks."""
        return frozenset((task.lane, task.task_id) for task in self._tasks)

    def left(self) -> list[TaskOutcome]:
        """The outcomes left unsettled. Raises the thread's error, unless the store was at fault."""
        if self._error is not None:
            raise self._error
        return self._left

    def _work(self) -> None:
        try:
            self._left = self._run(self._tasks)
            settled = self._catalog.settle(self._left)
            self._left = []
        except StoreError as error:
            log.warning("results of a service could not be stored yet: %s", error)
        except BaseException as error:  # noqa: BLE001 - raised in the main thread
            self._error = error
        else:
            if late := settled.count(None):
                log.warning(
                    "%s came too late: the tasks had been taken from this worker", how_many(late, "result")
                )


FAILURE_CODES = {
    "ERR_OUTAGE": "Parts of the document failed during an outage; its former version stays.",
}

_RECHECK_AFTER = timedelta(seconds=60)
"""A waiting job without an update for this long is checked, whether or not the outbox names it."""
_MISSING_NAMED = 3
AT_ONCE = 100


class DocumentNotifier:
    """Settles jobs waiting for a document when the document has ended.

    The catalog's outbox only names jobs to look at. The notifier reads the row of the job, checks that it
    waits for this document, and settles under the claim number just read. A second notification finds nothing
    to do. In rounds it reads all waiting jobs, in case an entry was lost.
    """

    def __init__(self, queue: Queue, catalog: Catalog) -> None:
        self._queue = queue
        self._catalog = catalog
        self._after = 0
        self._pages = JobPages(queue, JobQuery(statuses=frozenset({Status.IN_PROGRESS}), waiting=True))

    def process_outbox(self) -> bool:
        """Settle the jobs named by the outbox; True when there may be more."""
        entries = self._catalog.outbox(OutboxEntryKind.JOB, after=self._after, limit=AT_ONCE)
        done = []
        for entry in entries:
            job = self._queue.get(entry.job_id) if entry.job_id else None
            if job is not None and _running(job):
                # The document ended before its job was settled as waiting. The entry is read again.
                continue
            if job is not None:
                self._settle(job)
            done.append(entry.entry_id)
        if done:
            # Cleared last: after a crash in between, another worker finds the entries.
            self._catalog.clear(done)
        more = len(entries) == AT_ONCE
        self._after = entries[-1].entry_id if more else 0
        return more

    def check_waiting(self) -> bool:
        """Settle waiting jobs that were cancelled, or had no update for long."""
        page, more = self._pages.next_page()
        now = clock.now()
        for job in page:
            if document_of(job) is not None and (
                job.cancel_requested or now - job.updated_at > _RECHECK_AFTER
            ):
                self._settle(job)
        return more

    def _settle(self, job: Job) -> None:
        document_id = document_of(job)
        if document_id is None:
            return
        if job.cancel_requested:
            self._catalog.drop(document_id, "cancelled")
            self._queue.settle([transitions.cancelled_by_flag(job)])
            return
        with self._catalog.snapshot() as snapshot:
            document = snapshot.document(document_id)
            missing = snapshot.missing(document_id, limit=_MISSING_NAMED) if document else []
            settlement = _settlement_for(job, document, missing, lambda: snapshot.made(document_id))
        if settlement is None:
            return
        if settlement.status is Status.FAILED and document is not None:
            # Before the settlement: after a crash in between, both are redone.
            self._catalog.note([_ledger_entry(job, document, settlement)])
        self._queue.settle([settlement])


def _settlement_for(
    job: Job, document: Document | None, missing: list[MissingPart], made: Callable[[], ChunkOrigins]
) -> Settlement | None:
    """Decide how the job ends, given the document; None: not yet."""
    if document is None:
        return transitions.released(job, "its document is gone; the file is read again")
    if document.state is GenerationState.DROPPED:
        # Imported here: this module is also loaded where a folder turns out to be unchanged.
        from penstock.handlers.generations import RESTART_NOTES

        if document.note in RESTART_NOTES:
            return transitions.released(job, document.note)
        return transitions.done(job, result_json=_json({"outcome": document.note or "superseded"}))
    if document.state is GenerationState.PUBLISHED and document.settled:
        result_json = _json(_result(job, document, missing, made()))
        if job.children_failed:
            # Files inside it failed while its pages were read: the job ends as its children did.
            return transitions.waits(job, result_json=result_json)
        return transitions.done(job, result_json=result_json)
    if not document.settled:
        return None
    code = _outage_code(missing) if document.outage else _content_code(missing)
    return transitions.failed(job, code, _failures(document, missing))


def _content_code(missing: list[MissingPart]) -> str:
    """The code of the first failed part."""
    code = _code(missing)
    embedded = bool(missing) and missing[0].chunk_index is not None
    return code if embedded or code in CONTENT_CODES else NoText.code


def _outage_code(missing: list[MissingPart]) -> str:
    """The code for parts that failed for reasons outside the document; a token limit has a separate code."""
    return TokenLimitReached.code if _code(missing) == TokenLimitReached.code else "ERR_OUTAGE"


def _code(missing: list[MissingPart]) -> str:
    return missing[0].error.partition(":")[0] if missing else ""


def _ledger_entry(job: Job, document: Document, settlement: Settlement) -> LedgerEntry:
    code = settlement.error_code or ""
    cause, remedy = split_remedy(settlement.error_message or "")
    return LedgerEntry(
        place=document.place,
        path=document.path,
        kind=LedgerKind.FAILED,
        rule=code,
        cause=cause[:MAX_MESSAGE],
        remedy=remedy or remedy_for(code) or FAILURE_CODES.get(code, ""),
        job_id=job.queue_id,
    )


def _result(job: Job, document: Document, missing: list[MissingPart], made: ChunkOrigins) -> dict[str, Any]:
    from penstock.handlers.generations import EMBEDDED

    result: dict[str, Any] = {
        "outcome": "indexed",
        "pages": document.page_count,
        "chunks": document.chunk_count,
        "embedded": made.embedded + (job.progress or {}).get(EMBEDDED, 0),
        "tokens": -(-made.characters // CHARS_PER_TOKEN),
    }
    if document.partial:
        result |= {
            "partial": True,
            "failed": document.failed_count,
            "missing": [_part_text(one) for one in missing],
        }
    return result


def _failures(document: Document, missing: list[MissingPart]) -> str:
    """The failed parts in words, with the remedy of the first one, if any."""
    remedy = split_remedy(missing[0].error)[1] if missing else ""
    return with_remedy(_failed_parts(document, missing), remedy)


def _failed_parts(document: Document, missing: list[MissingPart]) -> str:
    named = "; ".join(split_remedy(_part_text(one))[0] for one in missing)
    more = document.failed_count - len(missing)
    kept = " The former version stays." if document.outage else ""
    read = not missing or missing[0].chunk_index is not None
    if not read and not document.outage and document.failed_count == document.page_count:
        # Mostly a scan: all pages have the same error.
        error, _ = split_remedy(missing[0].error)
        cause = error.partition(": ")[2] or error
        return f"{none_read(document.page_count)}: {cause}"
    failed = how_many(document.failed_count, "part")
    return f"{failed} failed: {named}{f' and {more:,} more' if more > 0 else ''}.{kept}"


def _part_text(missing: MissingPart) -> str:
    part = "" if missing.chunk_index is None else f", chunk {missing.chunk_index}"
    return f"page {missing.page_number}{part}: {missing.error}"


def _running(job: Job) -> bool:
    return job.status is Status.IN_PROGRESS and not job.waiting


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


_PIECE_S = 0.008
"""Target duration of one piece of a batch: a job that comes meanwhile waits this long."""
NEWEST_SHARE = 0.3
_ASK_AGAIN_S = 0.25
_REMOVALS_S = 1.0
"""Interval at which an idle process looks for texts to be removed from outside stores."""
_REFUSED_S = 60.0
_TIMEOUT_S = 900
"""Timeout of one piece. A piece that takes longer is stuck; its tasks are tried alone."""

ExecutionGuard: TypeAlias = Callable[[int], AbstractContextManager[None]]
"""Makes the context manager around an execution, given the number of the execution."""


class DocumentTools(msgspec.Struct, frozen=True):
    """The catalog, phases and files of documents, as used by a worker."""

    catalog: Catalog
    phases: Phases
    files: UnusedFiles = NO_FILES

    def close(self) -> None:
        self.phases.close()
        self.catalog.close()


class Line(msgspec.Struct, frozen=True):
    """Tasks waiting in a lane. Pages for OCR wait separately from pages with a text layer."""

    lane: Phase
    needs_ocr: bool = False

    @property
    def batch(self) -> int:
        return RECOGNITION_BATCH if self.needs_ocr else PHASES[self.lane].batch

    @property
    def piece(self) -> int:
        return RECOGNITION_BATCH if self.needs_ocr else PHASES[self.lane].piece


class TaskBatch(msgspec.Struct):
    """The claimed tasks of one line not run yet."""

    line: Line
    left: list[Task]


class Lanes:
    """The lanes of one worker. At most one lane has a batch at a time, and another one in the background."""

    def __init__(
        self,
        documents: DocumentTools,
        queue: Queue,
        state: SharedState,
        worker_id: str,
        lanes: Sequence[Phase],
        *,
        recognizes: bool = True,
    ) -> None:
        """``recognizes``: this process may run OCR, if lane ocr is served."""
        self._queue = queue
        self._catalog = documents.catalog
        self._phases = documents.phases
        self._notifier = DocumentNotifier(queue, documents.catalog)
        self._state = state
        self._worker_id = worker_id
        lines = [Line(lane) for lane in lanes]
        if recognizes and Phase.OCR in lanes:
            lines.append(Line(Phase.OCR, needs_ocr=True))
        self._ask_at = dict.fromkeys(lines, 0.0)
        self._batch: TaskBatch | None = None
        self._background: BackgroundBatch | None = None
        self._unsettled: list[TaskOutcome] = []
        self._sources: dict[int, str] = {}
        """Ids of the sources of tasks not settled yet, by task."""
        self._seconds_a_task = {line: _PIECE_S / line.piece for line in lines}
        self.refused: dict[str, str] = {}
        """Lanes not served here, with the reason: the catalog was made with another model."""
        self._removals_at = 0.0
        self._uncertain = False
        """The store failed during a call, so a claim may or may not have been committed."""

    def wake(self) -> None:
        """Look for tasks at the next turn."""
        self._ask_at = {line: min(at, time.monotonic()) for line, at in self._ask_at.items()}

    def has_work(self) -> bool:
        """True if a batch is in hand or a line is due to be asked."""
        return self._batch is not None or self.background_done or bool(self._due(time.monotonic()))

    @property
    def background_done(self) -> bool:
        """True if a batch in the background has ended and is to be settled."""
        return self._background is not None and self._background.done

    @property
    def has_batch(self) -> bool:
        """True if a batch is in hand."""
        return self._batch is not None

    def run_piece(self, guard: ExecutionGuard) -> bool:
        """Run one piece of the batch, or of the line due longest. False: no line had a task."""
        try:
            self._recover()
            return self._run_piece(guard)
        except (StoreError, InvalidText):
            self._uncertain = True
            raise

    def _recover(self) -> None:
        """Settle finished tasks, and release claims without a response: no other worker would."""
        if self._uncertain:
            self._batch = None
            self._settle()
            running = self._background.held if self._background is not None else frozenset()
            settle_dead_tasks(self._catalog, self._worker_id, lost=False, running=running)
            self._uncertain = False

    def release_batch(self) -> None:
        """Settle the finished tasks of the batch and release the rest, before something long runs."""
        self._phases.rest()
        batch, self._batch = self._batch, None
        if batch is None:
            return
        try:
            self._unsettled += [publication.released(task) for task in batch.left]
            self._settle()
        except (StoreError, InvalidText):
            self._uncertain = True
            raise

    def release_background(self) -> None:
        """Release the tasks of the batch in the background, before the process ends."""
        background, self._background = self._background, None
        if background is not None:
            self._unsettled += background.left()
            self._settle()

    def drop_batch(self) -> None:
        """Forget the batch: the supervisor released its tasks in this worker's name."""
        self._batch, self._unsettled, self._sources = None, [], {}

    def _run_piece(self, guard: ExecutionGuard) -> bool:
        if self._batch is not None:
            self._run(self._batch, guard)
            return True
        self._settle_background()
        now = time.monotonic()
        due = self._due(now)
        self._phases.pause()
        for line in self._with_tasks(due, now):
            tasks = self._claim(line, now)
            if tasks:
                self._ask_at[line] = now
                if self._phases.beside(line.lane):
                    run = partial(self._phases.run, line.lane)
                    self._background = BackgroundBatch(self._catalog, tasks, run)
                    continue
                self._batch = TaskBatch(line, tasks)
                self._run(self._batch, guard)
                return True
        if due:
            self._phases.rest()
        self._clear_removals(now)
        return False

    def _due(self, now: float) -> list[Line]:
        """The lines to claim from, longest waiting first; not lines with a batch in the background."""
        return [
            line
            for line in sorted(self._ask_at, key=self._ask_at.__getitem__)
            if self._ask_at[line] <= now and (self._background is None or not self._phases.beside(line.lane))
        ]

    def _settle_background(self) -> None:
        if self._background is not None and self._background.done:
            background, self._background = self._background, None
            self._unsettled += background.left()
            if self._unsettled:
                self._settle()

    def _clear_removals(self, now: float) -> None:
        """Remove texts from outside stores while no task waits."""
        if Line(Phase.VECTOR) in self._ask_at and now >= self._removals_at:
            more = self._phases.clear_removals()
            self._removals_at = now if more else now + _REMOVALS_S

    def _with_tasks(self, lines: Sequence[Line], now: float) -> list[Line]:
        """Select lines whose lane has tasks. Reading blocks no writer and loads no model."""
        if not lines:
            return []
        with self._catalog.snapshot() as snapshot:
            waiting = {lane for lane in {line.lane for line in lines} if snapshot.open_tasks(lane)}
        found = [line for line in lines if line.lane in waiting]
        self._ask_at |= dict.fromkeys(set(lines).difference(found), now + _ASK_AGAIN_S)
        return found

    def _claim(self, line: Line, now: float) -> list[Task]:
        lane = line.lane
        self._ask_at[line] = now + _ASK_AGAIN_S
        try:
            fingerprint = self._phases.fingerprint(lane)
            batch = self._phases.beside(lane) or line.batch
            request = TaskRequest(lane, self._worker_id, batch, fingerprint, line.needs_ocr)
            claimed = self._catalog.claim(request)
            self.refused.pop(lane_name(lane), None)
            return drop_unwanted(self._queue, self._catalog, claimed)
        except FingerprintMismatch as mismatch:
            self.refused[lane_name(lane)] = f"not served: {mismatch.message}"
            log.warning("lane %s is not served: %s %s", lane, mismatch.message, mismatch.remedy)
            self._ask_at[line] = now + _REFUSED_S
            return []

    def _run(self, batch: TaskBatch, guard: ExecutionGuard) -> None:
        line, started = batch.line, time.monotonic()
        lane = line.lane
        least = max(line.piece, self._phases.one_call(lane))
        size = max(int(_PIECE_S / max(self._seconds_a_task[line], 1e-6)), least)
        tasks, batch.left = batch.left[:size], batch.left[size:]
        number = self._state.begin((ExecutingJob(f"{TASKS}:{lane}", 0, _TIMEOUT_S),), started)
        self._sources |= {task.task_id: task.source.source_id for task in tasks}
        with guard(number):
            self._unsettled += self._phases.run(lane, tasks, embedding=Line(Phase.VECTOR) in self._ask_at)
        # The tasks are done, whether the store takes the results now or later.
        self._state.end(0)
        self._state.count(f"{lane}_us", round((time.monotonic() - started) * 1_000_000))
        seconds = (time.monotonic() - started) / len(tasks)
        self._seconds_a_task[line] += (seconds - self._seconds_a_task[line]) * NEWEST_SHARE
        if not batch.left:
            self._batch = None
            self._settle()
            self._notifier.process_outbox()

    def _settle(self) -> None:
        settled = self._catalog.settle(self._unsettled)
        for outcome, status in zip(self._unsettled, settled, strict=True):
            if status in (TaskStatus.COMPLETED, TaskStatus.FAILED):
                kind = "done" if status is TaskStatus.COMPLETED else "failed"
                self._state.count(f"{outcome.lane}_{kind}")
        late = [outcome for outcome, status in zip(self._unsettled, settled, strict=True) if status is None]
        ended = [outcome.task_id for outcome in self._unsettled if outcome.lane is Phase.VECTOR]
        sources, self._sources, self._unsettled = self._sources, {}, []
        self._phases.settled(ended, {outcome.task_id for outcome in late})
        if late:
            self._state.count_refused(len(late))
            results = how_many(len(late), "result")
            log.warning("%s came too late: the tasks had been taken from this worker", results)
            written = [outcome.task_id for outcome in late if outcome.page is not None]
            self._phases.remove_late_files({sources[task_id] for task_id in written if task_id in sources})


def lane_name(lane: Phase) -> str:
    """Name of the lane in worker reports."""
    return f"lane {lane}"


def drop_unwanted(queue: Queue, catalog: Catalog, tasks: list[Task]) -> list[Task]:
    """Drop the generations of jobs cancelled or timed out meanwhile; return the other tasks."""
    unwanted: set[int] = set()
    for document_id, job_id in {(task.source.document_id, task.source.job_id) for task in tasks}:
        job = queue.get(job_id) if job_id is not None else None
        if (
            job is not None
            and _was_given_up(job)
            and catalog.drop(document_id, f"job {job_id} was {job.status}")
        ):
            unwanted.add(document_id)
    return [task for task in tasks if task.source.document_id not in unwanted]


def _was_given_up(job: Job) -> bool:
    return job.status is Status.CANCELLED or (job.status is Status.FAILED and job.error_code == TIMED_OUT)


def settle_dead_tasks(
    catalog: Catalog, worker_id: str, *, lost: bool, running: Collection[tuple[Phase, int]] = ()
) -> int:
    """Settle the tasks of a dead worker: lost if they were being executed, else released.

    ``running``: tasks that are not dead.
    """
    held = [claim for claim in catalog.held(worker_id) if (claim.lane, claim.task_id) not in running]
    if held:
        catalog.settle([publication.lost(claim) if lost else publication.released(claim) for claim in held])
    return len(held)


def open_later_tasks(catalog: Catalog, lanes: Collection[Phase]) -> bool:
    """Check whether phases that publication does not wait for have tasks in these lanes."""
    with catalog.snapshot() as snapshot:
        return any(snapshot.open_tasks(lane) for lane in LATER_PHASES if lane in lanes)


def lanes_idle(queue: Queue, catalog: Catalog | None, lanes: Collection[Phase], *, takes_jobs: bool) -> bool:
    """True if the lanes of this worker have nothing to claim, nothing running and nothing in back-off.

    Jobs that wait for a document count as work, unless their document waits for a lane served elsewhere. Jobs
    that are paused or scheduled for later do not count, nor do parents and lock waiters behind them.
    """
    with_tasks: set[Phase] = set()
    if takes_jobs and queue.busy(documents=False):
        return False
    if catalog is not None:
        with catalog.snapshot() as snapshot:
            with_tasks = {lane for lane in Phase if snapshot.open_tasks(lane)}
    if not with_tasks.isdisjoint(lanes):
        return False
    # Without a catalog the documents and all their lanes belong to another host.
    documents_elsewhere = catalog is None or bool(with_tasks)
    return not takes_jobs or not queue.busy(documents=not documents_elsewhere)
