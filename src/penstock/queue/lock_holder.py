"""The process holding the write lock of a store in a file, from the kernel's list of locks."""

from __future__ import annotations

import os
from pathlib import Path

from penstock.queue.jsonl.journal import LOCK_FILE
from penstock.store_url import StoreUrl

LOCKS = Path("/proc/locks")
"""All locks, on Linux; missing elsewhere."""
FLOCK = ("FLOCK", "0")
SQLITE_WRITER = ("POSIX", "120")
"""Kind and first byte of SQLite's lock for the writer, in the index of the write-ahead log (``-shm``)."""


def lock_holder(store: StoreUrl) -> int | None:
    """Find the process with the lock for writing; None without one, or for a store on a server.

    The store is not opened: closing it would drop the POSIX locks that this process has on it.
    """
    if store.scheme == "sqlite":
        return _holder(f"{store.path}-shm", SQLITE_WRITER)
    return _holder(str(store.path / "jobs" / LOCK_FILE), FLOCK) if store.scheme == "jsonl" else None


def _holder(path: str, kind: tuple[str, str]) -> int | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - text
        lines = LOCKS.read_text().splitlines()
    except OSError:
        return None
    place = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    for line in lines:
        # "1: POSIX  ADVISORY  WRITE 4711 fe:00:2261844 120 120"; a waiting one has "->" after the number.
        match line.split():
            case [_, family, _, "WRITE", pid, where, first, _] if (family, first) == kind and where == place:
                return int(pid)
    return None
