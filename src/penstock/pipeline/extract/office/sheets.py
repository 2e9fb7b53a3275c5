"""Excel workbooks, of Excel 97 and later, through calamine. No other module uses this library."""

from __future__ import annotations

import datetime
import io
import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from msgspec.structs import replace

from penstock.errors import DocumentDamaged, DocumentEncrypted, DocumentTooLarge, UnreadableDocument
from penstock.pipeline.extract.office.markdown_page import (
    END_OF_TABLE,
    Block,
    MarkdownPage,
    page_warnings,
    read_pages,
)
from penstock.pipeline.extract.office.package import (
    OLE_MAGIC,
    Attributes,
    Package,
    XmlHandler,
    container_properties,
    drawn_texts,
    opened_container,
    read_stream,
    refuse_encrypted_package,
)
from penstock.pipeline.extract.protocol import (
    Content,
    ExtractedText,
    ExtractLimits,
    FileType,
    Page,
    Properties,
    Shape,
)

if TYPE_CHECKING:
    from python_calamine import CalamineSheet, CalamineWorkbook

_PASSWORD, _END = 0x002F, 0x000A
"""Records of Excel 97."""
_BYTES_PER_CELL = 64
"""Memory of a cell in the library, which keeps the empty cells between others as well."""


class SheetExtractor:
    """One page for each sheet: its name as a heading, its rows as a table, then text boxes and comments."""

    name = "sheets"
    version = "1"

    def extract(
        self, content: Content, file_type: FileType, limits: ExtractLimits, pages: range | None = None
    ) -> ExtractedText:
        book = _OldBook(content.data) if content.data.startswith(OLE_MAGIC) else _Book(content.data, limits)
        with _calamine_errors():
            workbook = _open(content.data)
            names = workbook.sheet_names
        found = read_pages(
            len(names), lambda number: _page(workbook, book, number, names, limits), limits, pages
        )
        if pages is None and not any(page.text or page.failure for page in found):
            book.refuse_if_pictures()
        return ExtractedText(
            pages=found,
            file_type=file_type,
            shape=Shape.MARKDOWN,
            page_count=len(names),
            title=book.title,
            warnings=page_warnings(found, "sheet"),
            properties=book.properties,
        )


def _open(data: bytes) -> CalamineWorkbook:
    from python_calamine import CalamineWorkbook

    return CalamineWorkbook.from_filelike(io.BytesIO(data))


@contextmanager
def _calamine_errors() -> Iterator[None]:
    from python_calamine import PasswordError

    try:
        yield
    except PasswordError as error:
        raise DocumentEncrypted("the workbook is encrypted and opens only with a password") from error
    except UnreadableDocument:
        raise
    except MemoryError:
        raise
    except Exception as error:
        raise DocumentDamaged(f"the workbook cannot be read: {str(error)[:300]}") from error
    except BaseException as error:
        # A failed assertion of the library; its class is not importable.
        if type(error).__name__ == "PanicException":
            raise DocumentDamaged("the workbook cannot be read: its cells contradict each other") from error
        raise


def _page(
    workbook: CalamineWorkbook, book: _Book | _OldBook, number: int, names: list[str], limits: ExtractLimits
) -> Page:
    name = names[number - 1]
    page = MarkdownPage(limits)
    book.check(name)
    last = 0
    with _calamine_errors():
        for block in _rows(workbook.get_sheet_by_index(number - 1)):
            if block.cells or block.text:
                if not last:
                    page.add(Block(name, block.position, level=1))
                last = block.position
            page.add(block)
    others = book.others(name)
    if others and not last:
        last = 1
        page.add(Block(name, level=1))
    page.add_all(replace(block, position=last) for block in others)
    return page.page(number, positions=True)


def _rows(sheet: CalamineSheet) -> Iterator[Block]:
    """Rows as blocks. A row of one cell above a wider one is the caption of the table, not a part."""
    first: Block | None = None
    in_table = False
    for number, row in enumerate(sheet.iter_rows(), 1):
        cells = [_shown(value) for value in row]
        while cells and not cells[-1]:
            cells.pop()
        if first is not None:
            yield Block(first.cells[0], first.position) if first.cells and len(cells) > 1 else first
            first = None
        block = Block("", number, cells=tuple(cells)) if cells else END_OF_TABLE
        if len(cells) == 1 and not in_table:
            first = block
        else:
            yield block
        in_table = bool(cells)
    if first is not None:
        yield first


