"""The gateway: takes messages, mirrors jobs, sends heartbeats and takes over from dead gateways."""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from penstock import clock
from penstock.errors import DiskFull, InvalidText, StoreError, StoreReadOnly, StoreUnavailable
from penstock.redis_contract.intake import Intake
from penstock.redis_contract.lists import Broker, Lists
from penstock.redis_contract.mirror import Mirror
from penstock.redis_contract.rags import Rags
from penstock.redis_contract.reindex_series import ReindexSeries
from penstock.redis_contract.tenant_erasure import TenantErasure
from penstock.service.collections import Collections
from penstock.service.documents import Documents
from penstock.service.jobs import Jobs
from penstock.vocabulary import how_many

BEAT_S = 2.0
POLL_S = 0.2
IDLE_ROUNDS = 5
"""Idle rounds after which jobs are read less often."""
LONGEST_PAUSE_S = 5.0
WARN_EVERY_S = 60.0
"""Seconds between warnings while the gateway waits for a server that never answered."""
TAKE_OVER_S = 2.0
ADOPT_S = 60.0

log = logging.getLogger("penstock.gateway")


class Gateway:
    """Connects one Redis server with one queue. Several may run at once, on one host or many."""

    def __init__(
        self,
        broker: Broker,
        jobs: Jobs,
        documents: Documents,
        rags: Rags,
        *,
        group: str,
        check: Callable[[], object] = lambda: None,
    ) -> None:
        """``check`` raises if the server cannot serve the contract; called when Redis first answers."""
        self.name = f"{group}.{_host()}-{os.getpid()}-{clock.new_task_id()[:8]}"
        self.where = broker.label
        self.serves = sorted(rags.by_id)
        self._broker = broker
        self._check = check
        self._jobs = jobs
        self._documents = documents
        self._lists = Lists(broker, gateway=self.name, group=group, rag_ids=self.serves)
        series = ReindexSeries(jobs, Collections(documents.catalog, jobs), self._lists)
        self._intake = Intake(jobs, self._lists, rags, series)
        self._mirror = Mirror(jobs, documents, self._lists, rags, series)
        self._erasure = TenantErasure(jobs, self._lists, rags)
        self._stop = threading.Event()
        self._started_at = clock.format_time(clock.now())
        self._workers = 0
        self._next_take_over = 0.0
        self._next_adoption = 0.0
        self._reconciled = False

    def stop(self) -> None:
        self._stop.set()

    def run(self, on_connected: Callable[[], object] = lambda: None) -> None:
        """Run until a signal or ``stop``. ``on_connected`` is called once Redis has answered."""
        with self._signals():
            if not self._wait_for_redis():
                return
            on_connected()
            beat_thread = threading.Thread(target=self._beat_until_stopped, name="beat", daemon=True)
            beat_thread.start()
            self._loop()
        self._stop.set()
        beat_thread.join(timeout=2 * BEAT_S)
        self.leave()

    def _wait_for_redis(self) -> bool:
        """Wait until Redis answers. False: the gateway was stopped first.

        After a power cut the gateway may start before Redis, so a missing server is no error.
        """
        pause, warned_at = POLL_S, None
        while not self._stop.is_set():
            try:
                self._check()
                self.beat()
            except (StoreUnavailable, StoreReadOnly, DiskFull) as error:
                now = clock.elapsed_s()
                if warned_at is None or now - warned_at >= WARN_EVERY_S:
                    log.warning("%s (%s); waiting for it. %s", error.message, error.code, error.remedy)
                    warned_at = now
                self._stop.wait(pause)
                pause = min(2 * pause, LONGEST_PAUSE_S)
            else:
                return True
        return False

    def _loop(self) -> None:
        pause, idle = POLL_S, 0
        while not self._stop.is_set():
            try:
                # Idle jobs are read once a second; new messages are taken at once.
                active = self.run_round(mirror=idle < IDLE_ROUNDS or not idle % IDLE_ROUNDS)
            except (StoreError, InvalidText) as error:
                # Redis or the queue may be unreachable for a while; nothing is lost, as both are durable.
                told = (error.message, error.code, pause, error.remedy)
                log.warning("%s (%s); trying again in %.1f s. %s", *told)
                self._intake.forget()
                self._next_take_over = self._next_adoption = 0.0
                self._stop.wait(pause)
                pause = min(2 * pause, LONGEST_PAUSE_S)
                continue
            pause, idle = POLL_S, 0 if active else idle + 1
            if not active:
                self._stop.wait(POLL_S)

    def run_round(self, *, mirror: bool = True) -> bool:
        """Do all due work once. True: there may be more to do at once."""
        now = clock.elapsed_s()
        if now >= self._next_take_over:
            self._take_over(adopt=now >= self._next_adoption)
            self._correct()
            if now >= self._next_adoption:
                self._next_adoption = now + ADOPT_S
            self._next_take_over = now + TAKE_OVER_S
        accepted = self._intake.hand_over()
        self._mirror.add(accepted)
        return (mirror and self._mirror.update()) or bool(accepted)

    def _take_over(self, *, adopt: bool) -> None:
        messages, jobs = self._lists.take_over()
        if messages or jobs:
            taken = (how_many(messages, "message"), how_many(jobs, "job"))
            log.info("took over %s and %s from a dead gateway", *taken)
            self._intake.forget()
        if adopt:
            self._mirror.adopt()
            self._erasure.erase_deleted()
        if (messages or jobs or adopt) and self._mirror.reload():
            self._reconciled = False
        if not self._reconciled:
            self._mirror.add(self._mirror.find_unreported())
            self._reconciled = True
        self._count_workers()

    def _count_workers(self) -> None:
        """Count living workers, and report a change at once: a person may be waiting for one to start."""
        queue, heartbeat_s = self._jobs.queue, self._jobs.settings.heartbeat_s
        now = queue.now()
        living = sum(worker.takes_jobs and worker.alive(now, heartbeat_s) for worker in queue.workers())
        if living != self._workers:
            self._workers = living
            self.beat()

    def _correct(self) -> None:
        expired = self._intake.expire()
        if expired:
            log.warning("%s expired: no gateway served the RAG", how_many(expired, "message"))
        corrected = self._lists.recheck()
        if corrected:
            log.info("%d hashes were overwritten by their producers and corrected", corrected)

    # Heartbeats.

    def beat(self) -> None:
        self._lists.beat(self._beat_fields())

    def leave(self) -> None:
        """Announce the end of this gateway; others then take over at once."""
        try:
            self._lists.beat(self._beat_fields(), leaving=True)
        except StoreError as error:
            log.warning("%s", error.message)

    def _beat_fields(self) -> dict[str, Any]:
        return {
            "host": _host(),
            "pid": os.getpid(),
            "started_at": self._started_at,
            "workers": self._workers,
            "rags": self.serves,
            **self._mirror.counts(),
        }

    def _beat_until_stopped(self) -> None:
        """Send heartbeats from their own thread: a gateway busy with a large file is not dead.

        An idle gateway writes nothing else, so that only this tells of a server that cannot be written.
        """
        warned_at: float | None = None
        while not self._stop.wait(BEAT_S):
            try:
                self.beat()
            except StoreError as error:
                now = clock.elapsed_s()
                if warned_at is None or now - warned_at >= WARN_EVERY_S:
                    log.warning("no heartbeat: %s (%s). %s", error.message, error.code, error.remedy)
                    warned_at = now
            else:
                warned_at = None

    @contextmanager
    def _signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        # SIGINT stays ignored if it was at the start, as in the background of a script.
        ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        numbers = (signal.SIGTERM,) if ignored else (signal.SIGTERM, signal.SIGINT)
        before = {number: signal.signal(number, lambda *_: self.stop()) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def close(self) -> None:
        self._broker.close()


def _host() -> str:
    return re.sub(r"[^A-Za-z0-9-]", "-", socket.gethostname())[:60] or "host"
