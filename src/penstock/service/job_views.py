"""Views of jobs: reports on their progress, records for programs, and what a client of a server gets."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import chain
from typing import Any, Unpack

import msgspec

from penstock.catalog.protocol import Catalog
from penstock.catalog.rules.publication import remedy_for
from penstock.catalog.values import Document, PageState, Place, RecognizedPages, Source
from penstock.errors import AmbiguousId, InvalidRequest, JobNotFound
from penstock.handlers.members import container_of, published_members
from penstock.pipeline.extract.file_types import suffix_of
from penstock.queue.job import CHILDREN, Held, Job, JobQuery, Status, kept_until
from penstock.queue.payloads import USUAL_CHUNK, OperationName, TypeName, validate_name
from penstock.queue.protocol import Queue
from penstock.queue.transitions import TIMED_OUT, dependencies_of
from penstock.service import why
from penstock.service.access import Principal
from penstock.service.documents import Documents
from penstock.service.jobs import MAX_PAGE, JobFilter, Jobs, cursor_after, job_query
from penstock.service.requests import Details, HistoryEntry, JobWord, Receipt, Stats
from penstock.service.why import FailedPath

_WALKED = ("folder", "project")
_SINGLE = ("file", "content")
_CHILDREN_FAILED = "ERR_CHILDREN_FAILED"
_MOST_CANCELLED = 2_000
"""Child jobs of a cancelled job up to which a list counts those that were cancelled."""
_MOST_FAILED = 1_000
"""Failed child jobs that are looked at for files inside others."""
_COUNTS = (
    "total",
    "sent",
    "without_job",
    "unchanged",
    "resumed",
    "resumed_chunks",
    "added",
    "changed",
    "inside",
)
_BY_NAME = ("skipped_by", "types")
_MAX_OFFSET = 10_000
_MOST_COUNTED = 100_000
"""Jobs up to which the total of a list is counted."""
_PATHS = ("folder_path", "project_root", "file_path")
_SECRET = re.compile(r"key|token|secret|passw|credential|authoriz|cookie", re.IGNORECASE)
_TEXTS = frozenset({"content", "text"})
_MASK = "***"
_MOST_PAGES = 1_000
"""States of pages in one answer."""


class JobReport(msgspec.Struct, frozen=True, kw_only=True):
    """Progress of an indexing job, while it runs and after its end.

    A row keeps the counts of the walk, and columns that the ends of child jobs change. A report joins both,
    so that no write is needed for it.
    """

    stage: str
    """``waiting``, ``walking``, ``indexing`` or ``ended``."""
    files_processed: int | None
    """Files done, or without need of a job. None: not counted, in a list, as many were cancelled."""
    files_total: int
    """All files to index or compare; while walking, those found so far."""
    failed: int = 0
    """Files on the disk that failed. Without the queue, also mails and archives with failed files inside."""
    failed_inside: int = 0
    """Files inside others that failed; they are known to the queue."""
    unchanged: int = 0
    skipped: dict[str, int] = {}
    """Files and folders left out, by rule."""
    chunks_created: int = 0
    current_file: str | None = None
    updated_at: datetime

    @property
    def percent_complete(self) -> float:
        if not self.files_total or not self.files_processed:
            return 0.0
        return round(min(self.files_processed / self.files_total, 1) * 100, 1)


def counts_of(job: Job) -> dict[str, Any]:
    """Counts of the walk: the last progress of a running walk, then the result. Empty before the walk."""
    if job.status is Status.PENDING:
        # A result, if any, is of the run before.
        return {}
    result = job.result_fields if job.ended or job.waiting else {}
    if "total" in result and _are_counts(result):
        return result
    counts: dict[str, Any] = (job.progress or {}).get("counts", {})
    return counts if _are_counts(counts) else {}


def _are_counts(found: dict[str, Any]) -> bool:
    """Tell the counts of a walk from what an application's own handler returned or reported."""
    numbers = all(type(found.get(name, 0)) is int for name in _COUNTS)
    return numbers and all(isinstance(found.get(name, {}), dict) for name in _BY_NAME)


