"""Open the queue of a store URL. An engine is imported only when a URL names the engine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.config import Settings
from penstock.errors import DriverMissing, InvalidSetting, StoreDenied, UnknownScheme
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
