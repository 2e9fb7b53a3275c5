"""Requests for jobs: submissions with all their checks, and the values that answer them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypeAlias, TypedDict, TypeVar, cast

import msgspec

from penstock import clock
from penstock.catalog.rules.publication import remedy_for
from penstock.catalog.values import Place
from penstock.config import Settings
from penstock.errors import (
    InvalidName,
    InvalidPayload,
    InvalidRequest,
    InvalidTime,
    InvalidUrl,
    UnknownOption,
    WebhookUnsigned,
)
from penstock.pipeline.web import urls
from penstock.queue import payloads
from penstock.queue.job import LONGEST_TTL_S, Job, NewJob, Scope, Status, WorkerReport
from penstock.queue.payloads import FunctionPayload, Operation, Payload
from penstock.queue.transitions import (
    BACKUP,
    HOOKS,
    MOST_DEPENDENCIES,
    RESERVED,
    TIMED_OUT,
    EndHooks,
    HookCall,
)
from penstock.service.limits import checked_key
from penstock.strict_json import encode_payload
from penstock.vocabulary import WORDS_OF_JOBS

# Options that the library, the clients and the adapters share, and the refusal of unknown names.
#
# Python checks the names of ``**options`` nowhere: a misspelt filter would match everything.


Mode: TypeAlias = Literal["hybrid", "keyword", "vector"]
ProjectChoice: TypeAlias = bool | str | None
"""A project by its name, tenant or folder; True: the one of the path or current folder, False: none, None:
by the rule of ``service.projects``."""


class Where(TypedDict, total=False):
    """Tenant, collection and branch of a document; by default those of the settings."""

    tenant_id: str | None
    collection: str | None
    branch: str | None


class PathPlace(Where, total=False):
    """The place of a document that is named by its path; by default that of the project around it."""

    project: ProjectChoice


class WhyOptions(PathPlace, total=False):
    """Options of ``why``. ``all``: look for the path in every tenant that one may read."""

    all: bool


class DocumentFilters(Where, total=False):
    """Filters of documents. ``path`` is a glob; ``tag`` includes tags below it.

    ``library`` is the name of one, or ``NAME==VERSION``; it cannot be combined with ``path``.
    ``author`` and ``title`` are parts of the text, in any case; ``language`` ``en`` includes ``en-US``.
    ``created_after`` and ``created_before`` are dates: on this day or later, and before this day. Compared is
    what the documents state about themselves. A document that does not state it is left out.
    """

    path: str | None
    library: str | None
    file_type: str | None
    tag: str | None
    author: str | None
    title: str | None
    language: str | None
    created_after: str | None
    created_before: str | None


class ListFilters(DocumentFilters, total=False):
    """Filters of a list of documents, which is of one tenant or ``project``."""

    project: ProjectChoice


class FilteredScope(DocumentFilters, total=False):
    """Filters, with the part of the index: a ``project`` or, with ``all``, every tenant one may read."""

    project: ProjectChoice
    all: bool


class QueryOptions(FilteredScope, total=False):
    """Options of every query. ``exact``: misspelt words are not corrected. ``graph``: chunks that relations
    lead to are found as well."""

    mode: Mode
    exact: bool
    graph: bool


class SearchRequest(QueryOptions, total=False):
    """Options of a search: ``limit`` hits, at most ``per_source`` (None: any number) per document."""

    limit: int
    per_source: int | None
    marks: tuple[str, str]


class ContextOptions(QueryOptions, total=False):
    """Options of a context: at most ``max_tokens`` tokens."""

    max_tokens: int


class SimilarOptions(PathPlace, total=False):
    """Options of a search by a document: ``limit`` hits, at most ``per_source`` per document."""

    limit: int
    per_source: int | None


class LibraryOptions(Where, total=False):
    """Options of ``Libraries.add``; all have defaults."""

    priority: int | None
    include: Sequence[str]
    exclude: Sequence[str]
    include_code: bool | None
    depth: int | None
    hosts: Sequence[str]
    max_pages: int | None
    chunk_size: int | None
    chunk_overlap: int | None
    graph: bool | None
    ocr: bool | None
    force: bool
    retry_failed: bool
    run_at: datetime | str | None
    delay: float | None
    timeout_s: int | None


class IndexOptions(LibraryOptions, total=False):
    """Options of ``Documents.index``: those of a library, and others; all have defaults."""

    archives: bool | None
    recursive: bool
    gate: Literal["page", "document"] | None
    checksum: bool
    allow_empty: bool
    project: bool | None
    operation: Operation
    serial: bool | None
    after: Sequence[str] | None
    on_dependency_failure: str | None
    limit: str | None
    webhook: str | None


class ClientIndexOptions(IndexOptions, total=False):
    """Options of ``Client.index``: those of the library, and ``allow_external``."""

    allow_external: bool


class ClientLibraryOptions(LibraryOptions, total=False):
    """Options of ``ClientLibraries.add``: those of the library, and ``allow_external``."""

    allow_external: bool


class ScheduleOptions(TypedDict, total=False):
    """Options of a schedule. By default its name is that of the function or folder."""

    name: str | None
    zone: str | None
    missed: str | None
    replace: bool
    tenant_id: str | None


class NoteFilters(TypedDict, total=False):
    """Filters of notes; ``after`` is the last id of the previous page."""

    tenant_id: str | None
    collection: str | None
    tag: str | None
    after: str
    limit: int


class NoteChanges(TypedDict, total=False):
    """Options of a new text of a note: its tags stay, unless given a ``tag`` or ``drop_tags``."""

    tag: str | None
    drop_tags: bool
    tenant_id: str | None


class MovedWhere(TypedDict, total=False):
    """The place of a document that was moved."""

    tenant_id: str | None
    collection: str | None
    project: ProjectChoice


class EntityOptions(TypedDict, total=False):
    """Options of a search for entities: of one ``kind``, each with so many ``mentions``."""

    kind: str | None
    tenant_id: str | None
    mentions: int


class NeighbourOptions(TypedDict, total=False):
    """Options of a walk through the graph: over so many ``hops``, to at most ``limit`` entities."""

    hops: int
    kind: str | None
    limit: int
    tenant_id: str | None


class FailedJobs(TypedDict, total=False):
    """Filters of failed jobs that are retried together."""

    tenant_id: str | None
    collection: str | None
    item_type: str | None


class TimingChanges(TypedDict, total=False):
    """New values of a schedule; what is not given stays."""

    timing: str | None
    zone: str | None
    missed: str | None


def path_place(options: Mapping[str, Any]) -> PathPlace:
    """The place of a document, among the options of a call."""
    names = PathPlace.__optional_keys__
    return cast("PathPlace", {name: value for name, value in options.items() if name in names})


def texts(name: str, value: object) -> list[str]:
    """The value of an option that is a list of texts. A text alone would be taken for its letters."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise InvalidRequest(f"{name}: expected a list of texts, got {type(value).__name__}")
    return list(value)


