"""Mirror of jobs in Redis: their hashes, the file moved at the end, and the erasure of deleted tenants."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

from penstock import clock
from penstock.catalog.values import Phase
from penstock.errors import InvalidRequest, UnknownDocument, UnknownRag
from penstock.queue.job import Job, JobQuery, Status
from penstock.queue.payloads import DeliveredFile, delivered_file_of
from penstock.redis_contract import lists, messages, rags
from penstock.redis_contract.lists import Lists, with_update_time
from penstock.redis_contract.messages import Message, read
from penstock.redis_contract.rags import FAILED, Rags
from penstock.redis_contract.reindex_series import ENDED, LIVE, ReindexSeries
from penstock.service.documents import Documents
from penstock.service.jobs import MAX_PAGE, Jobs

log = logging.getLogger("penstock.gateway")
_REMOVED = "ERR_JOB_REMOVED"
"""Error code in the hash of a job that was removed from the queue before its end was seen."""
_JOBS_PER_UPDATE = 200
"""Jobs read in one update."""
_CLOCKS_DIFFER = timedelta(seconds=1)
"""Tolerance between the clocks of the file system and of the queue."""


class Mirror:
    """Copies the jobs of one gateway to their hashes."""

    def __init__(
        self, jobs: Jobs, documents: Documents, lists: Lists, rags: Rags, series: ReindexSeries
    ) -> None:
        self._jobs = jobs
        self._documents = documents
        self._lists = lists
        self._rags = rags
        self._series = series
        self._shown: dict[str, dict[str, str]] = {}
        """The fields last written for each job of this gateway."""

    def add(self, job_ids: Iterable[str]) -> None:
        for job_id in job_ids:
            self._shown.setdefault(job_id, {})

    def reload(self) -> bool:
        """Read from Redis which jobs this gateway owns.

        Returns True if some were lost: another gateway has them now, or Redis lost its data.
        """
        before = self._shown
        self._shown = {job_id: before.get(job_id, {}) for job_id in self._lists.list_own_jobs()}
        return not before.keys() <= self._shown.keys()

    def adopt(self) -> None:
        """Adopt jobs without an owner: Redis lost the data, or the jobs were requeued."""
        after: str | None = None
        while True:
            page = self._jobs.queue.find(JobQuery(statuses=LIVE, top_level=True, after=after, limit=MAX_PAGE))
            self._lists.adopt([job.queue_id for job in page if _message_of(job) is not None])
            if len(page) < MAX_PAGE:
                return
            after = page[-1].queue_id

    def find_unreported(self) -> list[str]:
        """Find ended jobs with no hash reporting the end.

        They ended while no gateway owned them, and Redis had lost its data. Their file is still in the inbox.
        """
        waiting = self._rags.incoming()
        found: list[str] = []
        after: str | None = None
        while waiting:
            ended = JobQuery(statuses=ENDED, item_type="file", top_level=True, after=after, limit=MAX_PAGE)
            page = self._jobs.queue.find(ended)
            found += [job.queue_id for job in page if self._is_unmoved(job, waiting)]
            if len(page) < MAX_PAGE:
                break
            after = page[-1].queue_id
        return [job_id for job_id in found if self._lists.owns(job_id)]

    def _is_unmoved(self, job: Job, waiting: Mapping[str, os.stat_result]) -> bool:
        if job.submitted_by != "redis" or _message_of(job) is None:
            return False
        arrival = self._managed_file(job)
        found = waiting.get(arrival.read_from) if arrival is not None else None
        # Strictly: a new file may have come to the same path right after; its message is still to come.
        return (
            found is not None
            and job.finished_at is not None
            and found.st_ctime <= job.finished_at.timestamp()
        )

    def counts(self) -> dict[str, int]:
        """Count the queued and the running jobs."""
        found = Counter(shown.get("status", messages.QUEUED) for shown in list(self._shown.values()))
        return {"queued": found[messages.QUEUED], "processing": found[messages.PROCESSING]}

    def update(self) -> bool:
        """Write the hashes of some jobs. True: something was written."""
        wrote = False
        for job_id in list(self._shown)[:_JOBS_PER_UPDATE]:
            # Moved to the end, so that every job has its turn.
            shown = self._shown.pop(job_id)
            kept, changed = self._update_job(job_id, shown)
            if kept is not None:
                self._shown[job_id] = kept
            wrote = wrote or changed
        return wrote

    def _update_job(self, job_id: str, shown: dict[str, str]) -> tuple[dict[str, str] | None, bool]:
        """Return the fields of the job's hash (None: no longer mirrored), and whether they were written."""
        job = self._jobs.queue.get(job_id)
        message = _message_of(job) if job is not None else None
        if job is None or message is None:
            return None, self._finish_removed(job_id)
        if job.ended:
            if self._lists.owns(job_id) and not self._series.remove_rest(job):
                return shown, False
            return None, self._finish_ended(job, message)
        now = messages.job_fields(job, message, self._progress_counts(job))
        if now == shown:
            return shown, False
        return (now if self._lists.mirror(job_id, with_update_time(now)) else None), True

    def _progress_counts(self, job: Job) -> messages.Count:
        if not job.waiting or not (job.waiting_for or "").isdecimal():
            return messages.Count()
        progress = self._documents.progress(int(job.waiting_for or 0))
        if progress is None:
            return messages.Count()
        return messages.Count(progress.total_chunks, progress.completed_chunks[Phase.VECTOR])

    # Ended jobs.

    def _finish_removed(self, job_id: str) -> bool:
        gone = {
            "status": messages.FAILED,
            "completed_at": clock.format_time(clock.now()),
            "error": "the job was removed from the queue before its end was seen",
            "error_type": "Removed",
            "error_code": _REMOVED,
        }
        return self._lists.finish(job_id, with_update_time(gone))

    def _finish_ended(self, job: Job, message: Message) -> bool:
        """Finish an ended job. The file is moved first: a reader of ``done`` finds the file in place."""
        if not self._lists.owns(job.queue_id):
            return False
        shown = messages.job_fields(job, message, messages.Count())
        letter = None
        file = lists.file_key(message.rag_id, job.payload["file_path"])
        if job.status is Status.DONE:
            moved = self._move_processed(job, file)
        else:
            report = messages.job_error(job, message)
            record = messages.error_record(shown, report, (job.progress or {}).get("traceback"))
            moved = self._move_failed(job, message, record, file)
            log.warning("job %s failed: %s (%s)", job.queue_id, report.error, report.error_code)
            letter = record | {"code": report.error_code, "reason": report.error, "message": _raw_of(job)}
        if moved is not None:
            shown |= {"file": moved.path, "file_error": moved.error}
        return self._lists.finish(job.queue_id, with_update_time(shown), file=file, letter=letter)

    def _move_processed(self, job: Job, file: str) -> rags.Moved | None:
        arrival = self._managed_file(job)
        if arrival is None:
            return None
        left = self._leave_to_other_job(job, arrival, file)
        if left is not None:
            return left
        target = Path(job.payload["file_path"])
        source = Path(arrival.read_from)
        moved = rags.move(source, target, part=job.queue_id, is_same_file=self._indexed_file_test(job))
        if not moved.error:
            rags.remove_record_beside(source, target.name)
        return moved

    def _move_failed(
        self, job: Job, message: Message, record: dict[str, Any], file: str
    ) -> rags.Moved | None:
        try:
            folder = self._rags.get(message.rag_id).folder(FAILED)
        except UnknownRag:
            # The RAG was removed from the configuration, so its folders are unknown.
            folder = None
        if folder is None:
            return None
        write_error = rags.write_error_file(folder, message.filename, record)
        arrival = self._managed_file(job)
        if arrival is None:
            return rags.Moved(message.source_path, write_error) if write_error else None
        left = self._leave_to_other_job(job, arrival, file)
        if left is not None:
            return left
        target = folder / message.filename
        moved = rags.move(
            Path(arrival.read_from), target, part=job.queue_id, is_same_file=_older_file_test(job)
        )
        return rags.Moved(moved.path, moved.error or write_error)

    def _managed_file(self, job: Job) -> DeliveredFile | None:
        metadata = msgspec.json.decode(job.metadata)
        return delivered_file_of(metadata) if metadata.get(messages.MANAGED) else None

    def _leave_to_other_job(self, job: Job, arrival: DeliveredFile, file: str) -> rags.Moved | None:
        """Leave the file in place while another job works on the same file; the other job moves the file."""
        others = self._lists.list_open_jobs(job.queue_id, file)
        return rags.Moved(arrival.read_from, f"it is left to job {others[0]}") if others else None

    def _indexed_file_test(self, job: Job) -> rags.FileTest:
        """Return a test for the indexed file, which compares size and time as a walk does."""
        try:
            source = self._documents.source(
                job.payload["file_path"],
                tenant_id=job.tenant_id,
                collection=job.collection,
                branch=job.branch,
            )
        except UnknownDocument:
            return _older_file_test(job)
        return lambda found: (found.st_size, found.st_mtime_ns) == (source.size, source.mtime_ns)


