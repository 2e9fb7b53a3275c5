"""Word documents of Word 6 to 2003: the text of their pieces, with headings, lists and tables."""

from __future__ import annotations

import bisect
import re
import struct
from collections.abc import Iterator

import msgspec

from penstock.errors import DocumentDamaged, DocumentEncrypted, DocumentTooLarge
from penstock.pipeline.extract.office.markdown_page import END_OF_TABLE, Block, MarkdownPage
from penstock.pipeline.extract.office.package import (
    container_properties,
    no_text,
    opened_container,
    read_stream,
    refuse_encrypted_package,
)
from penstock.pipeline.extract.protocol import Content, ExtractedText, ExtractLimits, FileType, Shape
from penstock.pipeline.extract.text import stated_title

_PAGE = 512
_PLACE_OF_TABLE = 0x102
_ENTRY = 13
_IN_TABLE, _ROW_END, _LIST, _LIST_LEVEL = 0x2416, 0x2417, 0x460B, 0x260A
_OPERAND_BYTES = (1, 1, 2, 4, 2, 2, 0, 3)
"""Bytes of an operand by the upper three bits of its code; 0: its first byte tells."""


class _ParagraphFormat(msgspec.Struct, frozen=True):
    style: int = 0
    """1 to 9 are the headings of these levels."""
    in_table: bool = False
    row_end: bool = False
    listed: bool = False
    list_level: int = 0
    known: bool = False
    """False if the document does not tell."""


_UNKNOWN = _ParagraphFormat()