def refuse_unknown(call: str, given: Iterable[str], shape: Any) -> None:
    """Raise ``UnknownOption`` for the first name that the ``TypedDict`` class does not have."""
    for name in given:
        if name not in shape.__optional_keys__ and name not in shape.__required_keys__:
            raise unknown_option(call, name, shape.__optional_keys__ | shape.__required_keys__)


def unknown_option(call: str, name: object, known: Iterable[str]) -> UnknownOption:
    """The refusal of an option, with the known name that is most like it."""
    import difflib

    ordered = sorted(known)
    word = str(name)[:80]
    close = difflib.get_close_matches(word, ordered, n=1)
    # A part of a name is nearer to what was meant than letters in the same order.
    part = [each for each in ordered if word in each.split("_")]
    meant = next(iter([*part, *close]), None)
    hint = f"; did you mean {meant!r}?" if meant else ""
    return UnknownOption(
        f"{call} has no option {word!r}{hint}", remedy=f"The options are {', '.join(ordered)}."
    )


T = TypeVar("T")
_FARTHEST = timedelta(days=3650)
_MAX_RETRIES = 1000
_MAX_TIMEOUT_S = 365 * 86_400
_FLAGS: Mapping[str, bool] = MappingProxyType({"force": False, "dedupe": True, "rebuild": False})
"""Flags of a submission with their defaults."""


