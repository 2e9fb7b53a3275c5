"""Orphaned claims: jobs held by a dead worker, or by a worker without its knowledge.

A job that was executing when its process died counts as lost; a job that was only claimed is released. Of a
batch, only the job of the file being parsed is lost; where no such file is known, all jobs of the batch are
suspects, which spend no retry and run alone from then on. A claim is also orphaned when the store committed
it but the response never reached the worker.
"""

from __future__ import annotations

import logging
import math
import random
import signal
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TypeAlias

import msgspec

from penstock import clock
from penstock.catalog.protocol import Catalog
from penstock.catalog.rules.publication import (
    MAX_MESSAGE,
    FailedReading,
    ReadFile,
    failed_generation,
    remedy_for,
)
from penstock.catalog.values import FailureKind, LedgerEntry, LedgerKind, Place
from penstock.errors import ParserFailed
from penstock.pipeline.budget import FileMark
from penstock.queue import payloads, transitions
from penstock.queue.job import CHILDREN, Job, JobQuery, Settlement, Status
from penstock.queue.payloads import normal_path
from penstock.queue.protocol import Queue
from penstock.vocabulary import how_many
from penstock.worker import executor
from penstock.worker.executor import settle_all
from penstock.worker.outage import OUTAGE
from penstock.worker.shared_state import Execution, FileRun, SharedState

_REMEDY = "Look at the file: it may be damaged or hostile. `penstock retry ID` tries once more."
_SUSPECT_FOR_S = 60.0
"""A disconnected server may still commit a claim for a while after this side gave up."""
_PAGE = 1_000
_SUSPECTS_LOGGED = 3
"""Jobs of a dead batch that are logged one by one."""
_STOPPED_AT_ONCE = 100
"""Children cancelled by one call, to bound the transaction."""
_BATCH_DIED = "the process of its batch died; it runs alone now"
_CRASHES = {
    int(number): number.name
    for number in (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)
}
"""Signals that a process sends itself by a fault in native code; SIGKILL comes from outside."""

log = logging.getLogger("penstock.worker")


def all_jobs(queue: Queue, query: JobQuery) -> Iterator[Job]:
    """Read all matching jobs page by page: no response grows with the queue."""
    after: str | None = None
    while True:
        page = queue.find(msgspec.structs.replace(query, after=after, limit=_PAGE))
        yield from page
        if len(page) < _PAGE:
            return
        after = page[-1].queue_id


class JobPages:
    """Matching jobs, one page a call, in endless rounds: for duties with little time."""

    def __init__(self, queue: Queue, query: JobQuery) -> None:
        self._queue = queue
        self._query = query
        self._after: str | None = None

    def next_page(self) -> tuple[list[Job], bool]:
        """Return some jobs, and whether more follow in this round."""
        page = self._queue.find(msgspec.structs.replace(self._query, after=self._after, limit=_PAGE))
        more = len(page) == _PAGE
        self._after = page[-1].queue_id if more else None
        return page, more


Resolve: TypeAlias = Callable[[Job], Settlement]


def lost(job: Job) -> Settlement:
    settlement = transitions.lease_lost(job, jitter=random.uniform(-1, 1))
    return transitions.with_first_start(settlement, job, job.started_at, clock.now())


def suspected(job: Job, reason: str) -> Settlement:
    settlement = transitions.suspected(job, reason)
    return transitions.with_first_start(settlement, job, job.started_at, clock.now())


def released(job: Job) -> Settlement:
    return transitions.released(job, "its worker died")


def held_by(queue: Queue, worker_id: str) -> list[Job]:
    """Read all jobs leased to a worker from the store: a last claim may just have succeeded."""
    query = JobQuery(statuses=frozenset({Status.IN_PROGRESS}), worker_id=worker_id)
    return [job for job in all_jobs(queue, query) if job.lease_until is not None]


def settle_dead_jobs(
    queue: Queue,
    worker_id: str,
    results: list[Settlement],
    resolve: Resolve,
    *,
    catalog: Catalog | None = None,
    parsed_file: ParsedFile | None = None,
) -> int:
    """Settle everything a dead worker held, by saved results, else by ``resolve``; return the number.

    ``catalog``: records files that fail this way; ``parsed_file``: the file the worker was parsing.
    """
    settle_all(queue, results)
    held = held_by(queue, worker_id)
    settlements = [resolve(job) for job in held]
    record_failed_files(catalog, held, settlements, parsed_file)
    if settlements:
        queue.settle(settlements)
    for job, settlement in zip(held, settlements, strict=True):
        if settlement.error_code == transitions.TIMED_OUT:
            stop_children(queue, job)
    log_lost(held, settlements)
    return len(settlements)


