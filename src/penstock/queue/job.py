"""Values of the queue: jobs, claims, requests to the queue and its results.

All are frozen and know no store and no clock. Field names are the column names of ``unified_queue``.
"""

from __future__ import annotations

import enum
import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, TypeAlias

import msgspec

from penstock.errors import StateDamaged


class JobEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """One event in the bounded history of a job, such as a retry or a release."""

    at: datetime
    what: str
    note: str | None = None
    worker_id: str | None = None


CHILDREN = "children"
"""``waiting_for`` of a job with open child jobs."""

SUSPECT = -2
"""``turn`` of a job after the loss of its worker: claimed first in its priority, and alone."""

RETURNED = -1
"""``turn`` of a returning job (due retry, released, woken from a lock): before numbered turns."""

DEFAULT_TIMEOUT_S = 7200
"""Timeout that nobody asked for; see ``transitions.bounds_whole_job``."""

SAME_METADATA: Mapping[str, str] = MappingProxyType({})
"""For ``requeue``: every job keeps its metadata."""
Changes: TypeAlias = dict[str, Any]
"""New values for some columns of one row: decided by pure rules, written by the engines."""


def decoded_column(queue_id: str, column: str, text: str) -> Any:
    """Decode a column of a job. Another program may have written it: raises ``StateDamaged``."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise _unreadable(queue_id, column, f"that cannot be read as JSON: {error}") from None


def decoded_object(queue_id: str, column: str, text: str) -> dict[str, Any]:
    """Decode a column that has a JSON object. Raises ``StateDamaged`` for anything else."""
    found = decoded_column(queue_id, column, text)
    if isinstance(found, dict):
        return found
    raise _unreadable(queue_id, column, f"that is no JSON object: got {type(found).__name__}")


def _unreadable(queue_id: str, column: str, flaw: str) -> StateDamaged:
    return StateDamaged(
        f"job {queue_id[:128]!a} has a {column} {flaw}",
        remedy="Correct the row of this job in unified_queue, or delete it.",
    )


class Status(enum.StrEnum):
    """Status of a job. ``done``, ``failed`` and ``cancelled`` are final."""

    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


ENDED = frozenset({Status.DONE, Status.FAILED, Status.CANCELLED})


class Held(enum.StrEnum):
    """Reason why a pending job cannot be claimed now."""

    TIME = "time"
    LOCK = "lock"
    PAUSE = "pause"
    AFTER = "after"
    """Jobs that it waits for have not ended; see ``transitions.Dependencies``."""
    LIMIT = "limit"
    """The limit of its key allows no start now; see ``limits``."""


class NewJob(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A validated request for one row. Engines do not check the values again."""

    queue_id: str
    item_type: str
    op: str
    tenant_id: str
    collection: str
    idempotency_key: str
    payload_json: str
    priority: int = 5
    branch: str = "main"
    metadata: str = "{}"
    dedupe: bool = True
    run_at: datetime | None = None
    lock_key: str | None = None
    max_retries: int = 3
    timeout_s: int = DEFAULT_TIMEOUT_S
    submitted_by: str = "library"
    after: tuple[str, ...] = ()
    """Jobs that have to end first."""
    run_after_failure: bool = False
    """Run also after one of these failed or was cancelled; else end as cancelled."""
    limit_key: str | None = None
    backlog_key: str | None = None
    """Pending jobs with this key are counted for ``QueueLimits.by_key``."""
    result_ttl_s: int | None = None

    @property
    def plain(self) -> bool:
        """False for a job with columns that a plain insert does not have."""
        return not (self.after or self.limit_key or self.backlog_key or self.result_ttl_s)


