"""Work in the calling process, without children: a worker in a thread, and the small job of a command.

Both run jobs through the same executor and outbox as a child process. ``ThreadWorker`` is for tests and small
scripts. ``run_small_job`` is for commands while no worker runs: a note, a small file, or a folder.
"""

from __future__ import annotations

import itertools
import math
import os
import signal
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from datetime import timedelta
from pathlib import Path

import msgspec

from penstock import clock
from penstock.catalog.protocol import Catalog
from penstock.catalog.values import Phase, Place
from penstock.errors import InvalidText, StoreError
from penstock.handlers.context import Registry
from penstock.handlers.members import container_of
from penstock.handlers.source_files import NO_FILES, SourceFiles
from penstock.pipeline.extract import file_types
from penstock.pipeline.extract.factory import PLAIN
from penstock.queue import transitions
from penstock.queue.job import CHILDREN, Beat, Claim, ClaimRequest, Job, JobQuery, Status
from penstock.queue.payloads import is_off_disk, normal_path
from penstock.queue.protocol import Queue
from penstock.worker import orphans
from penstock.worker.executor import (
    Breakers,
    Executor,
    Outbox,
    Stopped,
)
from penstock.worker.lanes import DocumentNotifier, DocumentTools, Lanes
from penstock.worker.liveness_lock import ONE_JOB, SUFFIX, LivenessLock, release_dead, state_path
from penstock.worker.orphans import all_jobs, stop_children
from penstock.worker.outage import OUTAGE, OutageRetry
from penstock.worker.shared_state import MOST_MEMBERS, SharedState
from penstock.worker.upkeep import (
    EVERY_S,
    OverdueEnder,
    ScheduleRunner,
    Sweeper,
    clear_outbox,
    upkeep_overdue,
)

_PAUSE_S = 0.01
_HEARTBEAT_S = 0.2
_LEAVE_WITHIN_S = 60.0
_RENEW_BESIDE_S = 5.0
_RENEW_TASKS_S = 10.0
FUNCTION = "function"