class SubmissionFields(TypedDict):
    """Required fields of a submission."""

    item_type: str
    op: str
    payload: Mapping[str, Any]


class Submission(SubmissionFields, total=False):
    """One request for a job. Defaults come from the settings, the door and the item type."""

    tenant_id: str | None
    collection: str | None
    branch: str
    priority: int | None
    run_at: datetime | str | None
    delay: timedelta | float | None
    force: bool
    dedupe: bool
    rebuild: bool
    key: str | None
    metadata: Mapping[str, Any] | None
    max_retries: int | None
    timeout_s: int | None
    serial: bool | None
    job_id: str | None
    after: Sequence[str] | None
    on_dependency_failure: str | None
    limit: str | None
    result_ttl: int | None
    webhook: str | None
    on_success: HookCall | None
    on_failure: HookCall | None


def submission_at(place: Place, item_type: str, op: str, payload: Mapping[str, Any]) -> Submission:
    """A submission for documents of a place."""
    return {
        "item_type": item_type,
        "op": op,
        "payload": payload,
        "tenant_id": place.tenant_id,
        "collection": place.collection,
        "branch": place.branch,
    }


def new_jobs(
    submissions: Sequence[Submission],
    settings: Settings,
    *,
    door: payloads.Source,
    joins: bool = False,
    own: bool = False,
    now: Callable[[], datetime],
) -> list[NewJob]:
    """Check submissions and build their rows.

    ``joins``: the rows go into the caller's transaction, so none may dedupe. ``own``: they may name functions
    that requests cannot call. ``now`` is the clock of the store, read only for jobs with a start time.
    """
    now = _once(now)
    built = []
    for number, queue_id in enumerate(clock.new_ids(len(submissions))):
        try:
            if not own:
                _refuse_own(submissions[number])
            built.append(_Builder(submissions[number], settings, door, joins).build(queue_id, now))
        except InvalidRequest as refusal:
            if len(submissions) == 1:
                raise
            message = f"submission {number + 1} of {len(submissions)}: {refusal.message}"
            raise type(refusal)(message, remedy=refusal.remedy) from None
    return built


def _once(read: Callable[[], datetime]) -> Callable[[], datetime]:
    """Read a clock at the first call only. ``functools.cache`` would take a fifth of a check."""
    found: list[datetime] = []

    def now() -> datetime:
        if not found:
            found.append(read())
        return found[0]

    return now


def _refuse_own(given: Submission) -> None:
    """Refuse a call of the backup function: only schedules add such jobs, since they cover all tenants."""
    payload = given.get("payload") if isinstance(given, dict | Mapping) else None
    if isinstance(payload, dict | Mapping) and payload.get("function_name") == BACKUP:
        raise InvalidName(
            f"{BACKUP} cannot be called",
            remedy="Use penstock backup, or add a schedule of the action backup.",
        )


