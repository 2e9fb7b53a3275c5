"""What every engine built on the rules does the same way: a transaction, the rule, the cascades after it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from penstock import clock
from penstock.errors import InvalidRequest
from penstock.job import (
    Added,
    Cancelled,
    Claim,
    ClaimRequest,
    Exchange,
    Limits,
    NewJob,
    Requeued,
    Scope,
    Settlement,
    Status,
)
from penstock.queue import adding, cancelling, pausing, pruning, requeueing, settling
from penstock.queue.protocol import CASCADE_BATCH, NO_LIMITS
from penstock.queue.rows import Rows


class EngineRows(Rows, pruning.Prunable, Protocol):
    """All that the rules ask of an engine's rows."""


R = TypeVar("R", bound=EngineRows)
Step: TypeAlias = Callable[[Rows, str, datetime, int], tuple[bool, list[str]]]


class Engine(ABC, Generic[R]):
    @abstractmethod
    def _writing(self, what: str) -> AbstractContextManager[R]:
        """One transaction that writes; ``what`` names it for those who keep a record."""

    @abstractmethod
    def _claim(self, rows: R, request: ClaimRequest, now: datetime) -> list[Claim] | None:
        """Part of a claim, bounded in size. None: nothing taken yet, but there is more to look at."""

    @abstractmethod
    def paused(self) -> frozenset[Scope]: ...

    @abstractmethod
    def _set_paused(self, rows: R, scope: Scope, paused: bool) -> None: ...

    def add(
        self,
        new: Sequence[NewJob],
        *,
        limits: Limits = NO_LIMITS,
        connection: Any = None,
        now: datetime | None = None,
    ) -> list[Added]:
        if connection is not None:
            raise InvalidRequest(
                "this engine has no transactions to join",
                remedy="Leave out connection=, or use a sqlite:/// store.",
            )
        moment = now or clock.now()
        with self._writing("add") as rows:
            return adding.add(rows, new, limits, moment)

    def claim(self, request: ClaimRequest, *, now: datetime | None = None) -> list[Claim]:
        moment = now or clock.now()
        while True:
            with self._writing("claim") as rows:
                claims = self._claim(rows, request, moment)
            if claims is not None:
                return claims

    def settle(
        self, settlements: Sequence[Settlement], *, now: datetime | None = None
    ) -> list[Status | None]:
        moment = now or clock.now()
        with self._writing("settle") as rows:
            answers, parents = settling.settle(rows, settlements, moment)
        self._cascade(parents, moment, cancelling.stop_children, "cancel")
        return answers

    def exchange(
        self, settlements: Sequence[Settlement], request: ClaimRequest, *, now: datetime | None = None
    ) -> Exchange:
        moment = now or clock.now()
        with self._writing("exchange") as rows:
            answers, parents = settling.settle(rows, settlements, moment)
            claims = self._claim(rows, request, moment)
        self._cascade(parents, moment, cancelling.stop_children, "cancel")
        return Exchange(answers, self.claim(request, now=now) if claims is None else claims)

    def cancel(self, ids: Sequence[str], *, now: datetime | None = None) -> list[Cancelled]:
        moment = now or clock.now()
        with self._writing("cancel") as rows:
            answers, parents = cancelling.cancel(rows, list(ids), moment)
        self._cascade(parents, moment, cancelling.stop_children, "cancel")
        return answers

    def requeue(
        self, ids: Sequence[str], *, keep_retries: bool = False, now: datetime | None = None
    ) -> list[Requeued]:
        moment = now or clock.now()
        with self._writing("requeue") as rows:
            answers, parents = requeueing.requeue(rows, list(ids), moment, keep_retries=keep_retries)
        self._cascade(parents, moment, requeueing.return_children, "requeue")
        return answers

    def _cascade(self, parents: list[str], now: datetime, step: Step, what: str) -> None:
        """Work through children in batches of their own, so that no transaction grows with the tree."""
        waiting = list(parents)
        while waiting:
            with self._writing(what) as rows:
                last, more = step(rows, waiting[0], now, CASCADE_BATCH)
            waiting = (waiting[1:] if last else waiting) + more

    def prune(
        self,
        ended_before: Mapping[Status, datetime],
        *,
        item_type: str | None = None,
        limit: int = CASCADE_BATCH,
    ) -> int:
        with self._writing("prune") as rows:
            return pruning.prune(rows, ended_before, item_type, limit)

    def pause(self, scope: Scope, *, now: datetime | None = None) -> None:  # noqa: ARG002 - as the protocol
        with self._writing("pause") as rows:
            self._set_paused(rows, scope, True)

    def resume(self, scope: Scope, *, now: datetime | None = None) -> int:
        moment = now or clock.now()
        with self._writing("resume") as rows:
            self._set_paused(rows, scope, False)
        return self._release_resumed(moment)

    def _release_resumed(self, now: datetime) -> int:
        still, released, last = self.paused(), 0, None
        while True:
            with self._writing("resume") as rows:
                batch, last = pausing.release(rows, still, now, limit=CASCADE_BATCH, after=last)
            released += batch
            if last is None:
                return released

    def reconcile(self, *, now: datetime | None = None, limit: int = 100) -> int:
        moment = now or clock.now()
        with self._writing("reconcile") as rows:
            repairs = settling.reconcile(rows, moment, limit)
        self._cascade(repairs.to_stop, moment, cancelling.stop_children, "cancel")
        self._cascade(repairs.to_return, moment, requeueing.return_children, "requeue")
        # While anything is paused, telling what a cut-short resume left apart would mean reading it all.
        released = 0 if self.paused() else self._release_resumed(moment)
        return repairs.rows + released