class ThreadWorker:
    """One worker thread. ``stop`` waits for the running job and raises the thread's error, if any.

    Its shared state is seen by no other process. Cancel, timeouts and progress work. Without a process to
    kill, a handler that reaches no checkpoint cannot be stopped, and the budget of a file is not enforced.
    PDF and Word files are parsed in a sandbox here, too, with its limits.

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
        # Imported here: a command that runs one small job loads this module, and has no thread worker.
        import socket

        from penstock.worker.child import BesideJobs

        self._queue = queue
        self._registry = registry
        self._state = SharedState.in_memory()
        self._executor = Executor(registry, Breakers())
        self._outbox = Outbox(queue, self._state)
        self._beside = BesideJobs(self._executor, self._state, self._outbox)
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
                self._beside.wait_for_all(_LEAVE_WITHIN_S)
                self._retry_on_outage(self._outbox.send)
                return
            if not claims:
                self._retry_on_outage(run_tasks)
            if not claims and not worked:
                # Not queue.wait: a thread that waits for a job would compete for the hint.
                self._stop.wait(_PAUSE_S)

    def _run(self, claim: Claim) -> None:
        if self._documents is None and self._registry.find(claim.item_type, claim.op) is None:
            try:
                self._start_documents()
            except BaseException:
                self._queue.settle([transitions.released(claim, "its worker could not open the catalog")])
                raise
        self._lease = self._request.lease_of(claim.item_type)
        if self._executor.runs_beside(claim):
            no_room = self._beside.start(claim)
            if no_room is not None:
                self._outbox.add([no_room])
            return
        number, settlements = self._executor.execute([claim], self._state, self._outbox, time.monotonic())
        timed_out = self._late == number and settlements[0].status is Status.CANCELLED
        if timed_out:
            settlements = [transitions.timed_out(claim)]
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
        renew_tasks_at = time.monotonic() + _RENEW_TASKS_S
        renew_beside_at = time.monotonic() + _RENEW_BESIDE_S
        schedules, run_schedules_at = ScheduleRunner(self._queue), 0.0
        while not ended.wait(_HEARTBEAT_S):
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
                    renew_beside_at = time.monotonic() + _RENEW_BESIDE_S
                if time.monotonic() > renew_tasks_at and self._documents is not None:
                    self._documents.renew(self._request.worker_id)
                    renew_tasks_at = time.monotonic() + _RENEW_TASKS_S
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


# Limits of the small job of a command. A worker takes about a second of CPU time to start and to end. A text
# file of some kilobytes takes about a millisecond to index, so that a worker pays only for a folder with
# many or large changes.
_FOLDERS = {"folder": "folder_path", "project": "project_root"}
"""Item types of folders, with the name of the path in their payload."""
SMALL_BYTES = 256 << 10
"""Largest file or note that is read in the calling process."""
MOST_KNOWN = 50_000
"""Files of a known folder up to which it is compared here. Of a larger one, the first changed files are
indexed while the walk goes on."""
MOST_ENTRIES = 1_000
"""Files and folders in a new folder up to which it is walked here."""
MOST_FILES, MOST_BYTES = 1_000, 2 << 20
"""Changed files of a folder, and their bytes, up to which they are indexed here: about a second of work."""
_QUICK_TYPES = PLAIN | {"code", "html", "json", "notebook", "xml"}
"""Extractors that take little time for a small file, in this process or in the sandbox."""
MOST_OTHERS = 10
"""Changed files of other types that are indexed here: a page of a PDF takes as long as many small texts."""
MOST_SLOW = 5
"""Changed files that are indexed here with a slow embedder."""
_MOST_LOSSES = 1
"""Lost attempts of a job that is run here once more: most commands that end in the middle were killed, but
a file may also crash the process again, which only a worker survives."""


def is_small_folder(job: Job, catalog: Catalog) -> bool:
    """Decide whether this process walks a folder: the catalog knows it, or it is new and has few entries."""
    if job.status is not Status.PENDING or job.lost_count > _MOST_LOSSES or job.op != "ingest":
        return False
    name = _FOLDERS.get(job.item_type)
    if name is None or is_off_disk(job.payload[name]):
        return False
    place, path = Place(job.tenant_id, job.collection, job.branch), normal_path(job.payload[name])
    with catalog.snapshot() as snapshot:
        known = snapshot.known_count(place, path, most=MOST_KNOWN + 1)
    return known <= MOST_KNOWN if known else _has_few_entries(path)


def _is_walked_folder(job: Job) -> bool:
    """Decide whether only jobs for files of a folder are left, by a command that was killed perhaps."""
    return job.item_type in _FOLDERS and job.waiting and job.waiting_for == CHILDREN


def _has_few_entries(path: str) -> bool:
    left, folders = MOST_ENTRIES, [path]
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    left -= 1
                    if left < 0:
                        return False
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
        except OSError:
            continue  # the walk reports it
    return True


def file_batches(queue: Queue, folder_id: str, *, quick_model: bool) -> Iterator[Sequence[str]]:
    """Ids of the jobs for the files of a folder, in batches; none if a worker should run them."""
    most = MOST_FILES if quick_model else MOST_SLOW
    query = JobQuery(parent_id=folder_id, statuses=frozenset([Status.PENDING]), limit=most + 1)
    jobs = queue.find(query)
    if len(jobs) > most or not _are_little_work(jobs):
        return
    ids = [job.queue_id for job in jobs]
    for start in range(0, len(ids), MOST_MEMBERS):
        yield ids[start : start + MOST_MEMBERS]


def _are_little_work(jobs: Sequence[Job]) -> bool:
    others = total = 0
    for job in jobs:
        path = job.payload.get("file_path")
        if job.item_type != "file" or job.lost_count > _MOST_LOSSES or job.run_at is not None or path is None:
            return False
        if container_of(path) is not None:
            return False  # the file around it is read as a whole
        size = _size(path)
        if size is None or size > SMALL_BYTES:
            return False
        total += size
        file_type = file_types.by_name(path)
        others += size > 0 and (file_type is None or file_type.extractor not in _QUICK_TYPES)
    return others <= MOST_OTHERS and total <= MOST_BYTES


def _size(path: str) -> int | None:
    """Bytes to be read; 0 for a missing file, None for what is no regular file."""
    try:
        found = Path(path).stat()
    except OSError:
        return 0
    return found.st_size if stat.S_ISREG(found.st_mode) else None


_FEW = 5
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
    """Run a small job here: a note, one small file, or a folder. False: it has not ended, and needs a worker.

    For commands while no worker runs: to start a child would cost more than the job. Of a folder, the changed
    files are indexed here too, if they are little work. The jobs of others are left to a worker. Jobs are
    claimed, executed and settled like any other, and the claims are under a liveness lock, so that the next
    command or worker on this host releases them should this process be killed. Parsers of native code run in
    the sandbox; see ``Pipeline``. A job that needs more, such as pages of a long document, is left to a
    worker.
    """
    if threading.current_thread() is not threading.main_thread():
        return False  # only the main thread can be interrupted when a file exceeds its limits
    release_dead(options.queue, options.directory, options.catalog, commands_only=True)
    job = options.queue.get(job_id)
    if job is None or _needs_worker(job_id, options):
        return False
    if not _is_walked_folder(job) and not _is_small(job, options):
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
    if job.status is not Status.PENDING or job.lost_count > _MOST_LOSSES:
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
    others = [job for job in options.queue.upcoming(limit=_FEW + 2) if job.queue_id != job_id]
    return len(others) <= _FEW and any(
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
                walked = _is_walked_folder(job)
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
    if folder.item_type not in _FOLDERS or received:
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

    def stop(self) -> None:
        """Stop what runs, from another thread."""
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
                self._outbox.settle_now(transitions.released(claim, "worker is stopping"))
            raise KeyboardInterrupt from None
        if claims:
            self._outbox.add([transitions.released(claim, "its folder timed out") for claim in claims])
        self._outbox.send()

    def _next_members(self, claims: Sequence[Claim]) -> Sequence[Claim]:
        """The first jobs of one kind, as many as their handler takes at once."""
        kind = (claims[0].item_type, claims[0].op)
        members = itertools.takewhile(lambda claim: (claim.item_type, claim.op) == kind, claims)
        return list(itertools.islice(members, self._executor.batch_size(claims[0])))

    @contextmanager
    def _stoppable(self, number: int) -> Iterator[None]:
        self._number = number
        if self.overdue:
            self.stop()
        yield

    def _execute(self, claims: Sequence[Claim]) -> None:
        _, results = self._executor.execute(
            claims, self._state, self._outbox, time.monotonic(), self._stoppable
        )
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
        execution.overdue = job.queue_id
        with suppress(*OUTAGE):  # then the next worker ends it
            row = options.queue.get(job.queue_id)
            if row is not None and row.status is Status.IN_PROGRESS:
                orphans.end_overdue(options.queue, options.catalog, row)
        # After the end is stored: with its last file cancelled first, the folder would be done.
        execution.stop()

    seconds = float(job.timeout_s)
    started_at = transitions.first_start(job)
    if started_at is not None and transitions.bounds_whole_job(job):
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