class _ParagraphFormats:
    """Formats of all paragraphs, by position in the stream. A damaged table counts as empty: the text is
    read all the same."""

    def __init__(self, main: bytes, table: bytes) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._formats: list[_ParagraphFormat] = []
        if len(main) >= _PLACE_OF_TABLE + 8:
            place, size = struct.unpack_from("<II", main, _PLACE_OF_TABLE)
            self._read(main, table[place : place + size])

    def _read(self, main: bytes, plc: bytes) -> None:
        count = max(0, (len(plc) - 4) // 8)
        found: list[tuple[int, int, _ParagraphFormat]] = []
        for number in dict.fromkeys(struct.unpack_from(f"<{count}I", plc, 4 * (count + 1)) if count else ()):
            page = main[(number & 0x3FFFFF) * _PAGE :][:_PAGE]
            if len(page) == _PAGE:
                found += _formats(page)
        for start, end, form in sorted(found, key=lambda one: one[0]):
            self._starts.append(start)
            self._ends.append(end)
            self._formats.append(form)

    def at(self, offset: int) -> _ParagraphFormat:
        """Format of the paragraph with the character at this place."""
        index = bisect.bisect_right(self._starts, offset) - 1
        return self._formats[index] if index >= 0 and offset < self._ends[index] else _UNKNOWN


def _formats(page: bytes) -> list[tuple[int, int, _ParagraphFormat]]:
    count = page[-1]
    if 4 * (count + 1) + _ENTRY * count >= _PAGE:
        return []
    places = struct.unpack_from(f"<{count + 1}I", page)
    found = []
    for number in range(count):
        at = page[4 * (count + 1) + _ENTRY * number] * 2
        found.append((places[number], places[number + 1], _format(page, at)))
    return found


def _format(page: bytes, at: int) -> _ParagraphFormat:
    if not at or at + 1 >= _PAGE:
        return _ParagraphFormat(known=True)
    size = page[at] * 2 - 1
    at += 1
    if size < 0:
        size = page[at] * 2
        at += 1
    about = page[at : at + size]
    properties = _properties(about[2:])
    return _ParagraphFormat(
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


_WORD_97, _WORD_95 = 0xA5EC, 0xA5DC
_FIRST_97 = 0xC1
"""Version from which the text is in pieces of UTF-16 or Windows-1252."""
_COMPLEX, _ENCRYPTED, _TABLE_1 = 0x0004, 0x0100, 0x0200
_COMPRESSED = 0x40000000
_PIECES = 2
_PICTURES = (b"\x01\0", b"\x08\0")
"""Marks of pictures and drawings in the text."""
_FIELD = re.compile("[\x13\x14\x15]")
_MARKS = re.compile("[\r\x07\x0c\x0e]")
_SIGNS = str.maketrans({"\x0b": "\n", "\x1e": "-", **dict.fromkeys("\x01\x02\x03\x04\x05\x06\x08\x1f")})


class DocExtractor:
    """One page with paragraph positions. Notes, comments and headers follow the text."""

    name = "doc"
    version = "1"

    def extract(
        self, content: Content, file_type: FileType, limits: ExtractLimits, pages: range | None = None
    ) -> ExtractedText:
        refuse_encrypted_package(content.data)
        with opened_container(content.data) as container:
            main = read_stream(container, "WordDocument")
            if main is None or len(main) < 0x1AA:
                raise DocumentDamaged("the container holds no Word document")
            name = "1Table" if _u16(main, 0x0A) & _TABLE_1 else "0Table"
            document = _document(main, read_stream(container, name) or b"", limits)
            title, properties = container_properties(container)
        page = MarkdownPage(limits)
        writer = _Writer(document, page)
        writer.write()
        written = page.page(positions=True)
        if not written.text and any(sign in document.text for sign in _PICTURES):
            raise no_text()
        return ExtractedText(
            pages=(written,),
            file_type=file_type,
            shape=Shape.MARKDOWN,
            page_count=1,
            title=title or stated_title(writer.heading),
            properties=properties,
        )


class _Piece(msgspec.Struct, frozen=True):
    start: int
    """Number of its first character."""
    offset: int
    """Place of the first character in the stream."""
    width: int
    """Bytes of a character."""


class _Document(msgspec.Struct, frozen=True):
    text: bytes
    """All stories after each other, in UTF-16."""
    lengths: list[int]
    """Characters of each story; the first is the text of the body."""
    pieces: list[_Piece]
    formats: _ParagraphFormats


def _document(main: bytes, table: bytes, limits: ExtractLimits) -> _Document:
    kind, version, flags = _u16(main, 0), _u16(main, 2), _u16(main, 0x0A)
    if kind not in (_WORD_97, _WORD_95):
        raise DocumentDamaged("the stream of the text does not begin as one of Word")
    if flags & _ENCRYPTED:
        raise DocumentEncrypted("the document is encrypted and opens only with a password")
    if version < _FIRST_97 or kind == _WORD_95:
        return _old_document(main, flags, limits)
    # The body, footnotes, headers, macros, comments, endnotes, text boxes, and text boxes of headers.
    lengths = [max(0, one) for one in struct.unpack_from("<iiiiiiii", main, 0x4C)]
    place, size = struct.unpack_from("<II", main, 0x01A2)
    text, pieces = _read_pieces(main, table[place : place + size], limits)
    return _Document(text, lengths, pieces, _ParagraphFormats(main, table))


def _old_document(main: bytes, flags: int, limits: ExtractLimits) -> _Document:
    """A document of Word 6 or 95, with one byte for each character."""
    if flags & _COMPLEX:
        place, size = struct.unpack_from("<II", main, 0x160)
        text, _ = _read_pieces(main, main[place : place + size], limits, narrow=True)
    else:
        start, end = struct.unpack_from("<II", main, 0x18)
        text = main[start:end].decode("cp1252", "replace").encode("utf-16-le")
    return _Document(text, [len(text) // 2], [], _ParagraphFormats(b"", b""))


def _read_pieces(
    main: bytes, table: bytes, limits: ExtractLimits, *, narrow: bool = False
) -> tuple[bytes, list[_Piece]]:
    place = 0
    while place + 3 <= len(table) and table[place] == 1:
        place += 3 + _u16(table, place + 1)
    if place + 5 > len(table) or table[place] != _PIECES:
        raise DocumentDamaged("the document lacks the table of its pieces")
    plc = table[place + 5 : place + 5 + int.from_bytes(table[place + 1 : place + 5], "little")]
    count = max(0, (len(plc) - 4) // 12)
    starts = struct.unpack_from(f"<{count + 1}I", plc) if count else (0,)
    if starts[-1] > limits.text_chars:
        raise DocumentTooLarge(f"the text has more than {limits.text_chars:,} characters")
    found = bytearray()
    pieces: list[_Piece] = []
    for number in range(count):
        length = starts[number + 1] - starts[number]
        raw = int.from_bytes(plc[4 * (count + 1) + 8 * number + 2 :][:4], "little")
        if length < 0:
            raise DocumentDamaged("the pieces of the document are out of order")
        width = 1 if narrow or raw & _COMPRESSED else 2
        offset = (raw & ~_COMPRESSED) // 2 if width == 1 and not narrow else raw
        pieces.append(_Piece(starts[number], offset, width))
        data = main[offset : offset + width * length]
        wide = data.decode("cp1252", "replace").encode("utf-16-le") if width == 1 else data
        units = len(wide) // 2
        found += wide[: 2 * units] + b" \0" * (length - units)
    return bytes(found), pieces


class _Writer:
    """Writes the stories of a document, paragraph by paragraph."""

    def __init__(self, document: _Document, page: MarkdownPage) -> None:
        self._document = document
        self._page = page
        self._position = 1
        self._cells: list[str] = []
        self._cell: list[str] = []
        """Paragraphs of the current cell."""
        self._seen: set[str] = set()
        self.heading = ""

    def write(self) -> None:
        start = 0
        for number, length in enumerate(self._document.lengths):
            self._story(start, length, body=number == 0)
            start += length

    def _story(self, start: int, length: int, *, body: bool) -> None:
        text = self._document.text[2 * start : 2 * (start + length)].decode("utf-16-le", "replace")
        place = start
        for raw, mark in _paragraphs(text):
            # Numbers of characters count units of UTF-16.
            place += len(raw.encode("utf-16-le")) // 2 + 1
            form = self._document.formats.at(_offset(self._document.pieces, place - 1))
            self._paragraph(_shown(raw), mark, form, body=body)
            self._position += 1
        self._end_row()

    def _paragraph(self, line: str, mark: str, form: _ParagraphFormat, *, body: bool) -> None:
        # Without formats, an empty cell is taken for the end of its row.
        if mark == "\x07" and (form.row_end or (not form.known and not line and not self._cell)):
            self._end_row()
        elif mark == "\x07":
            self._cells.append(" ".join([*self._cell, line]))
            self._cell.clear()
        elif form.in_table:
            self._cell.append(line)
        elif body:
            self._end_row()
            self._body_paragraph(line, form)
        elif line not in self._seen:
            # Sections repeat their headers and footers.
            self._end_row()
            self._seen.add(line)
            self._page.add(Block(line, self._position))

    def _body_paragraph(self, line: str, form: _ParagraphFormat) -> None:
        self._page.add(END_OF_TABLE)
        if 1 <= form.style <= 9:
            self.heading = self.heading or (line if form.style == 1 else "")
            self._page.add(Block(line, self._position, level=form.style))
        else:
            marker = "-" if form.listed else ""
            self._page.add(Block(line, self._position, marker=marker, depth=form.list_level))

    def _end_row(self) -> None:
        if self._cell:
            self._cells.append(" ".join(self._cell))
            self._cell.clear()
        if self._cells:
            self._page.add(Block("", self._position, cells=tuple(self._cells)))
            self._cells.clear()


def _paragraphs(text: str) -> Iterator[tuple[str, str]]:
    """Each paragraph with the end mark."""
    start = 0
    for mark in _MARKS.finditer(text):
        yield text[start : mark.start()], mark[0]
        start = mark.end()
    if start < len(text):
        yield text[start:], "\r"


def _shown(text: str) -> str:
    """Visible text: without field commands and control characters."""
    if "\x13" in text or "\x14" in text or "\x15" in text:
        text = _without_fields(text)
    return text.translate(_SIGNS)


def _without_fields(text: str) -> str:
    kept: list[str] = []
    commands: list[bool] = []
    """One entry for each open field: whether its command is being read."""
    hidden = start = 0
    for sign in _FIELD.finditer(text):
        if not hidden:
            kept.append(text[start : sign.start()])
        start = sign.end()
        if sign[0] == "\x13":
            commands.append(True)
            hidden += 1
        elif commands and sign[0] == "\x14":
            hidden -= commands[-1]
            commands[-1] = False
        elif commands:
            hidden -= commands.pop()
    if not hidden:
        kept.append(text[start:])
    return "".join(kept)


def _offset(pieces: list[_Piece], place: int) -> int:
    """Place in the stream of the character with this number."""
    index = bisect.bisect_right(pieces, place, key=lambda piece: piece.start) - 1
    if index < 0:
        return -1
    piece = pieces[index]
    return piece.offset + (place - piece.start) * piece.width


def _u16(data: bytes, place: int) -> int:
    return int.from_bytes(data[place : place + 2], "little")
