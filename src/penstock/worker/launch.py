"""A worker put together: from settings and an application's name to a supervisor that runs.

Children are new processes. They get the application's name, not the application, and load it again.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock import config
from penstock.application import load_app
from penstock.catalog.factory import open_catalog
from penstock.catalog.protocol import Catalog
from penstock.catalog.rules.single_host import needs_one_host
from penstock.catalog.values import Phase
from penstock.catalog_host import refuse_second_host
from penstock.config import Settings, masked_url
from penstock.errors import (
    DocumentsElsewhere,
    InvalidSetting,
    StoreDenied,
)
from penstock.handlers.registry import Registry
from penstock.pipeline.budget import MemoryShare
from penstock.pipeline.vectors.cache_directory import open_shelf
from penstock.queue.factory import open_queue
from penstock.queue.protocol import Queue

if TYPE_CHECKING:
    from penstock.app import Penstock
    from penstock.handlers.tenant_jobs import OpenQueue
    from penstock.worker.lanes import DocumentTools
    from penstock.worker.supervisor import WorkerOptions

JOBS = "jobs"
LANES = (JOBS, *Phase)
MAX_PROCESSES = 256
START_METHODS = ("spawn", "fork")
log = logging.getLogger("penstock.worker")

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s%(job)s: %(message)s"


class Worker:
    """A worker that is ready to run: what it serves, where, and with how many processes."""

    def __init__(
        self,
        settings: Settings,
        *,
        app: str | None = None,
        processes: int = 1,
        until_idle: bool = False,
        grace: float = 30.0,
        lanes: Sequence[str] = LANES,
        until_job: str | None = None,
        start_method: str = "spawn",
    ) -> None:
        loaded = load_app(app) if app is not None else None
        self._settings = _common(settings, loaded.settings) if loaded else settings
        if self._settings.url.startswith("memory://"):
            raise InvalidSetting(
                "memory:// lives in one process, a worker has several",
                remedy="Use a sqlite:/// or jsonl:// store, or app.worker_thread() in a test.",
            )
        _refuse_outside("processes", processes, 1, MAX_PROCESSES)
        _refuse_outside("grace", grace, 0, 86_400)
        if start_method not in START_METHODS:
            known = " or ".join(START_METHODS)
            raise InvalidSetting(f"start_method: expected {known}, got {str(start_method)[:80]!r}")
        self._app = app
        self._until_idle = until_idle
        self._grace = grace
        self._lanes = _checked_lanes(lanes)
        self._until_job = until_job
        self._start_method = start_method
        # Told not to claim, it still keeps the queue healthy.
        self.processes = processes if self._settings.queue_enabled else 0
        self.where = masked_url(self._settings.url)
        self.serves = _served(loaded, self._lanes)

    def check_stores(self) -> None:
        """Raise unless queue and catalog can be opened now."""
        if self._has_documents():
            open_catalog(self._settings).close()

    def run(self, tell: Callable[[], object] = lambda: None) -> None:
        """Until a signal asks it to stop, or (``until_idle``) nothing is left that could be done now.

        ``tell`` is called once the store is open: what cannot be opened is not announced.
        """
        from penstock.worker.supervisor import Supervisor

        supervisor = Supervisor(self._options()) if self.processes or not self._until_idle else None
        tell()
        if supervisor is not None:
            supervisor.run()

    def _options(self) -> WorkerOptions:
        from penstock.worker.supervisor import WorkerOptions

        settings, values = self._settings, plain(self._settings)
        housed = self._has_documents()
        directory = _own_directory(settings, values["url"])
        memory = MemoryShare.of(settings.file_memory_mb, self.processes, directory)
        level = logging.getLogger().getEffectiveLevel()
        return WorkerOptions(
            open_queue=functools.partial(open_again, values),
            registry=functools.partial(load_handlers, self._app, level),
            directory=directory,
            processes=self.processes,
            lease=timedelta(seconds=settings.lease_s),
            lease_by_type=leases(settings),
            heartbeat_s=settings.heartbeat_s,
            poll_s=settings.poll_s,
            upkeep_s=settings.upkeep_s,
            retention=_retention(settings),
            grace_s=settings.cancel_grace_s,
            recycle_after=settings.recycle_after_jobs or None,
            recycle_growth_mb=settings.recycle_growth_mb or None,
            shutdown_grace_s=self._grace,
            until_idle=self._until_idle,
            until_job=self._until_job,
            open_catalog=functools.partial(open_catalog_again, values) if housed else None,
            cache_directory=open_shelf(config.load({}, **values)),
            open_documents=functools.partial(open_documents, values, memory=memory) if housed else None,
            takes_jobs=JOBS in self._lanes,
            lanes=tuple(Phase(lane) for lane in self._lanes if lane != JOBS) if housed else (),
            one_host=needs_one_host(settings.url, settings.catalog_url),
            start_method=self._start_method,
        )

    def _has_documents(self) -> bool:
        """Whether it can serve them. An application's functions need no catalog and run on any host."""
        with closing(open_queue(self._settings)) as queue:
            try:
                refuse_second_host(self._settings, queue)
            except DocumentsElsewhere as refusal:
                if self._app is None or JOBS not in self._lanes:
                    raise
                log.warning("functions only: %s. %s", refusal.message, refusal.remedy)
                return False
        return True


