"""The file format of backups: parts of rows, each with its count and checksum, and a footer with all of them.

A file is a first line, then frames: a letter, a length of four bytes, and that many bytes. ``H`` is the
header, ``P`` begins a part, ``R`` holds compressed rows of it, ``E`` ends the part with count and SHA-256,
and ``F`` is the footer, after which the file ends. Headers are JSON, rows are MessagePack. Nothing is kept in
memory but one frame, so that a file of any size can be read from start to end.
"""

from __future__ import annotations

import hashlib
import os
import struct
import zlib
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, BinaryIO

import msgspec

from penstock.errors import BackupDamaged, SchemaMismatch

FIRST_LINE = b"penstock backup\n"
_FORMAT = 1
MOST_BYTES = 256 * 1024 * 1024
"""Bytes of a frame, compressed or not: a larger one is damage, or an attack."""
_FRAME = struct.Struct(">cI")
_COMPRESSION = 1
"""Level of zlib: texts become a third, and more would cost more time than the disk."""
_SAMPLE = 1 << 16
_LEAST_GAIN = 0.1
"""Share that a sample of a frame has to lose. Vectors of numbers lose less, and cost most of the time."""
_AT_ONCE = 2
"""Frames compressed at the same time, beside the reading of rows. Each may be some megabytes."""

Row = Sequence[Any]


class PartHeader(msgspec.Struct, frozen=True):
    """Name of a part, and the names of its columns."""

    part: str
    columns: tuple[str, ...]