def report_of(job: Job, queue: Queue | None = None, *, listed: bool = False) -> JobReport | None:
    """Report on an indexing job; None for other types.

    ``queue``: to look up child jobs: the file in work, files that were cancelled, files that failed inside
    others. ``listed``: a job among others, for which little is read: no failed files, and cancelled ones only
    of up to ``_MOST_CANCELLED`` child jobs.
    """
    if job.op == "delete":
        return None
    inside = _failed_inside(job, queue) if queue is not None and not listed else _FailedInside()
    if job.item_type in _SINGLE:
        return _single(job, inside)
    counts = counts_of(job)
    if job.item_type not in _WALKED or (job.ended and "total" not in counts):
        return None
    walking = not job.ended and not job.waiting
    total, sent = counts.get("total", 0), counts.get("sent", 0)
    done: int | None = total - job.children_open
    if walking:
        done = counts.get("without_job", 0) + max(sent - job.children_open, 0)
    elif sent and _stopped(job):
        counted = queue is not None and (sent <= _MOST_CANCELLED or not listed)
        done = max(total - cancelled_children(queue, job), 0) if queue is not None and counted else None
    return JobReport(
        stage=_stage(job),
        files_processed=done,
        files_total=total,
        failed=job.children_failed - inside.child_jobs,
        failed_inside=inside.files,
        unchanged=counts.get("unchanged", 0),
        skipped=counts.get("skipped_by", {}),
        chunks_created=job.total_chunks + counts.get("resumed_chunks", 0),
        current_file=_current_file(job, queue),
        updated_at=job.updated_at,
    )


def _stopped(job: Job) -> bool:
    """Check whether the job ended before its child jobs, which were cancelled with it."""
    if job.status is Status.FAILED:
        return job.error_code == TIMED_OUT
    return job.status is Status.CANCELLED


def cancelled_children(queue: Queue, job: Job) -> int:
    """Count the cancelled child jobs of the current run of a job."""
    query = JobQuery(parent_id=job.queue_id, statuses=frozenset({Status.CANCELLED}), limit=_MOST_FAILED)
    if job.run == 1:
        return sum(queue.count(query).values())
    # Child jobs of a run before the last retry are still there.
    number = 0
    while page := queue.find(query):
        number += sum(child.parent_run == job.run for child in page)
        query = msgspec.structs.replace(query, after=page[-1].queue_id)
    return number


class _FailedInside(msgspec.Struct, frozen=True):
    """Failed files inside others, and failed child jobs without a failed file on the disk."""

    files: int = 0
    child_jobs: int = 0


def _failed_inside(job: Job, queue: Queue) -> _FailedInside:
    """Count failed files inside others. The job of a mail fails with an attachment, though it is indexed."""
    if not job.children_failed:
        return _FailedInside()
    failed = JobQuery(parent_id=job.queue_id, statuses=frozenset({Status.FAILED}), limit=_MOST_FAILED)
    files = child_jobs = 0
    for child in queue.find(failed):
        path = child.shown_payload.get("file_path")
        if child.error_code == _CHILDREN_FAILED:
            child_jobs += 1
            files += _failed_inside(child, queue).files
        elif path is not None and (job.item_type == "file" or container_of(path) is not None):
            child_jobs += 1
            files += 1
    return _FailedInside(files, child_jobs)


def result_of(job: Job, report: JobReport | None = None) -> Any:
    """The result of a job; for an ended folder job with the counts of the child jobs."""
    if not job.ended or job.item_type not in _WALKED:
        return job.result
    report = report or report_of(job)
    if report is None or (job.result is not None and not job.result_fields):
        return job.result
    # A job that was cancelled during its walk has counts, but no result.
    return job.result_fields | {
        "done": report.files_processed,
        "failed": report.failed,
        "failed_inside": report.failed_inside,
        "chunks": report.chunks_created,
    }


