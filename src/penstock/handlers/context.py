"""Context of a running job, registry of handlers, their special results, and failed tasks."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import datetime, timedelta
from functools import cached_property, lru_cache
from typing import Any, TypeAlias

import msgspec

from penstock import clock
from penstock.catalog.rules import publication
from penstock.catalog.rules.publication import MAX_MESSAGE
from penstock.catalog.values import Failure, FailureKind, Place, Task, TaskOutcome
from penstock.errors import Cancelled, InvalidRequest, LeaseLost, ServiceUnavailable, TokenLimitReached
from penstock.pipeline.budget import CallLimitReached, FileMark
from penstock.pipeline.endpoint import BadAnswer
from penstock.queue import payloads, retry, transitions
from penstock.queue.job import (
    CHILDREN,
    DEFAULT_TIMEOUT_S,
    Claim,
    Job,
    NewJob,
    Settlement,
    Status,
    decoded_object,
)
from penstock.queue.retry import JOB_BACKOFF, Backoff
from penstock.traces import job_fields
from penstock.vocabulary import with_remedy

_PROGRESS_LIMIT = 3_500
"""Bytes of encoded progress, which must fit a fixed place in shared memory."""
_FILE_LIMIT = 1_000
"""Characters of the current file's path in the progress."""
MAX_CHILDREN = 1_000
"""Children per call of ``expand``, to bound the transaction."""
_CURSOR = "cursor"


# The jobs of a batch mostly share place and time of request.
_place = lru_cache(128)(Place)
_moment = lru_cache(128)(datetime.fromisoformat)


def _refuse(settlement: Settlement) -> Status | None:
    raise RuntimeError(f"job {settlement.queue_id} cannot be settled in this context")


def _unread(queue_id: str) -> Job | None:
    raise RuntimeError(f"job {queue_id} cannot be read in this context")


def _ignore(_mark: FileMark | None) -> None:
    """Default for workers without a watch on files; see ``ThreadWorker``."""


class ProgressReport(msgspec.Struct, frozen=True):
    """Progress of a running job, as a handler reports it."""

    current: int
    total: int | None = None
    message: str | None = None
    current_file: str | None = None
    counts: Mapping[str, Any] = {}

    def as_dict(self) -> dict[str, Any]:
        # Texts may quote a file name that is not valid text.
        message, file = (
            None if text is None else transitions.printable(str(text)[:limit])
            for text, limit in ((self.message, _PROGRESS_LIMIT), (self.current_file, _FILE_LIMIT))
        )
        percent = round(self.current / self.total * 100, 1) if self.total else 0.0
        progress = {"current": self.current, "total": self.total, "percent": percent, "message": message}
        return progress | {"counts": self.counts} | ({} if file is None else {"current_file": file})


