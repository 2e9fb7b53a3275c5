"""Formats of the paragraphs of a Word 97 document, by position in the stream."""

from __future__ import annotations

import bisect
import struct

from penstock.named_tuple import NamedTuple

_PAGE = 512
_PLACE_OF_TABLE = 0x102
_ENTRY = 13
_IN_TABLE, _ROW_END, _LIST, _LIST_LEVEL = 0x2416, 0x2417, 0x460B, 0x260A
_OPERAND_BYTES = (1, 1, 2, 4, 2, 2, 0, 3)
"""Bytes of an operand by the upper three bits of its code; 0: its first byte tells."""


class ParagraphFormat(NamedTuple):
    style: int = 0
    """1 to 9 are the headings of these levels."""
    in_table: bool = False
    row_end: bool = False
    listed: bool = False
    list_level: int = 0
    known: bool = False
    """False if the document does not tell."""


_UNKNOWN = ParagraphFormat()


class ParagraphFormats:
    """Formats of all paragraphs. A damaged table counts as empty: the text is read all the same."""

    def __init__(self, main: bytes, table: bytes) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._formats: list[ParagraphFormat] = []
        if len(main) >= _PLACE_OF_TABLE + 8:
            place, size = struct.unpack_from("<II", main, _PLACE_OF_TABLE)
            self._read(main, table[place : place + size])

    def _read(self, main: bytes, plc: bytes) -> None:
        count = max(0, (len(plc) - 4) // 8)
        found: list[tuple[int, int, ParagraphFormat]] = []
        for number in dict.fromkeys(struct.unpack_from(f"<{count}I", plc, 4 * (count + 1)) if count else ()):
            page = main[(number & 0x3FFFFF) * _PAGE :][:_PAGE]
            if len(page) == _PAGE:
                found += _formats(page)
        for start, end, form in sorted(found, key=lambda one: one[0]):
            self._starts.append(start)
            self._ends.append(end)
            self._formats.append(form)

    def at(self, offset: int) -> ParagraphFormat:
        """Format of the paragraph with the character at this place."""
        index = bisect.bisect_right(self._starts, offset) - 1
        return self._formats[index] if index >= 0 and offset < self._ends[index] else _UNKNOWN


def _formats(page: bytes) -> list[tuple[int, int, ParagraphFormat]]:
    count = page[-1]
    if 4 * (count + 1) + _ENTRY * count >= _PAGE:
        return []
    places = struct.unpack_from(f"<{count + 1}I", page)
    found = []
    for number in range(count):
        at = page[4 * (count + 1) + _ENTRY * number] * 2
        found.append((places[number], places[number + 1], _format(page, at)))
    return found


def _format(page: bytes, at: int) -> ParagraphFormat:
    if not at or at + 1 >= _PAGE:
        return ParagraphFormat(known=True)
    size = page[at] * 2 - 1
    at += 1
    if size < 0:
        size = page[at] * 2
        at += 1
    about = page[at : at + size]
    properties = _properties(about[2:])
    return ParagraphFormat(
        style=int.from_bytes(about[:2], "little"),
        in_table=bool(properties.get(_IN_TABLE)),
        row_end=bool(properties.get(_ROW_END)),
        listed=bool(properties.get(_LIST)),
        list_level=min(properties.get(_LIST_LEVEL, 0), 8),
        known=True,
    )


def _properties(data: bytes) -> dict[int, int]:
    found: dict[int, int] = {}
    place = 0
    while place + 3 <= len(data):
        code = int.from_bytes(data[place : place + 2], "little")
        place += 2
        size = _OPERAND_BYTES[code >> 13]
        if not size:
            size = 1 + data[place]
        elif size <= 2:
            found[code] = int.from_bytes(data[place : place + size], "little")
        place += size
    return found
