"""File reader, safe for paths which are gone, a pipe, a link or a growing file when opened."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable
from contextlib import suppress

from penstock.errors import DocumentTooLarge, PermanentFailure, UnsupportedType
from penstock.named_tuple import NamedTuple
from penstock.pipeline.extract import file_types
from penstock.pipeline.extract.charset import SNIFFED
from penstock.pipeline.extract.protocol import ExtractLimits
from penstock.pipeline.walk.no_links import BehindLink, open_file

_HASHED_AT_ONCE = 1 << 20


class FileContent(NamedTuple):
    """A file's bytes, of a large text only the first, with size and modification time at opening.

    A member has the time of its container.
    """

    data: bytes
    size: int
    mtime_ns: int
    depth: int = 0
    """Number of containers around the file."""


def read_file(
    path: str,
    limits: ExtractLimits,
    skip: Callable[[os.stat_result], bool],
    *,
    delivered: bool = False,
    name: str | None = None,
) -> FileContent | None:
    """Read a file; None if ``skip`` returns True for the status of the open file.

    Neither the file nor a folder above it may be a link by now: a walk follows none, and the paths of
    documents have none. ``delivered``: a link is refused as one out of the folders that a sender may use.
    ``name``: the name that decides the type, if it is not the path. Raises DocumentTooLarge for a file that
    is larger than the limit and cannot be read in part.
    """
    try:
        fd = open_file(path)
    except BehindLink:
        if delivered:
            raise PermanentFailure(f"{path} has become a link", code="ERR_OUTSIDE_RAG") from None
        raise behind_link(path) from None
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise UnsupportedType(f"{path} is not a regular file")
        if skip(status):
            return None
        # The file may be growing: bytes beyond this size belong to the next change.
        wanted = _bytes_to_read(fd, status.st_size, name or path, limits)
        return FileContent(_bytes(fd, wanted), status.st_size, status.st_mtime_ns)
    finally:
        os.close(fd)


def behind_link(path: str) -> UnsupportedType:
    """The refusal of a path that is a link by now, or below one."""
    return UnsupportedType(f"{path} is a link, or behind one", remedy="Index the target of the link.")


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


def _bytes_to_read(fd: int, size: int, path: str, limits: ExtractLimits) -> int:
    """Number of bytes to read of an open file. The content decides over the name, as in the parser."""
    if size <= min(limits.file_bytes, limits.text_bytes):
        return size
    try:
        extractor = file_types.detect(path, os.pread(fd, SNIFFED, 0)).extractor
        in_part = extractor in file_types.READ_IN_PART
    except UnsupportedType:
        if file_types.may_be_read_in_part(path):
            # Not text. These bytes are enough to refuse it, with a reason, when it is parsed.
            return SNIFFED
        in_part = False
    if not in_part and size > limits.file_bytes:
        raise DocumentTooLarge(f"{path} has {size:,} bytes; the limit is {limits.file_bytes:,}")
    return min(size, limits.text_bytes) if in_part else size


def hash_of(path: str, limits: ExtractLimits) -> str:
    """Content hash of a file of any size, over the bytes that are read; as stored with documents."""
    with os.fdopen(open_file(path), "rb", buffering=0) as file:
        left = os.fstat(file.fileno()).st_size
        with suppress(DocumentTooLarge):
            left = _bytes_to_read(file.fileno(), left, path, limits)
        digest = hashlib.sha256()
        while left > 0 and (read := file.read(min(left, _HASHED_AT_ONCE))):
            digest.update(read)
            left -= len(read)
        return digest.hexdigest()