def files_indexed(job: Job, failed: int | None = None) -> int:
    """Files on the disk that the job indexed since it was requested, also by a run before this one.

    ``failed``: files that failed, by default as many as child jobs. The job of a mail also fails with an
    attachment, but the mail is indexed.
    """
    counts = counts_of(job)
    sent = counts.get("added", 0) + counts.get("changed", 0)
    sent = min(sent, counts.get("sent", sent) - counts.get("inside", 0))
    own: int = max(sent - job.children_open - (job.children_failed if failed is None else failed), 0)
    return own + int(counts.get("resumed", 0))


class InsideFiles(msgspec.Struct, frozen=True):
    """Files inside others, such as attachments, indexed by a job."""

    suffixes: dict[str, int] = {}
    """Number of files by suffix."""
    chunks: int = 0

    @property
    def count(self) -> int:
        return sum(self.suffixes.values())


def _inside_files(catalog: Catalog, job: Job, path: str) -> InsideFiles:
    """Files inside others, at or below a path, indexed since the job was requested."""
    place = Place(job.tenant_id, job.collection, job.branch)
    with catalog.snapshot() as snapshot:
        found = published_members(snapshot, place, path, job.created_at)
    suffixes = Counter(suffix_of(one.path) for one in found)
    return InsideFiles(dict(suffixes.most_common()), sum(one.chunks for one in found))


class TypeOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """Files of one suffix in a folder job. The suffix is empty where a name has none, ``*`` for rare ones."""

    suffix: str
    indexed: int = 0
    unchanged: int = 0
    skipped: int = 0
    failed: int = 0
    """Files that failed now, or before and are unchanged."""


def outcomes_by_type(
    job: Job, failed: Iterable[FailedPath], failed_before: Iterable[FailedPath], inside: InsideFiles
) -> list[TypeOutcome]:
    """Outcomes of a walk by suffix, the most frequent first; empty before the walk ends.

    Files inside others count where they were indexed or failed.
    """
    types: dict[str, dict[str, int]] = counts_of(job).get("types", {})
    if not types:
        return []

    def by_suffix(suffixes: Iterable[str]) -> Counter[str]:
        return Counter(suffix if suffix in types or "*" not in types else "*" for suffix in suffixes)

    failed, failed_before = list(failed), list(failed_before)
    on_disk = by_suffix(suffix_of(one.path) for one in failed if one.container is None)
    members = by_suffix(Counter(inside.suffixes).elements())
    all_failed = by_suffix(suffix_of(one.path) for one in (*failed, *failed_before))
    return [
        TypeOutcome(
            suffix=suffix,
            indexed=max(counts.get("read", 0) - on_disk[suffix], 0) + members[suffix] if job.ended else 0,
            unchanged=counts.get("unchanged", 0),
            skipped=counts.get("skipped", 0),
            failed=all_failed[suffix],
        )
        for suffix in dict.fromkeys((*types, *members, *all_failed))
        for counts in (types.get(suffix, {}),)
    ]


def _single(job: Job, inside: _FailedInside) -> JobReport:
    result = job.result_fields if job.ended else {}
    chunks = result.get("chunks")
    return JobReport(
        stage=_stage(job),
        files_processed=int(job.ended and job.status is not Status.CANCELLED),
        files_total=1,
        failed=int(job.status is Status.FAILED and job.error_code != _CHILDREN_FAILED),
        failed_inside=inside.files,
        unchanged=int(result.get("outcome") == "unchanged"),
        chunks_created=chunks if type(chunks) is int else 0,
        current_file=None if job.ended else job.shown_payload.get("file_path"),
        updated_at=job.updated_at,
    )


def _stage(job: Job) -> str:
    if job.ended:
        return "ended"
    if job.status is Status.PENDING:
        return "waiting"
    return "walking" if job.item_type in _WALKED and not job.waiting else "indexing"


