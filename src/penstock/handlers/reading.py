"""Reading a file that may be anything by the time it is opened: gone, a pipe, or growing."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from typing import NamedTuple

from penstock.errors import DocumentTooLarge, UnsupportedType


class Read(NamedTuple):
    """A file's bytes with the size and time it had when it was opened."""

    data: bytes
    size: int
    mtime_ns: int


def read_file(path: str, most_bytes: int, unwanted: Callable[[os.stat_result], bool]) -> Read | None:
    """None: ``unwanted`` said so, by what the system tells of the open file."""
    # Not blocking: what was a file at the walk may be a pipe by now.
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as file:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise UnsupportedType(f"{path} is no regular file")
        if unwanted(status):
            return None
        if status.st_size > most_bytes:
            raise DocumentTooLarge(f"{path} has {status.st_size:,} bytes; the limit is {most_bytes:,}")
        # It may grow meanwhile; what comes after its size now belongs to the next change.
        return Read(file.read(status.st_size), status.st_size, status.st_mtime_ns)
