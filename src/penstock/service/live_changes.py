"""Live state of a server: changes of jobs and documents for streams of events, and the throughput of workers.

The stores keep no log of changes that costs nothing, so a look reads few rows: new jobs by id, running jobs,
and the jobs seen before that have not ended. A burst of more changes than a look reads is reported as
incomplete.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from penstock import clock
from penstock.catalog.values import Document, GenerationState, Phase
from penstock.errors import PenstockError
from penstock.queue.job import Job, JobQuery, Status
from penstock.queue.protocol import Queue
from penstock.service.documents import Documents
from penstock.service.job_views import JobRecord, JobRecords
from penstock.service.jobs import Jobs
from penstock.service.keys import write_private

_MOST_NEW, _MOST_RUNNING = 200, 200
"""Jobs read in one look; of documents a quarter."""
_MOST_LIVE = 2_000
"""Jobs that are followed until they end."""
_REREAD = 100
"""Followed jobs, neither new nor running, that one look reads again."""
_MOST_WATCHED = 500
"""Jobs with a stream of their own that one look reads."""
_FILE = "history.json"
LANES = ("jobs", *map(str, Phase))
_KEPT = timedelta(hours=24)
_MINUTE_S = 60
_RATE_WINDOW_S = 300
_LEAST_WINDOW_S = 10
"""Rates are not computed from less."""
_LOOK_EVERY_S = 5.0
_MOST_WORKERS = 1_000
log = logging.getLogger("penstock.http")


class Change(msgspec.Struct, frozen=True):
    """An event: kind, data, and the tenant for access control."""

    kind: str
    tenant_id: str
    data: object


class Changes(msgspec.Struct, frozen=True):
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
        for job_id in sorted(watched)[:_MOST_WATCHED]:
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
            JobQuery(statuses=frozenset({Status.IN_PROGRESS}), top_level=True, limit=_MOST_RUNNING)
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
        return ([] if first else changed), len(new) < _MOST_NEW or first

    def _new(self) -> list[Job]:
        """Jobs added since the last read. The first read follows the newest pending ones."""
        if self._newest is None:
            newest = self._queue.find(JobQuery(newest_first=True, limit=1))
            self._newest = newest[0].queue_id if newest else ""
            pending = frozenset({Status.PENDING})
            return self._queue.find(
                JobQuery(statuses=pending, top_level=True, newest_first=True, limit=_MOST_NEW)
            )
        # Newest first: after a burst the rest is left out, and the look is reported as incomplete.
        query = JobQuery(top_level=True, newest_first=True, limit=_MOST_NEW)
        new = [job for job in self._queue.find(query) if job.queue_id > self._newest]
        self._newest = max([self._newest, *(job.queue_id for job in new)])
        return new

    def _unread(self, found: Collection[str]) -> list[str]:
        """Followed jobs to be read: formerly running ones, and some of the others in turn."""
        ended = [
            job_id
            for job_id, signature in self._seen.items()
            if job_id not in found and signature[0] is Status.IN_PROGRESS
        ][:_REREAD]
        due: list[str] = []
        for _ in range(min(len(self._turn), _REREAD)):
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
        while len(self._seen) > _MOST_LIVE:
            del self._seen[next(iter(self._seen))]


class _LiveDocuments:
    def __init__(self, documents: Documents) -> None:
        self._catalog = documents.catalog
        self._newest: int | None = None
        self.building: dict[int, Document] = {}

    def read(self) -> tuple[list[DocumentChange], bool]:
        most = _MOST_NEW // 4
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
        self.building = {one.document_id: one for one in live[-_MOST_NEW // 4 :]}


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


class _LaneMinute(msgspec.Struct, array_like=True):
    """One lane in one minute: tasks waiting at the end, their estimated minutes of work, done and failed."""

    waiting: int | None = None
    minutes_waiting: float | None = None
    done: int = 0
    failed: int = 0


class _StoredHistory(msgspec.Struct):
    """The file: totals, counts of each worker at the last look, and minutes by their number since 1970."""

    looked_at: datetime
    totals: dict[str, int] = {}
    workers: dict[str, dict[str, int]] = {}
    minutes: dict[int, dict[str, _LaneMinute]] = {}


class LaneHistory(msgspec.Struct, frozen=True, kw_only=True):
    """One lane by steps, oldest first; None is unknown."""

    lane: str
    waiting: list[int | None]
    minutes_waiting: list[float | None]
    done: list[int | None]
    failed: list[int | None]


class History(msgspec.Struct, frozen=True, kw_only=True, rename={"since": "from"}):
    """Lanes by steps of ``step_s`` seconds, from a time on."""

    step_s: int
    since: datetime
    lanes: list[LaneHistory]


class Throughput:
    """Counts of all workers, as one server saw them: totals, rates of the last minutes, a day of history.

    Workers count in their own memory and report the counts with their heartbeat. A server adds up what was
    added since its last look, so a worker that ends, or a server that restarts, takes nothing away from the
    totals. One thread looks; others read.
    """

    def __init__(self, queue: Queue, waiting: Callable[[], dict[str, int]], state_dir: Path) -> None:
        self._queue = queue
        self._waiting = waiting
        self._path = state_dir / _FILE
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._stored = self._read()
        self._recent: deque[tuple[float, dict[str, int]]] = deque()
        self._written_minute = 0
        self._failed = False

    def start(self) -> None:
        """Look every few seconds, until ``close``."""
        self._thread = threading.Thread(target=self._run, name="history", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(_LOOK_EVERY_S)
            self._write()

    def totals(self) -> dict[str, int]:
        """Counts of all workers since the first look."""
        with self._lock:
            return dict(self._stored.totals)

    def rate(self, lane: str) -> tuple[float, int] | None:
        """Ends a second in a lane, and the seconds of the window; None before there is a window."""
        with self._lock:
            if not self._recent:
                return None
            (first_at, first), (last_at, last) = self._recent[0], self._recent[-1]
        if last_at - first_at < _LEAST_WINDOW_S:
            return None
        names = (f"{lane}_done", f"{lane}_failed")
        ended = sum(last.get(name, 0) - first.get(name, 0) for name in names)
        return ended / (last_at - first_at), round(last_at - first_at)

    def history(self, window: timedelta, step: timedelta, now: datetime | None = None) -> History:
        """The lanes over a window that ends now, by steps of whole minutes, at most the window."""
        kept = min(window, _KEPT)
        minutes = max(int(min(step, kept).total_seconds()) // _MINUTE_S, 1)
        last = int((now or clock.now()).timestamp()) // _MINUTE_S
        steps = max(int(kept.total_seconds()) // (minutes * _MINUTE_S), 1)
        first = last + 1 - steps * minutes
        with self._lock:
            found = {minute: dict(lanes) for minute, lanes in self._stored.minutes.items() if minute >= first}
        starts = range(first, last + 1, minutes)
        return History(
            step_s=minutes * _MINUTE_S,
            since=datetime.fromtimestamp(first * _MINUTE_S, tz=clock.now().tzinfo),
            lanes=[
                _lane_history(
                    lane, [[found.get(start + place) for place in range(minutes)] for start in starts]
                )
                for lane in LANES
            ],
        )

    def look(self) -> None:
        """Add the work done since the last call to the current minute."""
        workers = {report.worker_id: report for report in self._queue.workers()}
        waiting = self._waiting()
        now = clock.now()
        with self._lock:
            stored, added = self._stored, dict[str, int]()
            counts: dict[str, dict[str, int]] = {}
            for worker_id, report in workers.items():
                counted = report.info.get("counters") or {}
                counts[worker_id] = counted
                # Work done before the first reading belongs to no minute.
                known = stored.workers.get(worker_id, counted if report.started_at < stored.looked_at else {})
                for name, number in counted.items():
                    added[name] = added.get(name, 0) + max(number - known.get(name, 0), 0)
            stored.workers = dict(list(counts.items())[-_MOST_WORKERS:])
            stored.looked_at = now
            stored.totals = {
                name: stored.totals.get(name, 0) + added.get(name, 0) for name in {*stored.totals, *added}
            }
            self._recent.append((clock.elapsed_s(), stored.totals))
            while self._recent[-1][0] - self._recent[0][0] > _RATE_WINDOW_S:
                self._recent.popleft()
        self._note(int(now.timestamp()) // _MINUTE_S, added, waiting)

    def _note(self, minute: int, added: dict[str, int], waiting: dict[str, int]) -> None:
        rates = {lane: self.rate(lane) for lane in LANES}
        with self._lock:
            lanes = self._stored.minutes.setdefault(minute, {lane: _LaneMinute() for lane in LANES})
            for lane, noted in lanes.items():
                noted.waiting = waiting.get(lane)
                noted.done += added.get(f"{lane}_done", 0)
                noted.failed += added.get(f"{lane}_failed", 0)
                rate = rates.get(lane)
                noted.minutes_waiting = 0.0 if noted.waiting == 0 else None
                if noted.waiting and rate is not None and rate[0] > 0:
                    noted.minutes_waiting = round(noted.waiting / rate[0] / 60, 2)
            oldest = minute - int(_KEPT.total_seconds()) // _MINUTE_S
            self._stored.minutes = {one: found for one, found in self._stored.minutes.items() if one > oldest}
            write = minute != self._written_minute
            self._written_minute = minute
        if write:
            self._write()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self.look()
                self._failed = False
            except PenstockError as error:
                if not self._failed:
                    log.warning("the history of the queue has a gap: %s", error)
                self._failed = True
            self._stop.wait(_LOOK_EVERY_S)

    def _write(self) -> None:
        with self._lock:
            text = msgspec.json.encode(self._stored)
        try:
            write_private(self._path, text)
        except PenstockError as error:
            log.warning("the history of the queue is not kept: %s", error)

    def _read(self) -> _StoredHistory:
        """The stored history; empty if unreadable: nothing depends on the history."""
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=_StoredHistory)
        except FileNotFoundError:
            pass
        except (OSError, msgspec.DecodeError) as error:
            log.warning("%s cannot be read, the history begins again: %s", self._path, error)
        return _StoredHistory(looked_at=clock.now())


def _lane_history(lane: str, steps: list[list[dict[str, _LaneMinute] | None]]) -> LaneHistory:
    found = [[one[lane] for one in minutes if one is not None and lane in one] for minutes in steps]
    return LaneHistory(
        lane=lane,
        waiting=[each[-1].waiting if each else None for each in found],
        minutes_waiting=[each[-1].minutes_waiting if each else None for each in found],
        done=[sum(one.done for one in each) if each else None for each in found],
        failed=[sum(one.failed for one in each) if each else None for each in found],
    )
