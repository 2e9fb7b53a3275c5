"""A child process: claim a batch, run it one by one, settle in batches. It owns no lease and no timer.

The supervisor renews its leases, watches its clock and kills it if need be; what the child executes stands
in the shared slot. A thread of its own sends finished results off while a long handler runs.
"""

from __future__ import annotations

import logging
import os
import random
import threading
import time
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import NoReturn

import msgspec

from penstock import lifecycle
from penstock.catalog.values import Phase
from penstock.errors import DiskFull, PenstockError, StoreError, StoreUnavailable
from penstock.handlers.context import Context
from penstock.handlers.registry import Registry
from penstock.job import CHILDREN, Claim, ClaimRequest, Settlement
from penstock.queue.protocol import Queue
from penstock.worker.batch_size import BatchSize
from penstock.worker.breaker import Breakers
from penstock.worker.error_text import describe
from penstock.worker.executor import Executor
from penstock.worker.isolation import REPLACED, Isolation
from penstock.worker.lanes import DocumentTools, Lanes
from penstock.worker.orphans import OrphanedClaims
from penstock.worker.outbox import Outbox
from penstock.worker.process_exit import end_process
from penstock.worker.process_guard import ProcessGuard, Stopped
from penstock.worker.recycle_policy import RecyclePolicy
from penstock.worker.shared_state import MOST_MEMBERS, ExecutingJob, SharedState