def log_lost(held: Sequence[Job], settlements: Sequence[Settlement]) -> None:
    """Log what becomes of each job of a lost worker; jobs beyond suspicion go on as if nothing had been."""
    suspects: dict[tuple[str | None, str], list[Job]] = {}
    for job, settlement in zip(held, settlements, strict=True):
        outcome = executor.outcome_text(settlement)
        if settlement.what != "released":
            log.warning("%s: %s; it %s", executor.job_text(job), settlement.error_message, outcome)
        elif settlement.lost_count > job.lost_count:
            suspects.setdefault((settlement.error_message, outcome), []).append(job)
    for (message, outcome), jobs in suspects.items():
        # A batch has a hundred jobs and more, and one line of each would bury the others.
        shown = jobs[:_SUSPECTS_LOGGED]
        for job in shown:
            log.warning("%s: %s; it %s", executor.job_text(job), message, outcome)
        if len(jobs) > len(shown):
            log.warning("%s: %s; each %s", how_many(len(jobs) - len(shown), "more job"), message, outcome)


def end_overdue(queue: Queue, catalog: Catalog | None, job: Job) -> bool:
    """Fail a job after its timeout, with its open children and its unfinished document.

    The job ends first: its holder, if any, notices that it was taken away. False: it ended by itself.
    """
    settlement = transitions.timed_out(job)
    record_failed_files(catalog, [job], [settlement])
    if queue.settle([settlement]) == [None]:
        return False
    document_id = document_of(job)
    if document_id is not None and catalog is not None:
        catalog.drop(document_id, settlement.error_message or "")
    stop_children(queue, job)
    return True


def stop_children(queue: Queue, parent: Job) -> None:
    """Cancel the open children of a job that has ended, those at work first."""
    for status in (Status.IN_PROGRESS, Status.PENDING):
        query = JobQuery(statuses=frozenset({status}), parent_id=parent.queue_id, limit=_PAGE)
        after: str | None = None
        while True:
            page = queue.find(msgspec.structs.replace(query, after=after))
            # A follow-up of the parent may have begun, with children of its own.
            open_ids = [
                child.queue_id
                for child in page
                if child.parent_run == parent.run and not child.cancel_requested
            ]
            for start in range(0, len(open_ids), _STOPPED_AT_ONCE):
                queue.cancel(open_ids[start : start + _STOPPED_AT_ONCE])
            if len(page) < _PAGE:
                break
            after = page[-1].queue_id


def document_of(job: Job) -> int | None:
    """The document awaited by a job."""
    if not job.waiting or job.waiting_for in (None, CHILDREN):
        return None
    return int(job.waiting_for) if job.waiting_for.isdecimal() else None


def resolve_dead(executing: Execution | None, run: FileRun | None = None) -> Resolve:
    """Rule for a child not killed by the supervisor. Of a batch, only the job of a file being parsed is lost.

    Without such a file any job of the batch may have ended the process, or none. Each runs alone then, and
    pays for the next death itself.
    """
    mark = run.mark if run is not None else None
    if executing is not None and mark is not None and mark.member < len(executing.members):
        executing = msgspec.structs.replace(executing, members=(executing.members[mark.member],))
    several = executing is not None and len(executing.members) > 1

    def resolve(job: Job) -> Settlement:
        if not was_executing(job, executing):
            return released(job)
        return suspected(job, _BATCH_DIED) if several else lost(job)

    return resolve


def resolve_crashed(executing: Execution, run: FileRun | None, exitcode: int | None) -> Resolve:
    """Rule for a child that ended by itself: a file that crashes its process gets one more try, alone.

    Crashes of native code repeat, and every retry takes a process with it.
    """
    resolve, name = resolve_dead(executing, run), _CRASHES.get(-(exitcode or 0))
    mark = run.mark if run is not None else None
    if name is None or mark is None or mark.member >= len(executing.members):
        return resolve
    culprit = executing.members[mark.member].queue_id

    def resolve_crash(job: Job) -> Settlement:
        settlement = resolve(job)
        if job.queue_id != culprit or not (job.lost_count or settlement.status is Status.FAILED):
            return settlement
        message = f"the process that parsed the file crashed ({name})"
        failed = transitions.failed(job, ParserFailed.code, message)
        return msgspec.structs.replace(failed, lost_count=job.lost_count + 1)

    return resolve_crash


