"""What rows say to a person: why a job is not running, and what happened to it, or to a document."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from penstock.catalog.values import GenerationState
from penstock.catalog.views import Document, DocumentEvent, Source
from penstock.job import CHILDREN, Held, Job, JobQuery, Position, Scope, Status
from penstock.queue.protocol import POSITION_CAP, Queue
from penstock.service.responses import HistoryEntry
from penstock.vocabulary import how_many

ENDINGS = frozenset({"failed", "lost", "cancelled"})
"""Departures that are ends: with one of them the end itself needs no entry of its own."""


def reason(queue: Queue, job: Job, position: Position | None) -> str | None:
    """Why a pending job is not running, or what one in progress waits for; None when nothing holds it up."""
    if job.status is Status.IN_PROGRESS:
        return _running(job)
    if job.status is not Status.PENDING:
        return None
    if job.held is Held.TIME and job.run_at is not None:
        return _until(job, job.run_at, queue.now())
    if job.held is Held.LOCK:
        return _locked(queue, job)
    scope = _covering(queue.paused(), job)
    if job.held is Held.PAUSE or scope is not None:
        return _paused(scope)
    return _queued(queue, position)


def _running(job: Job) -> str | None:
    stopping = "cancel requested; " if job.cancel_requested else ""
    if job.waiting_for == CHILDREN and job.waiting:
        return f"{stopping}waits for {job.children_open:,} of its children"
    if job.waiting:
        return f"{stopping}waits for {job.waiting_for}"
    return "cancel requested; stops at the next checkpoint" if job.cancel_requested else None


def _until(job: Job, run_at: datetime, now: datetime) -> str:
    moment = run_at.strftime("%Y-%m-%d %H:%M:%S UTC")
    if run_at <= now:
        return f"was held until {moment}; the next claim takes it up"
    if job.history and job.history[-1].what == "released":
        return f"held until {moment}, no retry spent ({job.error_code}): {job.history[-1].note}"
    if job.retry_count or job.error_code:
        return f"held until {moment}: retry {job.retry_count} of {job.max_retries} after {job.error_code}"
    return f"held until {moment}, as asked"


def _locked(queue: Queue, job: Job) -> str:
    holder = _holder(queue, job)
    return f"held by the lock of {holder.queue_id}" if holder else "held by a lock that is being passed on"


def _holder(queue: Queue, job: Job) -> Job | None:
    """A lock is kept through back-off and release, so its holder need not be running."""
    running = JobQuery(lock_key=job.lock_key, statuses=frozenset({Status.IN_PROGRESS}), limit=1)
    backing_off = JobQuery(
        lock_key=job.lock_key, statuses=frozenset({Status.PENDING}), held=Held.TIME, limit=100
    )
    for query in (running, backing_off):
        for other in queue.find(query):
            if other.lock_held:
                return other
    return None


def _covering(paused: Collection[Scope], job: Job) -> Scope | None:
    return next((scope for scope in sorted(paused) if scope.covers(job.tenant_id, job.collection)), None)


def _paused(scope: Scope | None) -> str:
    if scope is None:
        return "was paused; is being released"
    if scope == Scope():
        return "everything is paused"
    named = {"tenant": scope.tenant_id, "collection": scope.collection}
    return "paused: " + ", ".join(f"{kind} {name}" for kind, name in named.items() if name != "*")


def _queued(queue: Queue, position: Position | None) -> str:
    if position is None:
        return "was claimed a moment ago"
    idle = "" if queue.workers() else "; no worker has reported"
    if position.ahead == 0:
        return "next in line" + idle
    least = "" if position.ahead < POSITION_CAP else "at least "
    return least + how_many(min(position.ahead, POSITION_CAP), "job is", "jobs are") + " ahead" + idle


def history(job: Job) -> list[HistoryEntry]:
    """The plain path from the columns and the departures from it, in the order of time."""
    departures = [HistoryEntry(event.at, event.what, event.note, event.worker_id) for event in job.history]
    entries = [HistoryEntry(job.created_at, "submitted", f"by {job.submitted_by}")]
    if job.started_at is not None:
        entries.append(HistoryEntry(job.started_at, "started", f"run {job.run}", job.worker_id))
    entries += departures
    if job.finished_at is not None and not _told(departures, job.finished_at):
        entries.append(HistoryEntry(job.finished_at, job.status.value, job.error_message, job.worker_id))
    # Sorting is stable: what has one time stays in the order above.
    return sorted(entries, key=lambda entry: entry.at)


def history_of(
    source: Source | None, events: Sequence[DocumentEvent], generations: Sequence[Document]
) -> list[HistoryEntry]:
    """Of a document: when it was first indexed, what came after, and what is under way."""
    entries = [HistoryEntry(event.at, event.what, _about(event)) for event in events]
    began = {datetime.fromisoformat(event.note) for event in events if event.what == "removed"}
    if source is not None:
        began.add(source.created_at)
    entries += [HistoryEntry(at, "indexed") for at in began]
    for document in generations:
        if document.state is GenerationState.BUILDING:
            entries.append(HistoryEntry(document.created_at, "being indexed", document.note))
        elif document.state is GenerationState.DROPPED:
            entries.append(HistoryEntry(document.created_at, "given up", document.note))
    # Sorting is stable: what was first indexed comes before what happened at the same moment.
    return sorted(sorted(entries, key=lambda entry: entry.what != "indexed"), key=lambda entry: entry.at)


def _about(event: DocumentEvent) -> str:
    told = {"renamed": f"{event.path} → {event.note}", "removed": event.path}.get(event.what, event.note)
    return f"{told} (job {event.job_id})" if event.job_id else told


def _told(departures: list[HistoryEntry], finished_at: datetime) -> bool:
    return any(entry.at == finished_at and entry.what in ENDINGS for entry in departures)
