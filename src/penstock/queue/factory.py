"""From a store URL to an open queue. An engine is imported only when its URL asks for it."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.config import Settings, masked_url
from penstock.errors import (
    DiskFull,
    DriverMissing,
    InvalidSetting,
    StoreDenied,
    StoreError,
    StoreReadOnly,
    StoreUnavailable,
    UnknownScheme,
)
from penstock.queue.protocol import Queue


def open_queue(settings: Settings) -> Queue:
    """The queue behind ``settings.url``, its schema brought up to date."""
    scheme, separator, rest = settings.url.partition("://")
    if separator and scheme == "memory":
        queue = _memory(rest)
    elif separator and scheme == "sqlite":
        queue = _sqlite(rest, settings)
    elif separator and scheme == "jsonl":
        queue = _jsonl(rest, settings)
    elif separator and scheme in ("postgresql", "postgres"):
        queue = _postgres(settings)
    elif separator and scheme in ("redis", "rediss"):
        queue = _redis(settings)
    else:
        raise UnknownScheme(f"no engine for {masked_url(settings.url)[:200]!r}")
    try:
        queue.migrate()
    except BaseException:
        queue.close()
        raise
    return queue


def _memory(rest: str) -> Queue:
    from penstock.queue.memory.queue import MemoryQueue

    if rest:
        raise InvalidSetting(f"memory://{rest[:100]}: nothing may follow memory://")
    return MemoryQueue()


def _sqlite(rest: str, settings: Settings) -> Queue:
    from penstock.queue.sqlite.queue import SqliteQueue

    path = sqlite_file(rest, settings)
    return SqliteQueue(path, synchronous=settings.sqlite_synchronous, busy_timeout_s=settings.busy_timeout_s)


def sqlite_file(rest: str, settings: Settings) -> Path:
    """The file that what follows ``sqlite://`` names, in a directory that can be used."""
    name = rest.removeprefix("/")
    if not rest.startswith("/") or not name or name.endswith("/"):
        raise InvalidSetting(
            f"{masked_url(f'sqlite://{rest}')[:100]}: expected a file after three slashes",
            remedy="Write sqlite:///queue.db, or sqlite:////srv/queue.db for an absolute path.",
        )
    if name.startswith(":memory:"):
        raise InvalidSetting("sqlite:///:memory: is not a file", remedy="Use memory:// instead.")
    path = _absolute(name)
    _make_directory(path.parent, settings)
    return path


def _jsonl(rest: str, settings: Settings) -> Queue:
    from penstock.queue.jsonl.queue import JsonlQueue

    if not rest:
        raise InvalidSetting(
            "jsonl:// names no directory",
            remedy="Write jsonl://queue, or jsonl:///srv/queue for an absolute path.",
        )
    path = _absolute(rest)
    _make_directory(path, settings)
    return JsonlQueue(path)


def _postgres(settings: Settings) -> Queue:
    with postgres_driver():
        from penstock.queue.postgres.queue import PostgresQueue

    return PostgresQueue(
        settings.url,
        pool_size=settings.postgres_pool_size,
        pooled=settings.postgres_pooler,
        timeout_s=settings.postgres_timeout_s,
    )


@contextmanager
def postgres_driver() -> Iterator[None]:
    """For the import of what needs psycopg, which may not be there."""
    try:
        yield
    except ImportError as error:
        if error.name is None or not error.name.startswith("psycopg"):
            raise
        raise DriverMissing(
            f"postgresql:// needs the package psycopg, which cannot be imported ({error})",
            remedy="Install it with `pip install 'penstock[postgres]'`.",
        ) from error


def _redis(settings: Settings) -> Queue:
    try:
        from penstock.queue.redis.queue import RedisQueue
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "redis":
            raise
        raise DriverMissing(
            "redis:// needs the redis package", remedy="pip install 'penstock[redis]'"
        ) from error
    return RedisQueue(settings.url, timeout_s=settings.busy_timeout_s)


def _absolute(name: str) -> Path:
    try:
        # Fixed now: a later change of the working directory must not change where the queue is.
        return Path(name).expanduser().absolute()
    except RuntimeError:
        raise InvalidSetting(f"{name[:200]!r}: there is no such home directory") from None


def _make_directory(directory: Path, settings: Settings) -> None:
    try:
        # What is queued may be private, so nobody else may look into a directory we make.
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if directory.is_relative_to(settings.state_dir):
            _refuse_unusable(settings.state_dir)
    except OSError as error:
        raise _refusal(directory, error) from error


def _refuse_unusable(state_dir: Path) -> None:
    """The state directory is this user's own. A store elsewhere, or where nobody can write, may be there to
    be read only."""
    if os.access(state_dir, os.R_OK | os.W_OK | os.X_OK):
        return
    owner, me = state_dir.stat().st_uid, os.geteuid()
    unwritable = owner == me or os.statvfs(state_dir).f_flag & os.ST_RDONLY
    if unwritable and os.access(state_dir, os.R_OK | os.X_OK):
        return
    raise StoreDenied(
        f"{state_dir} belongs to uid {owner}; this process has uid {me} and may not write there"
    )


def _refusal(directory: Path, error: OSError) -> StoreError:
    message = f"{directory}: {error.strerror or error}"
    match error.errno:
        case errno.EACCES | errno.EPERM:
            return StoreDenied(message)
        case errno.EROFS:
            return StoreReadOnly(message)
        case errno.ENOSPC | errno.EDQUOT:
            return DiskFull(message)
        case _:
            return StoreUnavailable(message, remedy="Choose a directory that can be used.")
