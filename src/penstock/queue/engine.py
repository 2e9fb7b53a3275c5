"""Base class of the engines built on the rules: a transaction, the rule, and the cascades afterwards."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from penstock import clock
from penstock.errors import InvalidRequest
from penstock.job import (
    AddResult,
    CancelResult,
    Claim,
    ClaimRequest,
    Exchange,
    Job,
    NewJob,
    QueueLimits,
    RequeueResult,
    Scope,
    Settlement,
    Status,
)
from penstock.queue.protocol import CASCADE_BATCH, NO_LIMITS
from penstock.queue.rules import (
    addition,
    cancellation,
    next_jobs,
    pause_batches,
    pauses,
    requeue,
    retention,
    settlement,
)
from penstock.queue.rules.pauses import ClaimPosition
from penstock.queue.rules.rows import Rows


class EngineRows(Rows, retention.Prunable, next_jobs.Startable, Protocol):
    """All methods of rows used by the rules."""


R = TypeVar("R", bound=EngineRows)
T = TypeVar("T")
CascadeStep: TypeAlias = Callable[[Rows, str, datetime, int], tuple[bool, list[str]]]


class Engine(ABC, Generic[R]):
    """Queue methods shared by the memory, JSONL, SQLite and PostgreSQL engines."""

    _unfinished = False
    """The last claim or resume of this process reached its limit: there is more to do at once."""
    _resuming = False
    """The last claim saw an active resume."""
    _stranded_after: ClaimPosition | None = None
    """Position of the search for held rows without a pause."""

    @abstractmethod
    def _write(self, what: str, work: Callable[[R], T]) -> T:
        """Run ``work`` in one transaction; ``what`` is the name in the audit log.

        An engine with concurrent writers may run it again from the start.
        """

    def now(self) -> datetime:
        return clock.now()

    @abstractmethod
    def _claim(self, rows: R, request: ClaimRequest, now: datetime) -> list[Claim] | None:
        """Claim from a bounded number of rows. None: nothing taken yet, but there are more rows."""

    @abstractmethod
    def paused(self) -> frozenset[Scope]: ...

    def add(
        self,
        new: Sequence[NewJob],
        *,
        limits: QueueLimits = NO_LIMITS,
        connection: Any = None,
        now: datetime | None = None,
    ) -> list[AddResult]:
        if connection is not None:
            raise InvalidRequest(
                "this engine has no transactions to join",
                remedy="Leave out connection=, or use a sqlite:/// or postgresql:// store.",
            )
        moment = now or self.now()
        return self._write("add", lambda rows: addition.add(rows, new, limits, moment))

    def claim(self, request: ClaimRequest, *, now: datetime | None = None) -> list[Claim]:
        moment = now or self.now()

        def work(rows: R) -> list[Claim] | None:
            return self._claim(rows, request, moment)

        claims = self._write("claim", work)
        if self._advance_after_claim(claims, moment):
            claims = self._write("claim", work)
        return claims or []

    def _advance_after_claim(self, claims: list[Claim] | None, now: datetime) -> bool:
        """Record an unfinished claim and advance an active resume. Returns whether to claim again."""
        self._unfinished = self._unfinished or claims is None
        released = self._advance(now, 1) if self._resuming else 0
        return bool(released) and not claims

    def _has_unfinished_work(self) -> bool:
        """Check whether there is more to do at once instead of waiting. Resets the flag."""
        again, self._unfinished = self._unfinished, False
        return again

    def start(self, queue_id: str, request: ClaimRequest, *, now: datetime | None = None) -> Claim | None:
        moment = now or self.now()
        return self._write("claim", lambda rows: next_jobs.start(rows, queue_id, request, moment))

    def settle(
        self, settlements: Sequence[Settlement], *, now: datetime | None = None
    ) -> list[Status | None]:
        moment = now or self.now()
        answers, parents = self._write("settle", lambda rows: settlement.settle(rows, settlements, moment))
        self._cascade(parents, moment, cancellation.stop_children, "cancel")
        return answers

    def exchange(
        self, settlements: Sequence[Settlement], request: ClaimRequest, *, now: datetime | None = None
    ) -> Exchange:
        moment = now or self.now()

        def settle_and_claim(rows: R) -> tuple[list[Status | None], list[str], list[Claim] | None]:
            return *settlement.settle(rows, settlements, moment), self._claim(rows, request, moment)

        answers, parents, claims = self._write("exchange", settle_and_claim)
        self._cascade(parents, moment, cancellation.stop_children, "cancel")
        if self._advance_after_claim(claims, moment):
            claims = self._write("claim", lambda rows: self._claim(rows, request, moment))
        return Exchange(answers, claims or [])

    def cancel(self, ids: Sequence[str], *, now: datetime | None = None) -> list[CancelResult]:
        moment = now or self.now()
        answers, parents = self._write("cancel", lambda rows: cancellation.cancel(rows, list(ids), moment))
        self._cascade(parents, moment, cancellation.stop_children, "cancel")
        return answers

    def requeue(
        self, ids: Sequence[str], *, keep_retries: bool = False, now: datetime | None = None
    ) -> list[RequeueResult]:
        moment = now or self.now()

        def work(rows: R) -> tuple[list[RequeueResult], list[str]]:
            return requeue.requeue(rows, list(ids), moment, keep_retries=keep_retries)

        answers, parents = self._write("requeue", work)
        self._cascade(parents, moment, requeue.return_children, "requeue")
        return answers

    def _cascade(self, parents: list[str], now: datetime, step: CascadeStep, what: str) -> None:
        """Process children in batches, so no transaction is larger on a larger tree."""
        waiting = list(parents)
        while waiting:
            last, more = self._write(what, partial(self._run_step, step, waiting[0], now))
            waiting = (waiting[1:] if last else waiting) + more

    def _run_step(self, step: CascadeStep, parent_id: str, now: datetime, rows: R) -> tuple[bool, list[str]]:
        return step(rows, parent_id, now, CASCADE_BATCH)

    def prune(
        self,
        ended_before: Mapping[Status, datetime],
        *,
        item_type: str | None = None,
        limit: int = CASCADE_BATCH,
    ) -> int:
        return self._write("prune", lambda rows: retention.prune(rows, ended_before, item_type, limit))

    def purge(self, jobs: Sequence[Job], *, now: datetime | None = None) -> int:
        moment = now or self.now()
        return self._write("purge", lambda rows: retention.purge(rows, jobs, moment))

    def scrub(self) -> None:
        """Do nothing: this engine keeps no data of deleted rows."""

    def pause(self, scope: Scope, *, now: datetime | None = None) -> None:  # noqa: ARG002 - as the protocol
        self._write("pause", lambda rows: pause_batches.pause(rows, scope))

    def resume(self, scope: Scope, *, now: datetime | None = None) -> int:
        moment = now or self.now()
        begun = self._write(
            "resume", lambda rows: pause_batches.resume(rows, scope, limit=pauses.MOVED_AT_ONCE)
        )
        return self._advance(moment, pauses.RESUME_STEPS) if begun.more else 0

    def _advance(self, now: datetime, steps: int) -> int:
        """Advance the active resume by some batches. Returns the number of released rows."""
        released = 0
        for _ in range(steps):
            step = self._write(
                "resume", lambda rows: pause_batches.advance_resume(rows, now, limit=pauses.MOVED_AT_ONCE)
            )
            released += step.released
            if not step.more:
                return released
        self._unfinished = True
        return released

    def reconcile(self, *, now: datetime | None = None, limit: int = 100) -> int:
        moment = now or self.now()
        repairs = self._write("reconcile", lambda rows: settlement.reconcile(rows, moment, limit))
        self._cascade(repairs.to_stop, moment, cancellation.stop_children, "cancel")
        self._cascade(repairs.to_return, moment, requeue.return_children, "requeue")
        released = self._advance(moment, pauses.RESUME_STEPS)
        stranded, self._stranded_after = self._write(
            "resume", lambda rows: self._release_stranded(rows, moment)
        )
        return repairs.rows + released + stranded

    def _release_stranded(self, rows: R, now: datetime) -> tuple[int, ClaimPosition | None]:
        limit, after = pauses.MOVED_AT_ONCE, self._stranded_after
        return pause_batches.release_stranded(rows, now, limit=limit, after=after)
