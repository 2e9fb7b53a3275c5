"""Reading a file that may be anything by the time it is opened: gone, a pipe, or growing."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Callable
from typing import NamedTuple

from penstock.errors import DocumentTooLarge, PermanentFailure, UnsupportedType

# Not blocking: what was a file when it was found may be a pipe by now.
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
_TRAVERSE = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class FileContent(NamedTuple):
    """A file's bytes with the size and time it had when it was opened."""

    data: bytes
    size: int
    mtime_ns: int


def read_file(
    path: str, most_bytes: int, skip: Callable[[os.stat_result], bool], *, links: bool = True
) -> FileContent | None:
    """None: ``unwanted`` said so, by what the system tells of the open file. The file itself is no link, as a
    walk would not follow it; ``links``: folders on the way may be."""
    fd = _open(path) if links else _open_without_links(path)
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise UnsupportedType(f"{path} is no regular file")
        if skip(status):
            return None
        if status.st_size > most_bytes:
            raise DocumentTooLarge(f"{path} has {status.st_size:,} bytes; the limit is {most_bytes:,}")
        # It may grow meanwhile; what comes after its size now belongs to the next change.
        return FileContent(_bytes(fd, status.st_size), status.st_size, status.st_mtime_ns)
    finally:
        os.close(fd)


def _bytes(fd: int, size: int) -> bytes:
    """Without a file object, which costs as much as the reading does where files are small."""
    data = os.read(fd, size)
    if len(data) == size:
        return data
    parts = [data]
    while parts[-1]:
        size -= len(parts[-1])
        parts.append(os.read(fd, size))
    return b"".join(parts)


def hash_of(path: str) -> str:
    """Of a file's whole content, as documents are told by it, however large it is."""
    with os.fdopen(os.open(path, _READ | os.O_NOFOLLOW), "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _open(path: str) -> int:
    try:
        return os.open(path, _READ | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise UnsupportedType(
            f"{path} is a link, or lies behind a loop of them", remedy="Index what it leads to."
        ) from None


def _open_without_links(path: str) -> int:
    """From folder to folder: whoever puts a link in the way, at whatever moment, leads nobody elsewhere."""
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