SETTLE_AT = 100
SETTLE_AFTER_S = 0.05
HAND_BACK_AFTER_S = 1.0
"""How long claimed jobs wait behind a slow one before others may have them."""
OLDEST_EVERY = 16
CLAIM_EVERY_S = 0.25
"""How often to claim between two pieces of tasks where nothing hints at jobs: one may have become due."""
LOOK_UP_S = 0.5
"""How often a child that waits for work looks whether it should leave."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 10.0
PATIENCE_S = 60.0
"""A store that is away for longer may only be so for this process, so another one takes over."""
BEAT_EVERY_S = 1.0
"""How often a child that waits for work says that it lives."""

log = logging.getLogger("penstock.worker")


class ChildOptions(msgspec.Struct, frozen=True):
    """What a child is told at birth."""

    worker_id: str
    slot_path: str
    parent_pid: int
    lease: timedelta
    lease_by_type: dict[str, timedelta]
    poll_s: float
    recycle_after: int | None = None
    recycle_growth_mb: int | None = None
    takes_jobs: bool = True
    lanes: tuple[Phase, ...] = ()


class Child:
    # Bound here, out of reach of handlers that replace them in their module and forget to put them back.
    _now = staticmethod(time.monotonic)
    _sleep = staticmethod(time.sleep)

    def __init__(
        self,
        queue: Queue,
        registry: Registry,
        guard: ProcessGuard,
        slot: SharedState,
        terms: ChildOptions,
        documents: DocumentTools | None = None,
    ) -> None:
        self._lanes = (
            Lanes(documents, queue, slot, terms.worker_id, terms.lanes) if documents is not None else None
        )
        self._queue = queue
        self._guard = guard
        self._slot = slot
        self._terms = terms
        self._breakers = Breakers()
        self._executor = Executor(registry, self._breakers)
        self._outbox = Outbox(queue, slot)
        self._doubt = OrphanedClaims(queue, terms.worker_id)
        self._pace = BatchSize()
        self._waiting: deque[Claim] = deque()
        self._lock = threading.Lock()
        self._unsent_since = 0.0
        self._executing_since = 0.0
        self._claimed_at = 0.0
        self._alone = False
        """Whether the last claim had one job only."""
        self._busy = threading.Event()
        self._rounds = 0
        self._jobs = 0
        self._isolation = Isolation(guard, RecyclePolicy(terms.recycle_after, terms.recycle_growth_mb))
        self._services: dict[str, str] = {}

    def run(self) -> None:
        threading.Thread(target=self._send_while_busy, daemon=True).start()
        self._guard.take_stock()
        self._slot.beat(self._now())
        self._slot.say_ready()
        try:
            while not self._leaving() and (self._waiting or self._isolation.lasts(self._jobs)):
                self._step()
        except Stopped:
            # What becomes of the jobs that were executing, the supervisor says; the others are given back.
            log.debug("stopped by the supervisor")
        self._leave()
        self._slot.say_leaving(self._now())
        self._isolation.log_end()

    def _step(self) -> None:
        """Jobs that are claimed come first. Tasks take as long as the jobs before them took; in between, and
        after every piece of them, jobs that wait are claimed.
        """
        if self._waiting:
            self._run_next()
        elif self._pace.tasks_due and self._lanes is not None and self._lanes.waiting():
            # Results do not wait for tasks, but nothing more is claimed before these had their turn.
            self._patiently(self._outbox.send)
            if not self._work_on_tasks():
                self._pace.no_tasks()
        else:
            if self._due():
                self._patiently(lambda: self._fetch(self._pace.limit(self._isolation.jobs_left(self._jobs))))
            if not self._waiting and not self._work_on_tasks():
                self._patiently(self._rest)

    def _due(self) -> bool:
        """Whether to claim: between two pieces of a batch of tasks only when there may be jobs."""
        if self._lanes is None or not self._lanes.at_work or len(self._outbox):
            return True
        return self._now() - self._claimed_at > CLAIM_EVERY_S or self._queue.wait(0)

    def _leaving(self) -> bool:
        return self._guard.asked_to_leave or self._slot.asked_to_leave()

    def _rest(self) -> None:
        """Wait until something may be there, in pieces, so that a long poll does not delay a stop."""
        self._busy.clear()
        self._pace.no_tasks()
        self._slot.say_idle(True)
        until = self._now() + self._terms.poll_s
        while not self._leaving() and (left := until - self._now()) > 0:
            self._guard.leave_with_parent()
            # Also with nothing to do: a service that was down may be due for another try.
            self._tell_services()
            if self._queue.wait(min(left, LOOK_UP_S)):
                break
        self._slot.say_idle(False)

    def _patiently(self, step: Callable[[], None]) -> None:
        """A store that is away for a while costs time, not the process."""
        pause, give_up_at = FIRST_PAUSE_S, self._now() + PATIENCE_S
        while True:
            try:
                return step()
            except (StoreUnavailable, DiskFull) as error:
                if self._leaving() or self._now() > give_up_at:
                    raise
                log.warning("the store is away, trying again in %.1f s: %s", pause, error)
                self._sleep(pause * random.uniform(0.5, 1.0))
                pause = min(pause * 2, LONGEST_PAUSE_S)

    def _work_on_tasks(self) -> bool:
        lanes, worked = self._lanes, False
        if lanes is None:
            return False
        if self._slot.kept_free() and self._pace.small_jobs_come(self._now()):
            self._patiently(lanes.put_down)
            return False

        def step() -> None:
            nonlocal worked
            worked = lanes.step(self._guard.around)

        self._executing_since = started = self._now()
        self._busy.set()
        try:
            self._patiently(step)
        finally:
            self._executing_since = 0.0
        self._pace.tasks_took(self._now() - started)
        return worked

    def _fetch(self, limit: int) -> None:
        if not self._terms.takes_jobs:
            self._outbox.send()
            return
        self._rounds += 1
        self._claimed_at = self._now()
        request = ClaimRequest(
            self._terms.worker_id,
            limit,
            self._terms.lease,
            self._terms.lease_by_type,
            oldest=self._rounds % OLDEST_EVERY == 0,
        )
        try:
            claims = self._outbox.exchange(request)
        except StoreUnavailable:
            self._doubt.arises(self._now())
            raise
        if claims:
            self._alone = len(claims) == 1
            self._guard.mend_output()
            with self._lock:
                self._waiting.extend(claims)
            self._busy.set()
        with self._lock:
            # While nothing is executed: then all that this process knows of is waiting, or in the box.
            known = {(claim.queue_id, claim.claim_number) for claim in self._waiting}
        self._doubt.clear_up(known | self._outbox.claims(), self._now())

    # Running.

    def _run_next(self) -> None:
        claims = self._take_next()
        if not claims:
            return
        kind = (claims[0].item_type, claims[0].op)
        if not self._isolation.admits(claims[0]):
            with self._lock:
                self._waiting.extendleft(reversed(claims))
            self._hand_back(REPLACED)
            return
        if len(self._outbox) and (claims[0].lost_count or self._pace.slow(kind)):
            # Finished work must not hang on a job that may take long, or take the process down.
            self._patiently(self._outbox.send)
        if self._lanes is not None and self._lanes.at_work and self._pace.slow(kind):
            self._patiently(self._lanes.put_down)
        started = self._now()
        settlements = self._execute(claims, started)
        ended = self._now()
        self._pace.note(kind, (ended - started) / len(claims), self._executor.batch_size(claims[0]))
        self._pace.jobs_took(ended - started, alone=self._alone, now=ended)
        self._finish(settlements, ended)

    def _take_next(self) -> list[Claim]:
        """The next job, with others of its kind when its handler takes many."""
        with self._lock:
            if not self._waiting:
                return []
            first = self._waiting[0]
        size = min(self._executor.batch_size(first), MOST_MEMBERS)
        if 1 < size > len(self._waiting):
            self._patiently(lambda: self._fetch(size - len(self._waiting)))
        with self._lock:
            self._waiting.popleft()
        return [first, *self._like(first, size - 1)] if size > 1 else [first]

    def _like(self, first: Claim, most: int) -> list[Claim]:
        with self._lock:
            alike = [
                claim
                for claim in self._waiting
                if (claim.item_type, claim.op) == (first.item_type, first.op) and not claim.lost_count
            ][:most]
            taken = {claim.queue_id for claim in alike}
            self._waiting = deque(claim for claim in self._waiting if claim.queue_id not in taken)
        return alike

    def _execute(self, claims: list[Claim], started: float) -> list[Settlement]:
        slot, calling = self._slot, self._breakers.calling
        members = tuple(ExecutingJob(claim.queue_id, claim.claim_number, claim.timeout_s) for claim in claims)
        self._executing_since = started
        number = slot.begin(members, started)

        def context(index: int, claim: Claim) -> Context:
            return Context(
                claim,
                report=lambda text: slot.tell(number, index, text),
                stop_requested=lambda: slot.asked_to_stop(number, index),
                guard_service=calling,
                settle=self._outbox.settle_now,
                mark=lambda mark: slot.mark_file(number, mark, self._now()),
                index=index,
            )

        with self._guard.around(number):
            settlements = self._executor.run(claims, context)
        if slot.relieved(number):
            # They were given back in our name while we could not.
            with self._lock:
                self._waiting.clear()
        if self._lanes is not None and slot.tasks_released(number):
            self._lanes.forget()
        return settlements

    def _finish(self, results: list[Settlement], now: float) -> None:
        if not len(self._outbox):
            self._unsent_since = now
        kept = self._outbox.put(results)
        if self._guard.robbed:
            self._give_up(len(results) if kept else 0)
        if not kept:
            self._patiently(self._outbox.send)
        # Only now: until its result is in the box, the job counts as being executed.
        self._slot.end(len(results))
        self._executing_since = 0.0
        self._jobs += len(results)
        self._tell_services()
        if self._lanes is not None and any(result.waiting_for not in (None, CHILDREN) for result in results):
            self._lanes.wake()
        due = len(self._outbox) >= SETTLE_AT or now - self._unsent_since > SETTLE_AFTER_S
        if due and self._waiting:
            self._patiently(self._outbox.send)

    def _give_up(self, finished: int) -> NoReturn:
        """The store must not be touched: its numbers may be other files by now. The supervisor settles."""
        if finished:
            self._slot.end(finished)
        reason = "a handler closed the descriptors of its process"
        self._slot.note(msgspec.json.encode({"died": reason}).decode())
        os._exit(1)

    def _tell_services(self) -> None:
        states = self._breakers.states() | (self._lanes.refused if self._lanes is not None else {})
        if states != self._services:
            self._services = dict(states)
            self._slot.note(msgspec.json.encode({"services": states}).decode())

    # Sending.

    def _send_while_busy(self) -> None:
        """Results of quick jobs do not wait for a slow one, nor do the jobs claimed with it. Also says that
        this process lives: it does not where a thread that was left behind keeps the interpreter.
        """
        while True:
            if self._busy.wait(BEAT_EVERY_S):
                self._sleep(SETTLE_AFTER_S)
            self._guard.leave_with_parent()
            now, since = self._now(), self._executing_since
            # From here, not from the main thread: that may have to wait for the store.
            self._slot.beat(now)
            if since and now - since > SETTLE_AFTER_S and self._guard.intact():
                try:
                    if now - since > HAND_BACK_AFTER_S:
                        self._hand_back("behind a slow job")
                    self._outbox.send()
                except (StoreError, MemoryError) as error:
                    # Kept in the box; the main thread, or the next round, tries again. The memory is missed
                    # while a file uses up its share.
                    log.warning("results could not be sent yet: %s", error)

    def _hand_back(self, reason: str) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, deque()
        self._outbox.put([lifecycle.released(claim, reason) for claim in waiting])

    def _leave(self) -> None:
        """Everything claimed is settled or given back; nothing is left to a lease."""
        self._hand_back("worker is stopping")
        self._patiently(self._outbox.send)
        if self._lanes is not None:
            self._patiently(self._lanes.put_down)


def main(
    terms: ChildOptions,
    open_queue: Callable[[], Queue],
    registry: Callable[[], Registry],
    open_documents: Callable[[Registry], DocumentTools] | None = None,
) -> None:
    """The process's whole life. Everything is opened here, in the child."""
    slot = SharedState(Path(terms.slot_path))
    code = 1
    try:
        guard = ProcessGuard(slot, terms.parent_pid)
        guard.settle_in()
        handlers = registry()
        documents = open_documents(handlers) if open_documents is not None else None
        Child(open_queue(), handlers, guard, slot, terms, documents).run()
        code = 0
    except BaseException as error:  # whatever it is, the supervisor passes it on
        slot.note(msgspec.json.encode({"died": describe(error)}).decode())
        slot.say_leaving(time.monotonic())
        if isinstance(error, PenstockError):
            log.warning("a worker process ends: %s", error)
        else:
            log.exception("a worker process ends")
    finally:
        end_process(slot, code)
