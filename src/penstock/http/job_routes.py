"""Routes of jobs: list, show, cancel and retry, one or all that match."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from penstock.http.answers import described, respond, respond_values
from penstock.http.job_queries import BulkBody, JobsQuery
from penstock.http.request_context import Reader, Writer
from penstock.http.thread_pools import reads, writes
from penstock.service import job_views
from penstock.service.bulk_actions import Act, BulkResult
from penstock.service.job_views import JobDetail, JobOutcome, JobPage
from penstock.service.jobs import JobFilter
from penstock.service.requests import CancelAnswer

router = APIRouter(prefix="/index/jobs", tags=["jobs"])

JobId = Annotated[str, Path(description="Id of a job.", max_length=512)]


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


CHANGED = {"matched": 12, "changed": 12, "skipped": [], "more": False}
BULK = described(BulkResult, refused=(409,), example=CHANGED)


@router.post(
    "/retry", operation_id="jobs_retry_matching", responses=BULK, summary="Retry all jobs of a filter"
)
@writes
def retry_matching(sender: Writer, body: BulkBody) -> Response:
    """Run all matching jobs again, by default failed ones, if they are as many as expected."""
    return _act(sender, "retry", body)


@router.post(
    "/cancel", operation_id="jobs_cancel_matching", responses=BULK, summary="Cancel all jobs of a filter"
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
def job(sender: Reader, job_id: JobId) -> Response:
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
def outcome(sender: Reader, job_id: JobId) -> Response:
    """Show failed files at and below the path of a job, files inside others, and pages read by OCR."""
    own = sender.job(job_id)
    return respond(job_views.job_outcome(sender.shared.documents, own))


CANCELLED = {"job_id": "job_0660f5b1a2c3d4e5f60718", "status": "cancelled", "message": "Job cancelled"}


@router.delete(
    "/{job_id}",
    operation_id="jobs_cancel",
    responses=described(
        CancelAnswer,
        refused=(404, 409),
        example=CANCELLED,
        also={202: "The worker stops it at a checkpoint."},
    ),
    summary="Cancel a job",
)
@writes
def cancel(sender: Writer, job_id: JobId) -> Response:
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
def retry(sender: Writer, job_id: JobId) -> Response:
    """Run a failed or cancelled job again, or the failed parts of one that is done."""
    records = sender.shared.job_records
    own = sender.job(job_id)
    job = sender.shared.documents.retry(own.queue_id)
    return respond_values(job, 202) if sender.wants_values else respond(records.detail(job), 202)
