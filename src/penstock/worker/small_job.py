"""One small job, run by the calling process without a child: a note, one small file, or a folder.

For commands while no worker runs: to start a child would cost more than the job. Of a folder, the changed
files are indexed here too, if they are little work; see ``small_folder``. The jobs of others are left to a
worker. Jobs are claimed, executed and settled like any other, and the claims are under a liveness lock, so
that the next command or worker on this host releases them should this process be killed. Parsers of native
code run in the sandbox; see ``Pipeline``. A job that needs more, such as pages of a long document, is left to
a worker.
"""

from __future__ import annotations

import itertools
import os
import signal
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

import msgspec

from penstock import clock, lifecycle
from penstock.catalog.protocol import Catalog
from penstock.handlers.context import Registry
from penstock.handlers.source_files import NO_FILES, SourceFiles
from penstock.job import Claim, ClaimRequest, Job, Status
from penstock.queue.protocol import Queue
from penstock.worker import orphans
from penstock.worker.breaker import Breakers
from penstock.worker.executor import Executor, context_factory, executing_job
from penstock.worker.liveness_lock import ONE_JOB, SUFFIX, LivenessLock, release_dead, state_path
from penstock.worker.outage import OUTAGE
from penstock.worker.outbox import Outbox
from penstock.worker.shared_state import MOST_MEMBERS, SharedState
from penstock.worker.small_folder import (
    FOLDERS,
    MOST_LOSSES,
    SMALL_BYTES,
    file_batches,
    is_small_folder,
    is_walked_folder,
)
from penstock.worker.stopped import Stopped
from penstock.worker.upkeep import clear_outbox, upkeep_overdue

FEW = 5
"""Jobs left behind by interrupted commands that the next command runs as well; more are a backlog."""


class SmallJobOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Stores and handlers for a small job. ``register`` is called only if the job is one."""

    queue: Queue
    catalog: Catalog
    directory: Path
    register: Callable[[Registry], Callable[[], None]]
    lease: timedelta
    lease_by_type: Mapping[str, timedelta]
    source_files: SourceFiles = NO_FILES
    quick_model: bool = True
    """The embedder takes less than a millisecond for a text; otherwise a worker embeds those of a folder."""


def run_small_job(job_id: str, options: SmallJobOptions) -> bool:
    """Run a small job here. False: the job has not ended, and needs a worker."""
    if threading.current_thread() is not threading.main_thread():
        return False  # only the main thread can be interrupted when a file exceeds its limits
    release_dead(options.queue, options.directory, options.catalog, commands_only=True)
    job = options.queue.get(job_id)
    if job is None or _needs_worker(job_id, options):
        return False
    if not is_walked_folder(job) and not _is_small(job, options):
        return False
    registry = Registry()
    close = options.register(registry)
    try:
        stopped = _run(job, options, registry)
    finally:
        close()
    clear_outbox(options.queue, options.catalog, options.source_files)
    job = options.queue.get(job_id)
    if stopped and job is not None and not job.ended:
        raise KeyboardInterrupt  # the files of a folder are left to the next command
    return job is None or job.ended


def _is_small(job: Job | None, options: SmallJobOptions) -> bool:
    return job is not None and (is_small(job) or is_small_folder(job, options.catalog))


def is_small(job: Job) -> bool:
    """Decide by the row and the size of the file. A job that was often lost may crash the process."""
    if job.status is not Status.PENDING or job.lost_count > MOST_LOSSES:
        return False
    if job.item_type == "content":
        return len(job.payload_json) <= SMALL_BYTES
    if job.item_type != "file":
        return False
    try:
        found = Path(job.payload["file_path"]).stat()
    except (OSError, ValueError):
        return True  # nothing is read of a missing file
    return stat.S_ISREG(found.st_mode) and found.st_size <= SMALL_BYTES


def _needs_worker(job_id: str, options: SmallJobOptions) -> bool:
    """True if a worker should start anyway.

    Claims of a dead one are to be released, upkeep is due, or a command that was killed left its note or
    file behind: only commands run jobs where no worker is ever started.
    """
    if any(options.directory.glob(f"*{SUFFIX}")) or upkeep_overdue(options.directory):
        return True
    others = [job for job in options.queue.upcoming(limit=FEW + 2) if job.queue_id != job_id]
    return len(others) <= FEW and any(
        job.item_type in ("content", "file") and job.parent_id is None for job in others
    )


def _run(job: Job, options: SmallJobOptions, registry: Registry) -> bool:
    """Run the job, and the files of a folder; return whether a stop signal came meanwhile."""
    name = f"{os.uname().nodename}-{os.getpid()}-{clock.new_id()[-8:]}"
    worker_id = f"{name}-1"
    lock, settled = LivenessLock(options.directory, name + ONE_JOB), False
    try:
        lock.add_child(worker_id)
        state = SharedState.create(state_path(options.directory, worker_id))
        try:
            execution = _Execution(options, worker_id, registry, state)
            with _delayed_signals() as received, _ended_in_time(job, options, execution):
                walked = is_walked_folder(job)
                if walked:
                    _run_files(job, options, execution, received)
                # A folder that was asked for again while files were left is walked again after them.
                if not received and (not walked or _is_small(options.queue.get(job.queue_id), options)):
                    execution.run([job.queue_id])
                    _run_files(job, options, execution, received)
            settled = True
        finally:
            state.close(remove=settled)
    finally:
        # Files left behind tell the next worker of a claim whose result could not be stored.
        lock.close(remove=settled)
    return bool(received)


def _run_files(folder: Job, options: SmallJobOptions, execution: _Execution, received: Sequence[int]) -> None:
    """Run the files of a folder until a stop signal comes, if they are little work."""
    if folder.item_type not in FOLDERS or received:
        return
    for ids in file_batches(options.queue, folder.queue_id, quick_model=options.quick_model):
        if not received and not execution.overdue:
            execution.run(ids)


class _Execution:
    """Claims, executes and settles jobs in this process."""

    def __init__(
        self, options: SmallJobOptions, worker_id: str, registry: Registry, state: SharedState
    ) -> None:
        self._queue = options.queue
        self._request = ClaimRequest(worker_id, 1, options.lease, options.lease_by_type)
        self._executor = Executor(registry, Breakers())
        self._state = state
        self._outbox = Outbox(options.queue, state)
        self._number = 0
        self.overdue: str | None = None
        """The job whose timeout is over: it has ended, and what runs for it stops at its next checkpoint."""

    def stop(self, job_id: str) -> None:
        """Stop what runs, from another thread."""
        self.overdue = job_id
        self._request_stop()

    def _request_stop(self) -> None:
        for index in range(MOST_MEMBERS):
            self._state.request_stop(self._number, index)

    def run(self, ids: Sequence[str]) -> None:
        """Run those of these jobs that can be started; at most ``MOST_MEMBERS``."""
        claims = self._queue.start_all(ids, self._request)
        try:
            while claims and not self.overdue:
                members = self._next_members(claims)
                self._execute(members)
                del claims[: len(members)]
        except Stopped:
            self._outbox.send()
            for claim in claims:
                self._outbox.settle_now(lifecycle.released(claim, "worker is stopping"))
            raise KeyboardInterrupt from None
        if claims:
            self._outbox.add([lifecycle.released(claim, "its folder timed out") for claim in claims])
        self._outbox.send()

    def _next_members(self, claims: Sequence[Claim]) -> Sequence[Claim]:
        """The first jobs of one kind, as many as their handler takes at once."""
        kind = (claims[0].item_type, claims[0].op)
        members = itertools.takewhile(lambda claim: (claim.item_type, claim.op) == kind, claims)
        return list(itertools.islice(members, self._executor.batch_size(claims[0])))

    def _execute(self, claims: Sequence[Claim]) -> None:
        number = self._number = self._state.begin(tuple(map(executing_job, claims)), time.monotonic())
        if self.overdue:
            self._request_stop()
        results = self._executor.run(claims, context_factory(self._state, number, Breakers(), self._outbox))
        if self.overdue:
            # Its end is stored, and this one would be refused.
            results = [result for result in results if result.queue_id != self.overdue]
        kept = self._outbox.add(results)
        self._state.end(len(results))
        if not kept:
            self._outbox.send()


@contextmanager
def _ended_in_time(job: Job, options: SmallJobOptions, execution: _Execution) -> Iterator[None]:
    """End the job when its timeout is over, in a thread: no supervisor watches this process."""

    def end() -> None:
        execution.stop(job.queue_id)
        with suppress(*OUTAGE):  # then the next worker ends it
            row = options.queue.get(job.queue_id)
            if row is not None and row.status is Status.IN_PROGRESS:
                orphans.end_overdue(options.queue, options.catalog, row)

    seconds = float(job.timeout_s)
    started_at = lifecycle.first_start(job)
    if started_at is not None and lifecycle.bounds_whole_job(job):
        seconds -= (options.queue.now() - started_at).total_seconds()
    timer = threading.Timer(max(seconds, 0.0), end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        # The end may be on its way to the store just now.
        timer.join()


@contextmanager
def _delayed_signals() -> Iterator[list[int]]:
    """Let the job finish after the first stop signal, as a worker does; the second one releases the job.

    Yields the list of signals that came.
    """
    received: list[int] = []

    def stop(number: int, _frame: object) -> None:
        received.append(number)
        if len(received) > 1:
            raise Stopped

    numbers = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP]
    before = {
        number: signal.signal(number, stop)
        for number in numbers
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
