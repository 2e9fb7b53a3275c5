"""One small job, run by the calling process without a child process: a note, or one small file.

For commands while no worker runs: to start a child would cost more than the job. The job is claimed, executed
and settled like any other, and the claim is under a liveness lock, so that the next worker on this host
releases it should this process be killed. Parsers of native code run in the sandbox; see ``Pipeline``. A job
that needs more, such as pages of a long document, is left to a worker.
"""

from __future__ import annotations

import os
import signal
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import msgspec

from penstock import clock, lifecycle
from penstock.catalog.protocol import Catalog
from penstock.handlers.registry import Registry
from penstock.handlers.source_files import NO_FILES, SourceFiles
from penstock.job import Claim, ClaimRequest, Job, Status
from penstock.queue.protocol import Queue
from penstock.worker.breaker import Breakers
from penstock.worker.executor import Executor, context_factory
from penstock.worker.liveness_lock import ONE_JOB, SUFFIX, LivenessLock, state_path
from penstock.worker.outbox import Outbox
from penstock.worker.process_guard import Stopped
from penstock.worker.shared_state import ExecutingJob, SharedState
from penstock.worker.upkeep import clear_outbox, upkeep_overdue

SMALL_BYTES = 256 << 10
"""Largest file or note that is read in the calling process."""
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


def run_small_job(job_id: str, options: SmallJobOptions) -> bool:
    """Run the job here if it is small. False: it has not ended, and needs a worker."""
    if threading.current_thread() is not threading.main_thread():
        return False  # only the main thread can be interrupted when a file exceeds its limits
    job = options.queue.get(job_id)
    if job is None or not is_small(job) or _needs_worker(job_id, options):
        return False
    registry = Registry()
    close = options.register(registry)
    try:
        _run(job_id, options, registry)
    finally:
        close()
    clear_outbox(options.queue, options.catalog, options.source_files)
    job = options.queue.get(job_id)
    return job is None or job.ended


def is_small(job: Job) -> bool:
    """Decide by the row and the size of the file. A job that was lost once may crash its process."""
    if job.status is not Status.PENDING or job.lost_count:
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


def _run(job_id: str, options: SmallJobOptions, registry: Registry) -> None:
    name = f"{socket.gethostname()}-{os.getpid()}-{clock.new_id()[-8:]}"
    worker_id = f"{name}-1"
    lock, settled = LivenessLock(options.directory, name + ONE_JOB), False
    try:
        lock.add_child(worker_id)
        state = SharedState.create(state_path(options.directory, worker_id))
        try:
            request = ClaimRequest(worker_id, 1, options.lease, options.lease_by_type)
            with _delayed_signals():
                claim = options.queue.start(job_id, request)
                if claim is not None:
                    _execute(claim, Executor(registry, Breakers()), Outbox(options.queue, state), state)
            settled = True
        finally:
            state.close(remove=settled)
    finally:
        # Files left behind tell the next worker of a claim whose result could not be stored.
        lock.close(remove=settled)


def _execute(claim: Claim, executor: Executor, outbox: Outbox, state: SharedState) -> None:
    job = ExecutingJob(claim.queue_id, claim.claim_number, claim.timeout_s)
    number = state.begin((job,), time.monotonic())
    try:
        results = executor.run([claim], context_factory(state, number, Breakers(), outbox))
    except Stopped:
        outbox.settle_now(lifecycle.released(claim, "worker is stopping"))
        raise KeyboardInterrupt from None
    outbox.add(results)
    state.end(1)
    outbox.send()


@contextmanager
def _delayed_signals() -> Iterator[None]:
    """Let the job finish after the first stop signal, as a worker does; the second one releases the job."""
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
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
