"""Values of the library as answers of a server: for clients, instead of the records for programs.

A client returns the same values as the library's own services: jobs, receipts, sources, reasons. The structs
here join what a client would otherwise have to ask for in several requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from penstock.catalog.values import Document, PageState, RecognizedPages, Source
from penstock.errors import AmbiguousId, JobNotFound
from penstock.job import Job, JobQuery, Status
from penstock.service.access import Principal
from penstock.service.documents import Documents
from penstock.service.failures import FailedPath
from penstock.service.job_reports import InsideFiles, JobReport, inside_files, report_of
from penstock.service.jobs import Jobs
from penstock.service.responses import Details, Stats

MOST_PAGES = 1_000
"""States of pages in one answer."""


class JobListing(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs with their reports, by id, and the time of the store."""

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
    return documents.pages(generations[0].document_id, limit=min(limit, MOST_PAGES)) if generations else []


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
        inside=inside_files(documents.catalog, job, path),
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
    found = jobs.stats()
    if not principal.bound:
        return found
    by_status, by_held = dict.fromkeys(found.by_status, 0), dict.fromkeys(found.by_held, 0)
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
        paused=[scope for scope in found.paused if scope.tenant_id in ("*", *principal.tenants)],
        workers=[],
        warnings=[],
    )
