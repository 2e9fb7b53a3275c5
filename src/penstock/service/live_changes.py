"""Changes of jobs and documents since the last look, for streams of events.

The stores keep no log of changes that costs nothing, so a look reads few rows: new jobs by id, running jobs,
and the jobs seen before that have not ended. A burst of more changes than a look reads is reported as
incomplete.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import msgspec

from penstock.catalog.values import Document, GenerationState
from penstock.job import Job, JobQuery, Status
from penstock.named_tuple import NamedTuple
from penstock.service.documents import Documents
from penstock.service.job_records import JobRecord, JobRecords
from penstock.service.jobs import Jobs

MOST_NEW, MOST_RUNNING = 200, 200
"""Jobs read in one look; of documents a quarter."""
MOST_LIVE = 2_000
"""Jobs that are followed until they end."""
REREAD = 100
"""Followed jobs, neither new nor running, that one look reads again."""
MOST_WATCHED = 500
"""Jobs with a stream of their own that one look reads."""


class Change(NamedTuple):
    """An event: kind, data, and the tenant for access control."""

    kind: str
    tenant_id: str
    data: object


class Changes(NamedTuple):
    """The changes of one read. ``watched``: jobs with a separate stream, None for a removed job."""

    changes: list[Change]
    watched: dict[str, JobRecord | None]
    complete: bool


class DocumentChange(msgspec.Struct, frozen=True, kw_only=True):
    """A document whose newest generation changed. ``phases``: the status of each phase."""

    source_id: str
    path: str
    tenant_id: str
    collection: str
    branch: str
    status: str
    pages: int
    chunks: int
    failed: int
    phases: dict[str, str]
    job_id: str | None


class LiveChanges:
    """Reads changes; for use by one thread."""

    def __init__(self, jobs: Jobs, job_records: JobRecords, documents: Documents) -> None:
        self._jobs = _LiveJobs(jobs)
        self._queue = jobs.queue
        self._records = job_records
        self._documents = _LiveDocuments(documents)
        self._watched: dict[str, tuple[Any, ...]] = {}

    def read(self, watched: Collection[str] = ()) -> Changes:
        """Read the changes since the last call; the first call only records the state."""
        jobs, all_jobs = self._jobs.read()
        documents, all_documents = self._documents.read()
        return Changes(
            [Change("job", job.tenant_id, self._records.record(job)) for job in jobs]
            + [Change("document", one.tenant_id, one) for one in documents],
            self._read_watched(watched),
            all_jobs and all_documents,
        )

    def running(self) -> list[Change]:
        """Running top-level jobs of the last look, for a new listener."""
        return [Change("job", job.tenant_id, self._records.record(job)) for job in self._jobs.running]

    def job(self, job_id: str) -> JobRecord | None:
        """A job for a new listener of the job's stream; None for a removed job."""
        job = self._queue.get(job_id)
        return None if job is None else self._records.detail(job)

    @property
    def idle(self) -> bool:
        """True without jobs or documents in work: nothing changes before a notification."""
        return not self._jobs.running and not self._documents.building

    def _read_watched(self, watched: Collection[str]) -> dict[str, JobRecord | None]:
        found: dict[str, JobRecord | None] = {}
        signatures: dict[str, tuple[Any, ...]] = {}
        for job_id in sorted(watched)[:MOST_WATCHED]:
            job = self._queue.get(job_id)
            signatures[job_id] = () if job is None else _signature(job)
            if self._watched.get(job_id) != signatures[job_id]:
                found[job_id] = None if job is None else self._records.detail(job)
        self._watched = signatures
        return found


