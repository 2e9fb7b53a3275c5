"""A worker in a thread of this process, for tests: no child processes, no signals, and so no force.

Cancel and progress work; a handler that does not come to a checkpoint cannot be stopped, nor can a timeout or
the budget of a file be enforced. PDF and Word files are parsed in a sandbox here, too, with its limits.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Mapping
from datetime import timedelta

from penstock.catalog.values import Phase, TaskRequest
from penstock.errors import StoreError
from penstock.handlers.context import Context
from penstock.handlers.registry import Registry
from penstock.job import Beat, Claim, ClaimRequest
from penstock.queue.protocol import Queue
from penstock.worker.breaker import Breakers
from penstock.worker.document_notifier import DocumentNotifier
from penstock.worker.executor import Executor
from penstock.worker.lanes import DocumentTools, still_wanted
from penstock.worker.upkeep.sweeper import Sweeper

PAUSE_S = 0.01
TASKS_AT_ONCE = 64
BEAT_S = 0.2


class ThreadWorker:
    """``start`` it, and ``stop`` it: that waits for the job in hand, and raises what ended it early."""

    def __init__(
        self,
        queue: Queue,
        registry: Registry,
        *,
        lease: timedelta,
        lease_by_type: Mapping[str, timedelta],
        documents: DocumentTools | None = None,
    ) -> None:
        self._queue = queue
        self._executor = Executor(registry, Breakers())
        name = f"{socket.gethostname()}-{os.getpid()}-thread-{id(self):x}"
        self._request = ClaimRequest(name, 1, lease, lease_by_type)
        self._documents = documents
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="penstock-worker", daemon=True)
        self._error: Exception | None = None

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _work(self) -> None:
        try:
            while not self._stop.is_set():
                claims = self._queue.claim(self._request)
                for claim in claims:
                    self._run(claim)
                if not claims and not self._run_tasks():
                    # Not queue.wait: whoever waits for a job in this process would compete for the hint.
                    self._stop.wait(PAUSE_S)
        except Exception as error:  # noqa: BLE001 - a thread's error is raised where it is stopped
            self._error = error

    def _run_tasks(self) -> bool:
        """One batch of each lane; whether there was any."""
        if self._documents is None:
            return False
        catalog, phases = self._documents
        worked = False
        for lane in Phase:
            claimed = catalog.claim(TaskRequest(lane, self._request.worker_id, TASKS_AT_ONCE))
            tasks = still_wanted(self._queue, catalog, claimed)
            if tasks:
                catalog.settle(phases.run(lane, tasks, embedding=True))
                worked = True
        DocumentNotifier(self._queue, catalog).step()
        Sweeper(catalog).clear_leftovers()
        return worked

    def _run(self, claim: Claim) -> None:
        pulse = _Pulse(self._queue, claim, self._request.lease_of(claim.item_type))
        try:
            settlements = self._executor.run([claim], lambda _, __: pulse.context)
        finally:
            pulse.end()
        self._queue.settle(settlements)


class _Pulse:
    """Renews the lease of one job, writes its progress and reads its cancel flag while it runs."""

    def __init__(self, queue: Queue, claim: Claim, lease: timedelta) -> None:
        self._queue = queue
        self._claim = claim
        self._lease = lease
        self._told: str | None = None
        self._cancelled = threading.Event()
        self._ended = threading.Event()
        self.context = Context(
            claim,
            report=self._tell,
            stop_requested=self._cancelled.is_set,
            settle=lambda settlement: queue.settle([settlement])[0],
        )
        self._thread = threading.Thread(target=self._beat, daemon=True)
        self._thread.start()

    def _tell(self, progress_json: str) -> None:
        self._told = progress_json

    def _beat(self) -> None:
        while not self._ended.wait(BEAT_S):
            told, self._told = self._told, None
            beat = Beat(self._claim.queue_id, self._claim.claim_number, self._lease, told)
            try:
                (answer,) = self._queue.renew([beat])
            except StoreError:
                continue  # the lease outlasts a few missed beats; settling will tell if the store stays away
            if answer.cancel_requested or not answer.held:
                self._cancelled.set()

    def end(self) -> None:
        self._ended.set()
        self._thread.join()