class Context:
    """One attempt at one job.

    ``payload`` is the request, ``attempt`` counts from 1, ``log`` names the job in every line.
    """

    def __init__(
        self,
        claim: Claim,
        *,
        report: Callable[[str], None],
        stop_requested: Callable[[], bool],
        guard_service: Callable[[str], AbstractContextManager[None]] = nullcontext,  # type: ignore[assignment]
        settle: Callable[[Settlement], Status | None] = _refuse,
        mark: Callable[[FileMark | None], None] = _ignore,
        read_job: Callable[[str], Job | None] = _unread,
        index: int = 0,
    ) -> None:
        self.claim = claim
        self.job_id = claim.queue_id
        self.attempt = claim.retry_count + 1
        self.metadata = decoded_object(claim.queue_id, "metadata", claim.metadata)
        self._report = report
        self._stop_requested = stop_requested
        self._guard_service = guard_service
        self._settle = settle
        self._mark = mark
        self.read_job = read_job
        """Read a row of the queue by its id, of any tenant."""
        self._index = index
        self.cursor: Any = (claim.progress or {}).get(_CURSOR) if claim.progress_json else None
        """The last ``cursor`` of ``expand``, from an earlier attempt or this one."""
        self._first_start: str | None = None
        if claim.timeout_s != DEFAULT_TIMEOUT_S and transitions.bounds_whole_job(claim):
            self._first_start = (transitions.first_start(claim) or clock.now()).isoformat()
        self.last_progress: str | None = None
        """The last reported progress, in its stored form."""

    @cached_property
    def payload(self) -> dict[str, Any]:
        return self.claim.payload

    @cached_property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        about = {"job_id": self.job_id, "job_fields": job_fields(self.claim)}
        return logging.LoggerAdapter(logging.getLogger("penstock.queue.job"), about)

    @property
    def place(self) -> Place:
        """Tenant, collection and branch of the job's documents."""
        return _place(self.claim.tenant_id, self.claim.collection, self.claim.branch)

    @property
    def asked_at(self) -> datetime:
        """Time of the newest request behind this job."""
        text = self.metadata.get(payloads.ASKED_AT)
        return _moment(text) if isinstance(text, str) else self.claim.created_at

    def progress(
        self, current: int, total: int | None = None, message: str | None = None, **counts: int
    ) -> None:
        """Report progress. Cheap: the worker stores progress at most once a second."""
        self.report(ProgressReport(current, total, message, None, counts))

    def report(self, progress: ProgressReport) -> None:
        self.last_progress = self._with_cursor(progress.as_dict())
        self._report(self.last_progress)
        self.checkpoint()

    def expand(
        self, children: Sequence[NewJob], cursor: Any = None, *, progress: ProgressReport | None = None
    ) -> None:
        """Add children now. The job keeps running, and later waits for the children with ``Wait()``.

        ``cursor``: where the next attempt continues if this one dies. It is stored with the children, in one
        transaction, as is ``progress``. Existing children are not added twice.
        """
        if len(children) > MAX_CHILDREN:
            raise ValueError(f"at most {MAX_CHILDREN:,} children per call, got {len(children):,}")
        self.cursor = cursor
        stored = self._with_cursor(progress.as_dict() if progress else self.claim.progress or {})
        if self._settle(transitions.expanded(self.claim, tuple(children), progress_json=stored)) is None:
            raise LeaseLost(f"job {self.job_id} was taken away from this worker")
        self.checkpoint()

    def _with_cursor(self, progress: dict[str, Any]) -> str:
        """Encode progress together with the cursor and the first start: writing one must keep the others."""
        if self.cursor is not None:
            progress = progress | {_CURSOR: self.cursor}
        if self._first_start is not None:
            progress = progress | {transitions.FIRST_START: self._first_start}
        encoded = msgspec.json.encode(progress)
        if len(encoded) > _PROGRESS_LIMIT:
            encoded = msgspec.json.encode(progress | {"message": None, "counts": {}})
        return encoded.decode()

    def checkpoint(self) -> None:
        """Raise ``Cancelled`` if the job was cancelled. Call this wherever stopping is safe."""
        if self._stop_requested():
            raise Cancelled("the job was cancelled")

    @contextmanager
    def file(self, seconds: float, size: int, mtime_ns: int = 0, made_with: str = "") -> Iterator[None]:
        """Wrap the parsing of a file: if the process hangs or dies, only this job fails."""
        self._mark(FileMark(self._index, time.process_time(), seconds, size, mtime_ns, made_with))
        try:
            yield
        finally:
            self._mark(None)

    def service(self, name: str) -> AbstractContextManager[None]:
        """Wrap calls to a backing service. Raise ``ServiceUnavailable`` inside when the service is down.

            with context.service("qdrant"):
                client.upsert(...)

        While the service is known to be down, the block is not entered: the job waits and uses no retry.
        """
        return self._guard_service(name)


Handler: TypeAlias = Callable[[Context], Any]
BatchHandler: TypeAlias = Callable[[Sequence[Context]], Sequence[Any]]

_MAX_BATCH = 100


class Wait(msgspec.Struct, frozen=True):
    """Result of a handler: the job ends later, with these children or with ``waiting_for``."""

    children: tuple[NewJob, ...] = ()
    waiting_for: str = CHILDREN
    progress_json: str | None = None
    """Final progress; see ``Context.last_progress``."""
    result_json: str | None = None
    """Result of the handler's own part. The job keeps it when its children have ended."""


class Later(msgspec.Struct, frozen=True):
    """Result of a handler: too early. The job is released for some time, without using a retry."""

    reason: str
    delay: timedelta


class NotHandledHere(Exception):
    """Raised by a handler without the code for this job; another worker may run the job."""