def _current_file(job: Job, queue: Queue | None) -> str | None:
    """The file in work: of the walk, or of a running child job."""
    if job.status is not Status.IN_PROGRESS:
        return None
    if not job.waiting or job.waiting_for != CHILDREN or queue is None:
        file: str | None = (job.progress or {}).get("current_file") if not job.waiting else None
        return file
    running = JobQuery(parent_id=job.queue_id, statuses=frozenset({Status.IN_PROGRESS}), limit=1)
    return next((child.shown_payload.get("file_path") for child in queue.find(running)), None)


class ProgressRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Progress of an indexing job. ``files_processed`` None: in lists, of a cancelled job with many files."""

    files_processed: int | None = 0
    files_total: int = 0
    chunks_created: int = 0
    current_file: str | None = None
    percent_complete: float = 0.0
    updated_at: datetime


class ChildCounts(msgspec.Struct, frozen=True):
    """Numbers of unfinished and of failed child jobs."""

    open: int
    failed: int


class JobRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A job. ``reason`` says why it waits; ``time_left_s`` and ``rate`` (files a second) are estimates.

    ``recursive`` (of folders), ``chunk_size`` and ``chunk_overlap`` (in tokens) are what the job works with,
    also where the request did not name them; None for jobs that have no such option.
    """

    job_id: str
    id: str
    dedupe_key: str
    operation: str
    folder_path: str | None
    include_code: bool
    recursive: bool | None
    chunk_size: int | None
    chunk_overlap: int | None
    status: JobWord
    cancel_requested: bool
    enqueued_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    error: str | None
    error_code: str | None
    remedy: str | None
    retry_count: int
    progress: ProgressRecord
    total_chunks: int
    execution_time_ms: int | None
    running_time_ms: int | None
    time_left_s: float | None
    rate: float | None
    rate_window_s: int | None
    item_type: TypeName
    op: OperationName
    tenant_id: str
    collection: str
    branch: str
    priority: int
    held: Held | None
    reason: str | None
    run: int
    parent_id: str | None
    children: ChildCounts


class JobDetail(JobRecord, frozen=True, kw_only=True):
    """A job with its place in the queue, what was asked, what happened so far, and its result.

    ``payload``: values with names of secrets are masked, and texts of notes are given by their length.
    ``history``: oldest first. ``follow_up``: what was asked during the run is done in one more run.
    ``after``: jobs that this one waits or waited for. ``limit_key``: key of its limit.
    ``result_until``: time at which the result is removed.
    """

    queue_position: int | None
    queue_length: int | None
    result: Any
    payload: dict[str, Any]
    history: list[HistoryEntry]
    submitted_by: str
    worker_id: str | None
    lease_until: datetime | None
    claim_number: int
    lost_count: int
    max_retries: int
    timeout_s: int
    waiting_for: str | None
    run_at: datetime | None
    follow_up: bool
    after: list[str]
    on_dependency_failure: str | None
    limit_key: str | None
    result_until: datetime | None


