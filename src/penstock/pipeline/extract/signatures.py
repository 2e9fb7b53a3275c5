"""Signatures: the type of a file by content, independent of the name.

ZIP-based formats are recognized by the names of members, OLE formats by the names of streams. Only
directories are read, within limits; nothing is unpacked.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

from penstock.lazy_pattern import lazy_pattern
from penstock.named_tuple import NamedTuple


class Signature(NamedTuple):
    """Type of a content. ``suffix``: usual suffix of the type, also of unsupported types."""

    what: str
    suffix: str = ""


PDF = Signature("a PDF", "pdf")
ZIP = Signature("a ZIP archive", "zip")
OLE = Signature("an OLE document")
ENCRYPTED = Signature("an encrypted Office document")
RTF = Signature("an RTF document", "rtf")

_START: tuple[tuple[bytes, Signature], ...] = (
    (b"%PDF-", PDF),
    (b"{\\rtf", RTF),
    (b"\x89PNG\r\n", Signature("a PNG image", "png")),
    (b"\xff\xd8\xff", Signature("a JPEG image", "jpg")),
    (b"GIF87a", Signature("a GIF image", "gif")),
    (b"GIF89a", Signature("a GIF image", "gif")),
    (b"II*\x00", Signature("a TIFF image", "tiff")),
    (b"MM\x00*", Signature("a TIFF image", "tiff")),
    (b"\x1f\x8b", Signature("gzip data", "gz")),
    *((b"BZh%d1AY&SY" % level, Signature("bzip2 data", "bz2")) for level in range(1, 10)),
    (b"\xfd7zXZ\x00", Signature("xz data", "xz")),
    (b"(\xb5/\xfd", Signature("zstd data", "zst")),
    (b"7z\xbc\xaf", Signature("a 7z archive", "7z")),
    (b"Rar!\x1a\x07", Signature("a RAR archive", "rar")),
    (b"\x7fELF", Signature("an ELF program")),
    (b"MZ\x90", Signature("a Windows program")),
    (b"\xca\xfe\xba\xbe", Signature("a Java class or Mach-O program")),
    (b"SQLite format 3\x00", Signature("an SQLite database")),
    (b"OggS\x00", Signature("Ogg media")),
    *((b"ID3%c" % version, Signature("MP3 audio")) for version in (2, 3, 4)),
    (b"\x00asm", Signature("WebAssembly")),
)
_STARTS_OF_BYTE: dict[bytes, tuple[tuple[bytes, Signature], ...]] = {
    first: tuple(each for each in _START if each[0][:1] == first)
    for first in {each[0][:1] for each in _START}
}
"""The entries of ``_START`` by first byte: most files are texts, whose first byte is in none of them."""
_OLE_START = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_BITMAP_HEADERS = frozenset([12, 40, 52, 56, 64, 108, 124])

_IN_ZIP: tuple[tuple[str, Signature], ...] = (
    ("word/", Signature("a Word document", "docx")),
    ("xl/", Signature("an Excel workbook", "xlsx")),
    ("ppt/", Signature("a PowerPoint presentation", "pptx")),
)
_BY_MIME = {
    b"application/epub+zip": Signature("an EPUB book", "epub"),
    b"application/vnd.oasis.opendocument.text": Signature("an OpenDocument text", "odt"),
    b"application/vnd.oasis.opendocument.spreadsheet": Signature("an OpenDocument spreadsheet", "ods"),
    b"application/vnd.oasis.opendocument.presentation": Signature("an OpenDocument presentation", "odp"),
}
"""Types of archives whose first member, ``mimetype``, is not compressed."""
_IN_OLE: tuple[tuple[str, Signature], ...] = (
    ("EncryptedPackage", ENCRYPTED),
    ("__properties_version1.0", Signature("an Outlook message", "msg")),
    ("WordDocument", Signature("a Word 97 document", "doc")),
    ("Book", Signature("an Excel 95 workbook", "xls")),
    ("Workbook", Signature("an Excel 97 workbook", "xls")),
    ("PowerPoint Document", Signature("a PowerPoint 97 presentation", "ppt")),
)

_WEBP = Signature("a WebP image", "webp")
_BMP = Signature("a BMP image", "bmp")
_TAR = Signature("a tar archive", "tar")

IN_ZIP = frozenset([*(found.suffix for _, found in _IN_ZIP), *(found.suffix for found in _BY_MIME.values())])
"""Suffixes of the types that are ZIP archives of a certain content."""
IN_OLE = frozenset(found.suffix for _, found in _IN_OLE if found.suffix)
LABELS = {
    found.suffix: found.what
    for found in (
        *(found for _, found in (*_START, *_IN_ZIP, *_IN_OLE)),
        *(*_BY_MIME.values(), ZIP, _WEBP, _BMP, _TAR),
    )
    if found.suffix
}
"""Types whose content always has a signature, by suffix: without it, the name is wrong."""
TEXT_LABELS = {"html": "HTML", "xml": "XML", "tsv": "a table", "csv": "a table", "txt": "plain text"}
"""Names of the types found by ``text_suffix``."""

MAX_MEMBERS = 4_096
MAX_STREAMS = 4_096
_END_RECORD = b"PK\x05\x06"
_END_SIZE = 22
_FREE = 0xFFFFFFFA
"""Numbers from here on are no sectors and no entries, but marks."""


def signature(data: bytes) -> Signature | None:
    """The kind of a content; None for text and for everything unknown."""
    for start, found in _STARTS_OF_BYTE.get(data[:1], ()):
        if data.startswith(start):
            return found
    if data.startswith(b"PK\x03\x04"):
        return _zip_kind(data)
    if data.startswith(_OLE_START):
        return _ole_kind(data)
    if data.startswith(b"RIFF"):
        return _WEBP if data[8:12] == b"WEBP" else Signature("RIFF media")
    if data.startswith(b"BM") and data[6:10] == bytes(4) and _number(data, 14, "<I") in _BITMAP_HEADERS:
        return _BMP
    if data[257:262] == b"ustar":
        return _TAR
    return None


_TEXTS: tuple[tuple[re.Pattern[bytes], str], ...] = (
    (lazy_pattern(rb"<!doctype html|<html|<(?:!--|meta|head|body|table|div|p)\b", re.IGNORECASE), "html"),
    (lazy_pattern(rb"<\?xml"), "xml"),
    (lazy_pattern(rb"(?:[^\t\r\n]{0,200}\t[^\r\n]*\r?\n){2}"), "tsv"),
    (lazy_pattern(rb"(?:[^,;\r\n]{0,200}[,;][^\r\n]*\r?\n){2}"), "csv"),
)


def text_suffix(head: bytes) -> str:
    """Suffix for the text in a misnamed file: html, xml, tsv, csv or txt."""
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip()[:4096]
    return next((suffix for pattern, suffix in _TEXTS if pattern.match(start)), "txt")


def _zip_kind(data: bytes) -> Signature | None:
    """The kind of a ZIP archive; None without a directory: the name decides then."""
    length = _number(data, 26, "<H")
    if data[30 : 30 + length] == b"mimetype":
        size, extra = _number(data, 18, "<I"), _number(data, 28, "<H")
        start = 30 + length + extra
        found = _BY_MIME.get(data[start : start + min(size, 200)].strip())
        if found is not None:
            return found
    names = list(_members(data))
    if not names:
        return None
    if "[Content_Types].xml" in names:
        for folder, found in _IN_ZIP:
            if any(name.startswith(folder) for name in names):
                return found
    return ZIP


def _members(data: bytes) -> Iterator[str]:
    """Names in the directory of an archive, at most ``MAX_MEMBERS``."""
    end = data.rfind(_END_RECORD, max(0, len(data) - _END_SIZE - 0xFFFF))
    if end < 0:
        return
    at = end - _number(data, end + 12, "<I")
    for _ in range(MAX_MEMBERS):
        if at < 0 or data[at : at + 4] != b"PK\x01\x02":
            return
        name, extra, comment = (_number(data, at + offset, "<H") for offset in (28, 30, 32))
        yield data[at + 46 : at + 46 + name].decode("utf-8", "replace").replace("\\", "/")
        at += 46 + name + extra + comment


def _ole_kind(data: bytes) -> Signature:
    names = set(_streams(data))
    return next((found for name, found in _IN_OLE if name in names), OLE)


class _Entry(NamedTuple):
    name: str
    left: int
    right: int
    child: int


def _streams(data: bytes) -> Iterator[str]:
    """Names directly below the root of an OLE file. Those of embedded documents lie deeper."""
    entries = _entries(data)
    waiting = [entries[0].child] if entries else []
    seen: set[int] = set()
    while waiting:
        number = waiting.pop()
        if number in seen or number >= len(entries):
            continue
        seen.add(number)
        entry = entries[number]
        yield entry.name
        waiting += (entry.left, entry.right)


def _entries(data: bytes) -> list[_Entry]:
    size = 1 << min(_number(data, 30, "<H"), 12)
    if size < 512:
        return []
    tables = [_number(data, 76 + 4 * place, "<I") for place in range(109)]
    sector, entries = _number(data, 48, "<I"), list[_Entry]()
    while sector < _FREE and len(entries) < MAX_STREAMS:
        part = data[(sector + 1) * size : (sector + 2) * size]
        if not part:
            break
        entries += [_entry(part[at : at + 128]) for at in range(0, len(part) - 127, 128)]
        table, place = divmod(sector, size // 4)
        if table >= len(tables) or tables[table] >= _FREE:
            break
        sector = _number(data, (tables[table] + 1) * size + 4 * place, "<I", _FREE)
    return entries


def _entry(part: bytes) -> _Entry:
    length = max(0, min(_number(part, 64, "<H"), 64) - 2)
    left, right, child = struct.unpack_from("<III", part, 68)
    return _Entry(part[:length].decode("utf-16-le", "replace"), left, right, child)


def _number(data: bytes, at: int, form: str, missing: int = 0) -> int:
    """One number of a binary header; ``missing`` at the end of the data."""
    try:
        found: int = struct.unpack_from(form, data, at)[0]
    except struct.error:
        return missing
    return found
