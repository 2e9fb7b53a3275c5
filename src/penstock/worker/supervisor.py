"""The supervisor: starts children, renews their leases, watches their clocks, and settles for the dead.

It never runs a handler, so nothing a handler does can keep it from its duties.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import msgspec

from penstock import clock, lifecycle
from penstock.errors import WorkerFailed
from penstock.job import Beat, Job, WorkerReport
from penstock.worker import idleness, losses
from penstock.worker.lifefile import release_dead
from penstock.worker.nursery import Nursery, Terms
from penstock.worker.outbox import settle_all
from penstock.worker.rota import Rota, patiently
from penstock.worker.slot import Executing
from penstock.worker.upkeep.overdue import OverdueEnder
from penstock.worker.upkeep.pruner import Pruner
from penstock.worker.upkeep.reaper import Reaper
from penstock.worker.upkeep.reconciler import Reconciler
from penstock.worker.upkeep.stuck import StuckWarner
from penstock.worker.ward import Ward

TICK_S = 0.1
LOOK_S = 1.0
"""How often progress is written, cancel flags are read, and dead neighbours are looked for."""
IDLE_EVERY_S = 0.2
TIMEOUT_UNWIND_S, CANCEL_UNWIND_S = 2.0, 0.5
"""From SIGTERM to SIGKILL. Whoever is cancelled had the grace before."""
STARVES_AFTER_S = 2.0
STILLBORN_LIMIT = 3
LAST_TRIES, LAST_PAUSE_S = 5, 0.2
SPREAD = 0.1

log = logging.getLogger("penstock.worker")

__all__ = ["Supervisor", "Terms"]


class Supervisor:
    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._queue = terms.open_queue()
        self._host = socket.gethostname()
        self._name = f"{self._host}-{os.getpid()}-{clock.new_id()[-8:]}"
        self._stuck = StuckWarner(self._queue)
        self._signals = 0
        self._began = clock.now()
        self._reported: dict[str, Any] = {}
        self._idle_at = 0.0
        self._nursery: Nursery

    def run(self) -> None:
        """Until a signal, ``stop`` or, if so asked, until nothing is left to do."""
        self._nursery = Nursery(self._queue, self._terms, self._name)
        try:
            with self._listening():
                self._work()
                self._drain()
        finally:
            self._nursery.dismiss()
            self._settle_at_last()
            self._nursery.close()
            self._queue.close()

    def stop(self) -> None:
        """Ask to stop from another thread; twice: not to wait."""
        self._signals += 1

    def _work(self) -> None:
        patiently(self._warn)
        rota = self._rota()
        self._add_upkeep(rota)
        while not self._signals:
            now = time.monotonic()
            rota.run_due(now)
            if self._terms.until_idle and self._nothing_left(now):
                return
            self._nursery.fill_up(now)
            self._enforce(now)
            self._nursery.wait(TICK_S)
            self._nursery.bury()

    def _warn(self) -> None:
        for warning in self._queue.check():
            log.warning("%s", warning)

    def _drain(self) -> None:
        """Stop claiming, let what runs finish, hand back the rest unspent. Leases are renewed to the end."""
        log.info("finishing what runs, within %.0f s", self._terms.shutdown_grace_s)
        for ward in self._nursery.wards:
            ward.slot.ask_to_leave()
        rota = self._rota()
        asked, deadline = self._signals, time.monotonic() + self._terms.shutdown_grace_s
        while self._nursery.wards and self._signals == asked and time.monotonic() < deadline:
            rota.run_due(time.monotonic())
            self._enforce(time.monotonic())
            self._nursery.wait(TICK_S)
            self._nursery.bury()

    def _settle_at_last(self) -> None:
        for _ in range(LAST_TRIES):
            patiently(self._nursery.settle)
            if not self._nursery.unsettled:
                break
            time.sleep(LAST_PAUSE_S)
        else:
            log.warning("the store is away; the next worker on this host gives the jobs back")
        patiently(self._report)

    def _rota(self) -> Rota:
        rota = Rota()
        rota.add(self._terms.heartbeat_s, self._renew)
        rota.add(LOOK_S, self._look)
        rota.add(LOOK_S, self._relieve)
        rota.add(0.0, self._nursery.settle)
        return rota

    def _add_upkeep(self, rota: Rota) -> None:
        queue, terms = self._queue, self._terms
        leases = [terms.lease, *terms.lease_by_type.values()]
        rota.add(LOOK_S, self._release_neighbours)
        rota.add(LOOK_S, self._report_news)
        rota.add(terms.upkeep_s, Reaper(queue, max(leases).total_seconds()).step, spread=SPREAD)
        rota.add(terms.upkeep_s, Reconciler(queue).step, spread=SPREAD)
        rota.add(terms.upkeep_s, OverdueEnder(queue).step, spread=SPREAD)
        rota.add(terms.upkeep_s, Pruner(queue, terms.retention).step, spread=SPREAD)
        rota.add(terms.upkeep_s, self._stuck.step, spread=SPREAD)

    def _nothing_left(self, now: float) -> bool:
        if self._nursery.tally.stillborn >= STILLBORN_LIMIT:
            raise WorkerFailed(
                f"no process lives long enough to take a job: {self._nursery.tally.last_death}"
            )
        if now < self._idle_at or any(ward.slot.ready and not ward.slot.idle for ward in self._nursery.wards):
            return False
        self._idle_at = now + IDLE_EVERY_S
        return bool(patiently(lambda: idleness.idle(self._queue)))

    # Leases, progress, cancels.

    def _renew(self) -> None:
        beats = [
            Beat(job.queue_id, job.claim_number, self._lease_of(job))
            for ward in self._nursery.wards
            for job in losses.held_by(self._queue, ward.worker_id)
        ]
        if beats:
            self._queue.renew(beats)
        self._report()

    def _lease_of(self, job: Job) -> timedelta:
        return self._terms.lease_by_type.get(job.item_type, self._terms.lease)

    def _look(self) -> None:
        """Write what changed of the progress and read the cancel flags, in one call."""
        asked: list[tuple[Ward, int, int]] = []
        beats: list[Beat] = []
        for ward in self._nursery.wards:
            doing = ward.executing
            for index, member in enumerate(doing.members if doing else ()):
                assert doing is not None
                progress = ward.fresh_progress(doing.number, index)
                beats.append(Beat(member.queue_id, member.claim_number, None, progress))
                asked.append((ward, doing.number, index))
        if not beats:
            return
        now = time.monotonic()
        for (ward, number, index), answer in zip(asked, self._queue.renew(beats), strict=True):
            if answer.cancel_requested or not answer.held:
                # A job that is no longer ours is stopped like a cancelled one; its result would be refused.
                ward.ask_to_stop(number, index, now)

    # Limits.

    def _enforce(self, now: float) -> None:
        for ward in self._nursery.wards:
            doing = ward.executing
            if ward.condemned:
                ward.execute_sentence(doing, now)
            elif doing is not None:
                self._judge(ward, doing, now)

    def _judge(self, ward: Ward, doing: Executing, now: float) -> None:
        lasted = now - doing.started
        late = frozenset(index for index, member in enumerate(doing.members) if lasted > member.timeout_s)
        deaf = ward.ignored_stops(doing.number, self._terms.grace_s, now)
        if late:
            ward.condemn(doing, late, lifecycle.timed_out, now + TIMEOUT_UNWIND_S)
        elif deaf:
            ward.condemn(doing, deaf, lifecycle.cancelled_by_flag, now + CANCEL_UNWIND_S)

    def _relieve(self) -> None:
        """Do for a child what its own sender cannot: give back the jobs behind the one that takes so long."""
        now = time.monotonic()
        for ward in self._nursery.wards:
            doing = ward.executing
            if doing is None or not ward.starves(doing, STARVES_AFTER_S, now):
                continue
            held = losses.held_by(self._queue, ward.worker_id)
            if ward.executing != doing:
                continue
            behind = [job for job in held if not losses.was_executing(job, doing)]
            settle_all(self._queue, ward.slot.results())
            settle_all(self._queue, [lifecycle.released(job, "behind a slow job") for job in behind])
            ward.relieve(doing.number)

    # Neighbours and reports.

    def _release_neighbours(self) -> None:
        released = release_dead(self._queue, self._terms.directory)
        if released:
            log.warning("gave back %d jobs of a worker that died on this host", released)

    def _report_news(self) -> None:
        if self._news() != self._reported:
            self._report()

    def _news(self) -> dict[str, Any]:
        tally, wards = self._nursery.tally, self._nursery.wards
        services: dict[str, str] = {}
        for ward in wards:
            services |= ward.notes().get("services", {})
        return {
            "processes": len(wards),
            "refused": tally.refused + sum(ward.slot.refused for ward in wards),
            "deaths": tally.deaths,
            "last_death": tally.last_death,
            "stuck": self._stuck.stuck,
            "services": services,
        }

    def _report(self) -> None:
        news = self._news()
        executed = self._nursery.tally.executed + sum(ward.slot.executed for ward in self._nursery.wards)
        info = msgspec.json.encode(news | {"executed": executed}).decode()
        self._queue.report(
            WorkerReport(
                worker_id=self._name, host=self._host, pid=os.getpid(), started_at=self._began, info_json=info
            )
        )
        self._reported = news

    @contextmanager
    def _listening(self) -> Iterator[None]:
        """The first signal asks to stop, the second not to wait. Only the main thread can listen."""

        def heard(_number: int, _frame: object) -> None:
            self._signals += 1

        try:
            before = {number: signal.signal(number, heard) for number in (signal.SIGTERM, signal.SIGINT)}
        except ValueError:
            before = {}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
