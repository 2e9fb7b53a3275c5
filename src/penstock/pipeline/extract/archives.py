"""Archives (zip and tar, also compressed), whose members become documents, and compressed single files.

A member has the number of its place in the archive, counting files only. A call for a range of numbers
returns the first members of the range, up to some megabytes.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from typing import IO, cast

import msgspec
from msgspec.structs import replace

from penstock.errors import (
    DocumentDamaged,
    DocumentEncrypted,
    DocumentTooLarge,
    UnreadableDocument,
    UnsupportedType,
)
from penstock.pipeline.extract import file_types
from penstock.pipeline.extract.charset import SNIFFED, clean
from penstock.pipeline.extract.member_names import MemberNames
from penstock.pipeline.extract.protocol import (
    Attachment,
    Content,
    ExtractedText,
    ExtractLimits,
    FileType,
    Page,
    Shape,
)
from penstock.vocabulary import how_many

MAX_ENTRIES = 10_000
"""Entries of an archive that are looked at, folders included."""
MAX_DIRECTORY = 100_000
"""Entries of a zip archive above which it is not opened at all: its directory is read as a whole."""
MAX_RATIO = 250
"""Bytes that one packed byte may become, for members above a megabyte."""
TOTAL = 8
"""Unpacked size of an archive, as a multiple of the limit for one file."""
BATCH_BYTES = 16 << 20
LISTED = 1_000
_PIECE = 1 << 20
_ENTRY = b"PK\x01\x02"
_BROKEN = (
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    OSError,
    ValueError,
    LookupError,
    NotImplementedError,
    RuntimeError,
    OverflowError,
)


class _Entry(msgspec.Struct, frozen=True):
    name: str
    size: int
    read: Callable[[], bytes]
    error: UnreadableDocument | None = None


class ArchiveExtractor:
    """The list of members as text. With a range of numbers: these members, as attachments."""

    name = "archive"
    version = "1"

    def extract(
        self, content: Content, file_type: FileType, limits: ExtractLimits, pages: range | None = None
    ) -> ExtractedText:
        reader = _Reader(content.data, limits)
        found: list[Attachment] = []
        held = count = 0
        names: list[str] = []
        for entry in reader.entries():
            count += 1
            if pages is None:
                names.append(entry.name)
            elif count >= pages.start:
                found.append(_attachment(entry))
                held += len(found[-1].data)
            if pages is not None and (count + 1 >= pages.stop or held >= BATCH_BYTES):
                # Maybe not the last one: the caller asks for the next.
                count += 1
                break
        text = _listing(content.name, names)
        if len(text) > limits.text_chars:
            raise DocumentTooLarge(
                f"the list of files has {len(text):,} characters; the limit is {limits.text_chars:,}"
            )
        return ExtractedText(
            pages=(Page(1, text),) if pages is None else (),
            file_type=file_type,
            shape=Shape.MARKDOWN,
            page_count=1 if pages is None else count,
            warnings=tuple(reader.warnings) if pages is None else (),
            attachments=tuple(found),
        )


class _Reader:
    """Members in order, with safe names and within the limits. Ends with a warning where the rest is lost."""

    def __init__(self, data: bytes, limits: ExtractLimits) -> None:
        self._data = data
        self._limits = limits
        self._total = TOTAL * limits.file_bytes
        self.warnings: list[str] = []

    def entries(self) -> Iterator[_Entry]:
        names, unpacked, count = MemberNames(), 0, 0
        try:
            for entry in self._raw_entries():
                count += 1
                unpacked += entry.size
                error = entry.error or self._refusal(entry, unpacked)
                yield replace(entry, name=names.add(entry.name), error=error)
        except _BROKEN as error:
            if not count:
                raise DocumentDamaged(f"the archive is damaged: {error}") from error
            self.warnings.append(f"only {how_many(count, 'file')} could be read from the archive: {error}")

    def _refusal(self, entry: _Entry, unpacked: int) -> UnreadableDocument | None:
        if entry.size > self._limits.file_bytes:
            return DocumentTooLarge(
                f"the file has {entry.size:,} bytes; the limit is {self._limits.file_bytes:,}"
            )
        if unpacked > self._total:
            return DocumentTooLarge(f"the archive unpacks to more than {self._total:,} bytes")
        return None

    def _raw_entries(self) -> Iterator[_Entry]:
        if self._data.startswith(b"PK"):
            return self._zip_entries()
        return self._tar_entries()

    def _zip_entries(self) -> Iterator[_Entry]:
        if self._data.count(_ENTRY) > MAX_DIRECTORY:
            raise DocumentTooLarge(f"the archive has more than {MAX_DIRECTORY:,} entries")
        with zipfile.ZipFile(io.BytesIO(self._data)) as archive:
            infos = archive.infolist()
            if len(infos) > MAX_ENTRIES:
                self._cut(len(infos) - MAX_ENTRIES)
            links = 0
            for info in infos[:MAX_ENTRIES]:
                if stat.S_ISLNK(info.external_attr >> 16):
                    links += 1
                elif not info.is_dir():
                    yield _Entry(
                        _zip_name(info), info.file_size, _zip_reading(archive, info), _zip_error(info)
                    )
            self._skipped(links)

    def _tar_entries(self) -> Iterator[_Entry]:
        with tarfile.open(fileobj=_unpacked(self._data, self._total), mode="r|") as archive:
            special = 0
            for count, info in enumerate(archive, 1):
                # Each would be kept, with a copy of all global headers.
                archive.members.clear()  # type: ignore[attr-defined]
                if count > MAX_ENTRIES:
                    self._cut(None)
                    break
                if info.isreg():
                    yield _Entry(info.name, info.size, _tar_reading(archive, info))
                elif not info.isdir():
                    special += 1
            self._skipped(special)

    def _cut(self, rest: int | None) -> None:
        more = f"{rest:,} more" if rest is not None else "more"
        self.warnings.append(f"only the first {MAX_ENTRIES:,} entries are read; the archive has {more}")

    def _skipped(self, count: int) -> None:
        if count:
            self.warnings.append(f"{how_many(count, 'link or device is', 'links or devices are')} left out")


def _attachment(entry: _Entry) -> Attachment:
    error, data = entry.error, b""
    if error is None:
        try:
            data = entry.read()
        except UnreadableDocument as refused:
            error = refused
        except _BROKEN as broken:
            error = DocumentDamaged(f"the file is damaged in its archive: {broken}")
    if error is None:
        return Attachment(entry.name, data)
    return Attachment(entry.name, b"", type(error).__name__, error.message)


def _listing(name: str, names: list[str]) -> str:
    lines = [f"# {name.rpartition('/')[2]}", ""] + [f"- {one}" for one in names[:LISTED]]
    if len(names) > LISTED:
        lines.append(f"- and {len(names) - LISTED:,} more files")
    return clean("\n".join(lines))


def _zip_name(info: zipfile.ZipInfo) -> str:
    """Name of a member. Names without the UTF-8 flag are decoded by zipfile as code page 437."""
    if info.flag_bits & 0x800:
        return info.filename
    try:
        return info.filename.encode("cp437").decode("utf-8")
    except UnicodeError:
        return info.filename


def _zip_error(info: zipfile.ZipInfo) -> UnreadableDocument | None:
    if info.flag_bits & 1:
        return DocumentEncrypted("the file is encrypted in its archive and needs a password")
    if info.file_size > 1 << 20 and info.file_size > MAX_RATIO * max(info.compress_size, 1):
        return DocumentTooLarge(
            f"the file unpacks from {info.compress_size:,} to {info.file_size:,} bytes; "
            f"the limit is {MAX_RATIO} times"
        )
    return None


def _zip_reading(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Callable[[], bytes]:
    def read() -> bytes:
        with archive.open(info) as member:
            return _read_bounded(member, info.file_size)

    return read


def _tar_reading(archive: tarfile.TarFile, info: tarfile.TarInfo) -> Callable[[], bytes]:
    def read() -> bytes:
        member = archive.extractfile(info)
        return _read_bounded(member, info.size) if member is not None else b""

    return read


def _read_bounded(source: IO[bytes], limit: int) -> bytes:
    """Read all of a stream in pieces; raises DocumentTooLarge above the limit."""
    pieces, size = [], 0
    while piece := source.read(min(_PIECE, limit - size + 1)):
        size += len(piece)
        if size > limit:
            raise DocumentTooLarge(f"the file unpacks to more than {limit:,} bytes")
        pieces.append(piece)
    return b"".join(pieces)


def _decompressor(data: bytes) -> IO[bytes] | None:
    """The unpacked stream of gzip, bzip2 or xz data; None for other data."""
    source = io.BytesIO(data)
    if data.startswith(b"\x1f\x8b"):
        return cast("IO[bytes]", gzip.GzipFile(fileobj=source))
    if data.startswith(b"BZh"):
        return bz2.BZ2File(source)
    if data.startswith(b"\xfd7zXZ\x00"):
        return lzma.LZMAFile(source, format=lzma.FORMAT_XZ)
    return None


class _Bounded(io.RawIOBase):
    """A stream with a limit: reading more bytes is an error."""

    def __init__(self, source: IO[bytes], limit: int) -> None:
        self._source = source
        self._left = limit

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data = self._source.read(_PIECE if size < 0 else size)
        self._left -= len(data)
        if self._left < 0:
            raise ValueError("the rest unpacks to more than the limit")
        return data


def _unpacked(data: bytes, limit: int) -> IO[bytes]:
    unpacked: IO[bytes] = _decompressor(data) or io.BytesIO(data)
    return cast("IO[bytes]", _Bounded(unpacked, limit))


class CompressedExtractor:
    """A compressed single file, such as ``notes.txt.gz``: read as the file inside, at the outer path."""

    name = "compressed"
    version = "1"

    def extract(
        self, content: Content, file_type: FileType, limits: ExtractLimits, pages: range | None = None
    ) -> ExtractedText:
        from penstock.pipeline.extract.factory import extractor

        source = _decompressor(content.data)
        if source is None:
            raise UnsupportedType("the file is not compressed, in spite of its name")
        try:
            with source:
                data = _read_bounded(source, limits.file_bytes)
        except _BROKEN as error:
            raise DocumentDamaged(f"the compressed file is damaged: {error}") from error
        inner = Content(file_types.uncompressed_name(content.name), data)
        inner_type = file_types.detect(inner.name, data[:SNIFFED])
        if inner_type.extractor in ("archive", self.name):
            raise UnsupportedType("an archive or another compressed file is inside this compressed file")
        extracted = extractor(inner_type.extractor).extract(inner, inner_type, limits, pages)
        outer_type = replace(inner_type, extractor=self.name)
        return replace(extracted, file_type=outer_type)
