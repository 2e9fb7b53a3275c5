"""Files that say at their end what they are: one that is cut, half written or of another kind is none."""

from __future__ import annotations

import mmap
import os
import struct
import zlib
from pathlib import Path
from typing import BinaryIO, Generic, NamedTuple, TypeVar

import msgspec

Meta = TypeVar("Meta")

_END = struct.Struct("<II8s")
_MAGIC = b"pstkvec1"


class Stamp(NamedTuple):
    """Which file it is: one that is written anew has another."""

    inode: int
    mtime_ns: int
    size: int


class FooterFile(NamedTuple, Generic[Meta]):
    """A file in memory, as far as it is looked at. ``length``: of what stands before the end."""

    meta: Meta
    data: mmap.mmap
    length: int
    stamp: Stamp


def seal(file: BinaryIO, meta: object) -> None:
    """Ends a file, and has it on the disk before it can get its name."""
    said = msgspec.json.encode(meta)
    file.write(said + _END.pack(len(said), zlib.crc32(said), _MAGIC))
    file.flush()
    os.fsync(file.fileno())


def unseal(path: Path, kind: type[Meta]) -> FooterFile[Meta] | None:
    """None: there is no such file, or it is none of ours to its last byte."""
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
    said = data[start : start + size]
    try:
        meta = msgspec.json.decode(said, type=kind) if zlib.crc32(said) == checksum else None
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
