"""Jobs as records for programs: one shape for every answer of the server, and pages of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from itertools import chain
from typing import Any, Unpack

import msgspec

from penstock.catalog.rules.publication import remedy_for
from penstock.dependencies import dependencies_of
from penstock.errors import InvalidRequest, JobNotFound
from penstock.items import OperationName, TypeName, validate_name
from penstock.job import Held, Job, JobQuery, Status
from penstock.payloads import USUAL_CHUNK
from penstock.queue.protocol import Queue
from penstock.results import kept_until
from penstock.service import explanations
from penstock.service.job_filters import MAX_PAGE, JobFilter, cursor_after, job_query
from penstock.service.job_reports import JobReport, report_of, result_of
from penstock.service.jobs import Jobs
from penstock.service.responses import HistoryEntry, JobWord, Receipt

MAX_OFFSET = 10_000
MOST_COUNTED = 100_000
"""Jobs up to which the total of a list is counted."""
_PATHS = ("folder_path", "project_root", "file_path")
_SECRET = re.compile(r"key|token|secret|passw|credential|authoriz|cookie", re.IGNORECASE)
_TEXTS = frozenset({"content", "text"})
MASK = "***"


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
        return MASK
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
        if not 0 <= offset <= MAX_OFFSET:
            raise InvalidRequest(
                f"offset: expected 0 to {MAX_OFFSET:,}, got {offset}", remedy="Use the cursor in next."
            )
        limit = filters.get("limit", 50)
        filters["limit"] = limit
        by_priority = filters.get("by_priority", False)
        page = self._merged(tenants, offset, offset + limit + 1, filters)
        return JobPage(
            jobs=[self.record(job) for job in page[:limit]],
            total=self.count(tenants, filters, cap=MOST_COUNTED),
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
            return explanations.reason(self._jobs.queue, job, None, self._jobs.settings.heartbeat_s)
        if job.held is Held.AFTER:
            return explanations.first_dependency(dependencies_of(job))
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