def was_executing(job: Job, executing: Execution | None) -> bool:
    return executing is not None and any(
        (job.queue_id, job.claim_number) == member.name for member in executing.members
    )


class ParsedFile(msgspec.Struct, frozen=True):
    """The file being parsed at the end of a process, and the job of the file."""

    queue_id: str
    mark: FileMark


def file_being_parsed(state: SharedState) -> ParsedFile | None:
    """Read from the shared state of a dead process which file was being parsed."""
    executing = state.executing()
    run = state.file_run(executing.number) if executing is not None else None
    if executing is None or run is None or run.mark is None or run.mark.member >= len(executing.members):
        return None
    return ParsedFile(executing.members[run.mark.member].queue_id, run.mark)


def record_failed_files(
    catalog: Catalog | None,
    jobs: Sequence[Job],
    settlements: Sequence[Settlement],
    parsed_file: ParsedFile | None = None,
) -> None:
    """Record the files of jobs failed by a kill, a timeout or a lost process.

    A handler that fails records its own. Without these records ``why`` would not know the file, and the
    next walk would read it again. Written before the settlements: after a crash in between, both are redone.
    """
    failed = [
        (job, settlement)
        for job, settlement in zip(jobs, settlements, strict=True)
        if settlement.status is Status.FAILED and job.item_type == "file" and job.op != "delete"
    ]
    if not failed or catalog is None:
        return
    parsed = [
        _failed_reading(job, settlement, parsed_file.mark)
        for job, settlement in failed
        if parsed_file is not None and parsed_file.queue_id == job.queue_id
    ]
    if parsed:
        catalog.store([failed_generation(reading) for reading in parsed])
    catalog.note([_ledger_entry(job, settlement) for job, settlement in failed])


def _failed_reading(job: Job, settlement: Settlement, mark: FileMark) -> FailedReading:
    code, message = _error(settlement)
    return FailedReading(
        place=Place(job.tenant_id, job.collection, job.branch),
        path=normal_path(job.payload["file_path"]),
        code=code,
        message=message,
        file=ReadFile(mark.size, mark.mtime_ns, mark.made_with),
        asked_at=payloads.asked_at(job.metadata) or job.created_at,
        read_at=clock.now(),
        job_id=job.queue_id,
        fault=FailureKind.CONTENT,
    )


def _error(settlement: Settlement) -> tuple[str, str]:
    return settlement.error_code or "ERR_UNKNOWN", (settlement.error_message or "")[:MAX_MESSAGE]


def _ledger_entry(job: Job, settlement: Settlement) -> LedgerEntry:
    code, message = _error(settlement)
    return LedgerEntry(
        place=Place(job.tenant_id, job.collection, job.branch),
        path=normal_path(job.payload["file_path"]),
        kind=LedgerKind.FAILED,
        rule=code,
        cause=message,
        remedy=remedy_for(code) or _REMEDY,
        job_id=job.queue_id,
    )


class OrphanedClaims:
    """Claims committed by the store, perhaps, although the response never reached this worker.

    The supervisor renews every claim of its children, so such a job would stay in progress for ever.
    """

    def __init__(self, queue: Queue, worker_id: str) -> None:
        self._queue = queue
        self._worker_id = worker_id
        self._suspect_until = 0.0
        self._check_at = math.inf

    @property
    def suspected(self) -> bool:
        """True if there may be such claims."""
        return self._check_at < math.inf

    def suspect(self, now: float) -> None:
        """A claim failed and may have been committed all the same."""
        self._suspect_until = now + _SUSPECT_FOR_S
        self._check_at = now

    def release_unknown(self, known: Collection[tuple[str, int]], now: float) -> None:
        """Release held claims other than the ``known`` ones (id and claim number): now, and once more later.

        The second look comes when the server can no longer commit the claim.
        """
        if now < self._check_at:
            return
        try:
            self._release_all_but(known)
        except OUTAGE as error:
            # No reason to hold up the jobs just claimed. The next claim tries again.
            log.warning("the store is unavailable: %s", error)
        else:
            self._check_at = self._suspect_until if now < self._suspect_until else math.inf

    def _release_all_but(self, known: Collection[tuple[str, int]]) -> None:
        held = held_by(self._queue, self._worker_id)
        unknown = [job for job in held if (job.queue_id, job.claim_number) not in known]
        reason = "the response to its claim was lost"
        settle_all(self._queue, [transitions.released(job, reason) for job in unknown])
        if unknown:
            log.warning("released %s: %s", how_many(len(unknown), "job"), reason)
