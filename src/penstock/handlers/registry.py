"""Registry of handlers: the code for each type of job. Registration is explicit."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from typing import Any, TypeAlias

import msgspec

from penstock import items
from penstock.errors import InvalidRequest
from penstock.handlers.context import Context
from penstock.job import CHILDREN, Claim, NewJob
from penstock.named_tuple import NamedTuple
from penstock.retry import JOB_BACKOFF, Backoff

Handler: TypeAlias = Callable[[Context], Any]
BatchHandler: TypeAlias = Callable[[Sequence[Context]], Sequence[Any]]

MAX_BATCH = 100


class Wait(msgspec.Struct, frozen=True):
    """Result of a handler: the job ends later, with these children or with ``waiting_for``."""

    children: tuple[NewJob, ...] = ()
    waiting_for: str = CHILDREN
    progress_json: str | None = None
    """Final progress; see ``Context.last_progress``."""
    result_json: str | None = None
    """Result of the handler's own part. The job keeps it when its children have ended."""


class Later(NamedTuple):
    """Result of a handler: too early. The job is released for some time, without using a retry."""

    reason: str
    delay: timedelta


class NotHandledHere(Exception):
    """Raised by a handler without the code for this job; another worker may run the job."""


class Registered(NamedTuple):
    call: Callable[..., Any]
    batch: int
    """Most jobs per call; 0: the handler takes one job, not a list."""
    backoff: Backoff | Callable[[Claim], Backoff]
    beside: Callable[[Claim], bool] | None = None
    """Tells which jobs mostly wait for the network, and may run in a thread beside other jobs."""

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
    ) -> None:
        """Register a handler. ``batch``: most jobs per call, for a ``BatchHandler``.

        ``beside``: which jobs may run in a thread. They have to bound their own time.
        """
        items.validate_pair(item_type, op)
        if (item_type, op) in self._handlers:
            raise InvalidRequest(f"{item_type}/{op} already has a handler")
        if not callable(handler):
            raise InvalidRequest(f"{item_type}/{op}: {type(handler).__name__} cannot be called")
        if isinstance(batch, bool) or not isinstance(batch, int) or not 0 <= batch <= MAX_BATCH:
            raise InvalidRequest(f"a batch has 1 to {MAX_BATCH} jobs, got {str(batch)[:80]!r}")
        self._handlers[item_type, op] = Registered(handler, batch, backoff, beside)

    def wrap(
        self,
        item_types: Collection[str],
        around: Callable[[Handler | BatchHandler, int], Handler | BatchHandler],
    ) -> None:
        """Replace the handlers of these types by ``around(handler, batch)``."""
        for pair, known in self._handlers.items():
            if pair[0] in item_types:
                self._handlers[pair] = known._replace(call=around(known.call, known.batch))

    def copy(self) -> Registry:
        """A registry with the same handlers. Later additions do not affect this one."""
        other = Registry()
        other._handlers = dict(self._handlers)
        return other

    def find(self, item_type: str, op: str) -> Registered | None:
        return self._handlers.get((item_type, op))

    def pairs(self) -> list[str]:
        return sorted(f"{item_type}/{op}" for item_type, op in self._handlers)
