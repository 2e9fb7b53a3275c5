"""What a handler is given: its job, and ways to say how far it is and to be told to stop."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import datetime
from functools import cached_property, lru_cache
from typing import Any

import msgspec

from penstock import items, lifecycle
from penstock.catalog.values import Place
from penstock.errors import Cancelled, LeaseLost
from penstock.job import Claim, NewJob, Settlement, Status
from penstock.pipeline.budget import FileMark

PROGRESS_LIMIT = 3_500
"""Bytes of encoded progress: it travels through a fixed place in shared memory."""
MOST_CHILDREN = 1_000
"""Children that one call of ``expand`` takes: one transaction holds no more."""
_CURSOR = "cursor"


# The jobs of a batch are mostly about one place, and were asked for at one time.
_place = lru_cache(128)(Place)
_moment = lru_cache(128)(datetime.fromisoformat)


def _refuse(settlement: Settlement) -> Status | None:
    raise RuntimeError(f"nobody here can settle job {settlement.queue_id}")


def _ignore(_mark: FileMark | None) -> None:
    """A worker that watches no files: see ``ThreadWorker``."""


class Context:
    """One attempt at one job.

    ``payload`` is the request, ``attempt`` counts from 1, ``log`` names the job in every line.
    """

    def __init__(
        self,
        claim: Claim,
        *,
        tell: Callable[[str], None],
        asked_to_stop: Callable[[], bool],
        calling: Callable[[str], AbstractContextManager[None]] = nullcontext,  # type: ignore[assignment]
        settle: Callable[[Settlement], Status | None] = _refuse,
        mark: Callable[[FileMark | None], None] = _ignore,
        index: int = 0,
    ) -> None:
        self.claim = claim
        self.job_id = claim.queue_id
        self.attempt = claim.retry_count + 1
        self.metadata: dict[str, Any] = msgspec.json.decode(claim.metadata)
        self._tell = tell
        self._asked_to_stop = asked_to_stop
        self._calling = calling
        self._settle = settle
        self._mark = mark
        self._index = index
        self.cursor: Any = (claim.progress or {}).get(_CURSOR) if claim.progress_json else None
        """Where ``expand`` had come to, in an earlier attempt or this one."""
        self.told: str | None = None
        """The last progress said, as it is stored."""

    @cached_property
    def payload(self) -> dict[str, Any]:
        return self.claim.payload

    @cached_property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        return logging.LoggerAdapter(logging.getLogger("penstock.job"), {"job_id": self.job_id})

    @property
    def place(self) -> Place:
        """Where the documents live that the job is about."""
        return _place(self.claim.tenant_id, self.claim.collection, self.claim.branch)

    @property
    def asked_at(self) -> datetime:
        """When the newest of the requests came in that this job answers for."""
        said = self.metadata.get(items.ASKED_AT)
        return _moment(said) if isinstance(said, str) else self.claim.created_at

    def progress(
        self, current: int, total: int | None = None, message: str | None = None, **counts: int
    ) -> None:
        """Say how far the work is. Cheap: it is written out at most once a second by somebody else."""
        percent = round(current / total * 100, 1) if total else 0.0
        if message is not None:
            # It may quote a file's name, which need not be text.
            message = lifecycle.printable(str(message)[:PROGRESS_LIMIT])
        said = {"current": current, "total": total, "percent": percent, "message": message, "counts": counts}
        self.told = self._with_cursor(said)
        self._tell(self.told)
        self.checkpoint()

    def expand(self, children: Sequence[NewJob], cursor: Any = None) -> None:
        """Add children now and go on; the job keeps running, and later waits for them by ``Wait()``.

        ``cursor`` is where a next attempt goes on, should this one die: it is kept with the children, in one
        transaction. Children that are there already are not added twice.
        """
        if len(children) > MOST_CHILDREN:
            raise ValueError(f"at most {MOST_CHILDREN:,} children a call, got {len(children):,}")
        self.cursor = cursor
        progress = self._with_cursor(self.claim.progress or {})
        if self._settle(lifecycle.expanded(self.claim, tuple(children), progress_json=progress)) is None:
            raise LeaseLost(f"job {self.job_id} was taken away from this worker")
        self.checkpoint()

    def _with_cursor(self, said: dict[str, Any]) -> str:
        """Beside the progress, not in its place: whoever writes one keeps the other."""
        if self.cursor is not None:
            said = said | {_CURSOR: self.cursor}
        encoded = msgspec.json.encode(said)
        if len(encoded) > PROGRESS_LIMIT:
            encoded = msgspec.json.encode(said | {"message": None, "counts": {}})
        return encoded.decode()

    def checkpoint(self) -> None:
        """Stop here if somebody cancelled the job. Call it wherever stopping is safe."""
        if self._asked_to_stop():
            raise Cancelled("the job was cancelled")

    @contextmanager
    def file(self, seconds: float, size: int, mtime_ns: int = 0, made_with: str = "") -> Iterator[None]:
        """Around the parsing of a file: should it hang or kill the process, only this job answers for it."""
        self._mark(FileMark(self._index, time.process_time(), seconds, size, mtime_ns, made_with))
        try:
            yield
        finally:
            self._mark(None)

    def service(self, name: str) -> AbstractContextManager[None]:
        """Around calls to a backing service, ``ServiceUnavailable`` being raised inside when it is down.

            with context.service("qdrant"):
                client.upsert(...)

        While it is known to be down the block is not entered: the job waits, and spends no retry.
        """
        return self._calling(name)
