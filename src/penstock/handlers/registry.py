"""Which code runs which kind of job. Explicit: nothing is found by importing it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, NamedTuple, TypeAlias

import msgspec

from penstock import items
from penstock.errors import InvalidRequest
from penstock.handlers.context import Context
from penstock.job import CHILDREN, Claim, NewJob
from penstock.retry import JOB_BACKOFF, Backoff

Handler: TypeAlias = Callable[[Context], Any]
BatchHandler: TypeAlias = Callable[[Sequence[Context]], Sequence[Any]]

LARGEST_BATCH = 100


class Wait(msgspec.Struct, frozen=True):
    """A handler's answer when its part is over: the job ends when these children, or what is named, do."""

    children: tuple[NewJob, ...] = ()
    waiting_for: str = CHILDREN
    progress_json: str | None = None
    """The last word on how far it came; see ``Context.told``."""


class Later(NamedTuple):
    """A handler's answer when it is too early: the job is given back, no retry spent, for some time."""

    reason: str
    delay: timedelta


class NotHandledHere(Exception):
    """Raised by a handler that has no code for this very job: another worker may have it."""


class Registered(NamedTuple):
    call: Callable[..., Any]
    batch: int
    """Jobs in one call; 0: the handler takes one, and not as a list."""
    backoff: Backoff | Callable[[Claim], Backoff]

    def backoff_of(self, claim: Claim) -> Backoff:
        return self.backoff if isinstance(self.backoff, Backoff) else self.backoff(claim)


class Registry:
    """Handlers by (item_type, op).

    A handler gets a ``Context`` and returns the job's result (anything JSON can hold, or None), raises, or
    returns ``Wait`` when children have to end first, ``Later`` when it is too early. A batch handler gets
    many contexts and answers one result or exception for each.
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
    ) -> None:
        """``batch``: the most jobs the handler takes in one call; it must then be a ``BatchHandler``."""
        items.validate_pair(item_type, op)
        if (item_type, op) in self._handlers:
            raise InvalidRequest(f"{item_type}/{op} has a handler already")
        if not callable(handler):
            raise InvalidRequest(f"{item_type}/{op}: {type(handler).__name__} cannot be called")
        if isinstance(batch, bool) or not isinstance(batch, int) or not 0 <= batch <= LARGEST_BATCH:
            raise InvalidRequest(f"a batch has 1 to {LARGEST_BATCH} jobs, got {str(batch)[:80]!r}")
        self._handlers[item_type, op] = Registered(handler, batch, backoff)

    def copy(self) -> Registry:
        """Another one with the same handlers: what is added to it is not added here."""
        other = Registry()
        other._handlers = dict(self._handlers)
        return other

    def find(self, item_type: str, op: str) -> Registered | None:
        return self._handlers.get((item_type, op))

    def pairs(self) -> list[str]:
        return sorted(f"{item_type}/{op}" for item_type, op in self._handlers)