class _Builder:
    def __init__(self, given: Submission, settings: Settings, door: payloads.Source, joins: bool) -> None:
        _refuse_misshapen(given)
        self._given = given
        self._settings = settings
        self._door: payloads.Source = door
        self._joins = joins
        self._tenant_id = payloads.validate_name("tenant_id", _or(given.get("tenant_id"), settings.tenant_id))
        self._collection = payloads.validate_name(
            "collection", _or(given.get("collection"), settings.collection)
        )
        self._branch = payloads.validate_name("branch", given.get("branch", "main"))
        named = [name for name in _FLAGS if name in given]
        self._flags = {**_FLAGS, **{name: _flag(given, name) for name in named}} if named else _FLAGS

    def build(self, queue_id: str, now: Callable[[], datetime]) -> NewJob:
        given = self._given
        item_type, op = given["item_type"], given["op"]
        payload = payloads.parse_payload(item_type, op, given["payload"])
        encoded = encode_payload(given["payload"], max_bytes=self._settings.max_payload_bytes)
        if given.get("job_id") is not None:
            queue_id = payloads.validate_name("job_id", given["job_id"] or "")
        priority, limit = given.get("priority"), given.get("limit")
        return NewJob(
            queue_id=queue_id,
            item_type=item_type,
            op=op,
            tenant_id=self._tenant_id,
            collection=self._collection,
            branch=self._branch,
            idempotency_key=self._key(payload, queue_id),
            payload_json=encoded,
            priority=payloads.validate_priority(
                _or(priority, payloads.default_priority(self._door, item_type, op))
            ),
            metadata=self._metadata(item_type, now),
            dedupe=self._dedupes(payload),
            run_at=_due_at(given.get("run_at"), given.get("delay"), now),
            lock_key=self._lock(payload, item_type),
            limit_key=None if limit is None else checked_key(limit),
            max_retries=_count(given, "max_retries", self._settings.max_retries, 0, _MAX_RETRIES),
            timeout_s=_count(given, "timeout_s", self._settings.job_timeout_s, 1, _MAX_TIMEOUT_S),
            submitted_by=self._door,
            result_ttl_s=_count(given, "result_ttl", None, 1, LONGEST_TTL_S),
            **_dependencies(given),
        )

    def _lock(self, payload: Payload, item_type: str) -> str | None:
        """The lock of a job. A serial job locks the collection; a parent, until the children end."""
        if item_type in payloads.PATH_TYPES and _or(self._given.get("serial"), self._settings.serial):
            return payloads.serial_lock(self._tenant_id, self._collection)
        return payloads.lock_key(
            payload, tenant_id=self._tenant_id, branch=self._branch, collection=self._collection
        )

    def _dedupes(self, payload: Payload) -> bool:
        if self._joins or self._flags["force"] or not self._flags["dedupe"]:
            return False
        # Two calls of one function are two jobs, unless they have the same key.
        return not isinstance(payload, FunctionPayload) or self._given.get("key") is not None

    def _key(self, payload: Payload, queue_id: str) -> str:
        key = self._given.get("key")
        if isinstance(payload, FunctionPayload):
            if key is None and self._given.get("job_id") is None:
                return payloads.own_key(self._collection, queue_id)
            return payloads.function_key(self._collection, queue_id if key is None else _checked_key(key))
        if key is not None:
            raise InvalidRequest(
                "key: only function jobs have one; other jobs are identified by their payload",
                remedy="Leave out the key; use force to run a duplicate.",
            )
        return payloads.idempotency_key(self._given["item_type"], self._collection, payload)

    def _metadata(self, item_type: str, now: Callable[[], datetime]) -> str:
        given = self._given.get("metadata")
        if given is not None and not isinstance(given, dict | Mapping):
            raise InvalidPayload(f"metadata: expected an object, got {type(given).__name__}")
        metadata = dict(given or {})
        _refuse_reserved(metadata)
        hooks = self._hooks()
        if not metadata and hooks is None and item_type == "function" and self._flags is _FLAGS:
            return "{}"
        if hooks is not None:
            metadata[HOOKS] = msgspec.to_builtins(hooks)
        if self._flags["force"] or self._flags["rebuild"]:
            metadata["rebuild"] = True
        if item_type != "function":
            # A live job for several requests keeps the time of the last one: an earlier deletion must not
            # remove its result.
            metadata[payloads.ASKED_AT] = clock.format_time(now())
        try:
            return encode_payload(metadata, max_bytes=self._settings.max_payload_bytes)
        except InvalidRequest as refusal:
            message = refusal.message.replace("payload", "metadata", 1)
            raise type(refusal)(message, remedy=refusal.remedy) from None

    def _hooks(self) -> EndHooks | None:
        """The hooks of the job; None for most."""
        given = self._given
        webhook, success, failure = given.get("webhook"), given.get("on_success"), given.get("on_failure")
        if webhook is None and success is None and failure is None:
            return None
        if self._joins:
            raise InvalidRequest(
                "a job that joins a transaction cannot have hooks",
                remedy="Leave out connection=, or webhook, on_success and on_failure.",
            )
        if webhook is not None:
            _check_webhook(webhook, self._settings)
        return EndHooks(webhook=webhook, on_success=success, on_failure=failure)


