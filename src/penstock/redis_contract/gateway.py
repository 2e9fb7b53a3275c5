"""The gateway: takes messages, mirrors jobs, beats, and takes over from gateways that died."""

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
from penstock.errors import StoreError, StoreUnavailable
from penstock.redis_contract.intake import Intake
from penstock.redis_contract.lists import Broker, Lists
from penstock.redis_contract.mirror import Mirror
from penstock.redis_contract.rags import Rags
from penstock.redis_contract.tenant_erasure import TenantErasure
from penstock.service.documents import Documents
from penstock.service.jobs import Jobs

BEAT_S = 2.0
POLL_S = 0.2
QUIET = 5
"""Rounds in which nothing happened, until jobs are looked at less often."""
LONGEST_PAUSE_S = 5.0
SAID_EVERY_S = 60.0
"""How often it says that it still waits for a server that was never there."""
TAKE_OVER_S = 2.0
ADOPT_S = 60.0

log = logging.getLogger("penstock.gateway")


class Gateway:
    """Between one Redis server and one queue. Several may run at once, on one host or many."""

    def __init__(
        self,
        broker: Broker,
        jobs: Jobs,
        documents: Documents,
        rags: Rags,
        *,
        house: str,
        check: Callable[[], object] = lambda: None,
    ) -> None:
        """``check`` raises when the server cannot serve the contract; asked when it first answers."""
        self.name = f"{house}.{_host()}-{os.getpid()}-{clock.new_task_id()[:8]}"
        self.where = broker.label
        self.serves = sorted(rags.by_id)
        self._broker = broker
        self._check = check
        self._jobs = jobs
        self._documents = documents
        self._lists = Lists(broker, gateway=self.name, house=house, rag_ids=self.serves)
        self._intake = Intake(jobs, self._lists, rags)
        self._mirror = Mirror(jobs, documents, self._lists, rags)
        self._erasure = TenantErasure(jobs, self._lists, rags)
        self._stop = threading.Event()
        self._started_at = clock.format_time(clock.now())
        self._workers = 0
        self._next_take_over = 0.0
        self._next_adoption = 0.0
        self._reconciled = False

    def stop(self) -> None:
        self._stop.set()

    def run(self, tell: Callable[[], object] = lambda: None) -> None:
        """Until a signal asks it to stop. ``tell`` is called once Redis has answered."""
        with self._signals():
            if not self._joined():
                return
            tell()
            beating = threading.Thread(target=self._beats, name="beat", daemon=True)
            beating.start()
            self._loop()
        self._stop.set()
        beating.join(timeout=2 * BEAT_S)
        self.leave()

    def _joined(self) -> bool:
        """Whether Redis answers. One that is not there yet is waited for, as one that goes away later is:
        after a power cut nobody knows which of them starts first. False: it was asked to stop before that."""
        pause, told_at = POLL_S, None
        while not self._stop.is_set():
            try:
                self._check()
                self.beat()
            except StoreUnavailable as error:
                now = clock.elapsed_s()
                if told_at is None or now - told_at >= SAID_EVERY_S:
                    log.warning("%s (%s); waiting for it", error.message, error.code)
                    told_at = now
                self._stop.wait(pause)
                pause = min(2 * pause, LONGEST_PAUSE_S)
            else:
                return True
        return False

    def _loop(self) -> None:
        pause, quiet = POLL_S, 0
        while not self._stop.is_set():
            try:
                # Jobs that stand still are looked at once a second; new messages are taken at once.
                busy = self.step(look=quiet < QUIET or not quiet % QUIET)
            except StoreError as error:
                # Either side may be away for a while; nothing was lost, as both keep what they have.
                log.warning("%s (%s); trying again in %.1f s", error.message, error.code, pause)
                self._intake.forget()
                self._next_take_over = self._next_adoption = 0.0
                self._stop.wait(pause)
                pause = min(2 * pause, LONGEST_PAUSE_S)
                continue
            pause, quiet = POLL_S, 0 if busy else quiet + 1
            if not busy:
                self._stop.wait(POLL_S)

    def step(self, *, look: bool = True) -> bool:
        """One round of everything that is due; True when there may be more to do at once."""
        now = clock.elapsed_s()
        if now >= self._next_take_over:
            self._take_over(adopt=now >= self._next_adoption)
            self._put_right()
            if now >= self._next_adoption:
                self._next_adoption = now + ADOPT_S
            self._next_take_over = now + TAKE_OVER_S
        accepted = self._intake.step()
        self._mirror.add(accepted)
        return (look and self._mirror.step()) or bool(accepted)

    def _take_over(self, *, adopt: bool) -> None:
        messages, jobs = self._lists.take_over()
        if messages or jobs:
            log.info("took over %d messages and %d jobs from a gateway that is gone", messages, jobs)
            self._intake.forget()
        if adopt:
            self._mirror.adopt()
            self._erasure.step()
        if (messages or jobs or adopt) and self._mirror.reload():
            self._reconciled = False
        if not self._reconciled:
            self._mirror.add(self._mirror.untold())
            self._reconciled = True
        queue, heartbeat_s = self._jobs.queue, self._jobs.settings.heartbeat_s
        now = queue.now()
        self._workers = sum(worker.alive(now, heartbeat_s) for worker in queue.workers())

    def _put_right(self) -> None:
        expired = self._intake.expire()
        if expired:
            log.warning("%d messages waited in vain for a gateway that serves their RAG", expired)
        corrected = self._lists.recheck()
        if corrected:
            log.info("%d hashes had been written over by their producers and were put right", corrected)

    # Signs of life.

    def beat(self) -> None:
        self._lists.beat(self._said())

    def leave(self) -> None:
        """Say that it is gone, so that others need not wait to be sure."""
        try:
            self._lists.beat(self._said(), leaving=True)
        except StoreError as error:
            log.warning("%s", error.message)

    def _said(self) -> dict[str, Any]:
        return {
            "host": _host(),
            "pid": os.getpid(),
            "started_at": self._started_at,
            "workers": self._workers,
            "rags": self.serves,
            **self._mirror.counts(),
        }

    def _beats(self) -> None:
        """In a thread of its own: copying a large file must not look like death."""
        while not self._stop.wait(BEAT_S):
            try:
                self.beat()
            except StoreError:
                continue  # the loop says so

    @contextmanager
    def _signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        # Ctrl-C that was ignored at the start stays so, as in the background of a script.
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