class Job(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One row of ``unified_queue``."""

    queue_id: str
    item_type: str
    op: str
    tenant_id: str
    collection: str
    branch: str
    priority: int
    status: Status
    created_at: datetime
    updated_at: datetime
    idempotency_key: str
    dedupe: bool
    retry_count: int
    max_retries: int
    timeout_s: int
    submitted_by: str
    run: int = 1
    claim_number: int = 0
    turn: int = 0
    held: Held | None = None
    run_at: datetime | None = None
    lock_key: str | None = None
    lock_held: bool = False
    lease_until: datetime | None = None
    worker_id: str | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    parent_id: str | None = None
    parent_run: int | None = None
    root_id: str | None = None
    waiting_for: str | None = None
    awaited: bool = False
    """Another job waits, or waited, for the end of this one."""
    limit_key: str | None = None
    limit_at: datetime | None = None
    """Start that the limit of the key allowed; see ``limits``."""
    backlog_key: str | None = None
    result_ttl_s: int | None = None
    """Seconds from the end until the result is removed; see ``kept_until``."""
    cancel_requested: bool = False
    lost_count: int = 0
    children_open: int = 0
    children_failed: int = 0
    total_chunks: int = 0
    """Chunks that the children made: the sum of ``chunks`` in their results."""
    error_code: str | None = None
    error_message: str | None = None
    error_reason: str | None = None
    """Id of the reason of a failed job; see ``failure_reason``."""
    last_error_at: datetime | None = None
    after_json: str | None = None
    """Jobs that this one waits or waited for; see ``transitions.Dependencies``."""
    payload_json: str
    metadata: str = "{}"
    followup_json: str | None = None
    progress_json: str | None = None
    result_json: str | None = None
    history_json: str | None = None

    @property
    def payload(self) -> dict[str, Any]:
        return decoded_object(self.queue_id, "payload_json", self.payload_json)

    @property
    def shown_payload(self) -> dict[str, Any]:
        """The payload for lists and reports: empty if it cannot be read. One row must not hide the others."""
        try:
            return self.payload
        except StateDamaged:
            return {}

    @property
    def progress(self) -> dict[str, Any] | None:
        text = self.progress_json
        return decoded_column(self.queue_id, "progress_json", text) if text else None

    @property
    def result(self) -> Any:
        text = self.result_json
        return decoded_column(self.queue_id, "result_json", text) if text else None

    @property
    def result_fields(self) -> dict[str, Any]:
        """The result, where it is an object; empty for others: a function may return any JSON."""
        result = self.result
        return result if isinstance(result, dict) else {}

    @property
    def history(self) -> list[JobEvent]:
        return msgspec.json.decode(self.history_json, type=list[JobEvent]) if self.history_json else []

    @property
    def is_request(self) -> bool:
        """True for a request to index or to remove: no child job, and no call of a function."""
        return self.parent_id is None and self.item_type != "function"

    @property
    def ended(self) -> bool:
        return self.status in ENDED

    @property
    def waiting(self) -> bool:
        """True while in progress without a worker: child jobs or a document have to end first."""
        return self.status is Status.IN_PROGRESS and self.lease_until is None


class Claim(msgspec.Struct, frozen=True, gc=False):
    """The columns of a claimed job that a worker needs to run and settle it."""

    queue_id: str
    claim_number: int
    item_type: str
    op: str
    tenant_id: str
    collection: str
    branch: str
    priority: int
    run: int
    retry_count: int
    max_retries: int
    lost_count: int
    timeout_s: int
    submitted_by: str
    lock_key: str | None
    parent_id: str | None
    root_id: str | None
    progress_json: str | None
    metadata: str
    payload_json: str
    created_at: datetime
    lease_until: datetime

    @property
    def payload(self) -> dict[str, Any]:
        return decoded_object(self.queue_id, "payload_json", self.payload_json)

    @property
    def progress(self) -> dict[str, Any] | None:
        text = self.progress_json
        return decoded_column(self.queue_id, "progress_json", text) if text else None


class ClaimRequest(msgspec.Struct, frozen=True):
    """A request for jobs: worker, number, and length of the leases."""

    worker_id: str
    limit: int = 1
    lease: timedelta = timedelta(seconds=300)
    lease_by_type: Mapping[str, timedelta] = {}
    oldest: bool = False

    def lease_of(self, item_type: str) -> timedelta:
        return self.lease_by_type.get(item_type, self.lease)


class Settlement(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The end of a claim. Made only by functions of ``transitions``, which are named after the event.

    ``status`` is the requested status: ``in_progress`` means the job waits (``waiting_for``) or, with
    ``keep_lease``, goes on after adding some children.
    """

    queue_id: str
    claim_number: int
    status: Status
    what: str
    retry_count: int = 0
    lost_count: int = 0
    delay: timedelta = timedelta(0)
    waiting_for: str | None = None
    keep_lease: bool = False
    error_code: str | None = None
    error_message: str | None = None
    result_json: str | None = None
    progress_json: str | None = None
    children: tuple[NewJob, ...] = ()


class Beat(msgspec.Struct, frozen=True):
    """Heartbeat of one claim: new length of the lease (None: unchanged), and changed progress."""

    queue_id: str
    claim_number: int
    lease: timedelta | None = None
    progress_json: str | None = None


class RenewResult(msgspec.Struct, frozen=True):
    """Result of a heartbeat: claim still held, cancel requested."""

    held: bool
    cancel_requested: bool = False


class AddResult(msgspec.Struct, frozen=True, gc=False):
    """Result of adding one job: the row, the run for this request, and whether the row existed."""

    queue_id: str
    status: Status
    run: int = 1
    dedupe_hit: bool = False


class QueueLimits(msgspec.Struct, frozen=True):
    """Maximum numbers of pending top-level jobs; None is no limit. ``by_key``: by their backlog key."""

    indexing: int | None = None
    per_tenant: int | None = None
    functions: int | None = None
    by_key: Mapping[str, int] = {}


class CancelResult(msgspec.Struct, frozen=True):
    """Result of a cancel: ``was`` is the former status, None for an unknown job."""

    queue_id: str
    was: Status | None
    now: Status | None

    @property
    def refused(self) -> bool:
        return self.was is None or self.was in ENDED


class RequeueResult(msgspec.Struct, frozen=True):
    """Result of a requeue: refused unless the job failed or was cancelled, and while a live job blocks it."""

    queue_id: str
    was: Status | None
    now: Status | None
    twin: str | None = None
    """The live job in its way: one with the same key, or the holder of a lock that it would need at once."""

    @property
    def refused(self) -> bool:
        return self.twin is not None or self.was not in (Status.FAILED, Status.CANCELLED)


class Scope(msgspec.Struct, frozen=True, order=True):
    """Scope of a pause: a tenant, a collection, or a tenant's collection; ``*`` stands for any."""

    tenant_id: str = "*"
    collection: str = "*"

    def covers(self, tenant_id: str, collection: str) -> bool:
        return self.tenant_id in ("*", tenant_id) and self.collection in ("*", collection)


class JobQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Equality filters, paged by id. The list is closed, so every engine can support all of them.

    ``text`` occurs in the id, the payload or the error message; capital letters of ASCII count as small ones.
    ``waiting``: only jobs in progress without a worker (``Job.waiting``), few among many claimed ones.
    ``by_priority`` orders by priority, highest first, then by id; ``after`` is then the last id of the page
    before, and ``after_priority`` its priority.
    """

    statuses: frozenset[Status] = frozenset()
    item_type: str | None = None
    op: str | None = None
    tenant_id: str | None = None
    collection: str | None = None
    branch: str | None = None
    held: Held | None = None
    worker_id: str | None = None
    lock_key: str | None = None
    limit_key: str | None = None
    idempotency_key: str | None = None
    parent_id: str | None = None
    root_id: str | None = None
    waiting_for: str | None = None
    waiting: bool = False
    top_level: bool | None = None
    error_code: str | None = None
    error_reason: str | None = None
    text: str | None = None
    prefix: str | None = None
    after: str | None = None
    newest_first: bool = False
    by_priority: bool = False
    after_priority: int | None = None
    limit: int = 50


class Position(msgspec.Struct, frozen=True):
    """Requests ahead in the queue (0: this one is next), and all that are pending.

    Files of a folder that runs are no requests, nor are calls of functions. The position of a call, or of a
    child job, counts jobs of all kinds. ``jobs_ahead``: the jobs of all kinds that are claimed before it.
    """

    ahead: int
    length: int
    jobs_ahead: int


MISSED_HEARTBEATS = 2
"""Heartbeats until a silent worker counts as dead. Its jobs are taken back when their leases end."""
WORKER_ENDED = "ended"
"""In the info of a worker that has ended."""
DOCUMENT_FILE: Mapping[str, str] = MappingProxyType({"documents": "in a file"})
"""Part of the info of a worker whose documents are in a file of its host."""


class WorkerReport(msgspec.Struct, frozen=True, kw_only=True):
    """The last report of a worker, for status pages and the check for live workers."""

    worker_id: str
    host: str
    pid: int
    started_at: datetime
    seen_at: datetime | None = None
    info_json: str = "{}"

    @property
    def info(self) -> dict[str, Any]:
        info: dict[str, Any] = msgspec.json.decode(self.info_json)
        return info

    @property
    def has_document_file(self) -> bool:
        """True for a worker with documents in a file of its host."""
        return DOCUMENT_FILE.items() <= self.info.items()

    @property
    def takes_jobs(self) -> bool:
        """False for a worker without processes: ``queue_enabled`` is false."""
        return bool(self.info.get("processes", 1))

    def alive(self, now: datetime, heartbeat_s: float) -> bool:
        """Tell whether the worker reported within the last two heartbeats, and not its end."""
        if self.seen_at is None or self.info.get(WORKER_ENDED):
            return False
        return now - self.seen_at < timedelta(seconds=MISSED_HEARTBEATS * heartbeat_s)


LONGEST_TTL_S = 365 * 86_400


def kept_until(job: Job) -> datetime | None:
    """The time at which upkeep removes the result of an ended job; None: it is kept with the job."""
    if job.result_ttl_s is None or job.finished_at is None:
        return None
    return job.finished_at + timedelta(seconds=job.result_ttl_s)


def expired(job: Job, now: datetime) -> bool:
    """Check whether the time of a result is over. Upkeep may not have removed it yet."""
    until = kept_until(job)
    return until is not None and until <= now


def begins_to_expire(before: Job | None, after: Job) -> bool:
    """Check whether a new or changed row has a result to remove later; ``before`` None: the row is new."""
    if after.result_ttl_s is None or after.finished_at is None or after.result_json is None:
        return False
    return before is None or before.finished_at != after.finished_at


Class: TypeAlias = tuple[Status, Held | None, str]
"""Status, hold reason, item type."""

CLASS = ("status", "held", "item_type")
"""Columns of a class."""


class RowCounts(msgspec.Struct, frozen=True):
    """Rows by class; not ``exact``: some of the numbers are estimates."""

    counts: Mapping[Class, int]
    exact: bool = True


_FILTERS = frozenset({"statuses", "held", "item_type"})
_PAGING = frozenset({"after", "newest_first", "by_priority", "after_priority", "limit"})


def can_answer(query: JobQuery, by: Sequence[str]) -> bool:
    """Tell whether the counts are fine enough for the query."""
    given = zip(query.__struct_fields__, query.__struct_defaults__, strict=True)
    filtered = {name for name, default in given if getattr(query, name) != default}
    return set(by) <= set(CLASS) and filtered - _PAGING <= _FILTERS


def tally_answer(
    counts: Mapping[Class, int], query: JobQuery, by: Sequence[str]
) -> dict[tuple[Any, ...], int]:
    """Count rows by the given columns from the classes; only after ``can_answer``."""
    places = [CLASS.index(name) for name in by]
    found: Counter[tuple[Any, ...]] = Counter()
    for each, number in counts.items():
        status, held, item_type = each
        if (
            number
            and (not query.statuses or status in query.statuses)
            and query.held in (None, held)
            and query.item_type in (None, item_type)
        ):
            found[tuple(each[place] for place in places)] += number
    return dict(found)


BOUND = 1_000
"""Number up to which the rows of one class are counted; larger numbers are estimated."""

_WITH_INDEX = frozenset({Status.PENDING, Status.IN_PROGRESS, Status.FAILED})
"""Statuses with an index, counted up to the bound."""


def combined(counted: Mapping[Class, int], sample: Mapping[Class, int], share: float) -> RowCounts:
    """Combine exact counts below the bound with estimates from a sample of one row in ``share``."""
    groups: Counter[tuple[Status, Held | None]] = Counter()
    for (status, held, _), number in counted.items():
        groups[status, held] += number
    full = {group for group, number in groups.items() if number >= BOUND}
    exact = {each: number for each, number in counted.items() if each[:2] not in full}
    guessed = {
        each: round(number * share)
        for each, number in sample.items()
        if each[0] not in _WITH_INDEX or each[:2] in full
    }
    return RowCounts(exact | guessed, exact=False)


CHILDREN_FAILED = "ERR_CHILDREN_FAILED"
"""Code of a parent with failed children. It has no reason: the reasons are those of the children."""
BUCKETS = 18
_STEPS = tuple(
    timedelta(seconds=seconds)
    for seconds in (60, 300, 600, 1800, 3600, 2 * 3600, 6 * 3600, 12 * 3600, 86_400, 7 * 86_400)
)
"""Lengths of a bucket; the first one is taken that reaches back to the oldest failure."""
_COMPARED = 500
_PATH_FIRST = r"^[^:\n]*[/\\][^:\n]*(?=: )"
_VARYING = r"""'[^'\n]*'|"[^"\n]*"|[^\s'"]*[/\\][^\s'"]*|\w*\d[\w.,:-]*"""


def failure_reason(code: str | None, message: str | None) -> str | None:
    """The id of a reason: the code, and a hash of the message without the details of one job.

    Errors of many jobs that differ only in paths and numbers are one reason.
    """
    if code == CHILDREN_FAILED:
        return None
    text = re.sub(_PATH_FIRST, "*", (message or "")[:_COMPARED])
    text = re.sub(r"\s+", " ", re.sub(_VARYING, "*", text)).strip()
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:10]
    return f"{code or 'ERR_UNKNOWN'}-{digest}"


class FailureGroup(msgspec.Struct, frozen=True):
    """Failed jobs with one reason. ``newest``: id of the newest; ``buckets``: the last one is now."""

    reason: str
    number: int
    first_at: datetime
    last_at: datetime
    newest: str
    buckets: tuple[int, ...]


class FailureGroups(msgspec.Struct, frozen=True):
    """The most frequent reasons, and the number of all failed jobs with a reason.

    ``exact``: not so for an engine that has no index of reasons, and more failed jobs than it reads.
    """

    groups: list[FailureGroup]
    total: int
    step: timedelta
    exact: bool = True


def bucket_step(first_at: datetime | None, now: datetime) -> timedelta:
    """The shortest bucket length with which all buckets reach back to the oldest failure."""
    age = timedelta(0) if first_at is None else now - first_at
    return next((step for step in _STEPS if step * BUCKETS >= age), _STEPS[-1])


def _bucket_of(at: datetime, now: datetime, step: timedelta) -> int:
    """Index of a failure's bucket; -1 for a failure older than all buckets."""
    return max(BUCKETS - 1 - int(max((now - at) / step, 0)), -1)