def _check_webhook(url: object, settings: Settings) -> None:
    if not isinstance(url, str):
        raise InvalidUrl(f"webhook: expected a URL, got {type(url).__name__}")
    urls.receiver(url)
    if settings.webhook_key is None and settings.webhook_key_file is None:
        raise WebhookUnsigned("no secret for webhooks is set")


def _refuse_reserved(metadata: Mapping[str, Any]) -> None:
    """Refuse metadata keys reserved for Penstock."""
    for key in metadata:
        if isinstance(key, str) and key.startswith(RESERVED):
            raise InvalidPayload(f"metadata: keys must not start with {RESERVED!r}, got {key[:80]!a}")


def _dependencies(given: Submission) -> dict[str, Any]:
    """The fields of a job with dependencies; empty for most jobs."""
    after, choice = given.get("after"), given.get("on_dependency_failure")
    if choice is not None and choice not in ("cancel", "run"):
        raise InvalidRequest(f"on_dependency_failure: expected cancel or run, got {str(choice)[:80]!r}")
    if not after:
        return {}
    if isinstance(after, str) or not isinstance(after, Sequence):
        raise InvalidRequest(f"after: expected a list of job ids, got {type(after).__name__}")
    ids = tuple(dict.fromkeys(payloads.validate_name("job_id", queue_id) for queue_id in after))
    if len(ids) > MOST_DEPENDENCIES:
        raise InvalidRequest(
            f"after: expected at most {MOST_DEPENDENCIES:,} jobs, got {len(ids):,}",
            remedy="Let some of them wait for the others, and name the last ones.",
        )
    return {"after": ids, "run_after_failure": choice == "run"}


_REQUIRED = Submission.__required_keys__
_KNOWN = _REQUIRED | Submission.__optional_keys__


def _refuse_misshapen(given: Submission) -> None:
    # A dict first: the test for a mapping is slower.
    if not isinstance(given, dict | Mapping):
        raise InvalidRequest(f"a submission is a mapping of fields, got {type(given).__name__}")
    if not _KNOWN.issuperset(given):
        raise unknown_option("submit", sorted(map(str, set(given) - _KNOWN))[0], _KNOWN)
    if not given.keys() >= _REQUIRED:
        missing = sorted(_REQUIRED - given.keys())
        raise InvalidRequest(f"missing field {missing[0]!r}", remedy="Give item_type, op and payload.")


def _or(given: T | None, default: T) -> T:
    return default if given is None else given


def _flag(given: Mapping[str, Any], name: str) -> bool:
    value = given[name]
    if not isinstance(value, bool):
        # "false" would count as true.
        raise InvalidRequest(f"{name}: expected true or false, got {str(value)[:80]!r}")
    return value


N = TypeVar("N", int, None)


def _count(given: Mapping[str, Any], name: str, default: N, low: int, high: int) -> int | N:
    value = _or(given.get(name), default)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InvalidRequest(f"{name}: expected a whole number from {low} to {high}, got {str(value)[:80]!r}")
    return value


def _checked_key(key: str) -> str:
    if not isinstance(key, str) or not 1 <= len(key) <= 255 or not key.isprintable():
        raise InvalidName(f"key must be 1 to 255 printable characters, got {str(key)[:80]!a}")
    return key


def _due_at(
    run_at: datetime | str | None, delay: timedelta | float | None, now: Callable[[], datetime]
) -> datetime | None:
    """The earliest start of the job, if any."""
    if run_at is not None and delay is not None:
        raise InvalidTime("run_at and delay: expected one of them", remedy="Leave one of them out.")
    if delay is not None:
        ahead = _checked_delay(delay)
        return now() + ahead
    if run_at is None:
        return None
    moment = _read_time(run_at)
    if moment > now() + _FARTHEST:
        raise InvalidTime(f"run_at: {moment.isoformat()} is more than ten years ahead")
    return moment


