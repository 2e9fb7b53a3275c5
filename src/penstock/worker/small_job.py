"""One small job, run by the calling process without a child: a note, one small file, or a known folder.

For commands while no worker runs: to start a child would cost more than the job. A folder whose files are
unchanged needs no child at all, and the jobs of others are left to a worker. The job is claimed, executed
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
from penstock.catalog.values import Place
from penstock.handlers.registry import Registry
from penstock.handlers.source_files import NO_FILES, SourceFiles
from penstock.job import Claim, ClaimRequest, Job, Status
from penstock.payloads import is_off_disk, normal_path
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
MOST_FILES = 50_000
"""Files of a known folder up to which it is compared here. Of a larger one, or a new one, the first files are
indexed while the walk goes on."""
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
    if job is None or _needs_worker(job_id, options):
        return False
    if not is_small(job) and not is_known_folder(job, options.catalog):
        return False
    registry = Registry()
    close = options.register(registry)
    try:
        stopped = _run(job_id, options, registry)
    finally:
        close()
    clear_outbox(options.queue, options.catalog, options.source_files)
    job = options.queue.get(job_id)
    if stopped and job is not None and not job.ended:
        raise KeyboardInterrupt  # the files of a folder are left to the next command
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


def is_known_folder(job: Job, catalog: Catalog) -> bool:
    """Decide whether a job compares a folder that the catalog knows, of not too many files."""
    if job.status is not Status.PENDING or job.lost_count or job.op != "ingest":
        return False
    name = {"folder": "folder_path", "project": "project_root"}.get(job.item_type)
    if name is None or is_off_disk(job.payload[name]):
        return False
    place = Place(job.tenant_id, job.collection, job.branch)
    with catalog.snapshot() as snapshot:
        known = snapshot.known_count(place, normal_path(job.payload[name]), most=MOST_FILES + 1)
    return 0 < known <= MOST_FILES


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


def _run(job_id: str, options: SmallJobOptions, registry: Registry) -> bool:
    """Run the job; return whether a stop signal came meanwhile."""
    name = f"{socket.gethostname()}-{os.getpid()}-{clock.new_id()[-8:]}"
    worker_id = f"{name}-1"
    lock, settled = LivenessLock(options.directory, name + ONE_JOB), False
    try:
        lock.add_child(worker_id)
        state = SharedState.create(state_path(options.directory, worker_id))
        try:
            request = ClaimRequest(worker_id, 1, options.lease, options.lease_by_type)
            with _delayed_signals() as received:
                claim = options.queue.start(job_id, request)
                if claim is not None:
                    _execute(claim, Executor(registry, Breakers()), Outbox(options.queue, state), state)
            settled = True
        finally:
            state.close(remove=settled)
    finally:
        # Files left behind tell the next worker of a claim whose result could not be stored.
        lock.close(remove=settled)
    return bool(received)


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
