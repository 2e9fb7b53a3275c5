"""Writer of Markdown pages: headings, paragraphs, lists, tables and code, with their places in the source.

Of documents of several pages only the requested ones are read, each with a separate failure.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from penstock.errors import (
    DocumentDamaged,
    DocumentEncrypted,
    DocumentTooLarge,
    UnreadableDocument,
)
from penstock.pipeline.extract.charset import clean
from penstock.pipeline.extract.protocol import ExtractLimits, Page
from penstock.pipeline.extract.text import check_length, failure_warnings, fence_around, wanted_pages
from penstock.vocabulary import how_many

MAX_LEVEL = 6
_MAX_INDENT = 20
"""Levels of lists that are indented. Deeper ones would begin each line with too many spaces."""
_MARKUP = re.compile(r"(?:#{1,6}(?=\s|$)|`{3}|~{3}|(?:=+|-{2,})\s*$)")


class Block(msgspec.Struct, frozen=True):
    """A paragraph, heading, item, line of code or table row, as found in the source."""

    text: str
    position: int = 1
    level: int = 0
    """Level of a heading, from 1; 0 for other blocks."""
    marker: str = ""
    """Bullet or number of a list item."""
    depth: int = 0
    """Lists around the list of this item."""
    code: bool = False
    quoted: bool = False
    """True for a remark about the text: a comment, or the notes of a speaker."""
    cells: tuple[str, ...] | None = None
    """Cells, if this is a row of a table. Without any, the table ends."""


END_OF_TABLE = Block("", cells=())


class MarkdownPage:
    """Text of one page, block by block."""

    def __init__(self, limits: ExtractLimits) -> None:
        self._most = limits.text_chars
        self._chars = 0
        self._lines: list[str] = []
        self._positions: list[int] = []
        self._last = ""
        """Kind of the last block: items and rows follow each other without a blank line."""
        self._code: list[Block] = []

    def add(self, block: Block) -> None:
        if block.code:
            self._code.append(block)
            return
        self._end_code()
        if block.cells is not None:
            self._row(block, block.cells)
            return
        lines = text_lines(block.text)
        if not lines:
            return
        if block.level:
            self._emit([f"{'#' * min(block.level, MAX_LEVEL)} {' '.join(lines)}"], block.position, "heading")
        elif block.marker:
            lead = "  " * min(block.depth, _MAX_INDENT) + block.marker + " "
            rest = (" " * len(lead) + line for line in lines[1:])
            self._emit([lead + lines[0], *rest], block.position, "item")
        elif block.quoted:
            self._emit([f"> {line}" for line in lines], block.position, "quote")
        else:
            self._emit([_plain(line) for line in lines], block.position, "paragraph")

    def add_all(self, blocks: Iterable[Block]) -> None:
        for block in blocks:
            self.add(block)

    def page(self, number: int = 1, warnings: tuple[str, ...] = (), *, positions: bool = False) -> Page:
        self._end_code()
        text = clean("\n".join(self._lines))
        places = tuple(self._positions) if positions and text else None
        return Page(number, text, positions=places, warnings=warnings)

    def _row(self, block: Block, cells: tuple[str, ...]) -> None:
        if not cells and self._last == "row":
            self._last = "end of table"
        written = [" ".join(cell.replace("|", "\\|").split()) for cell in cells]
        if not any(written):
            return
        first = self._last != "row"
        self._emit(["| " + " | ".join(written) + " |"], block.position, "row")
        if first:
            self._append("|" + "---|" * len(written), block.position)

    def _end_code(self) -> None:
        if not self._code:
            return
        blocks, self._code = self._code, []
        text = "\n".join(block.text for block in blocks)
        if not text.strip():
            return
        fence = fence_around(text)
        begun = False
        for block in blocks:
            # Line ends that only Python knows would make more lines than are counted.
            lines = [" ".join(line.splitlines()) for line in block.text.replace("\r", "\n").split("\n")]
            if not begun:
                lines.insert(0, fence)
            self._emit(lines, block.position, "code", tight=begun)
            begun = True
        self._append(fence, blocks[-1].position)

    def _emit(self, lines: Sequence[str], position: int, kind: str, *, tight: bool = False) -> None:
        tight = tight or (kind == self._last and kind in ("item", "row"))
        if self._lines and not tight:
            self._append("", self._positions[-1])
        for line in lines:
            self._append(line, position)
        self._last = kind

    def _append(self, line: str, position: int) -> None:
        self._chars += len(line) + 1
        if self._chars > self._most + 1:
            raise DocumentTooLarge(f"the text has more than {self._most:,} characters")
        self._lines.append(line)
        self._positions.append(position)


def text_lines(text: str) -> list[str]:
    """Lines of a paragraph without surplus white space; empty ones are left out."""
    return [line for line in (" ".join(part.split()) for part in text.split("\n")) if line]


def _plain(line: str) -> str:
    """Escape a line of text with the look of a Markdown heading, underline or fence."""
    return f"\\{line}" if _MARKUP.match(line) else line


MAX_COLUMNS = 63
"""Columns of a table in Word; the limit for columns that one cell spans."""
_LONG_CELL = 2_000
"""Characters of a cell from which a table only arranges the page: its cells are written one by one."""


class TableGrid:
    """A table of a text document, collected cell by cell: the outermost one. A row of a table in a cell
    becomes a block; deeper ones become text."""

    def __init__(self) -> None:
        self.rows: list[list[list[Block]]] = []
        self.depth = 1
        self.span = 1
        self.deleted = False
        self._inner: list[list[str]] = []

    def start_row(self) -> None:
        if self.depth == 1:
            self.rows.append([])
            self.deleted = False
        elif self.depth == 2:
            self._inner = []

    def start_cell(self) -> None:
        if self.depth == 1:
            self._row().append([])
            self.span = 1
        elif self.depth == 2:
            self._inner.append([])

    def end_cell(self) -> None:
        if self.depth == 1:
            self._row().extend([] for _ in range(self.span - 1))
            self.span = 1

    def end_row(self, position: int) -> None:
        if self.depth == 1 and self.deleted and self.rows:
            self.rows.pop()
        elif self.depth == 2 and self._inner:
            cells = tuple(" ".join(parts) for parts in self._inner)
            self._cell().append(Block("", position, cells=cells))
            self._inner = []

    def add(self, block: Block) -> None:
        if self.depth > 1 and self._inner:
            self._inner[-1].append(block.text)
        else:
            self._cell().append(block)

    def _row(self) -> list[list[Block]]:
        if not self.rows:
            self.rows.append([])
        return self.rows[-1]

    def _cell(self) -> list[Block]:
        row = self._row()
        if not row:
            row.append([])
        return row[-1]

    def blocks(self) -> Iterator[Block]:
        """Rows of the table, or the contents of the cells of a table for layout."""
        if _arranges_page(self.rows):
            yield from (block for row in self.rows for cell in row for block in cell)
            return
        for row in self.rows:
            first = next((block.position for cell in row for block in cell), 1)
            yield Block("", first, cells=tuple(map(cell_text, row)))
        yield END_OF_TABLE


def _arranges_page(rows: Sequence[Sequence[Sequence[Block]]]) -> bool:
    """Check whether a table is only for layout: one cell, or cells with whole sections."""
    if sum(map(len, rows)) == 1:
        return True
    return any(
        sum(len(block.text) for block in cell) > _LONG_CELL or any(block.level for block in cell)
        for row in rows
        for cell in row
    )


def cell_text(blocks: Iterable[Block]) -> str:
    """Text of a cell on one line."""
    return " ".join(" ".join(block.cells) if block.cells is not None else block.text for block in blocks)


PageReader = Callable[[int], Page]


def read_pages(
    count: int, read_page: PageReader, limits: ExtractLimits, wanted: range | None
) -> tuple[Page, ...]:
    """Read the pages with these numbers, or all of 1 to ``count``. A damaged page does not fail the others.

    A call for a range ends early after ``ExtractLimits.batch_seconds``, but reads at least one page.
    """
    if count > limits.pages:
        raise DocumentTooLarge(f"the document has {how_many(count, 'page')}; the limit is {limits.pages:,}")
    until = math.inf if wanted is None else time.process_time() + limits.batch_seconds
    found: list[Page] = []
    chars = 0
    for number in wanted_pages(count, wanted):
        found.append(_page(number, read_page))
        chars = check_length(chars + len(found[-1].text), limits)
        if time.process_time() > until:
            break
    if found and all(page.failure for page in found):
        raise DocumentDamaged(f"no part of the document can be read: {found[0].failure}")
    return tuple(found)


def _page(number: int, read_page: PageReader) -> Page:
    try:
        return read_page(number)
    except (DocumentEncrypted, DocumentTooLarge):
        raise
    except UnreadableDocument as error:
        return Page(number, "", failure=error.message)


def page_warnings(pages: Sequence[Page], unit: str) -> tuple[str, ...]:
    return failure_warnings([page.number for page in pages if page.failure], unit)
