"""Explanations for people: why a job is waiting, and the history of jobs and documents."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from penstock import vocabulary
from penstock.catalog.values import Document, DocumentEvent, GenerationState, Phase, Source
from penstock.dependencies import Dependencies, dependencies_of
from penstock.job import CHILDREN, Held, Job, JobQuery, Position, Scope, Status, WorkerReport
from penstock.queue.protocol import POSITION_CAP, Queue
from penstock.service.responses import HistoryEntry
from penstock.vocabulary import how_many

ENDINGS = frozenset({"failed", "lost", "cancelled"})
"""Events which end a job; with one of them the end itself needs no entry."""


def reason(queue: Queue, job: Job, position: Position | None, heartbeat_s: float) -> str | None:
    """The reason why a job is waiting; None for a job free to start."""
    if job.status is Status.IN_PROGRESS:
        return _running(job)
    if job.status is not Status.PENDING:
        return None
    if job.held is Held.LIMIT or (job.held is Held.TIME and job.limit_at is not None):
        return _limited(queue, job)
    if job.held is Held.TIME and job.run_at is not None:
        return _until(job, job.run_at, queue.now())
    if job.held is Held.LOCK:
        return _locked(queue, job)
    if job.held is Held.AFTER:
        return _dependent(queue, job)
    scope = _covering(queue.paused(), job)
    if job.held is Held.PAUSE or scope is not None:
        return _paused(scope)
    return _queued(position, idle=not living_workers(queue, heartbeat_s))


def living_workers(queue: Queue, heartbeat_s: float) -> list[WorkerReport]:
    """Workers that reported within the last two heartbeats, and not their end."""
    now = queue.now()
    return [worker for worker in queue.workers() if worker.alive(now, heartbeat_s)]


def _running(job: Job) -> str | None:
    stopping = "cancel requested; " if job.cancel_requested else ""
    if job.waiting_for == CHILDREN and job.waiting:
        return f"{stopping}waits for {how_many(job.children_open, 'child job')}"
    if job.waiting:
        return f"{stopping}waits for {job.waiting_for}"
    return "cancel requested; stops at the next checkpoint" if job.cancel_requested else None


def _until(job: Job, run_at: datetime, now: datetime) -> str:
    moment = run_at.strftime("%Y-%m-%d %H:%M:%S UTC")
    if run_at <= now:
        return f"was held until {moment}; the next claim takes this job"
    if job.history and job.history[-1].what == "released":
        return f"held until {moment}, no retry spent ({job.error_code}): {job.history[-1].note}"
    if job.retry_count or job.error_code:
        return f"held until {moment}: retry {job.retry_count} of {job.max_retries} after {job.error_code}"
    return f"held until {moment}, as requested"


def _limited(queue: Queue, job: Job) -> str:
    """Name the limit of a waiting job, and the start time if known."""
    if job.limit_at is not None:
        return f"limit {job.limit_key}: may start at {_second(job.limit_at)}"
    limit = next((one for one in queue.limits() if one.key == job.limit_key), None)
    if limit is None:
        return f"limit {job.limit_key} was removed; the next upkeep releases this job"
    if limit.concurrent is not None and queue.slots_of(limit.key) >= limit.concurrent:
        most = how_many(limit.concurrent, "job")
        return f"limit {limit.key}: {most} at once, and all slots are taken; starts after one of them ends"
    if limit.next_at is not None and limit.next_at > queue.now():
        return f"limit {limit.key}: {limit.rate}, the next start is at {_second(limit.next_at)}"
    return f"limit {limit.key}: {limit.rate or limit.concurrent}; jobs of the key before this one go first"


def _second(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M:%S UTC")


def _dependent(queue: Queue, job: Job) -> str:
    """Name the first unfinished dependency, and the number of others."""
    after = dependencies_of(job).after
    live = [found for found in map(queue.get, after) if found is not None and not found.ended]
    if not live:
        return "the jobs it waited for have ended; the next upkeep releases it"
    more = f" and {how_many(len(live) - 1, 'other job')}" if len(live) > 1 else ""
    return f"waiting for {live[0].queue_id} ({vocabulary.speak(live[0].status, 'cli')}){more}"


def first_dependency(found: Dependencies) -> str:
    """The dependencies of a job by the row alone, without reading other rows."""
    more = f" and {how_many(len(found.after) - 1, 'other job')}" if len(found.after) > 1 else ""
    return f"waiting for {found.after[0]}{more}"


def _locked(queue: Queue, job: Job) -> str:
    holder = _holder(queue, job)
    return f"held by the lock of {holder.queue_id}" if holder else "held by a lock that is being handed over"


def _holder(queue: Queue, job: Job) -> Job | None:
    """Find the job with the lock. It may be pending: in back-off, or released by its limit."""
    running = JobQuery(lock_key=job.lock_key, statuses=frozenset({Status.IN_PROGRESS}), limit=1)
    backing_off = JobQuery(
        lock_key=job.lock_key, statuses=frozenset({Status.PENDING}), held=Held.TIME, limit=100
    )
    released = JobQuery(lock_key=job.lock_key, statuses=frozenset({Status.PENDING}), limit=100)
    for query in (running, backing_off, released):
        for other in queue.find(query):
            if other.lock_held:
                return other
    return None


def _covering(paused: Collection[Scope], job: Job) -> Scope | None:
    return next((scope for scope in sorted(paused) if scope.covers(job.tenant_id, job.collection)), None)


def _paused(scope: Scope | None) -> str:
    if scope is None:
        return "was paused; is being resumed"
    if scope == Scope():
        return "everything is paused"
    named = {"tenant": scope.tenant_id, "collection": scope.collection}
    return "paused: " + ", ".join(f"{noun} {name}" for noun, name in named.items() if name != "*")


def _queued(position: Position | None, *, idle: bool) -> str:
    if position is None:
        return "was claimed just now"
    unserved = "; no worker is running" if idle else ""
    # The first number is that of the position which is shown beside it; jobs of other kinds come after it.
    others = max(position.jobs_ahead - position.ahead, 0)
    if position.ahead == 0 and not others:
        return "next in line" + unserved
    least = "" if position.jobs_ahead < POSITION_CAP else "at least "
    parts = how_many(min(others, POSITION_CAP), "call or part of a folder", "calls or parts of folders")
    if position.ahead == 0:
        return f"next in line after {least}{parts}{unserved}"
    ahead = least + how_many(min(position.ahead, POSITION_CAP), "job is", "jobs are") + " ahead"
    return f"{ahead}, and {parts}{unserved}" if others else ahead + unserved


def history(job: Job) -> list[HistoryEntry]:
    """Events of a job, oldest first: submitted, started and ended from its columns, the rest as stored."""
    departures = [HistoryEntry(event.at, event.what, event.note, event.worker_id) for event in job.history]
    entries = [HistoryEntry(job.created_at, "submitted", f"by {job.submitted_by}")]
    if job.started_at is not None:
        entries.append(HistoryEntry(job.started_at, "started", f"run {job.run}", job.worker_id))
    entries += departures
    if job.finished_at is not None and not _has_end(departures, job.finished_at):
        entries.append(HistoryEntry(job.finished_at, job.status.value, job.error_message, job.worker_id))
    # Sorting is stable: events of one moment stay in the order above.
    return sorted(entries, key=lambda entry: entry.at)


def history_of(
    source: Source | None, events: Sequence[DocumentEvent], generations: Sequence[Document]
) -> list[HistoryEntry]:
    """Events of a document, oldest first, including generations under construction."""
    entries = [HistoryEntry(event.at, event.what, _about(event)) for event in events]
    began = {datetime.fromisoformat(event.note) for event in events if event.what == "removed"}
    if source is not None and source.published_at is not None:
        began.add(source.created_at)
    entries += [HistoryEntry(at, "indexed") for at in began]
    for document in generations:
        if document.state is GenerationState.BUILDING and document.settled:
            error = document.phases[Phase.OCR].error or document.phases[Phase.VECTOR].error
            entries.append(HistoryEntry(document.created_at, "failed", error or document.note))
        elif document.state is GenerationState.BUILDING:
            entries.append(HistoryEntry(document.created_at, "being indexed", document.note))
        elif document.state is GenerationState.DROPPED:
            entries.append(HistoryEntry(document.created_at, "given up", document.note))
    # Sorting is stable: "indexed" comes before other events of the same moment.
    return sorted(sorted(entries, key=lambda entry: entry.what != "indexed"), key=lambda entry: entry.at)


def _about(event: DocumentEvent) -> str:
    note = {"renamed": f"{event.path} → {event.note}", "removed": event.path}.get(event.what, event.note)
    return f"{note} (job {event.job_id})" if event.job_id else note


def _has_end(departures: list[HistoryEntry], finished_at: datetime) -> bool:
    return any(entry.at == finished_at and entry.what in ENDINGS for entry in departures)
