"""Base class of the engines built on the rules, and waiting for a queue.

A method of the engine is a transaction, the rule, and the cascades afterwards.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from functools import partial
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec

from penstock import clock
from penstock.errors import InvalidRequest
from penstock.queue.job import (
    SAME_METADATA,
    AddResult,
    CancelResult,
    Claim,
    ClaimRequest,
    Job,
    JobQuery,
    NewJob,
    QueueLimits,
    RequeueResult,
    Scope,
    Settlement,
    Status,
)
from penstock.queue.limits import KEYS_AT_ONCE, Limit
from penstock.queue.protocol import CASCADE_BATCH, NO_LIMITS, Exchange, Queue, QueueDefaults
from penstock.queue.rules import addition, held_jobs, settlement
from penstock.queue.rules.held_jobs import admit_touched
from penstock.queue.rules.rows import MOVED_AT_ONCE, RESUME_STEPS, ClaimPosition, Rows, start
from penstock.queue.rules.settlement import Leftovers

R = TypeVar("R", bound=Rows)
T = TypeVar("T")
_CascadeStep: TypeAlias = Callable[[Rows, str, datetime, int], tuple[bool, list[str]]]


class Engine(QueueDefaults, ABC, Generic[R]):
    """Queue methods shared by the memory, JSONL, SQLite and PostgreSQL engines."""

    _unfinished = False
    """The last claim or resume of this process reached its limit: there is more to do at once."""
    _resuming = False
    """The last claim saw an active resume."""
    _stranded_after: ClaimPosition | None = None
    """Position of the search for held rows without a pause."""
    _resolved_after = ""
    """Position of the search for held rows whose dependencies have ended."""
    _admitted_after = ""
    """Position of the search for rows that wait for limits."""

    @abstractmethod
    def _write(self, what: str, work: Callable[[R], T]) -> T:
        """Run ``work`` in one transaction; ``what`` is the name in the audit log.

        An engine with concurrent writers may run it again from the start.
        """

    @abstractmethod
    def _reading(self) -> AbstractContextManager[R]: ...

    def _apply(self, what: str, work: Callable[[R], T], now: datetime) -> T:
        """Run ``work``, and give freed slots to other rows, in one transaction."""

        def work_and_admit(rows: R) -> T:
            result = work(rows)
            admit_touched(rows, now)
            return result

        return self._write(what, work_and_admit)

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
        return self._apply("add", lambda rows: addition.add(rows, new, limits, moment), moment)

    def restore(self, jobs: Sequence[Job]) -> list[str | None]:
        def work(rows: R) -> list[str | None]:
            found = addition.restore(rows, jobs)
            # Upkeep releases them: the limits may be restored after the jobs.
            rows.limit_keys.clear()
            return found

        return self._write("restore", work)

    def claim(self, request: ClaimRequest, *, now: datetime | None = None) -> list[Claim]:
        moment = now or self.now()

        def work(rows: R) -> list[Claim] | None:
            return self._claim_only(rows, request, moment)

        claims = self._write("claim", work)
        if self._advance_after_claim(claims, moment):
            claims = self._write("claim", work)
        return claims or []

    def _claim_only(self, rows: R, request: ClaimRequest, now: datetime) -> list[Claim] | None:
        """Claim without releasing rows: upkeep passes on the slots of rows held back by a claim."""
        claims = self._claim(rows, request, now)
        held_jobs.pass_over_limited(rows, now)
        return claims

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
        return self._write("claim", lambda rows: start(rows, queue_id, request, moment))

    def start_all(
        self, ids: Sequence[str], request: ClaimRequest, *, now: datetime | None = None
    ) -> list[Claim]:
        moment = now or self.now()

        def work(rows: R) -> list[Claim]:
            started = (start(rows, queue_id, request, moment) for queue_id in ids)
            return [claim for claim in started if claim is not None]

        return self._write("claim", work)

    def settle(
        self, settlements: Sequence[Settlement], *, now: datetime | None = None
    ) -> list[Status | None]:
        moment = now or self.now()
        answers, left = self._write("settle", lambda rows: self._settled(rows, settlements, moment))
        self._finish(left, moment)
        return answers

    def _settled(
        self, rows: R, settlements: Sequence[Settlement], now: datetime
    ) -> tuple[list[Status | None], Leftovers]:
        answered = settlement.settle(rows, settlements, now)
        admit_touched(rows, now)
        return answered

    def exchange(
        self, settlements: Sequence[Settlement], request: ClaimRequest, *, now: datetime | None = None
    ) -> Exchange:
        moment = now or self.now()

        def settle_and_claim(rows: R) -> tuple[list[Status | None], Leftovers, list[Claim] | None]:
            answers, left = self._settled(rows, settlements, moment)
            return answers, left, self._claim_only(rows, request, moment)

        answers, left, claims = self._write("exchange", settle_and_claim)
        self._finish(left, moment)
        if self._advance_after_claim(claims, moment):
            claims = self._write("claim", lambda rows: self._claim_only(rows, request, moment))
        return Exchange(answers, claims or [])

    def cancel(self, ids: Sequence[str], *, now: datetime | None = None) -> list[CancelResult]:
        moment = now or self.now()
        answers, left = self._apply("cancel", lambda rows: settlement.cancel(rows, list(ids), moment), moment)
        self._finish(left, moment)
        return answers

    def requeue(
        self,
        ids: Sequence[str],
        *,
        keep_retries: bool = False,
        metadata: Mapping[str, str] = SAME_METADATA,
        now: datetime | None = None,
    ) -> list[RequeueResult]:
        moment = now or self.now()

        def work(rows: R) -> tuple[list[RequeueResult], list[str]]:
            return settlement.requeue(rows, list(ids), moment, keep_retries=keep_retries, metadata=metadata)

        answers, parents = self._apply("requeue", work, moment)
        self._cascade(parents, moment, settlement.return_children, "requeue")
        return answers

    def _finish(self, left: Leftovers, now: datetime) -> None:
        if left.to_stop:
            self._cascade(left.to_stop, now, settlement.stop_children, "cancel")
        if left.to_resolve:
            self._cascade(left.to_resolve, now, addition.resolve_step, "resolve")

    def _cascade(self, parents: Sequence[str], now: datetime, step: _CascadeStep, what: str) -> None:
        """Process children in batches, so no transaction is larger on a larger tree."""
        waiting = list(parents)
        while waiting:
            last, more = self._apply(what, partial(self._run_step, step, waiting[0], now), now)
            waiting = (waiting[1:] if last else waiting) + more

    def _run_step(self, step: _CascadeStep, parent_id: str, now: datetime, rows: R) -> tuple[bool, list[str]]:
        return step(rows, parent_id, now, CASCADE_BATCH)

    def prune(
        self,
        ended_before: Mapping[Status, datetime],
        *,
        item_type: str | None = None,
        limit: int = CASCADE_BATCH,
    ) -> int:
        return self._write("prune", lambda rows: settlement.prune(rows, ended_before, item_type, limit))

    def purge(self, jobs: Sequence[Job], *, now: datetime | None = None) -> int:
        moment = now or self.now()
        return self._apply("purge", lambda rows: settlement.purge(rows, jobs, moment), moment)

    def expire_results(self, *, now: datetime | None = None, limit: int = CASCADE_BATCH) -> int:
        moment = now or self.now()
        with self._reading() as rows:
            due = rows.due_results(moment, limit)
        if due:
            self._write("expire", lambda rows: settlement.expire_results(rows, due, moment))
        return len(due)

    def scrub(self) -> None:
        """Do nothing: this engine keeps no data of deleted rows."""

    def pause(self, scope: Scope, *, now: datetime | None = None) -> None:  # noqa: ARG002 - as the protocol
        self._write("pause", lambda rows: held_jobs.pause(rows, scope))

    def resume(self, scope: Scope, *, now: datetime | None = None) -> int:
        moment = now or self.now()
        begun = self._write("resume", lambda rows: held_jobs.resume(rows, scope, limit=MOVED_AT_ONCE))
        return self._advance(moment, RESUME_STEPS) if begun.more else 0

    def _advance(self, now: datetime, steps: int) -> int:
        """Advance the active resume by some batches. Returns the number of released rows."""
        released = 0
        for _ in range(steps):
            step = self._apply(
                "resume", lambda rows: held_jobs.advance_resume(rows, now, limit=MOVED_AT_ONCE), now
            )
            released += step.released
            if not step.more:
                return released
        self._unfinished = True
        return released

    def reconcile(self, *, now: datetime | None = None, limit: int = 100) -> int:
        moment = now or self.now()
        repairs = self._apply("reconcile", lambda rows: settlement.reconcile(rows, moment, limit), moment)
        self._finish(repairs.leftovers, moment)
        self._cascade(repairs.to_return, moment, settlement.return_children, "requeue")
        resolved = self._resolve_again(moment)
        released = self._advance(moment, RESUME_STEPS)
        stranded, self._stranded_after = self._apply(
            "resume", lambda rows: self._release_stranded(rows, moment), moment
        )
        return repairs.rows + released + stranded + resolved

    def _resolve_again(self, now: datetime) -> int:
        """Continue dependency cascades cut off by a crash. Returns their number."""
        limit = addition.RESOLVED_AT_ONCE

        def find(rows: R) -> tuple[list[str], str]:
            return addition.unresolved(rows, self._resolved_after, limit)

        ended, self._resolved_after = self._write("reconcile", find)
        self._finish(Leftovers(to_resolve=ended), now)
        return len(ended)

    def _release_stranded(self, rows: R, now: datetime) -> tuple[int, ClaimPosition | None]:
        limit, after = MOVED_AT_ONCE, self._stranded_after
        return held_jobs.release_stranded(rows, now, limit=limit, after=after)

    def limits(self) -> list[Limit]:
        with self._reading() as rows:
            return sorted(rows.all_limits(), key=lambda limit: limit.key)

    def put_limit(self, limit: Limit, *, now: datetime | None = None) -> bool:
        moment = now or self.now()

        def put(rows: R) -> bool:
            stored = rows.limit(limit.key)
            if limit.same(stored):
                return False
            rows.set_limit(msgspec.structs.replace(limit, next_at=stored.next_at if stored else None))
            return True

        if not self._write("limit", put):
            return False
        while (
            self._write("limit", lambda rows: held_jobs.recall(rows, limit.key, moment))
            == held_jobs.ADMITTED_AT_ONCE
        ):
            pass
        self._admit_all([limit.key], moment)
        return True

    def drop_limit(self, key: str, *, now: datetime | None = None) -> bool:
        dropped = self._write("limit", lambda rows: rows.drop_limit(key))
        if dropped:
            self._admit_all([key], now or self.now())
        return dropped

    def admit(self, *, now: datetime | None = None) -> int:
        with self._reading() as rows:
            keys = list(rows.limited_keys(self._admitted_after, KEYS_AT_ONCE))
        self._admitted_after = keys[-1] if len(keys) == KEYS_AT_ONCE else ""
        return self._admit_all(keys, now or self.now())

    def _admit_all(self, keys: list[str], now: datetime) -> int:
        """Release rows of these keys, key by key in bounded transactions."""
        seen = 0
        for key in keys:
            found = held_jobs.ADMITTED_AT_ONCE
            while found == held_jobs.ADMITTED_AT_ONCE:
                found = self._write("admit", partial(held_jobs.admit, keys=[key], now=now))
                seen += found
        return seen

    def slots_of(self, key: str) -> int:
        with self._reading() as rows:
            admitted, _ = rows.slots(key, held_jobs.ADMITTED_AT_ONCE, 0, self.now())
        return admitted


DUMPED_AT_ONCE = 500


def pages_of(find: Callable[[JobQuery], list[Job]]) -> Iterator[list[Job]]:
    """All rows by id in batches. The first is read at once, which begins the snapshot of a transaction."""
    query = JobQuery(limit=DUMPED_AT_ONCE)
    return _further_pages(find, query, find(query))


def _further_pages(
    find: Callable[[JobQuery], list[Job]], query: JobQuery, jobs: list[Job]
) -> Iterator[list[Job]]:
    while jobs:
        last = jobs[-1].queue_id
        yield jobs
        jobs = find(msgspec.structs.replace(query, after=last))


_LONGEST_SLEEP_S = 0.5
_SHORTEST_PAUSE_S = 0.01


def wait_for(queue: Queue, is_reached: Callable[[], bool], timeout: float | None) -> bool:
    """Wait until ``is_reached``; False after ``timeout`` seconds."""
    started = time.monotonic()
    while not is_reached():
        left = _LONGEST_SLEEP_S if timeout is None else started + timeout - time.monotonic()
        if left <= 0:
            return False
        if queue.wait(min(left, _LONGEST_SLEEP_S)):
            # In a busy queue every wait returns at once; checking on every change would be a busy loop.
            time.sleep(min(left, _SHORTEST_PAUSE_S))
    return True


class SharedWait:
    """Event counter for threads with one source of events: one thread watches and wakes the others.

    A caller passes the count it has seen, so that no event is missed between two waits.
    """

    def __init__(self) -> None:
        self._turn = threading.Condition()
        self._watched = False
        self.events = 0

    def wait(self, seen: int, timeout: float, watch: Callable[[float], bool]) -> bool:
        """Wait until there are other events than ``seen``, at most ``timeout`` seconds.

        ``watch`` blocks for at most the given seconds and returns whether an event came. One thread at a time
        runs it; when that one returns, another takes its place.
        """
        deadline = time.monotonic() + timeout
        with self._turn:
            self._turn.wait_for(lambda: self.events != seen or not self._watched, timeout)
            if self.events != seen or self._watched:
                if not self._watched:
                    # This thread may be the one that was woken to watch.
                    self._turn.notify()
                return self.events != seen
            self._watched = True
        happened = False
        try:
            happened = watch(max(0.0, deadline - time.monotonic()))
        finally:
            with self._turn:
                self._watched = False
                if happened:
                    self.events += 1
                    self._turn.notify_all()
                else:
                    self._turn.notify()
        return happened

    def add_event(self) -> None:
        """Count an external event, and wake all waiting threads."""
        with self._turn:
            self.events += 1
            self._turn.notify_all()
