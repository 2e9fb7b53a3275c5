"""Context of a handler: the job, progress, children, cancellation and backing services."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import datetime
from functools import cached_property, lru_cache
from typing import Any

import msgspec

from penstock import clock, items, lifecycle
from penstock.catalog.values import Place
from penstock.errors import Cancelled, LeaseLost
from penstock.job import DEFAULT_TIMEOUT_S, Claim, Job, NewJob, Settlement, Status, decoded_object
from penstock.named_tuple import NamedTuple
from penstock.pipeline.budget import FileMark
from penstock.traces import job_fields

PROGRESS_LIMIT = 3_500
"""Bytes of encoded progress, which must fit a fixed place in shared memory."""
FILE_LIMIT = 1_000
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


class ProgressReport(NamedTuple):
    """Progress of a running job, as a handler reports it."""

    current: int
    total: int | None = None
    message: str | None = None
    current_file: str | None = None
    counts: Mapping[str, Any] = {}

    def as_dict(self) -> dict[str, Any]:
        # Texts may quote a file name that is not valid text.
        message, file = (
            None if text is None else lifecycle.printable(str(text)[:limit])
            for text, limit in ((self.message, PROGRESS_LIMIT), (self.current_file, FILE_LIMIT))
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
        if claim.timeout_s != DEFAULT_TIMEOUT_S and lifecycle.bounds_whole_job(claim):
            self._first_start = (lifecycle.first_start(claim) or clock.now()).isoformat()
        self.last_progress: str | None = None
        """The last reported progress, in its stored form."""

    @cached_property
    def payload(self) -> dict[str, Any]:
        return self.claim.payload

    @cached_property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        about = {"job_id": self.job_id, "job_fields": job_fields(self.claim)}
        return logging.LoggerAdapter(logging.getLogger("penstock.job"), about)

    @property
    def place(self) -> Place:
        """Tenant, collection and branch of the job's documents."""
        return _place(self.claim.tenant_id, self.claim.collection, self.claim.branch)

    @property
    def asked_at(self) -> datetime:
        """Time of the newest request behind this job."""
        text = self.metadata.get(items.ASKED_AT)
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
        if self._settle(lifecycle.expanded(self.claim, tuple(children), progress_json=stored)) is None:
            raise LeaseLost(f"job {self.job_id} was taken away from this worker")
        self.checkpoint()

    def _with_cursor(self, progress: dict[str, Any]) -> str:
        """Encode progress together with the cursor and the first start: writing one must keep the others."""
        if self.cursor is not None:
            progress = progress | {_CURSOR: self.cursor}
        if self._first_start is not None:
            progress = progress | {lifecycle.FIRST_START: self._first_start}
        encoded = msgspec.json.encode(progress)
        if len(encoded) > PROGRESS_LIMIT:
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
