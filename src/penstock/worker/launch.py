"""Start of a worker: checks of the options, and the supervisor's options from an assembly.

Child processes get the name of the application, not the application, and load it again.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock import config
from penstock.catalog.rules.phases import EXTRACTING
from penstock.catalog.values import Phase
from penstock.config import Settings
from penstock.database.factory import needs_one_host, refuse_second_host
from penstock.errors import (
    DocumentsElsewhere,
    InvalidSetting,
    StoreDenied,
)
from penstock.handlers.source_files import SourceFiles
from penstock.process_start import log_to_stderr
from penstock.queue.protocol import Queue
from penstock.state_directory import make_private, workers_directory
from penstock.store_url import StoreUrl

if TYPE_CHECKING:
    from penstock.assembly import Assembly
    from penstock.backup.backups import BackupReport
    from penstock.handlers.context import Registry
    from penstock.service.doctor import Diagnosis
    from penstock.service.functions import FunctionJobs
    from penstock.worker.in_process import SmallJobOptions
    from penstock.worker.supervisor import OnDemandWorker, Supervisor, WorkerOptions

_JOBS = "jobs"
LANES = (_JOBS, *Phase)
_MAX_PROCESSES = 256
_ON_DEMAND_GRACE_S = 5.0
"""Time for running jobs to finish when the command of an on-demand worker ends."""
_LINGER_S = 300.0
"""Time for which a worker of a command stays without work: the next change needs no new processes, and no
model is loaded again."""
_SERIAL_LINGER_S = 6.0
"""Time for which a serial worker with ``until_idle`` waits for jobs whose turn comes: ``serial_turns``."""
_LOCK_SILENCE_S = 30.0
"""Time beyond the busy timeout after which a silent child with the lock of the store is stopped."""
_START_METHODS = ("spawn", "fork")
_QUICK_EMBEDDERS = frozenset(["static", "hashing"])
"""Embedders without a neural network or an endpoint: a text takes them less than a millisecond."""
log = logging.getLogger("penstock.worker")


class Worker:
    """A worker ready to run. ``serves``, ``where`` and ``processes`` are for its announcement."""

    niceness = 0
    """Niceness of the processes; see ``nice``."""
    linger_s = 0.0
    """Time without work after which it ends, with ``until_idle``."""

    def __init__(
        self,
        assembly: Assembly,
        *,
        app: str | None = None,
        processes: int = 1,
        until_idle: bool = False,
        grace: float = 30.0,
        lanes: Sequence[str] = LANES,
        until_job: str | None = None,
        start_method: str = "spawn",
    ) -> None:
        loaded = _load_app(app)
        settings = common_settings(assembly.settings, loaded.settings) if loaded else assembly.settings
        if settings.store.engine == "memory":
            raise InvalidSetting(
                "a memory:// queue exists in one process only, a worker has several",
                remedy="Use a sqlite:/// or jsonl:// store, or app.worker_thread() in a test.",
            )
        _refuse_outside("processes", processes, 1, _MAX_PROCESSES)
        _refuse_outside("grace", grace, 0, 86_400)
        if start_method not in _START_METHODS:
            known = " or ".join(_START_METHODS)
            raise InvalidSetting(f"start_method: expected {known}, got {str(start_method)[:80]!r}")
        # Stores by their resolved paths, and nothing opened yet that a forked child would inherit.
        self._assembly = type(assembly)(config.load({}, **config.portable_values(settings)))
        self._app = app
        self._until_idle = until_idle
        self._grace = grace
        self._lanes = _checked_lanes(lanes)
        self._until_job = until_job
        self._start_method = start_method
        # With queue_enabled false the worker does only upkeep.
        self.processes = processes if settings.queue_enabled else 0
        self.where = settings.store.masked
        self._supervisor: Supervisor | None = None
        self.serves = _served(loaded, self._lanes)

    def with_stores(self) -> Worker:
        """Open the stores for ``run``, and return this worker; raise when one cannot be opened."""
        self._supervisor = self._make_supervisor()
        return self

    def _make_supervisor(self) -> Supervisor | None:
        from penstock.worker.supervisor import Supervisor

        return Supervisor(self._options()) if self.processes or not self._until_idle else None

    def run(self, announce: Callable[[], object] = lambda: None) -> None:
        """Work until a stop signal or, with ``until_idle``, until no job could run for ``linger_s``.

        ``announce`` is called once the stores are open.
        """
        supervisor = self._supervisor or self._make_supervisor()
        announce()
        if supervisor is not None:
            supervisor.run()

    def _options(self) -> WorkerOptions:
        from penstock.pipeline.budget import MemoryShare
        from penstock.queue.jsonl.journal import lock_holder
        from penstock.worker.supervisor import WorkerOptions

        assembly, settings = self._assembly, self._assembly.settings
        has_documents = self._has_documents()
        directory = _own_directory(settings)
        memory = MemoryShare.of(settings.file_memory_mb, self.processes, directory)
        level = logging.getLogger().getEffectiveLevel()
        return WorkerOptions(
            open_queue=assembly.open_queue,
            registry=functools.partial(
                _load_handlers, self._app, (level, settings.log_format), assembly, has_documents
            ),
            directory=directory,
            processes=self.processes,
            lease=timedelta(seconds=settings.lease_s),
            lease_by_type=leases(settings),
            task_lease=timedelta(seconds=settings.task_lease_s),
            heartbeat_s=settings.heartbeat_s,
            lock_holder=functools.partial(lock_holder, settings.store),
            row_locks=settings.store.engine == "postgres",
            lock_silence_s=settings.busy_timeout_s + _LOCK_SILENCE_S,
            poll_s=settings.poll_s,
            upkeep_s=settings.upkeep_s,
            retention=_retention(settings),
            grace_s=settings.cancel_grace_s,
            recycle_after=settings.recycle_after_jobs or None,
            recycle_growth_mb=settings.recycle_growth_mb or None,
            shutdown_grace_s=self._grace,
            until_idle=self._until_idle,
            # A job that waits for its turn is in no back-off, but comes back soon.
            linger_s=max(self.linger_s, _SERIAL_LINGER_S if settings.serial else 0.0),
            until_job=self._until_job,
            open_catalog=assembly.open_catalog if has_documents else None,
            cache_directory=assembly.vector_files,
            open_documents=functools.partial(assembly.open_document_tools, memory=memory)
            if has_documents
            else None,
            takes_jobs=_JOBS in self._lanes,
            lanes=tuple(Phase(lane) for lane in self._lanes if lane != _JOBS) if has_documents else (),
            ocr_workers=min(settings.ocr_workers or max(self.processes // 2, 1), max(self.processes, 1)),
            background_lanes=_background_lanes(settings),
            keep_stores=assembly.keep_stores if has_documents else None,
            source_files=SourceFiles.of(settings),
            one_host=needs_one_host(settings),
            start_method=self._start_method,
            niceness=self.niceness,
        )

    def _has_documents(self) -> bool:
        """Tell whether documents can be served here. Functions need no catalog and run on any host."""
        with closing(self._assembly.open_queue()) as queue:
            try:
                refuse_second_host(self._assembly.settings, queue)
            except DocumentsElsewhere as refusal:
                if self._app is None or _JOBS not in self._lanes:
                    raise
                log.warning("functions only: %s. %s", refusal.message, refusal.remedy)
                return False
        return True


def _background_lanes(settings: Settings) -> tuple[Phase, ...]:
    """Lanes with tasks waiting for a service: a language model, or an outside graph store."""
    waits = settings.graph_endpoint_url is not None or settings.graph_store != config.NO_STORE
    return (EXTRACTING,) if waits else ()


def diagnose(assembly: Assembly, *, fix: bool) -> Diagnosis:
    """Check an installation with all that its workers need, and repair what is safe with ``fix``."""
    from penstock.graph_stores.factory import open_graph_store
    from penstock.service import doctor
    from penstock.worker.liveness_lock import any_worker_dead, release_dead

    settings = assembly.settings
    parts = doctor.Installation(
        open_queue=assembly.open_queue,
        open_catalog=assembly.open_catalog,
        open_vector_store=lambda: assembly.vector_store,
        open_graph_store=lambda: open_graph_store(settings),
        check_model=assembly.refuse_unusable_embedder,
        any_dead_worker=lambda: any_worker_dead(_own_directory(settings)),
        release_dead=lambda queue, catalog: release_dead(queue, _own_directory(settings), catalog),
    )
    return doctor.diagnose(settings, parts, fix=fix)


def worker_alive(settings: Settings, queue: Queue) -> bool:
    """Tell whether a worker is alive and takes jobs: here by lock, on other hosts by report."""
    from penstock.worker.liveness_lock import any_worker_alive

    if any_worker_alive(_own_directory(settings)):
        return True
    workers = queue.workers()
    if not workers:
        return False
    import socket

    here, now = socket.gethostname(), queue.now()
    return any(
        worker.host != here and worker.takes_jobs and worker.alive(now, settings.heartbeat_s)
        for worker in workers
    )


def on_demand_worker(assembly: Assembly, *, enabled: bool) -> OnDemandWorker:
    """A worker for a command other than ``worker``. ``enabled`` False: never started."""
    from penstock.worker.supervisor import OnDemandWorker

    allowed = enabled and assembly.settings.queue_enabled
    return OnDemandWorker(
        assembly.queue,
        lambda: not allowed or worker_alive(assembly.settings, assembly.queue),
        functools.partial(_work_until_idle, assembly),
    )


def _work_until_idle(assembly: Assembly) -> None:
    log_to_stderr(logging.ERROR, assembly.settings.log_format)
    worker = assembly.worker(until_idle=True, grace=_ON_DEMAND_GRACE_S)
    worker.linger_s = _LINGER_S
    worker.run()


def small_job_options(assembly: Assembly) -> SmallJobOptions | None:
    """Options of ``run_small_job``; None where only a worker may run jobs."""
    from penstock.pipeline.budget import MemoryShare
    from penstock.worker.in_process import SmallJobOptions

    settings = assembly.settings
    # The catalog's one host is known by the report of its worker; a memory:// queue has no worker.
    if not settings.queue_enabled or needs_one_host(settings) or settings.store.engine == "memory":
        return None
    directory = _own_directory(settings)
    memory = MemoryShare.of(settings.file_memory_mb, 1, directory)
    return SmallJobOptions(
        queue=assembly.queue,
        catalog=assembly.catalog,
        directory=directory,
        register=lambda registry: assembly.register_small_jobs(registry, memory),
        lease=timedelta(seconds=settings.lease_s),
        lease_by_type=leases(settings),
        source_files=SourceFiles.of(settings),
        quick_model=settings.embedder in _QUICK_EMBEDDERS,
    )


def _load_handlers(
    app: str | None, logs: tuple[int, str], assembly: Assembly, has_documents: bool
) -> Registry:
    """Handlers of a worker process: those of the application, or without one only webhooks and backups."""
    log_to_stderr(*logs)
    loaded = _load_app(app)
    if loaded is not None:
        registry, functions = loaded.handlers(), loaded.functions
    else:
        from penstock.handlers.context import Registry
        from penstock.handlers.functions import Functions
        from penstock.handlers.webhooks import webhook_options

        registry, functions = Registry(), Functions()
        functions.register_in(registry, webhook_options(assembly.settings))
    if has_documents:
        functions.write_backup = functools.partial(write_backup, assembly)
    return registry


def write_backup(assembly: Assembly, destination: Path, **options: Any) -> BackupReport:
    """Write a backup of the stores. The modules are loaded at the first backup."""
    return assembly.backups.write(destination, **options)


# The application.


def _load_app(name: str | None) -> FunctionJobs | None:
    from penstock.application import load_app

    return load_app(name) if name is not None else None


def _served(app: FunctionJobs | None, lanes: Sequence[str]) -> list[str]:
    served = [] if lanes == (_JOBS,) else ["documents"]
    if app is not None:
        served += [f"function {name}" for name in app.functions.names()]
        served += [name for name in app.handlers().pairs() if name != "function/run"]
    return served


def _checked_lanes(lanes: Sequence[str]) -> tuple[str, ...]:
    unknown = [lane for lane in lanes if lane not in LANES]
    if unknown or not lanes:
        given = ", ".join(unknown) or "none"
        raise InvalidSetting(f"lanes: expected some of {', '.join(LANES)}, got {given!r}")
    return tuple(lane for lane in LANES if lane in lanes)


# Settings.


def common_settings(given: Settings, own: Settings) -> Settings:
    """The application's settings; refuse a command line which names another queue."""
    for name, variable in (("url", "PENSTOCK_URL"), ("state_dir", "PENSTOCK_STATE")):
        if given.sources.get(name) == config.ARGUMENT and getattr(given, name) != getattr(own, name):
            own_value = StoreUrl(str(getattr(own, name))).masked
            raise InvalidSetting(
                f"the application has {name} = {own_value}, but the command line names another",
                remedy=f"Leave out the option; an application without a URL of its own uses {variable}.",
            )
    return own


def leases(settings: Settings) -> dict[str, timedelta]:
    return {item_type: timedelta(seconds=lease) for item_type, lease in settings.lease_by_type.items()}


def _retention(settings: Settings) -> dict[str, timedelta]:
    days = {
        "done": settings.retention_days,
        "cancelled": settings.retention_days,
        "failed": settings.failed_retention_days,
    }
    return {status: timedelta(days=kept) for status, kept in days.items() if kept}


def _own_directory(settings: Settings) -> Path:
    """The directory of a store's workers, where they find jobs of dead workers of the same store."""
    directory = workers_directory(settings.state_dir, settings.store)
    try:
        make_private(directory)
    except OSError as error:
        raise StoreDenied(f"the directory {directory} cannot be created ({error.strerror})") from error
    return directory


def _refuse_outside(name: str, value: float, low: float, high: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise InvalidSetting(f"{name}: expected {low:g} to {high:g}, got {str(value)[:80]!r}")
