"""File reader, safe for paths which are gone, a pipe, a link or a growing file when opened."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Callable
from typing import NamedTuple

from penstock.errors import DocumentTooLarge, PermanentFailure, UnsupportedType

# Non-blocking: a path that was a file may be a pipe by now.
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
_TRAVERSE = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class FileContent(NamedTuple):
    """A file's bytes, with size and modification time at opening. A member has its container's time."""

    data: bytes
    size: int
    mtime_ns: int
    depth: int = 0
    """Number of containers around the file."""


def read_file(
    path: str, max_bytes: int, skip: Callable[[os.stat_result], bool], *, links: bool = True
) -> FileContent | None:
    """Read a file; None if ``skip`` returns True for the status of the open file.

    The file itself must not be a link, since a walk follows none. ``links``: folders above may be links.
    """
    fd = _open(path) if links else _open_without_links(path)
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise UnsupportedType(f"{path} is not a regular file")
        if skip(status):
            return None
        if status.st_size > max_bytes:
            raise DocumentTooLarge(f"{path} has {status.st_size:,} bytes; the limit is {max_bytes:,}")
        # The file may be growing: bytes beyond this size belong to the next change.
        return FileContent(_bytes(fd, status.st_size), status.st_size, status.st_mtime_ns)
    finally:
        os.close(fd)


def _bytes(fd: int, size: int) -> bytes:
    """Read without a file object, which would double the cost for small files."""
    data = os.read(fd, size)
    if len(data) == size:
        return data
    parts = [data]
    while parts[-1]:
        size -= len(parts[-1])
        parts.append(os.read(fd, size))
    return b"".join(parts)


def hash_of(path: str) -> str:
    """Content hash of a file of any size, as stored with documents."""
    with os.fdopen(os.open(path, _READ | os.O_NOFOLLOW), "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _open(path: str) -> int:
    try:
        return os.open(path, _READ | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise UnsupportedType(
            f"{path} is a link, or behind a loop of links", remedy="Index the target of the link."
        ) from None


def _open_without_links(path: str) -> int:
    """Open a path folder by folder, and refuse a link put in the way at any moment."""
    *folders, name = path.strip("/").split("/")
    folder_fd = os.open("/", _TRAVERSE)
    try:
        for folder in folders:
            next_fd = os.open(folder, _TRAVERSE, dir_fd=folder_fd)
            os.close(folder_fd)
            folder_fd = next_fd
        return os.open(name, _READ | os.O_NOFOLLOW, dir_fd=folder_fd)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise PermanentFailure(f"{path} has become a link", code="ERR_OUTSIDE_RAG") from None
    finally:
        os.close(folder_fd)