class _LiveJobs:
    def __init__(self, jobs: Jobs) -> None:
        self._queue = jobs.queue
        self._newest: str | None = None
        self._seen: dict[str, tuple[Any, ...]] = {}
        """Followed jobs with what was known of them, in the order of the looks that found them."""
        self._turn: deque[str] = deque()
        self.running: list[Job] = []

    def read(self) -> tuple[list[Job], bool]:
        first = self._newest is None
        new = self._new()
        self.running = self._queue.find(
            JobQuery(statuses=frozenset({Status.IN_PROGRESS}), top_level=True, limit=MOST_RUNNING)
        )
        found = {job.queue_id: job for job in (*new, *self.running)}
        for job_id in self._unread(found):
            job = self._queue.get(job_id)
            if job is None:
                self._seen.pop(job_id, None)
            else:
                found[job_id] = job
        changed = [job for job in found.values() if self._seen.get(job.queue_id) != _signature(job)]
        self._follow(found.values())
        return ([] if first else changed), len(new) < MOST_NEW or first

    def _new(self) -> list[Job]:
        """Jobs added since the last read. The first read follows the newest pending ones."""
        if self._newest is None:
            newest = self._queue.find(JobQuery(newest_first=True, limit=1))
            self._newest = newest[0].queue_id if newest else ""
            pending = frozenset({Status.PENDING})
            return self._queue.find(
                JobQuery(statuses=pending, top_level=True, newest_first=True, limit=MOST_NEW)
            )
        # Newest first: after a burst the rest is left out, and the look is reported as incomplete.
        query = JobQuery(top_level=True, newest_first=True, limit=MOST_NEW)
        new = [job for job in self._queue.find(query) if job.queue_id > self._newest]
        self._newest = max([self._newest, *(job.queue_id for job in new)])
        return new

    def _unread(self, found: Collection[str]) -> list[str]:
        """Followed jobs to be read: formerly running ones, and some of the others in turn."""
        ended = [
            job_id
            for job_id, signature in self._seen.items()
            if job_id not in found and signature[0] is Status.IN_PROGRESS
        ][:REREAD]
        due: list[str] = []
        for _ in range(min(len(self._turn), REREAD)):
            job_id = self._turn.popleft()
            if job_id in self._seen:
                self._turn.append(job_id)
                if job_id not in found:
                    due.append(job_id)
        return list(dict.fromkeys([*ended, *due]))

    def _follow(self, jobs: Iterable[Job]) -> None:
        for job in jobs:
            if job.ended:
                self._seen.pop(job.queue_id, None)
                continue
            if job.queue_id not in self._seen:
                self._turn.append(job.queue_id)
            self._seen[job.queue_id] = _signature(job)
        while len(self._seen) > MOST_LIVE:
            del self._seen[next(iter(self._seen))]


class _LiveDocuments:
    def __init__(self, documents: Documents) -> None:
        self._catalog = documents.catalog
        self._newest: int | None = None
        self.building: dict[int, Document] = {}

    def read(self) -> tuple[list[DocumentChange], bool]:
        most = MOST_NEW // 4
        with self._catalog.snapshot() as snapshot:
            if self._newest is None:
                newest = snapshot.newest(limit=most)
                self._newest = max((one.document_id for one in newest), default=0)
                self._follow(newest)
                return [], True
            new = snapshot.newest(after=self._newest, limit=most)
            again = [snapshot.document(document_id) for document_id in list(self.building)]
        self._newest = max([self._newest, *(one.document_id for one in new)])
        known = [one for one in again if one is not None]
        changed = [one for one in known if one.updated_at != self.building[one.document_id].updated_at]
        self._follow([*known, *new])
        return [_document_change(one) for one in (*changed, *new)], len(new) < most

    def _follow(self, documents: Sequence[Document]) -> None:
        """Follow incomplete generations, the newest ones of many."""
        live = [one for one in documents if one.state is GenerationState.BUILDING or not one.settled]
        live = [one for one in live if one.state is not GenerationState.DROPPED]
        self.building = {one.document_id: one for one in live[-MOST_NEW // 4 :]}


def _signature(job: Job) -> tuple[Any, ...]:
    """Everything shown in an event, except running times."""
    return (
        job.status,
        job.held,
        job.updated_at,
        job.children_open,
        job.children_failed,
        job.total_chunks,
        job.progress_json,
        job.cancel_requested,
    )


def _document_change(document: Document) -> DocumentChange:
    status = "partial" if document.partial else "indexed"
    if document.state is not GenerationState.PUBLISHED:
        status = "indexing" if document.state is GenerationState.BUILDING else "failed"
    return DocumentChange(
        source_id=document.source_id,
        path=document.path,
        tenant_id=document.place.tenant_id,
        collection=document.place.collection,
        branch=document.place.branch,
        status=status,
        pages=document.page_count,
        chunks=document.chunk_count,
        failed=document.failed_count,
        phases={str(phase): str(state.status) for phase, state in document.phases.items()},
        job_id=document.job_id,
    )