def group_failures(failures: Iterable[tuple[str, str, datetime]], now: datetime, limit: int) -> FailureGroups:
    """Group failures, given as reason, job id and time, for engines without an index of reasons."""
    found: dict[str, list[tuple[str, datetime]]] = {}
    for reason, queue_id, at in failures:
        found.setdefault(reason, []).append((queue_id, at))
    first = min((at for members in found.values() for _, at in members), default=None)
    step = bucket_step(first, now)
    ordered = sorted(found.items(), key=lambda one: (-len(one[1]), one[0]))
    groups = [_group(reason, members, now, step) for reason, members in ordered[:limit]]
    return FailureGroups(groups, sum(map(len, found.values())), step)


def counted_failures(
    found: Iterable[Sequence[Any]], buckets: Iterable[Sequence[Any]], step: timedelta
) -> FailureGroups:
    """Groups as a database counted them: reason, number, first and last time, newest id, number of all.

    ``buckets``: reason, place before now, number.
    """
    places: dict[str, list[int]] = {}
    for reason, place, number in buckets:
        if place < BUCKETS:
            places.setdefault(reason, [0] * BUCKETS)[BUCKETS - 1 - max(place, 0)] += number
    groups, total = [], 0
    for reason, number, first, last, newest, everything in found:
        total = int(everything)
        counts = tuple(places.get(reason, [0] * BUCKETS))
        groups.append(FailureGroup(reason, number, first, last, newest, counts))
    return FailureGroups(groups, total, step)


def _group(
    reason: str, members: Sequence[tuple[str, datetime]], now: datetime, step: timedelta
) -> FailureGroup:
    buckets = [0] * BUCKETS
    for _, at in members:
        if (place := _bucket_of(at, now, step)) >= 0:
            buckets[place] += 1
    times = [at for _, at in members]
    newest = max(queue_id for queue_id, _ in members)
    return FailureGroup(reason, len(members), min(times), max(times), newest, tuple(buckets))
