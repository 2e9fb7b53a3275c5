"""Routes of jobs: list, show, cancel and retry, one or all that match."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from starlette.responses import Response

from penstock.http.problems import described, respond, respond_values
from penstock.http.request_bodies import MAX_OFFSET, MAX_PAGE, Name, QueryFields, RequestBody, Whole
from penstock.http.request_context import Reader, Writer, reads, writes
from penstock.queue.job import Held
from penstock.queue.payloads import ITEM_TYPES
from penstock.service import job_views
from penstock.service.bulk_actions import Act, BulkResult
from penstock.service.job_views import JobDetail, JobOutcome, JobPage
from penstock.service.jobs import JobFilter
from penstock.service.requests import CancelAnswer

_StatusName = Annotated[
    Name, Field(json_schema_extra={"enum": ["pending", "running", "done", "failed", "cancelled"]})
]
_HeldName = Annotated[Name, Field(json_schema_extra={"enum": [str(reason) for reason in Held]})]
ItemType = Annotated[Name, Field(json_schema_extra={"enum": list(ITEM_TYPES)})]


class JobFilters(BaseModel):
    """Filters of jobs; all given ones must match."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    status: list[_StatusName] = Field(
        [], max_length=10, description="Only jobs in one of these states; other interfaces' words count, too."
    )
    tenant_id: Name | None = None
    collection: Name | None = None
    item_type: ItemType | None = None
    error: Name | None = Field(None, description="Only jobs whose last error has this code.")
    reason: Name | None = Field(None, description="Only failed jobs with this reason, children too.")
    held: _HeldName | None = Field(None, description="Only jobs held for this reason.")
    parent_id: Name | None = Field(None, description="Only children of this job.")
    q: Name | None = Field(None, description="Only jobs with this text in id, payload or error message.")
    children: bool = Field(False, description="Include the jobs that other jobs expanded into.")

    def given(self) -> JobFilter:
        """The filters of the service, without the tenant."""
        below = self.children or self.parent_id is not None or self.reason is not None
        return {
            "status": self.status or None,
            "collection": self.collection,
            "item_type": self.item_type,
            "error": self.error,
            "reason": self.reason,
            "held": self.held,
            "parent_id": self.parent_id,
            "q": self.q,
            "top_level": None if below else True,
        }


class JobsQuery(JobFilters):
    """Filters, order and paging of a list of jobs."""

    sort: Literal["newest", "oldest", "priority"] = Field(
        "newest", description="Order: by submission, or by priority and then the oldest first."
    )
    limit: int = Field(50, ge=1, le=MAX_PAGE)
    offset: int = Field(0, ge=0, le=MAX_OFFSET, description="Jobs to leave out; a cursor is faster.")
    cursor: Name | None = Field(None, description="`next` of the page before.")


class FailuresQuery(JobFilters):
    """Filters of failed jobs, grouped by reason."""

    group: Literal["reason"] = "reason"


class FilterBody(JobFilters):
    """Filters of jobs in a body; `status` may be one word."""

    @field_validator("status", mode="before")
    @classmethod
    def _several(cls, given: Any) -> Any:
        return [given] if isinstance(given, str) else given


