"""From a store URL to an open queue. An engine is imported only when its URL asks for it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from penstock.config import Settings, masked_url
from penstock.errors import (
    DiskFull,
    InvalidSetting,
    StoreDenied,
    StoreError,
    StoreReadOnly,
    StoreUnavailable,
    UnknownScheme,
)
from penstock.queue.protocol import Queue

PLANNED = ("postgresql", "postgres", "redis", "rediss")


def open_queue(settings: Settings) -> Queue:
    """The queue behind ``settings.url``, its schema brought up to date."""
    scheme, separator, rest = settings.url.partition("://")
    if separator and scheme == "memory":
        queue = _memory(rest)
    elif separator and scheme == "sqlite":
        queue = _sqlite(rest, settings)
    elif separator and scheme == "jsonl":
        queue = _jsonl(rest, settings)
    elif separator and scheme in PLANNED:
        raise UnknownScheme(f"{scheme}:// is not in this version; it has sqlite:///, jsonl:// and memory://")
    else:
        raise UnknownScheme(f"no engine for {masked_url(settings.url)[:200]!r}")
    try:
        queue.migrate()
    except BaseException:
        queue.close()
        raise
    return queue


def _memory(rest: str) -> Queue:
    from penstock.queue.memory import MemoryQueue

    if rest:
        raise InvalidSetting(f"memory://{rest[:100]}: nothing may follow memory://")
    return MemoryQueue()


def _sqlite(rest: str, settings: Settings) -> Queue:
    from penstock.queue.sql.sqlite import SqliteQueue

    name = rest.removeprefix("/")
    if not rest.startswith("/") or not name or name.endswith("/"):
        raise InvalidSetting(
            f"sqlite://{rest[:100]}: expected a file after three slashes",
            remedy="Write sqlite:///queue.db, or sqlite:////srv/queue.db for an absolute path.",
        )
    if name.startswith(":memory:"):
        raise InvalidSetting("sqlite:///:memory: is not a file", remedy="Use memory:// instead.")
    path = _absolute(name)
    _make_usable(path.parent, create=_belongs_to_state(path, settings))
    return SqliteQueue(path, synchronous=settings.sqlite_synchronous, busy_timeout_s=settings.busy_timeout_s)


def _jsonl(rest: str, settings: Settings) -> Queue:
    from penstock.queue.jsonl import JsonlQueue

    if not rest:
        raise InvalidSetting(
            "jsonl:// names no directory",
            remedy="Write jsonl://queue, or jsonl:///srv/queue for an absolute path.",
        )
    path = _absolute(rest)
    if _belongs_to_state(path, settings):
        _make_usable(settings.state_dir, create=True)
    _make_usable(path, create=True)
    return JsonlQueue(path)


def _absolute(name: str) -> Path:
    # Fixed now: a later change of the working directory must not change where the queue is.
    return Path(name).expanduser().absolute()


def _belongs_to_state(path: Path, settings: Settings) -> bool:
    return path.is_relative_to(settings.state_dir)


def _make_usable(directory: Path, *, create: bool) -> None:
    """Find out now, with a name in the message, what would otherwise come up as a driver's I/O error."""
    try:
        if create:
            # What is queued may be private, so nobody else may look into a directory we make.
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        owner = directory.stat().st_uid
    except OSError as error:
        raise _refusal(directory, error) from error
    if not directory.is_dir():
        raise StoreUnavailable(f"{directory} is not a directory", remedy="Choose another place.")
    if os.access(directory, os.R_OK | os.W_OK | os.X_OK):
        return
    if owner == os.geteuid() and os.access(directory, os.R_OK | os.X_OK):
        raise StoreReadOnly(f"{directory} is not writable")
    raise StoreDenied(
        f"{directory} belongs to uid {owner}; this process (uid {os.geteuid()}) may not write there"
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
        case errno.ENOENT:
            return StoreUnavailable(message, remedy="Create the directory first, or correct the URL.")
        case _:
            return StoreUnavailable(message, remedy="Choose a directory that can be used.")
