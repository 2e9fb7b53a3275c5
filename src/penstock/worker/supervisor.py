"""The supervisor: starts children, renews their leases, and settles for the dead. ``watch`` has their clocks.

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
from penstock.catalog.rules import outcomes
from penstock.errors import WorkerFailed
from penstock.job import DOCUMENT_FILE, Beat, Job, WorkerReport
from penstock.worker import dead_workers, until_idle
from penstock.worker.child_handle import ChildHandle, free_one
from penstock.worker.document_notifier import DocumentNotifier
from penstock.worker.lanes import lane_name
from penstock.worker.liveness_lock import release_dead
from penstock.worker.outbox import settle_all
from penstock.worker.pool import ProcessPool, WorkerOptions
from penstock.worker.schedule import Schedule, patiently
from penstock.worker.upkeep.overdue import OverdueEnder
from penstock.worker.upkeep.pruner import Pruner
from penstock.worker.upkeep.reaper import Reaper
from penstock.worker.upkeep.reconciler import Reconciler
from penstock.worker.upkeep.stuck import StuckWarner
from penstock.worker.upkeep.sweeper import Sweeper
from penstock.worker.upkeep.vectors import VectorKeeper
from penstock.worker.watchdog import TICK_S, Watchdog

LOOK_S = 1.0
"""How often progress is written, cancel flags are read, and dead neighbours are looked for."""
FREE_S = 0.25
"""How often the child is chosen that takes no tasks while small jobs come."""
TIDY_S = 5.0
"""How often the outbox is looked at here. Children tell jobs themselves; this is for their deaths."""
IDLE_EVERY_S = 0.2
STARVES_AFTER_S = 2.0
STILLBORN_LIMIT = 3
LAST_TRIES, LAST_PAUSE_S = 5, 0.2
SPREAD = 0.1

log = logging.getLogger("penstock.worker")

__all__ = ["Supervisor", "WorkerOptions"]


class Supervisor:
    def __init__(self, terms: WorkerOptions) -> None:
        self._terms = terms
        self._queue = terms.open_queue()
        self._catalog = terms.open_catalog() if terms.open_catalog is not None else None
        self._host = socket.gethostname()
        self._name = f"{self._host}-{os.getpid()}-{clock.new_id()[-8:]}"
        self._keeper = self._vector_keeper()
        self._stuck = StuckWarner(self._queue)
        self._signals = 0
        self._began = clock.now()
        self._reported: dict[str, Any] = {}
        self._idle_at = 0.0
        self._houses = False
        self._nursery: ProcessPool

    def _vector_keeper(self) -> VectorKeeper | None:
        terms = self._terms
        if self._catalog is None or terms.open_catalog is None or terms.shelf is None:
            return None
        return VectorKeeper(self._catalog, terms.open_catalog, terms.shelf, terms.start_method)

    def run(self) -> None:
        """Until a signal, ``stop`` or, if so asked, until nothing is left to do."""
        self._nursery = ProcessPool(self._queue, self._catalog, self._terms, self._name)
        try:
            with self._listening(), Watchdog(self._nursery, self._terms) as watch:
                self._work(watch)
                self._drain(watch)
        finally:
            if self._keeper is not None:
                self._keeper.close()
            self._nursery.dismiss()
            self._settle_at_last()
            self._nursery.close()
            self._queue.close()
            if self._catalog is not None:
                self._catalog.close()

    def stop(self) -> None:
        """Ask to stop from another thread; twice: not to wait."""
        self._signals += 1

    def _work(self, watch: Watchdog) -> None:
        patiently(self._warn)
        rota = self._rota()
        self._add_upkeep(rota)
        while not self._signals:
            now = time.monotonic()
            rota.run_due(now)
            if (self._terms.until_idle or self._terms.until_job) and self._nothing_left(now):
                return
            self._nursery.fill_up(now)
            self._nursery.wait(TICK_S)
            self._nursery.bury()
            watch.check()

    def _warn(self) -> None:
        for warning in self._queue.check():
            log.warning("%s", warning)

    def _drain(self, watch: Watchdog) -> None:
        """Stop claiming, let what runs finish, hand back the rest unspent. Leases are renewed to the end."""
        log.info("finishing what runs, within %.0f s", self._terms.shutdown_grace_s)
        for ward in self._nursery.wards:
            ward.slot.ask_to_leave()
        rota = self._rota()
        asked, deadline = self._signals, time.monotonic() + self._terms.shutdown_grace_s
        while self._nursery.wards and self._signals == asked and time.monotonic() < deadline:
            rota.run_due(time.monotonic())
            self._nursery.wait(TICK_S)
            self._nursery.bury()
            watch.check()

    def _settle_at_last(self) -> None:
        for _ in range(LAST_TRIES):
            patiently(self._nursery.settle)
            if not self._nursery.unsettled:
                break
            time.sleep(LAST_PAUSE_S)
        else:
            log.warning("the store is away; the next worker on this host gives the jobs back")
        patiently(self._tidy_at_last)
        patiently(self._report)

    def _tidy_at_last(self) -> None:
        """What the last jobs left in the outbox: a command that worked for one job has no next round."""
        if self._catalog is not None:
            DocumentNotifier(self._queue, self._catalog).step()
            Sweeper(self._catalog).clear_leftovers()

    def _rota(self) -> Schedule:
        rota = Schedule()
        rota.add(self._terms.heartbeat_s, self._renew)
        rota.add(LOOK_S, self._look)
        rota.add(LOOK_S, self._relieve)
        rota.add(LOOK_S, self._release_tasks)
        rota.add(FREE_S, self._keep_one_free)
        rota.add(0.0, self._nursery.settle)
        return rota

    def _add_upkeep(self, rota: Schedule) -> None:
        queue, terms = self._queue, self._terms
        leases = [terms.lease, *terms.lease_by_type.values()]
        rota.add(LOOK_S, self._release_neighbours)
        rota.add(LOOK_S, self._report_news)
        rota.add(terms.upkeep_s, self._reaper(max(leases)).step, spread=SPREAD)
        rota.add(terms.upkeep_s, Reconciler(queue).step, spread=SPREAD)
        rota.add(terms.upkeep_s, OverdueEnder(queue).step, spread=SPREAD)
        rota.add(terms.upkeep_s, Pruner(queue, terms.retention).step, spread=SPREAD)
        rota.add(terms.upkeep_s, self._stuck.step, spread=SPREAD)
        if self._catalog is not None:
            teller, sweeper = DocumentNotifier(queue, self._catalog), Sweeper(self._catalog)
            rota.add(TIDY_S, teller.step)
            rota.add(LOOK_S, teller.look_around)
            rota.add(TIDY_S, sweeper.clear_leftovers)
            rota.add(terms.upkeep_s, lambda: sweeper.take_back(terms.task_lease), spread=SPREAD)
            rota.add(terms.upkeep_s, lambda: sweeper.drop_unfinished(terms.task_lease), spread=SPREAD)
            rota.add(terms.upkeep_s, sweeper.forget, spread=SPREAD)
        if self._keeper is not None:
            rota.add(terms.upkeep_s, self._keeper.step, spread=SPREAD)

    def _reaper(self, longest_lease: timedelta) -> Reaper:
        return Reaper(self._queue, longest_lease.total_seconds(), catalog=self._catalog)

    def _nothing_left(self, now: float) -> bool:
        ready = any(ward.slot.ready for ward in self._nursery.wards)
        if self._nursery.tally.stillborn >= STILLBORN_LIMIT and not ready:
            raise WorkerFailed(
                f"no process lives long enough to take a job: {self._nursery.tally.last_death}"
            )
        if self._terms.until_job is not None:
            return self._job_ended(self._terms.until_job, now)
        executed = self._executed_at_rest()
        if now < self._idle_at or executed is None:
            return False
        self._idle_at = now + IDLE_EVERY_S
        # Several reads: what a child took up in between is in none of them.
        return bool(patiently(self._lanes_idle)) and self._executed_at_rest() == executed

    def _executed_at_rest(self) -> list[int] | None:
        """What each child has executed so far; None while one of them is at work."""
        ready = [ward.slot for ward in self._nursery.wards if ward.slot.ready]
        return [slot.executed for slot in ready] if all(slot.idle for slot in ready) else None

    def _lanes_idle(self) -> bool:
        """A lane that no child can serve, as its work needs another model, is not waited for."""
        refused = [set(ward.notes().get("services", {})) for ward in self._nursery.wards]
        nowhere = set.intersection(*refused) if refused else set()
        lanes = [lane for lane in self._terms.lanes if lane_name(lane) not in nowhere]
        takes_jobs = self._terms.takes_jobs
        return until_idle.lanes_idle(self._queue, self._catalog, lanes, takes_jobs=takes_jobs)

    def _job_ended(self, job_id: str, now: float) -> bool:
        if now < self._idle_at:
            return False
        self._idle_at = now + IDLE_EVERY_S

        def ended() -> bool:
            job = self._queue.get(job_id)
            return job is None or job.ended

        return bool(patiently(ended))

    # Leases, progress, cancels.

    def _renew(self) -> None:
        beats = [
            Beat(job.queue_id, job.claim_number, self._lease_of(job))
            for ward in self._nursery.wards
            for job in dead_workers.held_by(self._queue, ward.worker_id)
        ]
        if beats:
            self._queue.renew(beats)
        if self._catalog is not None:
            claims = [claim for ward in self._nursery.wards for claim in self._catalog.held(ward.worker_id)]
            if claims:
                self._catalog.renew(claims)
        self._report()

    def _lease_of(self, job: Job) -> timedelta:
        return self._terms.lease_by_type.get(job.item_type, self._terms.lease)

    def _look(self) -> None:
        """Write what changed of the progress and read the cancel flags, in one call."""
        asked: list[tuple[ChildHandle, int, int]] = []
        beats: list[Beat] = []
        for ward in self._nursery.wards:
            doing = ward.executing
            if doing is None or doing.over_tasks:
                # No job of the queue: it would say that none of it is held here.
                continue
            for index, member in enumerate(doing.members):
                progress = ward.fresh_progress(doing.number, index)
                beats.append(Beat(member.queue_id, member.claim_number, None, progress))
                asked.append((ward, doing.number, index))
        if not beats:
            return
        answers = self._queue.renew(beats)
        with self._nursery.lock:
            now = time.monotonic()
            for (ward, number, index), answer in zip(asked, answers, strict=True):
                if answer.cancel_requested or not answer.held:
                    # No longer ours, it is stopped like a cancelled one; its result would be refused.
                    ward.ask_to_stop(number, index, now)

    def _relieve(self) -> None:
        """Do for a child what its own sender cannot: give back the jobs behind the one that takes so long."""
        now = time.monotonic()
        for ward in self._nursery.wards:
            doing = ward.executing
            if doing is None or not ward.starves(doing, STARVES_AFTER_S, now):
                continue
            held = dead_workers.held_by(self._queue, ward.worker_id)
            if ward.executing != doing:
                continue
            behind = [job for job in held if not dead_workers.was_executing(job, doing)]
            settle_all(self._queue, ward.slot.results())
            settle_all(self._queue, [lifecycle.released(job, "behind a slow job") for job in behind])
            ward.relieve(doing.number)

    def _release_tasks(self) -> None:
        """Give back the tasks of a child whose job takes longer than jobs of its kind did before."""
        if self._catalog is None:
            return
        now = time.monotonic()
        for ward in self._nursery.wards:
            doing = ward.executing
            if doing is None or doing.over_tasks or now - doing.started < STARVES_AFTER_S:
                continue
            held = [] if ward.slot.tasks_released(doing.number) else self._catalog.held(ward.worker_id)
            if held and ward.executing == doing:
                self._catalog.settle([outcomes.released(claim) for claim in held])
                ward.slot.release_tasks(doing.number)

    def _keep_one_free(self) -> None:
        """One of several children is the one that small jobs find without a task."""
        wards = self._nursery.wards
        free = free_one(wards, time.monotonic())
        for ward in wards:
            ward.slot.keep_free(ward is free)

    # Neighbours and reports.

    def _release_neighbours(self) -> None:
        released = release_dead(self._queue, self._terms.directory, self._catalog)
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
        return self._housing() | {
            "processes": len(wards),
            "refused": tally.refused + sum(ward.slot.refused for ward in wards),
            "deaths": tally.deaths,
            "last_death": tally.last_death,
            "stuck": self._stuck.stuck,
            "services": services,
        }

    def _housing(self) -> dict[str, str]:
        """Told only once there are documents: before that, they may still begin on any host."""
        if not self._terms.one_host or self._catalog is None:
            return {}
        if not self._houses:
            with self._catalog.snapshot() as snapshot:
                self._houses = bool(snapshot.tenants())
        return dict(DOCUMENT_FILE) if self._houses else {}

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

        def heard(number: int, _frame: object) -> None:
            if number != signal.SIGHUP or not self._signals:
                # A terminal that is closed may say so more than once, and means the same.
                self._signals += 1

        numbers = [signal.SIGTERM]
        for number in (signal.SIGINT, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:
                # Ignored at the start, it stays so: by nohup, or a script's shell for its background jobs.
                numbers.append(number)
        try:
            before = {number: signal.signal(number, heard) for number in numbers}
        except ValueError:
            before = {}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
