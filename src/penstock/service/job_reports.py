"""Reports on jobs for people and programs: files done and left, failures, chunks, the current file.

A row keeps the counts of the walk, and columns that the ends of child jobs change. A report joins both, so
that no write is needed for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec

from penstock.catalog.protocol import Catalog
from penstock.catalog.values import Place
from penstock.handlers.members import container_of, published_members
from penstock.job import CHILDREN, Job, JobQuery, Status
from penstock.named_tuple import NamedTuple
from penstock.pipeline.extract.file_types import suffix_of
from penstock.queue.protocol import Queue
from penstock.service.failures import FailedPath

_WALKED = ("folder", "project")
_SINGLE = ("file", "content")
CHILDREN_FAILED = "ERR_CHILDREN_FAILED"
MOST_CANCELLED = 2_000
"""Child jobs of a cancelled job up to which a list counts those that were cancelled."""
MOST_FAILED = 1_000
"""Failed child jobs that are looked at for files inside others."""


class JobReport(msgspec.Struct, frozen=True, kw_only=True):
    """Progress of an indexing job, while it runs and after its end."""

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


def _are_counts(found: dict[str, Any]) -> bool:
    """Tell the counts of a walk from what an application's own handler returned or reported."""
    numbers = all(type(found.get(name, 0)) is int for name in _COUNTS)
    return numbers and all(isinstance(found.get(name, {}), dict) for name in _BY_NAME)


def report_of(job: Job, queue: Queue | None = None, *, listed: bool = False) -> JobReport | None:
    """Report on an indexing job; None for other types.

    ``queue``: to look up child jobs: the file in work, files that were cancelled, files that failed inside
    others. ``listed``: a job among others, for which little is read: no failed files, and cancelled ones only
    of up to ``MOST_CANCELLED`` child jobs.
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
        counted = queue is not None and (sent <= MOST_CANCELLED or not listed)
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
    if job.status is not Status.FAILED:
        return job.status is Status.CANCELLED
    # Late: an agent that only searches asks for no failed job.
    from penstock.lifecycle import TIMED_OUT

    return job.error_code == TIMED_OUT


def cancelled_children(queue: Queue, job: Job) -> int:
    """Count the cancelled child jobs of the current run of a job."""
    query = JobQuery(parent_id=job.queue_id, statuses=frozenset({Status.CANCELLED}), limit=MOST_FAILED)
    if job.run == 1:
        return sum(queue.count(query).values())
    # Child jobs of a run before the last retry are still there.
    number = 0
    while page := queue.find(query):
        number += sum(child.parent_run == job.run for child in page)
        query = msgspec.structs.replace(query, after=page[-1].queue_id)
    return number


class _FailedInside(NamedTuple):
    """Failed files inside others, and failed child jobs without a failed file on the disk."""

    files: int = 0
    child_jobs: int = 0


def _failed_inside(job: Job, queue: Queue) -> _FailedInside:
    """Count failed files inside others. The job of a mail fails with an attachment, though it is indexed."""
    if not job.children_failed:
        return _FailedInside()
    failed = JobQuery(parent_id=job.queue_id, statuses=frozenset({Status.FAILED}), limit=MOST_FAILED)
    files = child_jobs = 0
    for child in queue.find(failed):
        path = child.shown_payload.get("file_path")
        if child.error_code == CHILDREN_FAILED:
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


def inside_files(catalog: Catalog, job: Job, path: str) -> InsideFiles:
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
        failed=int(job.status is Status.FAILED and job.error_code != CHILDREN_FAILED),
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