def _shown(value: object) -> str:
    """A value as usually written: whole numbers without a point, dates in ISO 8601."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
    if isinstance(value, datetime.datetime):
        return value.isoformat(" ", "seconds").removesuffix(" 00:00:00")
    return str(value)


class _OldBook:
    """A workbook of Excel 97 to 2003."""

    def __init__(self, data: bytes) -> None:
        refuse_encrypted_package(data)
        with opened_container(data) as container:
            for name in ("Workbook", "Book"):
                self._refuse_encrypted(read_stream(container, name) or b"")
            self.title, self.properties = container_properties(container)

    @staticmethod
    def _refuse_encrypted(records: bytes) -> None:
        """Look for the record of a password among those of the whole workbook."""
        place = 0
        while place + 4 <= len(records):
            kind, length = struct.unpack_from("<HH", records, place)
            if kind == _PASSWORD:
                raise DocumentEncrypted("the workbook is encrypted and opens only with a password")
            if kind == _END:
                return
            place += 4 + length

    def refuse_if_pictures(self) -> None: ...

    def check(self, _: str) -> None: ...

    def others(self, _: str) -> list[Block]:
        return []


class _Book:
    """An .xlsx workbook: the checks and texts missing from the spreadsheet library."""

    def __init__(self, data: bytes, limits: ExtractLimits) -> None:
        self._package = Package(data, limits, "xl/workbook.xml")
        archive = self._package.archive
        if archive.has_duplicates:
            raise DocumentDamaged("the workbook has two parts of the same name")
        self._most_cells = limits.parser_memory_bytes // _BYTES_PER_CELL
        self.title = self._package.title
        self.properties: Properties = self._package.properties
        sheets = _SheetNames()
        archive.parse(self._package.main, sheets)
        relations = self._package.relations(self._package.main)
        self._parts = {name: relations[one].part for name, one in sheets.ids.items() if one in relations}
        for relation in relations.values():
            # The library unpacks these at once, whatever size they announce.
            if relation.kind in ("sharedStrings", "styles") and relation.part in archive:
                archive.check(relation.part)

    def refuse_if_pictures(self) -> None:
        self._package.refuse_if_pictures()

    def check(self, name: str) -> None:
        """Refuse a sheet with few cells far apart: the library makes room for all cells between them."""
        part = self._parts.get(name, "")
        if part not in self._package.archive:
            return
        cells = spanned_cells(self._package.archive.read(part), self._most_cells)
        if cells > self._most_cells:
            raise DocumentTooLarge(
                f"the sheet {name!r} spans {cells:,} cells; the limit is {self._most_cells:,}",
                remedy="Delete the cells far from the others, and save the workbook again.",
            )

    def others(self, name: str) -> list[Block]:
        """Text boxes, charts and comments of a sheet."""
        part = self._parts.get(name, "")
        archive = self._package.archive
        found: list[Block] = []
        relations = [one for one in self._package.relations(part).values() if one.part in archive]
        threaded = any(one.kind == "threadedComment" for one in relations)
        for relation in relations:
            if relation.kind == "drawing":
                found += [Block(text) for text in drawn_texts(archive, relation.part)]
                for chart in self._package.related(relation.part, "chart"):
                    found += [Block(text) for text in drawn_texts(archive, chart)]
        for relation in relations:
            # A thread is also written as a comment, with a remark for older programs.
            if relation.kind == ("threadedComment" if threaded else "comments"):
                comments = _Comments()
                archive.parse(relation.part, comments)
                found += [Block(text, quoted=True) for text in comments.found]
        return found


class _SheetNames(XmlHandler):
    def __init__(self) -> None:
        self.ids: dict[str, str] = {}

    def start(self, name: str, attributes: Attributes) -> None:
        if name == "x:sheet":
            self.ids[attributes.get("name", "")] = attributes.get("r:id", "")


class _Comments(XmlHandler):
    """Comments with their cells."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self._cell = ""
        self._parts: list[str] = []
        self._in_text = False

    def start(self, name: str, attributes: Attributes) -> None:
        if name in ("x:comment", "tc:threadedComment"):
            self._cell = attributes.get("ref", "")
        elif name in ("x:t", "tc:text"):
            self._in_text = True

    def end(self, name: str) -> None:
        if name in ("x:t", "tc:text"):
            self._in_text = False
        elif name in ("x:comment", "tc:threadedComment"):
            text = "".join(self._parts)
            self._parts.clear()
            if text.strip():
                self.found.append(f"{self._cell}: {text}")

    def text(self, data: str) -> None:
        if self._in_text:
            self._parts.append(data)


_ROW = re.compile(rb"""\sr\s*=\s*["'][A-Za-z]{0,3}0*([0-9]{4,8})["']""")
"""Numbers of rows from 1,000 on, of rows and of cells."""
_THREE_LETTERS = re.compile(rb"""\sr\s*=\s*["'][A-Za-z]{3}[0-9]""")
_TWO_LETTERS = re.compile(rb"""\sr\s*=\s*["'][A-Za-z]{2}[0-9]""")
_CELL = re.compile(rb"""<(?:\w+:)?c\b[^<>]*?\sr\s*=\s*["']([A-Za-z]{1,3})([0-9]{1,8})["'][^<>]*(?<!/)>""")
"""A cell with content. An empty one has only a style, and spans nothing."""


def spanned_cells(xml: bytes, few: int) -> int:
    """Number of cells between the first and the last cell with a value.

    If it cannot exceed ``few``, the answer is an upper bound, which costs less than looking at each cell.
    """
    rows = max(map(int, _ROW.findall(xml)), default=1000)
    columns = 26**3 if _THREE_LETTERS.search(xml) else 26**2 + 26 if _TWO_LETTERS.search(xml) else 26
    if rows * columns <= few:
        return rows * columns
    first_row, first_column, last_row, last_column = 1 << 30, 1 << 30, 0, 0
    known: dict[bytes, int] = {}
    for letters, digits in _CELL.findall(xml):
        column = known.get(letters) or known.setdefault(letters, _column(letters))
        row = int(digits)
        first_row, last_row = min(first_row, row), max(last_row, row)
        first_column, last_column = min(first_column, column), max(last_column, column)
    return max(0, last_row - first_row + 1) * max(0, last_column - first_column + 1)


def _column(letters: bytes) -> int:
    number = 0
    for letter in letters.upper():
        number = number * 26 + letter - 64
    return number