def worker_alive(settings: Settings, queue: Queue) -> bool:
    """Whether a worker serves the store now: on this host by its lock, on others by what it last said."""
    from penstock.worker.liveness_lock import any_worker_alive

    if any_worker_alive(_own_directory(settings, _resolved(settings.url))):
        return True
    here, recently = socket.gethostname(), queue.now() - timedelta(seconds=2 * settings.heartbeat_s)
    return any(
        worker.host != here and worker.seen_at is not None and worker.seen_at > recently
        for worker in queue.workers()
    )


def open_again(values: Mapping[str, Any]) -> Queue:
    return open_queue(config.load({}, **values))


def open_catalog_again(values: Mapping[str, Any]) -> Catalog:
    return open_catalog(config.load({}, **values))


def open_documents(
    values: Mapping[str, Any],
    registry: Registry,
    open_own_queue: OpenQueue | None = None,
    *,
    memory: MemoryShare | None = None,
) -> DocumentTools:
    """A catalog of the child's own, and handlers on it. ``open_own_queue``: for one in memory;
    ``memory``: what its files may use."""
    from penstock.handlers import documents
    from penstock.handlers.phases import Phases
    from penstock.pipeline.embed.factory import open_embedder
    from penstock.pipeline.extract.protocol import ExtractLimits
    from penstock.pipeline.pipeline import Pipeline
    from penstock.worker.lanes import DocumentTools

    settings = config.load({}, **values)
    catalog = open_catalog(settings)
    limits = ExtractLimits.of(settings.max_file_mb, settings.file_memory_mb, settings.file_time_s)
    recipe = Pipeline(open_embedder(settings.embedder), limits=limits, memory=memory)
    queue, state = open_own_queue or (lambda: closing(open_again(values))), (str(settings.state_dir),)
    documents.register(registry, catalog, recipe, state, open_shelf(settings), queue)
    return DocumentTools(catalog, Phases(catalog, recipe))


def load_handlers(app: str | None, level: int) -> Registry:
    log_to_stderr(level)
    return load_app(app).handlers() if app is not None else Registry()


# The application.


def _served(app: Penstock | None, lanes: Sequence[str]) -> list[str]:
    served = [] if lanes == (JOBS,) else ["documents"]
    if app is not None:
        served += [f"function {name}" for name in app.functions.names()]
        served += [kind for kind in app.handlers().kinds() if kind != "function/run"]
    return served


def _checked_lanes(lanes: Sequence[str]) -> tuple[str, ...]:
    unknown = [lane for lane in lanes if lane not in LANES]
    if unknown or not lanes:
        given = ", ".join(unknown) or "none"
        raise InvalidSetting(f"lanes: expected some of {', '.join(LANES)}, got {given!r}")
    return tuple(lane for lane in LANES if lane in lanes)


# Settings.


def _common(given: Settings, own: Settings) -> Settings:
    """The application says where its queue is; a command line that says otherwise is a mistake."""
    for name, variable in (("url", "PENSTOCK_URL"), ("state_dir", "PENSTOCK_STATE")):
        if given.sources.get(name) == config.ARGUMENT and getattr(given, name) != getattr(own, name):
            said = masked_url(str(getattr(own, name)))
            raise InvalidSetting(
                f"the application has {name} = {said}, not what was asked for",
                remedy=f"Leave it out; an application that names no place of its own follows {variable}.",
            )
    return own


def plain(settings: Settings) -> dict[str, Any]:
    """The settings as they can be sent to another process, with nothing that depends on where it runs.

    Paths are followed to their end: however a store is spelled, its workers know each other.
    """
    values = {setting.name: getattr(settings, setting.name) for setting in config.SETTINGS}
    made = {name: dict(value) if isinstance(value, Mapping) else value for name, value in values.items()}
    return made | {"url": _resolved(settings.url), "catalog_url": _resolved(settings.catalog_url)}


def _resolved(url: str) -> str:
    scheme, _, rest = url.partition("://")
    if scheme == "sqlite":
        return f"sqlite:///{Path(rest[1:]).expanduser().resolve()}"
    return f"jsonl://{Path(rest).expanduser().resolve()}" if scheme == "jsonl" else url


def leases(settings: Settings) -> dict[str, timedelta]:
    return {item_type: timedelta(seconds=lease) for item_type, lease in settings.lease_by_type.items()}


def _retention(settings: Settings) -> dict[str, timedelta]:
    days = {
        "done": settings.retention_days,
        "cancelled": settings.retention_days,
        "failed": settings.failed_retention_days,
    }
    return {status: timedelta(days=kept) for status, kept in days.items() if kept}


def _own_directory(settings: Settings, url: str) -> Path:
    """One for each store: a worker gives back what dead ones left, and knows only its own store."""
    directory = settings.state_dir / "workers" / hashlib.sha256(url.encode()).hexdigest()[:12]
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreDenied(f"{directory} cannot be made ({error.strerror})") from error
    return directory


def _refuse_outside(name: str, value: float, low: float, high: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise InvalidSetting(f"{name}: expected {low:g} to {high:g}, got {str(value)[:80]!r}")


# Logging.


class _JobLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        record.job = f" {record.job_id}" if hasattr(record, "job_id") else ""
        return super().format(record)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - its name in the library
        """One line without control characters: names of files must not drive the terminal or forge lines."""
        return _escaped(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802 - as above
        return "\n".join(map(_escaped, super().formatException(ei).split("\n")))


def _escaped(line: str) -> str:
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in line)


def log_to_stderr(level: int) -> None:
    """Where nothing else was set up: lines on standard error, each with its job's id if it has one."""
    if logging.getLogger().handlers:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(_JobLines(LOG_FORMAT))
    logging.basicConfig(level=level, handlers=[handler])