def _older_file_test(job: Job) -> rags.FileTest:
    """Return a test for files in place before the job ended.

    A file that was missing when the job looked for it was never read, however soon it came.
    """
    if job.error_code == "ERR_FILE_NOT_FOUND":
        return lambda _: False
    end = (job.finished_at or clock.now()) + _CLOCKS_DIFFER

    def is_same_file(found: os.stat_result) -> bool:
        return found.st_ctime <= end.timestamp()

    return is_same_file


def _message_of(job: Job) -> Message | None:
    if job.submitted_by != "redis":
        return None
    raw = _raw_of(job)
    try:
        return read(raw) if isinstance(raw, dict) else None
    except InvalidRequest:
        log.warning("job %s has a message that cannot be read any more", job.queue_id)
        return None


def _raw_of(job: Job) -> Any:
    return msgspec.json.decode(job.metadata).get(messages.MESSAGE)


class TenantErasure:
    """Erases hashes and dead letters of the RAGs of deleted tenants.

    ``delete-tenant`` removes jobs and documents, but does not know the server of the contract. Each gateway
    does it for the RAGs of its configuration once the delete is done.
    """

    def __init__(self, jobs: Jobs, lists: Lists, rags: Rags) -> None:
        self._jobs = jobs
        self._lists = lists
        self._rags = rags
        self._erased: set[str] = set()
        """Delete jobs that are complete here. A restarted gateway checks them once more."""

    def erase_deleted(self) -> None:
        """Erase the remains of all deleted tenants."""
        done = JobQuery(
            item_type="delete_tenant", statuses=frozenset({Status.DONE}), newest_first=True, limit=MAX_PAGE
        )
        for job in self._jobs.queue.find(done):
            rag_ids = self._rag_ids(job.payload["tenant_id_to_delete"])
            if job.queue_id not in self._erased and (not rag_ids or self._erase(job, rag_ids)):
                self._erased.add(job.queue_id)

    def _rag_ids(self, tenant_id: str) -> frozenset[str]:
        default = self._jobs.settings.tenant_id
        rags = self._rags.by_id.values()
        return frozenset(rag.rag_id for rag in rags if (rag.tenant_id or default) == tenant_id)

    def _erase(self, delete: Job, rag_ids: Collection[str]) -> bool:
        """Erase the remains of one tenant. False: a removed job is still open in Redis."""
        until = clock.format_time(delete.finished_at or delete.updated_at)
        hashes, removed, complete = 0, [], True
        for job_id, shown in self._lists.hashes():
            if shown["rag_id"] not in rag_ids or self._jobs.queue.get(job_id) is not None:
                continue
            if not shown["completed_at"]:
                # The job was open when the tenant was deleted. A message pushed since is in the queue, or
                # still in a list.
                complete = complete and not self._lists.is_open(job_id)
            elif shown["error_code"] == _REMOVED or shown["completed_at"] <= until:
                hashes += self._lists.erase(job_id)
                if shown["error_code"] == _REMOVED:
                    removed.append(job_id)
        self._lists.forget_files(removed)
        # Read all before the first removal: a removal moves the others.
        letters = [raw for raw in self._lists.letters() if _is_erasable(_read_letter(raw), rag_ids, until)]
        for raw in letters:
            self._lists.erase_letter(raw)
        if hashes or letters:
            log.info("%d hashes and %d dead letters of a deleted tenant erased", hashes, len(letters))
        return complete


def _is_erasable(letter: dict[str, Any], rag_ids: Collection[str], until: str) -> bool:
    message = letter.get("message")
    message = message if isinstance(message, dict) else {}
    rag_id = letter.get("rag_id") or message.get("rag_id")
    if rag_id not in rag_ids and letter.get("list") not in {lists.list_key(each) for each in rag_ids}:
        return False
    at = letter.get("at") or letter.get("failed_at")
    return not isinstance(at, str) or at <= until


def _read_letter(raw: bytes) -> dict[str, Any]:
    try:
        letter = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
    return letter if isinstance(letter, dict) else {}
