"""A worker in a thread of this process, for tests and small scripts: no child processes, no signals.

It runs jobs and tasks through the same executor, lanes and outbox as a child process, on shared state that no
other process sees. Cancel, timeouts and progress work. Without a process to kill, a handler that reaches no
checkpoint cannot be stopped, and the budget of a file is not enforced. PDF and Word files are parsed
in a sandbox here, too, with its limits.
"""

from __future__ import annotations

import math
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from datetime import timedelta

from penstock import lifecycle
from penstock.catalog.values import Phase
from penstock.errors import InvalidText, StoreError
from penstock.handlers.context import Registry
from penstock.job import CHILDREN, Beat, Claim, ClaimRequest, JobQuery, Status
from penstock.queue.protocol import Queue
from penstock.worker.beside_jobs import BesideJobs
from penstock.worker.breaker import Breakers
from penstock.worker.document_notifier import DocumentNotifier
from penstock.worker.executor import Executor, beside_context, context_factory, executing_job
from penstock.worker.lanes import DocumentTools, Lanes
from penstock.worker.orphans import all_jobs, stop_children
from penstock.worker.outage import OutageRetry
from penstock.worker.outbox import Outbox
from penstock.worker.schedule_runner import EVERY_S, ScheduleRunner
from penstock.worker.shared_state import SharedState
from penstock.worker.upkeep import OverdueEnder, Sweeper

PAUSE_S = 0.01
HEARTBEAT_S = 0.2
LEAVE_WITHIN_S = 60.0
RENEW_BESIDE_S = 5.0
RENEW_TASKS_S = 10.0
FUNCTION = "function"


