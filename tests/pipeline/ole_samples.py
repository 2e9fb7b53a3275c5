"""Containers of Office 97 generated for tests, with documents of Word and PowerPoint in them."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

_SECTOR = 512
_END, _FREE, _FAT = 0xFFFFFFFE, 0xFFFFFFFF, 0xFFFFFFFD
_LARGE = 4096
"""Smaller streams would be in sectors of another size."""


def container(streams: Mapping[str, bytes]) -> bytes:
    """A container of these streams, each filled up to 4,096 bytes."""
    padded = {name: data.ljust(_LARGE, b"\0") for name, data in streams.items()}
    sizes = [-(-len(data) // _SECTOR) for data in padded.values()]
    directory = -(-(len(padded) + 1) // 4)
    total = sum(sizes) + directory
    fats = 1
    while fats * 128 < total + fats:
        fats += 1
    table: list[int] = [_FAT] * fats
    starts = []
    for size in (directory, *sizes):
        starts.append(len(table))
        table += [*range(len(table) + 1, len(table) + size), _END]
    table += [_FREE] * (128 * fats - len(table))
    header = struct.pack(
        "<8s16sHHHHHHIIIIIIIIII",
        b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1",
        b"",
        *(0x3E, 3, 0xFFFE, 9, 6, 0, 0, 0, fats, starts[0], 0, _LARGE, _END, 0, _END, 0),
    )
    places = [*range(fats), *([_FREE] * (109 - fats))]
    entries = [_entry("Root Entry", 5, child=1)]
    for number, (name, data) in enumerate(padded.items(), 1):
        following = number + 1 if number < len(padded) else _FREE
        entries.append(_entry(name, 2, right=following, start=starts[number], size=len(data)))
    body = b"".join(entries).ljust(directory * _SECTOR, b"\0")
    for data in padded.values():
        body += data.ljust(-(-len(data) // _SECTOR) * _SECTOR, b"\0")
    return header + struct.pack("<109I", *places) + struct.pack(f"<{len(table)}I", *table) + body


def _entry(
    name: str, kind: int, *, right: int = _FREE, child: int = _FREE, start: int = _END, size: int = 0
) -> bytes:
    wide = name.encode("utf-16-le")
    return struct.pack(
        "<64sHBBIII16sIQQIQ",
        wide,
        len(wide) + 2,
        kind,
        1,
        _FREE,
        right,
        child,
        *(b"", 0, 0, 0, start, size),
    )


def word97(
    text: str,
    stories: Sequence[str] = (),
    formats: Sequence[tuple[int, bytes]] = (),
    *,
    wide: bool = False,
    flags: int = 0x0200,
    parts: Mapping[str, bytes] | None = None,
) -> bytes:
    """A Word 97 document. ``formats``: end of the paragraph in characters, and its properties."""
    whole = text + "".join(stories)
    start = 0x800
    encoded = whole.encode("utf-16-le" if wide else "cp1252")
    width = 2 if wide else 1
    place = start if wide else 0x40000000 | start * 2
    pieces = struct.pack("<IIHIH", 0, len(whole), 0, place, 0)
    table = b"\x02" + struct.pack("<I", len(pieces)) + pieces
    main = bytearray(start)
    struct.pack_into("<HH", main, 0, 0xA5EC, 0xC1)
    struct.pack_into("<H", main, 0x0A, flags)
    lengths = [len(text), *map(len, stories), *[0] * (7 - len(stories))]
    struct.pack_into("<8I", main, 0x4C, *lengths)
    struct.pack_into("<II", main, 0x01A2, 0, len(table))
    if formats:
        main[0x600:0x800] = _format_page(start, width, formats)
        plc = struct.pack("<III", start, start + len(encoded), 3)
        struct.pack_into("<II", main, 0x102, len(table), len(plc))
        table += plc
    name = "1Table" if flags & 0x0200 else "0Table"
    return container({"WordDocument": bytes(main) + encoded, name: table, **(parts or {})})


def _format_page(start: int, width: int, formats: Sequence[tuple[int, bytes]]) -> bytes:
    count = len(formats)
    page = bytearray(512)
    ends = [start + width * end for end, _ in formats]
    struct.pack_into(f"<{count + 1}I", page, 0, start, *ends)
    at = 510
    for number, (_, properties) in enumerate(formats):
        about = properties if len(properties) % 2 else properties + b"\0"
        at = (at - 1 - len(about)) // 2 * 2
        page[at] = (len(about) + 1) // 2
        page[at + 1 : at + 1 + len(about)] = about
        page[4 * (count + 1) + 13 * number] = at // 2
    page[511] = count
    return bytes(page)


def record(kind: int, body: bytes, *, instance: int = 0, holds: bool = False) -> bytes:
    """A record of PowerPoint; ``holds`` others."""
    return struct.pack("<HHI", instance << 4 | (0xF if holds else 0), kind, len(body)) + body


def text_atoms(kind: int, text: str) -> bytes:
    """Kind and text, as single bytes if possible."""
    header = record(3999, struct.pack("<I", kind))
    narrow = text.isascii()
    return header + record(4008 if narrow else 4000, text.encode("latin-1" if narrow else "utf-16-le"))


def powerpoint97(
    slides: Sequence[tuple[bytes, bytes]], notes: bytes = b"", *, token: int = 0xE391C05F, old: bytes = b""
) -> bytes:
    """A presentation: outline and shapes of each slide, notes of the first, and data of an earlier save."""
    data = old
    places = []
    for number, (_, shapes) in enumerate(slides):
        places.append(len(data))
        about = struct.pack("<I8sIIHH", 0, b"", 0, 900 if notes and number == 0 else 0, 0, 0)
        data += record(1006, record(1007, about) + record(0xF00D, shapes, holds=True), holds=True)
    places.append(len(data))
    data += record(1008, notes, holds=True)
    listed = b"".join(
        record(1011, struct.pack("<IIIII", number, 0, 0, 256 + number, 0)) + outline
        for number, (outline, _) in enumerate(slides, 1)
    )
    noted = record(1011, struct.pack("<IIIII", len(slides) + 1, 0, 0, 900, 0))
    masters = record(1011, struct.pack("<IIIII", 99, 0, 0, 7, 0)) + text_atoms(0, "master")
    places.append(len(data))
    data += record(
        1000,
        record(4080, masters, instance=1, holds=True)
        + record(4080, listed, instance=0, holds=True)
        + record(4080, noted, instance=2, holds=True),
        holds=True,
    )
    directory = len(data)
    data += record(6002, struct.pack(f"<I{len(places)}I", len(places) << 20 | 1, *places))
    edit = len(data)
    data += record(4085, struct.pack("<IIIIIIHH", 0, 0, 0xFFFFFFFF, directory, len(places), 0, 0, 0))
    user = record(4086, struct.pack("<III", 20, token, edit))
    return container({"PowerPoint Document": data, "Current User": user})


def excel97(rows: Sequence[Sequence[str | float]], name: str = "S") -> bytes:
    """A workbook with one sheet."""

    def biff(kind: int, body: bytes) -> bytes:
        return struct.pack("<HH", kind, len(body)) + body

    def begin(kind: int) -> bytes:
        return biff(0x0809, struct.pack("<HHHHII", 0x0600, kind, 0, 0, 0, 0))

    cells = b""
    for number, row in enumerate(rows):
        for column, value in enumerate(row):
            about = struct.pack("<HHH", number, column, 0)
            if isinstance(value, str):
                text = struct.pack("<HB", len(value), 1) + value.encode("utf-16-le")
                cells += biff(0x0204, about + text)
            else:
                cells += biff(0x0203, about + struct.pack("<d", value))
    title = struct.pack("<BB", len(name), 0) + name.encode("latin-1")
    start = len(begin(5)) + 4 + 6 + len(title) + 4
    book = begin(5) + biff(0x0085, struct.pack("<IBB", start, 0, 0) + title) + biff(0x000A, b"")
    return container({"Workbook": book + begin(0x10) + cells + biff(0x000A, b"")})