class Registered(msgspec.Struct, frozen=True):
    call: Callable[..., Any]
    batch: int
    """Most jobs per call; 0: the handler takes one job, not a list."""
    backoff: Backoff | Callable[[Claim], Backoff]
    beside: Callable[[Claim], bool] | None = None
    """Tells which jobs mostly wait for the network, and may run in a thread beside other jobs."""
    own: bool = False
    """A handler of Penstock. What it changes in its process is no reason to replace the process."""

    def backoff_of(self, claim: Claim) -> Backoff:
        return self.backoff if isinstance(self.backoff, Backoff) else self.backoff(claim)


class Registry:
    """Handlers by (item_type, op).

    A handler gets a ``Context``. It returns the job's result (a JSON value or None), raises, or returns
    ``Wait`` if children must end first, or ``Later`` to be called again. A batch handler gets many contexts
    and returns one result or exception for each.
    """

    def __init__(self) -> None:
        self._handlers: dict[tuple[str, str], Registered] = {}

    def register(
        self,
        item_type: str,
        op: str,
        handler: Handler | BatchHandler,
        *,
        batch: int = 0,
        backoff: Backoff | Callable[[Claim], Backoff] = JOB_BACKOFF,
        beside: Callable[[Claim], bool] | None = None,
        own: bool = False,
    ) -> None:
        """Register a handler. ``batch``: most jobs per call, for a ``BatchHandler``.

        ``beside``: which jobs may run in a thread. They have to bound their own time.
        """
        payloads.validate_pair(item_type, op)
        if (item_type, op) in self._handlers:
            raise InvalidRequest(f"{item_type}/{op} already has a handler")
        if not callable(handler):
            raise InvalidRequest(f"{item_type}/{op}: {type(handler).__name__} cannot be called")
        if isinstance(batch, bool) or not isinstance(batch, int) or not 0 <= batch <= _MAX_BATCH:
            raise InvalidRequest(f"a batch has 1 to {_MAX_BATCH} jobs, got {str(batch)[:80]!r}")
        self._handlers[item_type, op] = Registered(handler, batch, backoff, beside, own)

    def wrap(
        self,
        item_types: Collection[str],
        around: Callable[[Handler | BatchHandler, int], Handler | BatchHandler],
    ) -> None:
        """Replace the handlers of these types by ``around(handler, batch)``."""
        for pair, known in self._handlers.items():
            if pair[0] in item_types:
                self._handlers[pair] = msgspec.structs.replace(known, call=around(known.call, known.batch))

    def copy(self) -> Registry:
        """A registry with the same handlers. Later additions do not affect this one."""
        other = Registry()
        other._handlers = dict(self._handlers)
        return other

    def find(self, item_type: str, op: str) -> Registered | None:
        return self._handlers.get((item_type, op))

    def pairs(self) -> list[str]:
        return sorted(f"{item_type}/{op}" for item_type, op in self._handlers)


_SERVICE_PAUSE = timedelta(seconds=10)
"""Wait before a task is sent again to an endpoint that is down and names no time."""


def failed(task: Task, error: Exception) -> TaskOutcome:
    """Fail a task, for good or until the next attempt."""
    message = retry.error_summary(error)[:MAX_MESSAGE]
    return publication.failed_attempt(task, retry.classify(error), message, jitter=random.uniform(-1, 1))


def postponed(task: Task, error: ServiceUnavailable | CallLimitReached) -> TaskOutcome:
    """Wait as long as the service asks for, without spending a retry."""
    message = with_remedy(retry.error_summary(error), error.remedy)[:MAX_MESSAGE]
    failure = Failure(error.code, message, FailureKind.OUTAGE)
    return publication.postponed(task, failure, error.retry_after or _SERVICE_PAUSE)


def failed_at_service(task: Task, error: Exception) -> TaskOutcome:
    """Fail or postpone a task after an error of a service."""
    if isinstance(error, ServiceUnavailable | CallLimitReached):
        return postponed(task, error)
    if isinstance(error, TokenLimitReached):
        # Not the fault of the text: a former version of the document stays.
        message = with_remedy(error.message, error.remedy)[:MAX_MESSAGE]
        return publication.failed(task, Failure(error.code, message, FailureKind.OUTAGE))
    if isinstance(error, BadAnswer) and task.retry_count >= task.max_retries:
        # The service works and does not take this text; the other texts of the document do not wait for it.
        return publication.failed(task, Failure(error.code, retry.error_summary(error)[:MAX_MESSAGE]))
    return failed(task, error)
