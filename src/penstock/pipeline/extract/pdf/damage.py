"""Damage of a PDF: signs of an object table rebuilt by pdfium, with possibly missing parts.

pdfium repairs silently. This checks the last table of a file against the objects it points to.
"""

from __future__ import annotations

import re

_TAIL = 2_048
_MAX_ENTRIES = 1_000
_ENTRY_BYTES = 20
_START = re.compile(rb"startxref\s+(\d+)")
_OBJECT = re.compile(rb"\s*(\d+)\s+(\d+)\s+obj")
_TABLE = re.compile(rb"\s*xref\s+")
_SECTION = re.compile(rb"(\d+)\s+(\d+)\s*?(?:\r\n|\n|\r|(?=\d{10} ))")
_ENTRY = re.compile(rb"(\d{10}) (\d{5}) ([nf])(?: \r| \n|\r\n)")
_TRAILER = re.compile(rb"\s*trailer\s*(<<.*?)startxref", re.DOTALL)
_STRING = re.compile(rb"\((?:\\.|[^()\\])*\)", re.DOTALL)

CUT_OFF = "the PDF is cut off: its end is missing, so that later pages or changes may be missing, too"
WRONG_TABLE = "the PDF is damaged: its table of objects is wrong, so that parts may be missing"


def damage_warnings(data: bytes) -> list[str]:
    """Warnings about a damaged file, which pdfium opened nevertheless."""
    starts = _START.findall(data[-_TAIL:])
    if not starts:
        return [CUT_OFF]
    header = max(0, data[:1024].find(b"%PDF-"))
    at = int(starts[-1])
    places = {at, at + header}
    sound = any(_is_sound(data, place, header) for place in places if 0 < place < len(data))
    return [] if sound else [WRONG_TABLE]


def _is_sound(data: bytes, at: int, header: int) -> bool:
    table = _TABLE.match(data, at)
    if table is None:
        # A stream of object positions, which pdfium checks when it unpacks it.
        return _OBJECT.match(data, at) is not None
    end = _checked_sections(data, table.end(), header)
    return end is not None and _balanced(data, end)


def _checked_sections(data: bytes, at: int, header: int) -> int | None:
    """The end of the table at this offset, or None if an entry is wrong."""
    left = _MAX_ENTRIES
    while section := _SECTION.match(data, at):
        first, count = int(section[1]), int(section[2])
        at = section.end()
        for number in range(first, first + min(count, left)):
            entry = _ENTRY.match(data, at + _ENTRY_BYTES * (number - first))
            if entry is None or (entry[3] == b"n" and not _points_to(data, number, int(entry[1]), header)):
                return None
        at += _ENTRY_BYTES * count
        left = max(0, left - count)
    return at


def _points_to(data: bytes, number: int, at: int, header: int) -> bool:
    # Unused entries may be marked as used, with position 0.
    return at == 0 or any(
        (found := _OBJECT.match(data, place)) is not None and int(found[1]) == number
        for place in (at, at + header)
    )


def _balanced(data: bytes, at: int) -> bool:
    trailer = _TRAILER.match(data, at)
    if trailer is None:
        return False
    plain = _STRING.sub(b"", trailer[1])
    return plain.count(b"<<") == plain.count(b">>") and plain.count(b"[") == plain.count(b"]")