def _read_time(value: datetime | str) -> datetime:
    """Convert a datetime or ISO 8601 text to UTC; refuse one without a zone."""
    moment = value
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value.strip())
        except ValueError:
            raise InvalidTime(f"run_at: {value[:80]!a} is not an ISO 8601 time") from None
    if not isinstance(moment, datetime):
        raise InvalidTime(f"run_at: expected a time, got {type(value).__name__}")
    if moment.tzinfo is None:
        raise InvalidTime(f"run_at: {moment.isoformat()} has no zone")
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise InvalidTime(f"run_at: {moment.isoformat()} is out of range") from None


def _checked_delay(delay: timedelta | float) -> timedelta:
    if not isinstance(delay, timedelta):
        if isinstance(delay, bool) or not isinstance(delay, int | float) or not math.isfinite(delay):
            raise InvalidTime(
                f"delay: expected seconds or a timedelta, got {str(delay)[:80]!r}", remedy="Use seconds."
            )
        delay = min(timedelta(seconds=min(delay, _FARTHEST.total_seconds() + 1)), 2 * _FARTHEST)
    if not timedelta(0) <= delay <= _FARTHEST:
        raise InvalidTime(f"delay: expected 0 to {_FARTHEST.days} days", remedy="Use seconds from now on.")
    return delay


JobWord = Annotated[str, msgspec.Meta(extra_json_schema={"enum": list(WORDS_OF_JOBS)})]
"""The word for a job's status in an answer of the server. Other interfaces have their own words."""


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a submission.

    ``run`` is the run of the job for this submission: pass it to ``wait``. ``queue_position`` counts the
    requests ahead (0: this one is next), of ``queue_length`` pending ones; files of a folder that runs are no
    requests. Both are None for a job that joins a transaction, and for calls and batches, where counting
    would cost more than adding. ``notes``: what the sender should know, such as documents of the same files
    elsewhere.
    """

    job_id: str
    status: Status
    message: str
    run: int = 1
    dedupe_hit: bool = False
    queue_position: int | None = None
    queue_length: int | None = None
    run_at: datetime | None = None
    notes: tuple[str, ...] = ()


class CancelAnswer(msgspec.Struct, frozen=True):
    """The result of a cancel. ``cancel_requested``: the worker or child jobs have to stop first."""

    job_id: str
    status: Literal["cancelled", "cancel_requested"]
    message: str


class RetryAnswer(msgspec.Struct, frozen=True):
    """The number of jobs retried, and jobs left alone because a live job has the same key (``twins``)."""

    retried: int
    twins: dict[str, str] = {}


class HistoryEntry(msgspec.Struct, frozen=True):
    """One event of a job or document."""

    at: datetime
    what: str
    note: str | None = None
    worker_id: str | None = None


class Details(msgspec.Struct, frozen=True, kw_only=True):
    """A job with queue position, history and the ``reason`` for waiting."""

    job: Job
    reason: str | None
    queue_position: int | None
    queue_length: int | None
    history: list[HistoryEntry]

    @property
    def remedy(self) -> str | None:
        """The remedy for a failed job: that of its error, or another try."""
        if self.job.status is not Status.FAILED:
            return None
        if self.job.error_code == TIMED_OUT:
            # A retry has the same time again.
            return "Give it more time and submit it again: timeout_s, or PENSTOCK_JOB_TIMEOUT_S for all jobs."
        other = f"Remove the cause, then run `penstock retry {self.job.queue_id}`."
        return remedy_for(self.job.error_code or "") or other


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """Job counts by status, pauses, workers and warnings about the store.

    ``by_held`` counts pending jobs that cannot be claimed now. If not ``exact`` (SQL engines above some
    thousand rows), numbers above 1,000 are estimates. ``oldest_pending_at`` is the age of the oldest job
    among those next in line.
    """

    by_status: dict[str, int]
    exact: bool
    by_held: dict[str, int]
    by_item_type: dict[str, dict[str, int]]
    oldest_pending_at: datetime | None
    oldest_pending_age_s: float | None
    paused: list[Scope]
    workers: list[WorkerReport]
    warnings: list[str]
