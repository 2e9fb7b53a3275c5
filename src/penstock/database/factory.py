"""Open the queue and the catalog of a store URL. An engine is imported only when a URL names the engine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.catalog.protocol import Catalog
from penstock.config import Settings
from penstock.errors import DocumentsElsewhere, DriverMissing, InvalidSetting, StoreDenied, UnknownScheme
from penstock.extensions import ExtensionKind, find, install_remedy
from penstock.queue.protocol import Queue
from penstock.state_directory import make_private, write_refusal
from penstock.store_url import StoreUrl


def open_queue(settings: Settings, *, restoring: bool = False) -> Queue:
    """Open the queue at ``settings.url`` and migrate the schema.

    ``restoring``: for a restore, which also opens a store whose restore was not finished.
    """
    match settings.store.engine:
        case "memory":
            queue = _memory(settings.store.rest)
        case "sqlite":
            queue = _sqlite(settings, restoring=restoring)
        case "jsonl":
            queue = _jsonl(settings, restoring=restoring)
        case "postgres":
            queue = _postgres(settings, restoring=restoring)
        case "redis":
            queue = _redis(settings, restoring=restoring)
        case _:
            queue = _extension(settings)
    try:
        queue.migrate()
    except BaseException:
        queue.close()
        raise
    return queue


def _extension(settings: Settings) -> Queue:
    added = find(ExtensionKind.QUEUE, settings.store.scheme)
    if added is None:
        raise UnknownScheme(f"no engine for {settings.store.masked[:200]!r}")
    queue: Queue = added.call(settings.url)
    return queue


def _memory(rest: str) -> Queue:
    from penstock.queue.memory.queue import MemoryQueue

    if rest:
        raise InvalidSetting(f"memory://{rest[:100]}: nothing may follow memory://")
    return MemoryQueue()


def _sqlite(settings: Settings, *, restoring: bool) -> Queue:
    from penstock.queue.sqlite.queue import SqliteQueue

    path = sqlite_file(settings.store, settings)
    return SqliteQueue(
        path,
        synchronous=settings.sqlite_synchronous,
        busy_timeout_s=settings.busy_timeout_s,
        restoring=restoring,
    )


def sqlite_file(url: StoreUrl, settings: Settings) -> Path:
    """Return the file of a sqlite:// URL and create the directory."""
    path = url.path
    _make_directory(path.parent, settings)
    return path


def _jsonl(settings: Settings, *, restoring: bool) -> Queue:
    from penstock.queue.jsonl.queue import JsonlQueue

    path = settings.store.path
    _make_directory(path, settings)
    return JsonlQueue(path, restoring=restoring, busy_timeout_s=settings.busy_timeout_s)


def _postgres(settings: Settings, *, restoring: bool) -> Queue:
    with postgres_driver():
        from penstock.queue.postgres.queue import PostgresQueue

    return PostgresQueue(
        settings.url,
        pool_size=settings.postgres_pool_size,
        pooled=settings.postgres_pooler,
        timeout_s=settings.postgres_timeout_s,
        restoring=restoring,
    )


@contextmanager
def postgres_driver() -> Iterator[None]:
    """Raise ``DriverMissing`` if psycopg cannot be imported."""
    try:
        yield
    except ImportError as error:
        if error.name is None or not error.name.startswith("psycopg"):
            raise
        raise DriverMissing(
            f"postgresql:// needs the package psycopg, which cannot be imported ({error})",
            remedy=install_remedy("postgres"),
        ) from error


def _redis(settings: Settings, *, restoring: bool) -> Queue:
    try:
        from penstock.queue.redis.queue import RedisQueue
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "redis":
            raise
        raise DriverMissing("redis:// needs the redis package", remedy=install_remedy("redis")) from error
    return RedisQueue(settings.url, timeout_s=settings.busy_timeout_s, restoring=restoring)


def _make_directory(directory: Path, settings: Settings) -> None:
    try:
        # Jobs may be private, so only this user may read a new directory.
        make_private(directory)
        if directory.is_relative_to(settings.state_dir):
            _refuse_unusable(settings.state_dir)
    except OSError as error:
        raise write_refusal(directory, error) from error


def _refuse_unusable(state_dir: Path) -> None:
    """Refuse a state directory of another user.

    A store elsewhere, or on a read-only file system, may be opened for reading only.
    """
    if os.access(state_dir, os.R_OK | os.W_OK | os.X_OK):
        return
    owner, me = state_dir.stat().st_uid, os.geteuid()
    unwritable = owner == me or os.statvfs(state_dir).f_flag & os.ST_RDONLY
    if unwritable and os.access(state_dir, os.R_OK | os.X_OK):
        return
    raise StoreDenied(
        f"{state_dir} belongs to uid {owner}; this process has uid {me} and may not write there"
    )


def open_catalog(settings: Settings, *, restoring: bool = False) -> Catalog:
    """Open the catalog behind ``settings.catalog_url`` and migrate the schema.

    A catalog in a file has one host: behind a queue for many hosts, two files would split the index.
    ``restoring``: for a restore, which also opens a catalog whose restore was not finished.
    """
    url = settings.catalog_store
    if url.engine == "sqlite":
        return _sqlite_catalog(settings, restoring=restoring)
    if url.engine == "postgres":
        return _postgres_catalog(settings, restoring=restoring)
    raise UnknownScheme(
        f"no catalog for {url.masked[:200]!r}",
        remedy="Set PENSTOCK_CATALOG_URL to sqlite:///PATH or postgresql://….",
    )


def _sqlite_catalog(settings: Settings, *, restoring: bool) -> Catalog:
    from penstock.catalog.sql.sqlite import SqliteCatalog

    return SqliteCatalog(
        sqlite_file(settings.catalog_store, settings),
        synchronous=settings.sqlite_synchronous,
        busy_timeout_s=settings.busy_timeout_s,
        restoring=restoring,
    )


def _postgres_catalog(settings: Settings, *, restoring: bool) -> Catalog:
    with postgres_driver():
        from penstock.catalog.sql.postgres import PostgresCatalog

    return PostgresCatalog(
        settings.catalog_url,
        pool_size=settings.postgres_pool_size,
        pooled=settings.postgres_pooler,
        timeout_s=settings.postgres_timeout_s,
        restoring=restoring,
    )


def needs_one_host(settings: Settings) -> bool:
    """True where the catalog is a file, but many hosts reach the queue, or may: in an extension's engine."""
    store = settings.store
    return settings.catalog_store.is_file and (store.many_hosts or store.engine is None)


def refuse_second_host(settings: Settings, queue: Queue) -> None:
    """Raise ``DocumentsElsewhere`` where a live worker on another host has the documents in a file."""
    if not needs_one_host(settings):
        return
    import socket

    here, now = socket.gethostname(), queue.now()
    for worker in queue.workers():
        alive = worker.alive(now, settings.heartbeat_s)
        if alive and worker.host != here and worker.has_document_file:
            raise DocumentsElsewhere(
                f"the documents of {settings.store.masked} are in a file on {worker.host}, "
                f"where {worker.worker_id} works on them"
            )
