"""Files of vectors and indexes: a typed, checksummed footer, read without the numbers before it.

A truncated or foreign file counts as missing.
"""

from __future__ import annotations

import mmap
import os
import struct
import zlib
from pathlib import Path
from typing import BinaryIO, Generic, TypeVar

import msgspec

Meta = TypeVar("Meta")

_END = struct.Struct("<II8s")
_MAGIC = b"pstkvec1"


class FileOwner(msgspec.Struct, frozen=True):
    """Catalog, tenant and space of a vector file."""

    catalog: str
    tenant_id: str
    space: str


class Stamp(msgspec.Struct, frozen=True):
    """Identity of a file. A rewritten file has another stamp."""

    inode: int
    mtime_ns: int
    size: int


class FooterFile(msgspec.Struct, Generic[Meta], frozen=True):
    """A mapped file and the footer. ``length``: bytes before the footer."""

    meta: Meta
    data: mmap.mmap
    length: int
    stamp: Stamp


def write_footer(file: BinaryIO, meta: object) -> None:
    """Write the footer and sync the file, ready for the rename into place."""
    encoded = msgspec.json.encode(meta)
    file.write(encoded + _END.pack(len(encoded), zlib.crc32(encoded), _MAGIC))
    file.flush()
    os.fsync(file.fileno())


def read_footer(path: Path, meta_type: type[Meta]) -> FooterFile[Meta] | None:
    """Map a file and decode the footer; None if the file is missing, truncated or foreign."""
    try:
        with path.open("rb") as file:
            found = os.fstat(file.fileno())
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError):
        return None
    if len(data) < _END.size:
        return None
    size, checksum, magic = _END.unpack(data[-_END.size :])
    start = len(data) - _END.size - size
    if magic != _MAGIC or start < 0:
        return None
    encoded = data[start : start + size]
    try:
        meta = msgspec.json.decode(encoded, type=meta_type) if zlib.crc32(encoded) == checksum else None
    except msgspec.DecodeError:
        meta = None
    stamp = Stamp(found.st_ino, found.st_mtime_ns, found.st_size)
    return None if meta is None else FooterFile(meta, data, start, stamp)


def stamp_of(path: Path) -> Stamp | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return Stamp(found.st_ino, found.st_mtime_ns, found.st_size)
