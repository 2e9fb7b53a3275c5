"""Requests for jobs: submissions with all their checks, and the values that answer them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypedDict, TypeVar

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
    WebhookUnsigned,
)
from penstock.pipeline.web import urls
from penstock.queue import payloads
from penstock.queue.job import LONGEST_TTL_S, Job, NewJob, Scope, Status, WorkerReport
from penstock.queue.payloads import FunctionPayload, Payload
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
from penstock.service.options import unknown_option
from penstock.strict_json import encode_payload
from penstock.vocabulary import WORDS_OF_JOBS

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
