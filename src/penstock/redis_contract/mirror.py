"""From jobs to hashes: what the queue says of a job, its hash in Redis says soon after."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

from penstock import clock
from penstock.delivered_file import DeliveredFile, delivered_file_of
from penstock.errors import InvalidRequest, UnknownDocument, UnknownRag
from penstock.job import Job, JobQuery, Status
from penstock.redis_contract import fields, inbox, keys
from penstock.redis_contract.lists import Lists
from penstock.redis_contract.message import Message, read
from penstock.redis_contract.rags import FAILED, Rags
from penstock.redis_contract.tenant_erasure import REMOVED
from penstock.service.documents import Documents
from penstock.service.jobs import MAX_PAGE, Jobs

AT_ONCE = 200
"""Jobs looked at in one step."""
LIVE = frozenset({Status.PENDING, Status.IN_PROGRESS})
ENDED = frozenset(Status) - LIVE
CLOCKS_DIFFER = timedelta(seconds=1)
"""A file's times come from another clock than a job's."""

log = logging.getLogger("penstock.gateway")


class Mirror:
    def __init__(self, jobs: Jobs, documents: Documents, lists: Lists, rags: Rags) -> None:
        self._jobs = jobs
        self._documents = documents
        self._lists = lists
        self._rags = rags
        self._shown: dict[str, dict[str, str]] = {}
        """What was last written for each job that is this gateway's."""

    def add(self, job_ids: Iterable[str]) -> None:
        for job_id in job_ids:
            self._shown.setdefault(job_id, {})

    def reload(self) -> bool:
        """Ask Redis which jobs are ours; what is told of each is written anew. True: some are no more, as
        they are another's now, or Redis lost its memory."""
        before = self._shown
        self._shown = {job_id: before.get(job_id, {}) for job_id in self._lists.mine()}
        return not before.keys() <= self._shown.keys()

    def adopt(self) -> None:
        """Jobs of messages that nobody mirrors: Redis lost its memory, or somebody put them back."""
        after: str | None = None
        while True:
            page = self._jobs.queue.find(JobQuery(statuses=LIVE, top_level=True, after=after, limit=MAX_PAGE))
            self._lists.adopt([job.queue_id for job in page if _message_of(job) is not None])
            if len(page) < MAX_PAGE:
                return
            after = page[-1].queue_id

    def untold(self) -> list[str]:
        """Jobs that ended while nobody mirrored them and Redis forgot them: their file still lies where it
        was then, and no hash tells of their end."""
        waiting = self._rags.incoming()
        found: list[str] = []
        after: str | None = None
        while waiting:
            ended = JobQuery(statuses=ENDED, item_type="file", top_level=True, after=after, limit=MAX_PAGE)
            page = self._jobs.queue.find(ended)
            found += [job.queue_id for job in page if self._lies_there(job, waiting)]
            if len(page) < MAX_PAGE:
                break
            after = page[-1].queue_id
        return [job_id for job_id in found if self._lists.owns(job_id)]

    def _lies_there(self, job: Job, waiting: Mapping[str, os.stat_result]) -> bool:
        if job.submitted_by != "redis" or _message_of(job) is None:
            return False
        arrival = self._managed(job)
        found = waiting.get(arrival.read_from) if arrival is not None else None
        # Strictly: another file may have taken its place right after, whose message is yet to come.
        return (
            found is not None
            and job.finished_at is not None
            and found.st_ctime <= job.finished_at.timestamp()
        )

    def counts(self) -> dict[str, int]:
        """Of the jobs that have not ended: how many wait, how many are being worked on."""
        found = Counter(shown.get("status", "queued") for shown in list(self._shown.values()))
        return {"queued": found["queued"], "processing": found["processing"]}

    def step(self) -> bool:
        """Look at some jobs; True when something was written."""
        wrote = False
        for job_id in list(self._shown)[:AT_ONCE]:
            # To the end of the line, so that all have their turn.
            shown = self._shown.pop(job_id)
            kept, changed = self._look(job_id, shown)
            if kept is not None:
                self._shown[job_id] = kept
            wrote = wrote or changed
        return wrote

    def _look(self, job_id: str, shown: dict[str, str]) -> tuple[dict[str, str] | None, bool]:
        """What its hash says now, None when it is not ours to say more; and whether anything was written."""
        job = self._jobs.queue.get(job_id)
        message = _message_of(job) if job is not None else None
        if job is None or message is None:
            return None, self._removed(job_id)
        if job.ended:
            return None, self._ended(job, message)
        now = fields.of_job(job, message, self._so_far(job))
        if now == shown:
            return shown, False
        return (now if self._lists.mirror(job_id, _stamped(now)) else None), True

    def _so_far(self, job: Job) -> fields.Count:
        if not job.waiting or not (job.waiting_for or "").isdecimal():
            return fields.Count()
        progress = self._documents.progress(int(job.waiting_for or 0))
        if progress is None:
            return fields.Count()
        return fields.Count(progress.total_chunks, progress.vector_completed_chunks)

    # Ends.

    def _removed(self, job_id: str) -> bool:
        gone = {
            "status": "failed",
            "completed_at": clock.format_time(clock.now()),
            "error": "the job was removed from the queue before its end was seen",
            "error_type": "Removed",
            "error_code": REMOVED,
        }
        return self._lists.finish(job_id, _stamped(gone))

    def _ended(self, job: Job, message: Message) -> bool:
        """The file first: whoever reads ``done`` finds it in its place."""
        if not self._lists.owns(job.queue_id):
            return False
        shown = fields.of_job(job, message, fields.Count())
        letter = None
        file = keys.file_key(message.rag_id, job.payload["file_path"])
        if job.status is Status.DONE:
            moved = self._processed(job, file)
        else:
            told = fields.trouble_of(job, message)
            record = fields.error_record(shown, told, (job.progress or {}).get("traceback"))
            moved = self._failed(job, message, record, file)
            log.warning("job %s failed: %s (%s)", job.queue_id, told.error, told.error_code)
            letter = record | {"code": told.error_code, "reason": told.error, "message": _raw_of(job)}
        if moved is not None:
            shown |= {"file": moved.path, "file_error": moved.trouble}
        return self._lists.finish(job.queue_id, _stamped(shown), file=file, letter=letter)

    def _processed(self, job: Job, file: str) -> inbox.Moved | None:
        arrival = self._managed(job)
        if arrival is None:
            return None
        left = self._left_to_another(job, arrival, file)
        if left is not None:
            return left
        target = Path(job.payload["file_path"])
        source = Path(arrival.read_from)
        moved = inbox.move(source, target, part=job.queue_id, is_it=self._indexed(job))
        if not moved.trouble:
            inbox.remove_beside(source, target.name)
        return moved

    def _failed(self, job: Job, message: Message, record: dict[str, Any], file: str) -> inbox.Moved | None:
        try:
            folder = self._rags.get(message.rag_id).folder(FAILED)
        except UnknownRag:
            # The configuration lost it meanwhile: nobody knows its folders any more.
            folder = None
        if folder is None:
            return None
        complaint = inbox.write_error(folder, message.filename, record)
        arrival = self._managed(job)
        if arrival is None:
            return inbox.Moved(message.source_path, complaint) if complaint else None
        left = self._left_to_another(job, arrival, file)
        if left is not None:
            return left
        target = folder / message.filename
        moved = inbox.move(Path(arrival.read_from), target, part=job.queue_id, is_it=_not_after(job))
        return inbox.Moved(moved.path, moved.trouble or complaint)

    def _managed(self, job: Job) -> DeliveredFile | None:
        metadata = msgspec.json.decode(job.metadata)
        return delivered_file_of(metadata) if metadata.get(fields.MANAGED) else None

    def _left_to_another(self, job: Job, arrival: DeliveredFile, file: str) -> inbox.Moved | None:
        """While another message for the same file is at work, it is that one's to move."""
        others = self._lists.others(job.queue_id, file)
        return inbox.Moved(arrival.read_from, f"it is left to job {others[0]}") if others else None

    def _indexed(self, job: Job) -> inbox.IsIt:
        """Whether a file is the one that can be found now, by size and time as a walk compares them."""
        try:
            source = self._documents.source(
                job.payload["file_path"],
                tenant_id=job.tenant_id,
                collection=job.collection,
                branch=job.branch,
            )
        except UnknownDocument:
            return _not_after(job)
        return lambda found: (found.st_size, found.st_mtime_ns) == (source.size, source.mtime_ns)


def _not_after(job: Job) -> inbox.IsIt:
    """Whether a file was in its place before the job ended. One that was not there when the job looked for it
    was never read, however soon it came."""
    if job.error_code == "ERR_FILE_NOT_FOUND":
        return lambda _: False
    end = (job.finished_at or clock.now()) + CLOCKS_DIFFER

    def is_it(found: os.stat_result) -> bool:
        return found.st_ctime <= end.timestamp()

    return is_it


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
    return msgspec.json.decode(job.metadata).get(fields.MESSAGE)


def _stamped(shown: dict[str, str]) -> dict[str, str]:
    return shown | {"updated_at": clock.format_time(clock.now())}
