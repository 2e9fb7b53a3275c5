"""Explanations: why search does or does not find a path, why a job waits, and what happened to both."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Literal, TypeAlias, TypeVar

import msgspec

from penstock import vocabulary
from penstock.catalog.protocol import BATCH, Catalog, CatalogSnapshot, failures_below
from penstock.catalog.rules.publication import CONTENT_CODES, remedy_for
from penstock.catalog.values import (
    MAX_WARNINGS,
    Document,
    DocumentEvent,
    GenerationState,
    KnownSource,
    LedgerEntry,
    LedgerKind,
    MissingPart,
    PathReport,
    Phase,
    Place,
    RecognizedPages,
    Source,
    TaskStatus,
    shortened,
)
from penstock.handlers import members
from penstock.handlers.members import NOT_READ, container_of, may_hold_members
from penstock.pipeline.extract import file_types
from penstock.queue.job import CHILDREN, Held, Job, JobQuery, Position, Scope, Status
from penstock.queue.payloads import library_path
from penstock.queue.protocol import POSITION_CAP, Queue, living_workers
from penstock.queue.retry import FAILURE_CODES
from penstock.queue.transitions import Dependencies, dependencies_of
from penstock.service.requests import HistoryEntry
from penstock.vocabulary import how_many

LOW_CONFIDENCE = 65.0
"""Mean confidence of a page below which most of its recognized words are wrong."""
_CHECK_RECOGNITION = (
    "`penstock documents show PATH --page N` prints what was read. Set PENSTOCK_OCR_LANGUAGES to the "
    "languages of the document, or install rapidocr for poor pictures."
)
_FORMER_VERSION = "; search still finds the former version"
_SEEN_ELSEWHERE = 10
EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
_LISTED = 100
"""Maximum number of paths listed for a folder."""
_ENDINGS = frozenset({"failed", "lost", "cancelled"})
"""Events which end a job; with one of them the end itself needs no entry."""
_MOST = 10_000
"""Failures read at most."""


class FailedPath(msgspec.Struct, frozen=True, kw_only=True):
    """A path that failed, since when and why. ``remembered``: it is not read again until it changes."""

    path: str
    code: str
    cause: str
    remedy: str
    since: datetime | None
    job_id: str | None
    remembered: bool
    container: str | None = None
    """The file on the disk that holds this one, for an attachment or a member of an archive."""


def _failed_path(entry: LedgerEntry) -> FailedPath:
    return FailedPath(
        path=entry.path,
        code=entry.rule,
        cause=entry.cause,
        remedy=entry.remedy or FAILURE_CODES.get(entry.rule, ""),
        since=entry.at,
        job_id=entry.job_id,
        remembered=entry.rule in CONTENT_CODES,
        container=found.path if (found := container_of(entry.path)) is not None else None,
    )


def failed_paths(catalog: Catalog, place: Place, path: str | None = None) -> list[FailedPath]:
    """Failed paths at or below a path, by path; None: all of the place."""
    return [_failed_path(entry) for entry in islice(failures_below(catalog, place, path), _MOST)]


def by_reason(failures: Iterable[FailedPath]) -> dict[str, list[FailedPath]]:
    """Group failures by code, the most frequent first."""
    return _groups(failures, lambda failure: failure.code)


def by_remedy(failures: Iterable[FailedPath]) -> dict[str, list[FailedPath]]:
    """Group failures by remedy, the most frequent first."""
    return _groups(failures, lambda failure: failure.remedy)


def _groups(failures: Iterable[FailedPath], key: Callable[[FailedPath], str]) -> dict[str, list[FailedPath]]:
    groups: dict[str, list[FailedPath]] = {}
    for failure in failures:
        groups.setdefault(key(failure), []).append(failure)
    return dict(sorted(groups.items(), key=lambda group: (-len(group[1]), group[0])))


Verdict: TypeAlias = Literal[
    "indexed", "partial", "waiting", "skipped", "failed", "moved", "removed", "unknown", "folder"
]


class Below(msgspec.Struct, frozen=True):
    """One path below a folder that is not, or only partly, indexed."""

    path: str
    verdict: Verdict
    cause: str


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """The reason why search does or does not find a path. ``counts`` and ``below``: of a folder."""

    path: str
    verdict: Verdict
    cause: str
    remedy: str = ""
    job_id: str | None = None
    source: Source | None = None
    warnings: tuple[str, ...] = ()
    """Losses and guesses of the reading, of what search finds."""
    missing: tuple[str, ...] = ()
    failed_inside: tuple[FailedPath, ...] = ()
    """Files inside this one that failed, such as attachments of a mail."""
    counts: dict[str, int] = {}
    below: tuple[Below, ...] = ()


def unknown(path: str, place: Place, elsewhere: list[Place]) -> Reason:
    """The reason for a path unknown at the place, with other collections of the path."""
    if elsewhere:
        names = list(dict.fromkeys(other.collection for other in elsewhere))
        cause = f"not in collection {place.collection}, but in {', '.join(names)}"
        remedy = f"Add --collection {names[0]}."
        if names == [place.collection]:
            branches = ", ".join(other.branch for other in elsewhere)
            cause = f"not in branch {place.branch} of collection {place.collection}, but in {branches}"
            remedy = "Index the path in this branch, or name the other branch."
        return Reason(path=path, verdict="unknown", cause=cause, remedy=remedy)
    container = container_of(path)
    if container is not None:
        cause = f"no file of this name was read from {container.path}"
        remedy = "Check the name; `penstock documents list` shows the files inside others below them."
    elif not os.path.lexists(path):
        cause, remedy = "no such file, and no job has seen this path", "Check the path."
    else:
        cause = "never seen by any job"
        remedy = "Run `penstock index` on this path or on a folder above it."
    return Reason(path=path, verdict="unknown", cause=cause, remedy=remedy)


def elsewhere(snapshot: CatalogSnapshot, place: Place, path: str) -> list[Place]:
    """Other collections and branches of the tenant with documents at or below the path."""
    others = [
        Place(each.tenant_id, each.collection, each.branch) for each in snapshot.tenants(place.tenant_id)
    ]
    return [
        other
        for other in others
        if other != place
        and any(
            source.published_id is not None or source.building_id is not None
            for source in snapshot.known(other, path, limit=_SEEN_ELSEWHERE)
        )
    ]


def in_other_tenants(
    snapshot: CatalogSnapshot, place: Place, path: str, owns: Callable[[str], bool]
) -> list[Place]:
    """Places of other tenants with documents at or below the path, as far as the sender may read them."""
    others = [
        Place(each.tenant_id, each.collection, each.branch)
        for each in snapshot.tenants()
        if each.tenant_id != place.tenant_id and owns(each.tenant_id)
    ]
    return [other for other in others if snapshot.known(other, path, limit=1)]


def elsewhere_text(reason: Reason, place: Place, other: Place, project: str | None) -> Reason:
    """The reason for a path that is unknown at its place, and known in another tenant."""
    there = f"tenant {other.tenant_id}" if project is None else f"project {project}"
    return msgspec.structs.replace(
        reason,
        cause=f"not in tenant {place.tenant_id}, but in {there}, branch {other.branch}",
        remedy="Look in all tenants: --all, or all=True.",
    )


def of_the_past(snapshot: CatalogSnapshot, place: Place, path: str) -> Reason | None:
    """The reason from the history of the path; None without history."""
    source_id = snapshot.formerly(place, path)
    events = snapshot.events(place.tenant_id, source_id or "")
    last = next((event for event in reversed(events) if event.path == path), None)
    if last is None:
        return None
    when = _second(last.at)
    if last.what == "renamed":
        return Reason(path=path, verdict="moved", cause=f"moved to {last.note} on {when}", job_id=last.job_id)
    return Reason(
        path=path,
        verdict="removed",
        cause=f"removed on {when}: deleted from the disk, left out by a rule, or removed by request",
        remedy="If the file exists again, run `penstock index`. See also `penstock documents history`.",
        job_id=last.job_id,
    )


def of_path(snapshot: CatalogSnapshot, place: Place, path: str) -> Reason | None:
    """The reason for exactly this path; None for a path unknown to the catalog."""
    known = snapshot.why(place, path)
    if known.source is not None:
        known = msgspec.structs.replace(known, source=with_page_warnings(snapshot, known.source))
    published = known.source is not None and known.source.published_id is not None
    recognized = snapshot.recognized(place, path, EARLIEST, LOW_CONFIDENCE) if published else None
    above = _ledger_above(snapshot, place, path) if known.ledger is None else None
    reason = _reason(path, msgspec.structs.replace(known, ledger=known.ledger or above), recognized)
    return _with_failed_inside(reason, snapshot, place)


def _with_failed_inside(reason: Reason | None, snapshot: CatalogSnapshot, place: Place) -> Reason | None:
    """The reason for a container, with the failed files inside."""
    if reason is None or reason.source is None or not may_hold_members(reason.path):
        return reason
    entries = islice(_pages(snapshot.failures, place, reason.path), _MOST)
    failed = tuple(_failed_path(entry) for entry in entries if entry.path != reason.path)
    if not failed:
        return reason
    cause = f"{reason.cause}; {how_many(len(failed), 'file')} inside it failed"
    return msgspec.structs.replace(reason, cause=cause, failed_inside=failed)


def of_folder(snapshot: CatalogSnapshot, place: Place, folder: str) -> Reason | None:
    """Counts of all known paths below a folder; None where the catalog knows none."""
    counts, below = Counter[str](), dict[str, Below]()
    failed = {entry.path for entry in _pages(snapshot.failures, place, folder)}
    for source in _pages(snapshot.known, place, folder):
        if source.published_id is None and source.building_id is None:
            # Removed, but not swept yet.
            continue
        if source.path in failed:
            # Counted below, once.
            continue
        verdict = _state(source)
        counts[verdict] += 1
        if verdict == "partial" and len(below) < _LISTED:
            below[source.path] = Below(
                source.path, verdict, "some parts failed; `penstock why PATH` lists them"
            )
    for entry in _pages(snapshot.ledger, place, folder):
        verdict = "skipped" if entry.kind is LedgerKind.SKIPPED else "failed"
        counts[verdict] += 1
        # Failures before skipped files: users look for failures here.
        if len(below) < _LISTED or verdict == "failed":
            below[entry.path] = Below(entry.path, verdict, f"{entry.rule}: {entry.cause}")
    if not counts:
        return None
    ordered = sorted(below.values(), key=lambda one: (one.verdict != "failed", one.verdict, one.path))
    words = ("indexed", "partial", "waiting", "failed", "skipped")
    summary = ", ".join(f"{counts[word]:,} {word}" for word in words if counts[word])
    return Reason(
        path=folder, verdict="folder", cause=summary, counts=dict(counts), below=tuple(ordered[:_LISTED])
    )


_Row = TypeVar("_Row", KnownSource, LedgerEntry)


def _pages(read: Callable[..., list[_Row]], place: Place, folder: str) -> Iterator[_Row]:
    """Iterate over all rows of ``read``, page by page, by path."""
    after = ""
    while page := read(place, folder, after=after):
        yield from page
        if len(page) < BATCH:
            return
        after = page[-1].path


def _state(source: KnownSource) -> Verdict:
    if source.building_id is not None and source.failed_with is not None:
        return "failed"
    if source.published_id is None:
        return "waiting"
    return "partial" if source.partial else "indexed"


def _ledger_above(snapshot: CatalogSnapshot, place: Place, path: str) -> LedgerEntry | None:
    """The entry of the nearest skipped folder above, and therefore of this path."""
    while (path := os.path.dirname(path)) not in ("", "/"):  # noqa: PTH120 - text in, text out
        found = snapshot.why(place, path).ledger
        if found is not None:
            return found
    return None


def _reason(path: str, known: PathReport, recognized: RecognizedPages | None = None) -> Reason | None:
    source, ledger = known.source, known.ledger
    missing = tuple(_missing_part(one) for one in known.missing)
    phases = known.building.phases.values() if known.building is not None else ()
    if any((state.error or "").startswith(NOT_READ) for state in phases):
        # A file inside another one that still waits for a job.
        waiting = "its container was read; the file itself has not been read yet"
        return Reason(path=path, verdict="waiting", cause=waiting, remedy=members.FAILURE_CODES[NOT_READ])
    if known.building is not None and not known.building.settled:
        return Reason(
            path=path, verdict="waiting", cause=_building(known.building, known.postponed), source=source
        )
    if ledger is not None and (
        source is None or source.published_id is None or ledger.kind == LedgerKind.FAILED
    ):
        verdict: Verdict = "skipped" if ledger.kind is LedgerKind.SKIPPED else "failed"
        cause = f"{ledger.rule}: {ledger.cause}"
        if ledger.path != path:
            cause = f"{ledger.path} is left out ({cause})"
        if source is not None and source.failed and source.published_id is not None:
            cause += _FORMER_VERSION
        return Reason(
            path=path,
            verdict=verdict,
            cause=cause,
            remedy=ledger.remedy,
            job_id=ledger.job_id,
            source=source,
            missing=missing if known.building is not None else (),
        )
    if known.building is not None:
        return Reason(
            path=path,
            verdict="failed",
            cause=_kept_back(known.building, source),
            remedy=_remedy(known.building, source),
            job_id=known.building.job_id,
            source=source,
            missing=missing,
        )
    if source is not None and source.published_id is not None:
        made = f"{how_many(source.chunk_count, 'chunk')} of {how_many(source.page_count, 'page')}"
        if not source.chunk_count:
            blank = recognized is None or not recognized.pages
            made = f"the {'file is blank' if blank else 'pictures show no text'}: there is no text to find"
        elif recognized is not None and recognized.pages:
            made += f"; {recognized_text(recognized)}"
        verdict = "partial" if source.partial else "indexed"
        low = recognized is not None and recognized.low > 0
        return Reason(
            path=path,
            verdict=verdict,
            cause=made,
            remedy=_CHECK_RECOGNITION if low else "",
            source=source,
            warnings=source.properties.warnings,
            missing=missing,
        )
    return None


def recognized_text(found: RecognizedPages) -> str:
    """Recognized pages in words."""
    text = f"text of {how_many(found.pages, 'page')} recognized"
    if found.confidence is not None:
        text += f", mean confidence {found.confidence:.0f}"
    return f"{text}, low on {found.low:,}" if found.low else text


def _remedy(building: Document, source: Source | None) -> str:
    """The remedy for a generation kept back: a retry helps only after an outage."""
    if building.outage:
        return "Retry the failed parts: penstock retry JOB."
    error = source.failure.error if source is not None else None
    return remedy_for((error or "").partition(":")[0])


def _missing_part(missing: MissingPart) -> str:
    part = "" if missing.chunk_index is None else f", chunk {missing.chunk_index}"
    return f"page {missing.page_number}{part}: {missing.error}"


def _kept_back(document: Document, source: Source | None) -> str:
    cause = document.note or f"{how_many(document.failed_count, 'part')} failed"
    former = source is not None and source.published_id is not None
    return cause + _FORMER_VERSION if former else cause


def _building(document: Document, postponed: str | None) -> str:
    phase = next(
        name
        for name, state in document.phases.items()
        if state.status in (TaskStatus.PENDING, TaskStatus.PROCESSING)
    )
    pages, chunks = how_many(document.page_count, "page"), how_many(document.chunk_count, "chunk")
    text = f"being indexed: phase {phase} of {pages}, {chunks}"
    return f"{text}; tried again after {postponed}" if postponed else text


def with_page_warnings(snapshot: CatalogSnapshot, source: Source) -> Source:
    """The document in search, with the warnings of the pages added."""
    if source.published_id is None:
        return source
    pages = snapshot.page_warnings(source.published_id, limit=MAX_WARNINGS)
    if not pages:
        return source
    known = source.properties
    unit = file_types.stored_type(source.file_type, known.media_type).page_unit
    found = [
        f"{unit} {number}: {warning}" if source.page_count > 1 else warning
        for number, warnings in pages.items()
        for warning in warnings
    ]
    properties = msgspec.structs.replace(known, warnings=shortened((*known.warnings, *found)))
    return msgspec.structs.replace(source, properties=properties)


def queued(queue: Queue, path: str, place: Place) -> Reason | None:
    """Find a live job for the path. Jobs have no path column, so up to 1,000 live jobs are read."""
    live = JobQuery(
        statuses=frozenset({Status.PENDING, Status.IN_PROGRESS}),
        tenant_id=place.tenant_id,
        collection=place.collection,
        branch=place.branch,
        limit=1000,
    )
    for job in queue.find(live):
        if _covers(path_of(job), path):
            what = f"job {job.queue_id} ({job.item_type} {job.op}) is {job.status}"
            if job.status is Status.PENDING and job.history and job.history[-1].what == "released":
                what += f", released: {job.history[-1].note}"
            if job.waiting_for == CHILDREN:
                what += f", {how_many(job.children_open, 'file')} pending"
            return Reason(path=path, verdict="waiting", cause=what, job_id=job.queue_id)
    return None


def awaited(queue: Queue, path: str, place: Place) -> bool:
    """Tell whether a live request may make a document at the path.

    A request whose payload has no path, such as a rename or a site, may make any.
    """
    query = JobQuery(
        statuses=frozenset({Status.PENDING, Status.IN_PROGRESS}),
        tenant_id=place.tenant_id,
        collection=place.collection,
        branch=place.branch,
        top_level=True,
        limit=1000,
    )
    while page := queue.find(query):
        for job in page:
            if job.item_type != "function" and _covers(path_of(job) or path, path):
                return True
        query = msgspec.structs.replace(query, after=page[-1].queue_id)
    return False


def _covers(covered: str | None, path: str) -> bool:
    return bool(covered) and (path == covered or path.startswith(f"{covered}".rstrip("/") + "/"))


def path_of(job: Job) -> str | None:
    """The file or folder of a job."""
    payload = job.shown_payload
    found = payload.get("file_path") or payload.get("folder_path") or payload.get("project_root")
    if job.item_type == "library":
        found = library_path(str(payload.get("library_name")), str(payload.get("library_version")))
    return found if isinstance(found, str) else None


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
        holder = _holder(queue, job)
        return (
            f"held by the lock of {holder.queue_id}" if holder else "held by a lock that is being handed over"
        )
    if job.held is Held.AFTER:
        return _dependent(queue, job)
    paused = sorted(queue.paused())
    scope = next((each for each in paused if each.covers(job.tenant_id, job.collection)), None)
    if job.held is Held.PAUSE or scope is not None:
        return _paused(scope)
    return _queued(position, idle=not living_workers(queue, heartbeat_s))


def _running(job: Job) -> str | None:
    stopping = "cancel requested; " if job.cancel_requested else ""
    if job.waiting_for == CHILDREN and job.waiting:
        return f"{stopping}waits for {how_many(job.children_open, 'child job')}"
    if job.waiting:
        return f"{stopping}waits for {job.waiting_for}"
    return "cancel requested; stops at the next checkpoint" if job.cancel_requested else None


def _until(job: Job, run_at: datetime, now: datetime) -> str:
    moment = _second(run_at)
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
    ends = [event.at for event in departures if event.what in _ENDINGS]
    if job.finished_at is not None and job.finished_at not in ends:
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
