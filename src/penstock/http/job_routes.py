"""Routes of jobs: list, show, cancel and retry."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from penstock.http.answers import described, respond, respond_values
from penstock.http.request_bodies import JobsQuery
from penstock.http.request_context import Reader, Writer
from penstock.http.thread_pools import reads, writes
from penstock.service import library_values
from penstock.service.job_records import JobDetail, JobPage
from penstock.service.jobs import JobFilter
from penstock.service.library_values import JobOutcome
from penstock.service.responses import CancelAnswer

router = APIRouter(prefix="/index/jobs", tags=["jobs"])

JobId = Annotated[str, Path(description="Id of a job.", max_length=512)]


@router.get("", responses=described(JobPage, value=True), summary="List jobs")
@reads
def jobs(sender: Reader, query: Annotated[JobsQuery, Query()]) -> Response:
    """List jobs, newest first."""
    tenants, records = sender.principal.tenants_for(query.tenant_id), sender.shared.job_records
    filters: JobFilter = {
        "limit": query.limit,
        "after": query.cursor,
        "status": query.status or None,
        "collection": query.collection,
        "item_type": query.item_type,
        "held": query.held,
        "parent_id": query.parent_id,
        "top_level": None if query.children or query.parent_id is not None else True,
    }
    if sender.wants_values:
        found = records.newest(tenants, query.offset, **filters)
        return respond_values(library_values.listing(sender.shared.jobs, found))
    return respond(records.page(tenants, offset=query.offset, **filters))


@router.get("/{job_id}", responses=described(JobDetail, refused=(404,), value=True), summary="Show a job")
@reads
def job(sender: Reader, job_id: JobId) -> Response:
    """Show a job with its progress, its place in the queue, and the reason why it waits."""
    own = sender.job(job_id)
    if sender.wants_values:
        return respond_values(library_values.job_view(sender.shared.jobs, own))
    return respond(sender.shared.job_records.detail(own))


@router.get(
    "/{job_id}/outcome", responses=described(JobOutcome, refused=(404,)), summary="Show what failed in a job"
)
@reads
def outcome(sender: Reader, job_id: JobId) -> Response:
    """Show failed files at and below the path of a job, files inside others, and pages read by OCR."""
    own = sender.job(job_id)
    return respond(library_values.job_outcome(sender.shared.documents, own))


CANCELLED = {"job_id": "job_0660f5b1a2c3d4e5f60718", "status": "cancelled", "message": "Job cancelled"}


@router.delete(
    "/{job_id}",
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