class BulkBody(RequestBody):
    """Jobs to retry or cancel: all that match, if they are as many as expected."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        json_schema_extra={
            "examples": [{"filter": {"status": ["failed"], "error": "ERR_WORKER_LOST"}, "expect": 12}]
        },
    )

    filter: FilterBody
    expect: Whole | None = Field(None, ge=0, description="Number of matching jobs; required without dry_run.")
    dry_run: bool = Field(False, description="Only count.")

    @model_validator(mode="after")
    def _expected(self) -> BulkBody:
        if self.expect is None and not self.dry_run:
            raise ValueError("expect: required, unless dry_run is true")
        return self


class RangeQuery(QueryFields):
    """Pages whose chunks are shown."""

    first: int = Field(1, ge=1, le=10_000_000, description="First page.")
    last: int | None = Field(
        None, ge=1, le=10_000_000, description="Last page; by default 199 after the first."
    )


_DURATION = re.compile(r"([0-9]{1,6})([smh]?)")


class HistoryQuery(QueryFields):
    """Window and step of a history."""

    window: str = Field("1h", pattern=r"^[0-9]{1,6}[smh]?$", description="Up to 24h, such as 90m.")
    step: str = Field("60s", pattern=r"^[0-9]{1,6}[smh]?$", description="Whole minutes, such as 5m.")
    tenant_id: Name | None = None


def parse_duration(text: str) -> timedelta:
    """A duration such as 90, 90s, 5m or 2h."""
    match = _DURATION.fullmatch(text)
    assert match is not None
    return timedelta(seconds=int(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]])


router = APIRouter(prefix="/index/jobs", tags=["jobs"])

_JobId = Annotated[str, Path(description="Id of a job.", max_length=512)]


@router.get("", operation_id="jobs_list", responses=described(JobPage, value=True), summary="List jobs")
@reads
def jobs(sender: Reader, query: Annotated[JobsQuery, Query()]) -> Response:
    """List jobs, by default the newest first."""
    filters: JobFilter = {
        **query.given(),
        "limit": query.limit,
        "after": query.cursor,
        "newest_first": query.sort == "newest",
        "by_priority": query.sort == "priority",
    }
    tenants = sender.principal.tenants_for(query.tenant_id)
    records = sender.shared.job_records
    if sender.wants_values:
        found = records.rows(tenants, offset=query.offset, **filters)
        return respond_values(job_views.listing(sender.shared.jobs, found))
    return respond(records.page(tenants, offset=query.offset, **filters))


_CHANGED = {"matched": 12, "changed": 12, "skipped": [], "more": False}
_BULK = described(BulkResult, refused=(409,), example=_CHANGED)


@router.post(
    "/retry", operation_id="jobs_retry_matching", responses=_BULK, summary="Retry all jobs of a filter"
)
@writes
def retry_matching(sender: Writer, body: BulkBody) -> Response:
    """Run all matching jobs again, by default failed ones, if they are as many as expected."""
    return _act(sender, "retry", body)


@router.post(
    "/cancel", operation_id="jobs_cancel_matching", responses=_BULK, summary="Cancel all jobs of a filter"
)
@writes
def cancel_matching(sender: Writer, body: BulkBody) -> Response:
    """Cancel all matching jobs, by default pending and running ones, if they are as many as expected."""
    return _act(sender, "cancel", body)


def _act(sender: Writer, act: Act, body: BulkBody) -> Response:
    shared = sender.shared
    tenants = sender.principal.tenants_for(body.filter.tenant_id)
    filters = body.filter.given()
    done = shared.bulk.run(act, tenants, filters, expect=body.expect, dry_run=body.dry_run)
    if not body.dry_run:
        named = {name: value for name, value in filters.items() if value is not None}
        shared.audit.record(
            sender.principal.name, f"{act} jobs", changed=str(done.changed), filter=str(named)
        )
    return respond(done)


@router.get(
    "/{job_id}",
    operation_id="jobs_get",
    responses=described(JobDetail, refused=(404,), value=True),
    summary="Show a job",
)
@reads
def job(sender: Reader, job_id: _JobId) -> Response:
    """Show a job with its progress, its place in the queue, and the reason why it waits."""
    own = sender.job(job_id)
    if sender.wants_values:
        return respond_values(job_views.job_view(sender.shared.jobs, own))
    return respond(sender.shared.job_records.detail(own))


@router.get(
    "/{job_id}/outcome",
    operation_id="jobs_get_outcome",
    responses=described(JobOutcome, refused=(404,)),
    summary="Show what failed in a job",
)
@reads
def outcome(sender: Reader, job_id: _JobId) -> Response:
    """Show failed files at and below the path of a job, files inside others, and pages read by OCR."""
    own = sender.job(job_id)
    return respond(job_views.job_outcome(sender.shared.documents, own))


_CANCELLED = {"job_id": "job_0660f5b1a2c3d4e5f60718", "status": "cancelled", "message": "Job cancelled"}


@router.delete(
    "/{job_id}",
    operation_id="jobs_cancel",
    responses=described(
        CancelAnswer,
        refused=(404, 409),
        example=_CANCELLED,
        also={202: "The worker stops it at a checkpoint."},
    ),
    summary="Cancel a job",
)
@writes
def cancel(sender: Writer, job_id: _JobId) -> Response:
    """Cancel a job and its children. A running job ends at its next checkpoint (202)."""
    own = sender.job(job_id)
    answer = sender.shared.jobs.cancel(own.queue_id)
    return respond(answer, 200 if answer.status == "cancelled" else 202)


@router.post(
    "/{job_id}/retry",
    operation_id="jobs_retry",
    status_code=202,
    responses=described(JobDetail, 202, refused=(404, 409), value=True),
    summary="Retry a job",
)
@writes
def retry(sender: Writer, job_id: _JobId) -> Response:
    """Run a failed or cancelled job again, or the failed parts of one that is done."""
    records = sender.shared.job_records
    own = sender.job(job_id)
    job = sender.shared.documents.retry(own.queue_id)
    return respond_values(job, 202) if sender.wants_values else respond(records.detail(job), 202)