class JobPage(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs, newest first. ``next``: the cursor of the next page, None at the end.

    ``total``: None above 100,000.
    """

    jobs: list[JobRecord]
    total: int | None
    limit: int
    offset: int
    next: str | None


class SubmitRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a submission.

    ``queue_position``: requests ahead (0: the job is next, or does not wait). ``queue_length``: requests that
    are pending. Files of a folder that runs are no requests, nor are calls of functions.
    """

    job_id: str
    status: JobWord
    queue_position: int
    queue_length: int
    message: str
    dedupe_hit: bool
    run: int
    run_at: datetime | None = None
    notes: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    """What the sender should know; left out where there is nothing."""


class CallRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a call of a function. To count its position would cost more than the call."""

    job_id: str
    status: JobWord
    queue_position: int | None
    queue_length: int | None
    message: str
    dedupe_hit: bool
    run: int
    run_at: datetime | None = None


_OPTIONS = {
    "folder": ("folder", "chunks"),
    "project": ("folder", "chunks"),
    "library": ("folder", "chunks"),
    "file": ("chunks",),
    "content": ("chunks",),
}
"""Item types that look through folders, and those that cut chunks."""
_ROW = (
    "submitted_by",
    "worker_id",
    "lease_until",
    "claim_number",
    "lost_count",
    "max_retries",
    "timeout_s",
    "waiting_for",
    "run_at",
)
"""Fields of the detail that are columns of the row."""


def masked_payload(payload: dict[str, Any]) -> dict[str, Any]:
    """The payload without secrets, and without the texts of notes."""
    return {name: _masked(name, value) for name, value in payload.items()}


def _masked(name: str, value: Any) -> Any:
    if isinstance(value, dict):
        return masked_payload(value)
    if isinstance(value, list):
        return [_masked(name, one) for one in value]
    if not isinstance(value, str):
        return value
    if _SECRET.search(name):
        return _MASK
    return f"({len(value):,} characters)" if name in _TEXTS else value


class JobRecords:
    """Records of jobs, as shown by the HTTP server and other interfaces."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs

    def receipt(self, receipt: Receipt) -> SubmitRecord:
        """The record of a receipt, with the status in the words of the door."""
        return SubmitRecord(**self._columns(self._jobs.placed(receipt)), notes=receipt.notes or msgspec.UNSET)

    def call_receipt(self, receipt: Receipt) -> CallRecord:
        """The record of a call's receipt."""
        return CallRecord(**self._columns(receipt))

    def _columns(self, receipt: Receipt) -> dict[str, Any]:
        columns = msgspec.structs.asdict(receipt) | {"status": self._jobs.word(receipt.status)}
        del columns["notes"]
        return columns

    def own(self, job_id: str, tenants: Sequence[str]) -> Job:
        """The job with exactly this id, of one of the tenants (none: of any)."""
        job = self._jobs.queue.get(job_id) if _is_id(job_id) else None
        if job is None or (tenants and job.tenant_id not in tenants):
            raise JobNotFound(f"no job has the id {job_id[:80]!a}")
        return job

    def detail(self, job: Job) -> JobDetail:
        """The record of one job with everything known of it."""
        found = self._jobs.details(job.queue_id)
        record = self._record(found.job, found.reason)
        waits = dependencies_of(found.job)
        return JobDetail(
            **{name: getattr(record, name) for name in record.__struct_fields__},
            queue_position=found.queue_position,
            queue_length=found.queue_length,
            result=result_of(found.job, report_of(found.job, self._jobs.queue)),
            payload=masked_payload(found.job.shown_payload),
            history=found.history,
            follow_up=found.job.followup_json is not None,
            after=list(waits.after),
            on_dependency_failure=waits.on_failure,
            limit_key=found.job.limit_key,
            result_until=kept_until(found.job),
            **{name: getattr(found.job, name) for name in _ROW},
        )

    def page(
        self, tenants: Sequence[str | None], *, offset: int = 0, **filters: Unpack[JobFilter]
    ) -> JobPage:
        """A page of the jobs of these tenants (None: of all), newest first."""
        if not 0 <= offset <= _MAX_OFFSET:
            raise InvalidRequest(
                f"offset: expected 0 to {_MAX_OFFSET:,}, got {offset}", remedy="Use the cursor in next."
            )
        limit = filters.get("limit", 50)
        filters["limit"] = limit
        by_priority = filters.get("by_priority", False)
        page = self._merged(tenants, offset, offset + limit + 1, filters)
        return JobPage(
            jobs=[self.record(job) for job in page[:limit]],
            total=self.count(tenants, filters, cap=_MOST_COUNTED),
            limit=limit,
            offset=offset,
            next=cursor_after(page[limit - 1], by_priority=by_priority) if len(page) > limit else None,
        )

    def rows(
        self, tenants: Sequence[str | None], *, offset: int = 0, **filters: Unpack[JobFilter]
    ) -> list[Job]:
        """The jobs of a page, as the queue has them."""
        return self._merged(tenants, offset, offset + filters.get("limit", 50), filters)

    def _merged(self, tenants: Sequence[str | None], first: int, last: int, filters: JobFilter) -> list[Job]:
        found = [self._first(last, {**filters, "tenant_id": tenant}) for tenant in tenants]
        newest_first = filters.get("newest_first", True)
        # Two stable sorts: by id, then by priority.
        merged = sorted(chain.from_iterable(found), key=lambda job: job.queue_id, reverse=newest_first)
        if filters.get("by_priority", False):
            merged.sort(key=lambda job: -job.priority)
        return merged[first:last]

    def record(self, job: Job) -> JobRecord:
        """The record of a job in a list or an event, from its own row and the file in work."""
        return self._record(job, self._short_reason(job), listed=True)

    def count(
        self, tenants: Sequence[str | None], filters: JobFilter, *, cap: int | None = None
    ) -> int | None:
        """The number of matching jobs of these tenants; None if there are more than ``cap``."""
        total = 0
        for tenant in tenants:
            query = job_query({**filters, "tenant_id": tenant})
            total += sum(self._jobs.queue.count(query, cap=None if cap is None else cap + 1).values())
            if cap is not None and total > cap:
                return None
        return total

    def _first(self, wanted: int, filters: JobFilter) -> list[Job]:
        found: list[Job] = []
        while len(found) < wanted:
            filters["limit"] = min(wanted - len(found), MAX_PAGE)
            more = self._jobs.jobs(**filters)
            found += more
            if len(more) < filters["limit"]:
                break
            filters["after"] = cursor_after(more[-1], by_priority=filters.get("by_priority", False))
        return found

    def _short_reason(self, job: Job) -> str | None:
        """The reason why a job waits, by the job's row alone: a list reads no other rows."""
        if job.status is Status.IN_PROGRESS or job.held is Held.TIME:
            return why.reason(self._jobs.queue, job, None, self._jobs.settings.heartbeat_s)
        if job.held is Held.AFTER:
            return why.first_dependency(dependencies_of(job))
        if job.held is Held.LIMIT:
            return f"held: limit {job.limit_key}"
        return None if job.held is None else f"held: {job.held}"

    def _record(self, job: Job, reason: str | None, *, listed: bool = False) -> JobRecord:
        payload = job.shown_payload
        report = report_of(job, self._jobs.queue, listed=listed)
        options = () if job.op == "delete" else _OPTIONS.get(job.item_type, ())
        # A pending row still has the start of its last attempt.
        started_at = None if job.status is Status.PENDING else job.started_at
        runs = job.status is Status.IN_PROGRESS
        running_ms = _milliseconds(job.started_at, self._jobs.queue.now()) if runs else None
        rate = _rate(report, running_ms)
        return JobRecord(
            job_id=job.queue_id,
            id=job.queue_id,
            dedupe_key=job.idempotency_key,
            operation=str(payload.get("operation", "index")),
            folder_path=next((str(payload[name]) for name in _PATHS if payload.get(name)), None),
            include_code=bool(payload.get("include_code", job.item_type == "project")),
            recursive=payload.get("recursive", True) if "folder" in options else None,
            chunk_size=(payload.get("chunk_size") or USUAL_CHUNK) if "chunks" in options else None,
            chunk_overlap=(payload.get("chunk_overlap") or 0) if "chunks" in options else None,
            status=self._jobs.word(job.status),
            cancel_requested=job.cancel_requested,
            enqueued_at=job.created_at,
            started_at=started_at,
            finished_at=job.finished_at,
            error=job.error_message,
            error_code=job.error_code,
            remedy=remedy_for(job.error_code or "") or None,
            retry_count=job.retry_count,
            progress=_progress(job, report),
            total_chunks=report.chunks_created if report else job.total_chunks,
            execution_time_ms=_milliseconds(job.started_at, job.finished_at),
            running_time_ms=running_ms,
            time_left_s=_time_left(report, rate),
            rate=rate,
            rate_window_s=None if rate is None or running_ms is None else max(running_ms // 1000, 1),
            item_type=job.item_type,
            op=job.op,
            tenant_id=job.tenant_id,
            collection=job.collection,
            branch=job.branch,
            priority=job.priority,
            held=job.held,
            reason=reason,
            run=job.run,
            parent_id=job.parent_id,
            children=ChildCounts(job.children_open, job.children_failed),
        )


def _is_id(text: str) -> bool:
    try:
        return bool(validate_name("job_id", text))
    except InvalidRequest:
        return False


def _progress(job: Job, report: JobReport | None) -> ProgressRecord:
    if report is None:
        return ProgressRecord(updated_at=job.updated_at)
    return ProgressRecord(
        files_processed=report.files_processed,
        files_total=report.files_total,
        chunks_created=report.chunks_created,
        current_file=report.current_file,
        percent_complete=report.percent_complete,
        updated_at=report.updated_at,
    )


def _milliseconds(start: datetime | None, end: datetime | None) -> int | None:
    return None if start is None or end is None else max(round((end - start).total_seconds() * 1000), 0)


def _rate(report: JobReport | None, running_ms: int | None) -> float | None:
    """Files a second since the start of the job, while its files are indexed."""
    if report is None or report.stage != "indexing" or not running_ms or not report.files_processed:
        return None
    return round(report.files_processed * 1000 / running_ms, 3)


def _time_left(report: JobReport | None, rate: float | None) -> float | None:
    if report is None or not rate or report.files_processed is None:
        return None
    return round((report.files_total - report.files_processed) / rate, 1)


def running_jobs(queue: Queue, tenants: Sequence[str | None], limit: int) -> list[Job]:
    """Top-level indexing jobs in progress, the longest running first."""
    found: list[Job] = []
    for tenant in tenants:
        query = JobQuery(
            statuses=frozenset({Status.IN_PROGRESS}), tenant_id=tenant, top_level=True, limit=limit
        )
        found += (job for job in queue.find(query) if job.item_type != "function")
    return sorted(found, key=lambda job: (job.started_at or job.created_at, job.queue_id))[:limit]


class JobListing(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs with their reports, by id, and the time of the store.

    A client returns the same values as the library: jobs, receipts, sources, reasons. This struct and the
    following ones join what a client would otherwise ask for in several requests.
    """

    jobs: list[Job]
    reports: dict[str, JobReport]
    now: datetime


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """A job with everything known of it, and the time of the store."""

    details: Details
    report: JobReport | None
    now: datetime


class JobOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """Facts of the catalog about an indexing job, at and below its path.

    ``failures``: files that failed, also in earlier jobs. ``inside``: files inside others that it indexed.
    ``recognized``: pages read by OCR. ``code_included_because``: the reason why code is included although
    the request did not say so.
    """

    failures: list[FailedPath]
    inside: InsideFiles
    recognized: RecognizedPages
    code_included_because: str | None


class DocumentView(msgspec.Struct, frozen=True, kw_only=True):
    """A document with its generations, newest first, failed files inside it, and pages read by OCR."""

    source: Source
    generations: list[Document]
    failed_inside: list[FailedPath]
    recognized: RecognizedPages


def page_states(documents: Documents, source_id: str, limit: int) -> list[PageState]:
    """States of the first pages of the newest generation of a document."""
    generations = documents.generations(source_id)
    return documents.pages(generations[0].document_id, limit=min(limit, _MOST_PAGES)) if generations else []


def find_job(jobs: Jobs, id_or_prefix: str, tenants: Sequence[str]) -> Job:
    """Find a job of these tenants (none: of all) by its id, or by a unique prefix of it."""
    if not tenants:
        return jobs.job(id_or_prefix)
    found = [
        job
        for tenant in tenants
        for job in jobs.queue.find(JobQuery(prefix=id_or_prefix, tenant_id=tenant, limit=2))
    ]
    exact = [job for job in found if job.queue_id == id_or_prefix] or found
    if not exact:
        raise JobNotFound(f"no job has the id or prefix {id_or_prefix[:80]!r}")
    if len(exact) > 1:
        raise AmbiguousId(f"{id_or_prefix[:80]!r} is the beginning of several ids")
    return exact[0]


def listing(jobs: Jobs, found: list[Job]) -> JobListing:
    """The listing of these jobs, with reports."""
    # Failed files are counted of jobs that failed, cancelled ones only of small jobs.
    found_reports = (report_of(job, jobs.queue, listed=job.status is Status.CANCELLED) for job in found)
    pairs = zip(found, found_reports, strict=True)
    reports = {job.queue_id: report for job, report in pairs if report is not None}
    return JobListing(jobs=found, reports=reports, now=jobs.queue.now())


def job_view(jobs: Jobs, job: Job) -> JobView:
    """The view of one job."""
    details = jobs.details(job.queue_id)
    return JobView(details=details, report=report_of(details.job, jobs.queue), now=jobs.queue.now())


def job_path(job: Job) -> str:
    """The path of an indexing job; the root of the file system without one."""
    payload = job.shown_payload
    return str(payload.get("folder_path") or payload.get("project_root") or payload.get("file_path") or "/")


def job_outcome(documents: Documents, job: Job) -> JobOutcome:
    """Read what the catalog knows about a job."""
    path = job_path(job)
    # A project includes code without a word about it.
    included = job.shown_payload.get("include_code", job.item_type == "project")
    undecided = included and job.item_type in ("folder", "project")
    return JobOutcome(
        failures=documents.failures(
            path, tenant_id=job.tenant_id, collection=job.collection, branch=job.branch
        ),
        inside=_inside_files(documents.catalog, job, path),
        recognized=documents.recognized(job),
        code_included_because=documents.why_code(path) if undecided else None,
    )


def document_view(documents: Documents, source: Source) -> DocumentView:
    """Read what the catalog knows about a document."""
    place = source.place
    failed = documents.failures(
        source.path, tenant_id=place.tenant_id, collection=place.collection, branch=place.branch
    )
    return DocumentView(
        source=documents.source(source.source_id, tenant_id=place.tenant_id),
        generations=documents.generations(source.source_id),
        failed_inside=[one for one in failed if one.path != source.path],
        recognized=documents.recognized(source),
    )


def own_stats(jobs: Jobs, principal: Principal) -> Stats:
    """Statistics of the queue. A sender bound to tenants gets counts of these, and nothing of workers."""
    if not principal.bound:
        return jobs.stats()
    by_status = dict.fromkeys((status.value for status in Status), 0)
    by_held = dict.fromkeys((reason.value for reason in Held), 0)
    by_type: dict[str, dict[str, int]] = {}
    for tenant in principal.tenants:
        counts = jobs.queue.count(JobQuery(tenant_id=tenant), by=("status", "held", "item_type"))
        for (status, held, item_type), number in counts.items():
            by_status[status] += number
            of_type = by_type.setdefault(item_type, {})
            of_type[status] = of_type.get(status, 0) + number
            if held is not None:
                by_held[held] += number
    return Stats(
        by_status=by_status,
        exact=True,
        by_held=by_held,
        by_item_type=dict(sorted(by_type.items())),
        oldest_pending_at=None,
        oldest_pending_age_s=None,
        paused=[scope for scope in jobs.paused() if scope.tenant_id in ("*", *principal.tenants)],
        workers=[],
        warnings=[],
    )