class PartSummary(msgspec.Struct, frozen=True):
    """Rows of a part, and the checksum over all of them."""

    part: str
    rows: int
    sha256: str


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The first frame: version, time and stores of the backup."""

    format: int = _FORMAT
    version: str
    """Version of Penstock."""
    created_at: str
    id: str
    """Unique id of this backup."""
    queue: str
    """Address of the queue, without a password."""
    catalog: str
    numbers: Mapping[str, int]
    """The last numbers of rows and changes of the catalog."""


class _Footer(msgspec.Struct, frozen=True):
    """The last frame: all parts in order."""

    parts: tuple[PartSummary, ...]


class RowChecksum:
    """SHA-256 over rows, independent of the size of the batches."""

    def __init__(self) -> None:
        self._encode = msgspec.msgpack.Encoder().encode
        self._hash = hashlib.sha256()
        self.rows = 0

    def add(self, rows: Sequence[Row]) -> bytes:
        """Add rows; return them encoded, as a list."""
        packed = self._encode(rows)
        self._hash.update(memoryview(packed)[_list_head(len(rows)) :])
        self.rows += len(rows)
        return packed

    def summary(self, part: str) -> PartSummary:
        return PartSummary(part, self.rows, self._hash.hexdigest())


def _list_head(length: int) -> int:
    """Bytes of MessagePack before the first element of a list."""
    return 1 if length < 16 else 3 if length < 1 << 16 else 5


def _compressed(packed: bytes) -> bytes:
    sample = packed[:_SAMPLE]
    gains = len(zlib.compress(sample, _COMPRESSION)) < (1 - _LEAST_GAIN) * len(sample)
    # Level 0 is a copy in the form of zlib.
    return zlib.compress(packed, _COMPRESSION if gains else 0)


class ArchiveWriter:
    """Writes an archive to an open file."""

    def __init__(self, file: BinaryIO, header: Header) -> None:
        self._file = file
        self._compressing: deque[Future[bytes]] = deque()
        """Frames of rows on their way to the file, in order."""
        self._threads = ThreadPoolExecutor(_AT_ONCE, "penstock-backup")
        self._part: tuple[PartHeader, RowChecksum] | None = None
        self.parts: list[PartSummary] = []
        self._encode = msgspec.msgpack.Encoder().encode
        file.write(FIRST_LINE)
        self._frame(b"H", msgspec.json.encode(header))

    def begin(self, part: PartHeader) -> None:
        self._part = part, RowChecksum()
        self._frame(b"P", msgspec.json.encode(part))

    def add(self, rows: Sequence[Row]) -> None:
        assert self._part is not None
        self._rows(rows, self._part[1].add(rows))

    def _rows(self, rows: Sequence[Row], packed: bytes) -> None:
        if len(packed) > MOST_BYTES and len(rows) > 1:
            for half in (rows[: len(rows) // 2], rows[len(rows) // 2 :]):
                self._rows(half, self._encode(half))
            return
        self._write_compressed(_AT_ONCE - 1)
        # zlib leaves the interpreter to the thread that reads the rows.
        self._compressing.append(self._threads.submit(_compressed, packed))

    def _write_compressed(self, left: int = 0) -> None:
        """Write frames in their order until so many are left."""
        while len(self._compressing) > left:
            self._frame(b"R", self._compressing.popleft().result())

    def end(self) -> None:
        assert self._part is not None
        self._write_compressed()
        header, checksum = self._part
        summary = checksum.summary(header.part)
        self.parts.append(summary)
        self._frame(b"E", msgspec.json.encode(summary))
        self._part = None

    def finish(self) -> None:
        """Write the footer and make the file durable."""
        self._threads.shutdown()
        self._frame(b"F", msgspec.json.encode(_Footer(tuple(self.parts))))
        self._file.flush()
        os.fsync(self._file.fileno())

    def _frame(self, kind: bytes, data: bytes) -> None:
        self._file.write(_FRAME.pack(kind, len(data)))
        self._file.write(data)


class PartRows(msgspec.Struct, frozen=True):
    """Rows of a part, in the order of the file. ``size``: their encoded bytes, if known."""

    header: PartHeader
    rows: list[Row]
    size: int = 0


class ArchiveReader:
    """Reads an archive from an open file, and checks all that it reads. Raises ``BackupDamaged``."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file = file
        self._name = name
        self._where = "its header"
        self.parts: list[PartSummary] = []
        """The parts read so far; all of them after the last rows."""
        self.size = os.fstat(file.fileno()).st_size
        if file.read(len(FIRST_LINE)) != FIRST_LINE:
            raise BackupDamaged(f"{name} is not a backup of Penstock")
        kind, data = self._frame()
        self.header = self._decoded(kind, data, b"H", Header)
        if self.header.format > _FORMAT:
            raise SchemaMismatch(
                f"{name} has format {self.header.format}, this version reads up to {_FORMAT}",
                remedy="Upgrade Penstock to the version that made the backup, or a later one.",
            )

    @property
    def position(self) -> int:
        """Bytes read so far."""
        return self._file.tell()

    def rows(self) -> Iterator[PartRows]:
        """All rows, part by part. A part without rows comes once, with none."""
        while True:
            self._where = f"part {self.parts[-1].part}" if self.parts else "its header"
            self._where = f"after {self._where}"
            kind, data = self._frame()
            if kind == b"F":
                self._end(self._decoded(kind, data, b"F", _Footer))
                return
            yield from self._one_part(self._decoded(kind, data, b"P", PartHeader))

    def _one_part(self, header: PartHeader) -> Iterator[PartRows]:
        self._where = f"in part {header.part}"
        checksum = RowChecksum()
        yield PartRows(header, [])
        while True:
            kind, data = self._frame()
            if kind == b"E":
                break
            rows = self._unpacked(kind, data, len(header.columns))
            yield PartRows(header, rows, len(checksum.add(rows)))
        stated = self._decoded(kind, data, b"E", PartSummary)
        found = checksum.summary(header.part)
        if found != stated:
            raise BackupDamaged(
                f"{self._name}: part {header.part} has {found.rows} rows with another checksum than the "
                f"{stated.rows} that were written"
            )
        self.parts.append(found)

    def _end(self, footer: _Footer) -> None:
        if footer.parts != tuple(self.parts):
            raise BackupDamaged(f"{self._name}: the footer names other parts than the file holds")
        if self._file.read(1):
            raise BackupDamaged(f"{self._name} goes on after its end")

    def _frame(self) -> tuple[bytes, bytes]:
        head = self._file.read(_FRAME.size)
        kind, length = _FRAME.unpack(head) if len(head) == _FRAME.size else (b"", 0)
        data = self._file.read(length) if kind and length <= MOST_BYTES else b""
        if not kind or len(data) != length:
            if kind and length > MOST_BYTES:
                raise BackupDamaged(f"{self._name} is damaged {self._where}")
            raise BackupDamaged(f"{self._name} is truncated: it ends {self._where}")
        return kind, data

    def _unpacked(self, kind: bytes, data: bytes, width: int) -> list[Row]:
        if kind != b"R":
            raise BackupDamaged(f"{self._name} is damaged {self._where}")
        try:
            unpacker = zlib.decompressobj()
            packed = unpacker.decompress(data, MOST_BYTES)
            rows: list[Row] = msgspec.msgpack.decode(packed, type=list[tuple[Any, ...]])
        except (zlib.error, msgspec.MsgspecError) as error:
            raise BackupDamaged(f"{self._name} is damaged {self._where} ({error})") from error
        if not unpacker.eof or set(map(len, rows)) - {width}:
            raise BackupDamaged(f"{self._name} is damaged {self._where}")
        return rows

    def _decoded(self, kind: bytes, data: bytes, wanted: bytes, form: type[Any]) -> Any:
        try:
            if kind == wanted:
                return msgspec.json.decode(data, type=form)
        except msgspec.MsgspecError:
            pass
        raise BackupDamaged(f"{self._name} is damaged {self._where}")