class ThreadWorker:
    """One worker thread. ``stop`` waits for the running job and raises the thread's error, if any.

    ``open_documents`` is called when the first job about documents turns up, so that an application of
    functions alone opens no catalog.
    """

    def __init__(
        self,
        queue: Queue,
        registry: Registry,
        *,
        lease: timedelta,
        lease_by_type: Mapping[str, timedelta],
        open_documents: Callable[[Registry], DocumentTools] | None = None,
    ) -> None:
        self._queue = queue
        self._registry = registry
        self._state = SharedState.in_memory()
        self._breakers = Breakers()
        self._executor = Executor(registry, self._breakers)
        self._outbox = Outbox(queue, self._state)
        context = beside_context(self._breakers, self._outbox)
        self._beside = BesideJobs(self._executor, self._state, context, self._outbox.add)
        name = f"{socket.gethostname()}-{os.getpid()}-thread-{id(self):x}"
        self._request = ClaimRequest(name, 1, lease, lease_by_type)
        self._lease = lease
        self._open_documents = open_documents
        self._documents: _DocumentWork | None = None
        self._overdue = OverdueEnder(queue)
        self._late = 0
        """The last execution that was asked to stop because of its timeout."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="penstock-worker", daemon=True)
        self._error: Exception | None = None
        # No supervisor would start this worker again.
        self._retry_on_outage = OutageRetry(self._stop.is_set, longest_s=math.inf)

    def start(self) -> None:
        if self._documents_waited_for():
            self._start_documents()
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _work(self) -> None:
        try:
            with self._heartbeat():
                self._run_until_stopped()
            if self._documents is not None:
                self._documents.lanes.release_batch()
                self._documents.lanes.release_background()
        except Exception as error:  # noqa: BLE001 - a thread's error is raised where it is stopped
            self._error = error
        finally:
            if self._documents is not None:
                self._documents.tools.close()

    def _run_until_stopped(self) -> None:
        claims: list[Claim] = []
        worked = False

        def claim_next() -> None:
            claims[:] = self._queue.claim(self._request)

        def run_tasks() -> None:
            nonlocal worked
            worked = self._run_tasks()

        while True:
            self._retry_on_outage(claim_next)
            for claim in claims:
                self._run(claim)
            self._retry_on_outage(self._outbox.send)
            if self._stop.is_set():
                self._beside.wait_for_all(LEAVE_WITHIN_S)
                self._retry_on_outage(self._outbox.send)
                return
            if not claims:
                self._retry_on_outage(run_tasks)
            if not claims and not worked:
                # Not queue.wait: a thread that waits for a job would compete for the hint.
                self._stop.wait(PAUSE_S)

    def _run(self, claim: Claim) -> None:
        if self._documents is None and self._registry.find(claim.item_type, claim.op) is None:
            try:
                self._start_documents()
            except BaseException:
                self._queue.settle([lifecycle.released(claim, "its worker could not open the catalog")])
                raise
        self._lease = self._request.lease_of(claim.item_type)
        if self._executor.runs_beside(claim):
            no_room = self._beside.start(claim)
            if no_room is not None:
                self._outbox.add([no_room])
            return
        number = self._state.begin((executing_job(claim),), time.monotonic())
        contexts = context_factory(self._state, number, self._breakers, self._outbox)
        settlements = self._executor.run([claim], contexts)
        timed_out = self._late == number and settlements[0].status is Status.CANCELLED
        if timed_out:
            settlements = [lifecycle.timed_out(claim)]
        self._outbox.add(settlements)
        self._state.end(1)
        self._retry_on_outage(self._outbox.send)
        if timed_out:
            self._retry_on_outage(lambda: self._stop_children(claim))
        if self._documents is not None and settlements[0].waiting_for not in (None, CHILDREN):
            self._documents.lanes.wake()

    # Documents.

    def _stop_children(self, claim: Claim) -> None:
        job = self._queue.get(claim.queue_id)
        if job is not None:
            stop_children(self._queue, job)

    def _documents_waited_for(self) -> bool:
        """True if an earlier worker left jobs waiting for documents."""
        running = all_jobs(self._queue, JobQuery(statuses=frozenset({Status.IN_PROGRESS})))
        return any(job.item_type != FUNCTION for job in running)

    def _start_documents(self) -> None:
        if self._open_documents is not None:
            tools = self._open_documents(self._registry)
            lanes = Lanes(tools, self._queue, self._state, self._request.worker_id, tuple(Phase))
            self._documents = _DocumentWork(tools, lanes, self._queue)
            self._overdue = OverdueEnder(self._queue, tools.catalog)

    def _run_tasks(self) -> bool:
        return self._documents is not None and self._documents.run()

    # Leases, progress, cancels.

    @contextmanager
    def _heartbeat(self) -> Iterator[None]:
        """Renew leases, write progress and read cancel flags in a second thread."""
        ended = threading.Event()
        thread = threading.Thread(target=self._beat, args=(ended,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _beat(self, ended: threading.Event) -> None:
        written: tuple[int, str | None] = (0, None)
        renew_tasks_at = time.monotonic() + RENEW_TASKS_S
        renew_beside_at = time.monotonic() + RENEW_BESIDE_S
        schedules, run_schedules_at = ScheduleRunner(self._queue), 0.0
        while not ended.wait(HEARTBEAT_S):
            try:
                written = self._renew(written)
                if time.monotonic() > run_schedules_at:
                    schedules.run()
                    self._overdue.end_bounded()
                    self._queue.admit()
                    self._queue.expire_results()
                    run_schedules_at = time.monotonic() + EVERY_S
                if time.monotonic() > renew_beside_at:
                    self._renew_beside()
                    renew_beside_at = time.monotonic() + RENEW_BESIDE_S
                if time.monotonic() > renew_tasks_at and self._documents is not None:
                    self._documents.renew(self._request.worker_id)
                    renew_tasks_at = time.monotonic() + RENEW_TASKS_S
            except (StoreError, InvalidText):
                # A lease outlasts a few missed beats. If the outage lasts, another worker may get the job.
                continue
            except Exception as error:  # noqa: BLE001 - as in ``_work``; without renewed leases it must stop
                self._error = error
                self._stop.set()
                return

    def _renew_beside(self) -> None:
        lease = self._request.lease_of(FUNCTION)
        beats = [Beat(member.queue_id, member.claim_number, lease) for member in self._state.beside()]
        if beats:
            self._queue.renew(beats)

    def _renew(self, written: tuple[int, str | None]) -> tuple[int, str | None]:
        """Renew the job being executed; ``written`` and the return value: the progress last written."""
        execution = self._state.executing()
        if execution is None or execution.runs_tasks:
            return written
        (job,) = execution.members
        if time.monotonic() - execution.started > job.timeout_s:
            self._late = execution.number
            self._state.request_stop(execution.number, 0)
        progress = self._state.progress(execution.number, 0)
        fresh = progress if (execution.number, progress) != written else None
        (answer,) = self._queue.renew([Beat(job.queue_id, job.claim_number, self._lease, fresh)])
        if answer.cancel_requested or not answer.held:
            self._state.request_stop(execution.number, 0)
        return execution.number, progress


class _DocumentWork:
    """The lanes of a thread worker, with a supervisor's duties for documents."""

    def __init__(self, tools: DocumentTools, lanes: Lanes, queue: Queue) -> None:
        self.tools = tools
        self.lanes = lanes
        self._notifier = DocumentNotifier(queue, tools.catalog)
        self._sweeper = Sweeper(tools.catalog, tools.files)
        # Before the first job: a walk counts a source whose removal is not finished as changed, not as new.
        self._sweeper.clear_leftovers()

    def run(self) -> bool:
        """Run one piece of a lane's batch; False: no lane had a task."""
        worked = self.lanes.run_piece(lambda _: nullcontext())
        if not self.lanes.has_batch:
            self._notifier.process_outbox()
            self._sweeper.clear_leftovers()
            self.tools.phases.keep_stores()
        return worked

    def renew(self, worker_id: str) -> None:
        claims = self.tools.catalog.held(worker_id)
        if claims:
            self.tools.catalog.renew(claims)
