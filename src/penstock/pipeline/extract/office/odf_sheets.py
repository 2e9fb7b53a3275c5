"""Sheets of OpenDocument spreadsheets. Repeated cells are written out only up to a limit."""

from __future__ import annotations

from penstock.pipeline.extract.office.markdown_page import END_OF_TABLE, Block, MarkdownPage
from penstock.pipeline.extract.office.odf_story import OdfStory
from penstock.pipeline.extract.office.odf_styles import OdfStyles
from penstock.pipeline.extract.office.xml_events import Attributes
from penstock.pipeline.extract.protocol import ExtractLimits, Page

_MAX_REPEATED = 100
_VALUES = (
    "office:string-value",
    "office:date-value",
    "office:time-value",
    "office:value",
    "office:boolean-value",
)


class OdfSheets(OdfStory):
    """Handler of ``content.xml``: a page for each sheet, with the sheet's name as a heading."""

    def __init__(self, limits: ExtractLimits) -> None:
        super().__init__(OdfStyles(), self._add)
        self._limits = limits
        self._pages: list[MarkdownPage] = []
        self._name = ""
        self._depth = 0
        self._row = 1
        self._row_repeated = 1
        self._cells: list[str] | None = None
        self._gap = 0
        """Empty cells before the next one with a value."""
        self._cell: list[str] | None = None
        self._cell_repeated = 1
        self._value = ""
        self._cut = False

    @property
    def warnings(self) -> tuple[str, ...]:
        if not self._cut:
            return ()
        return (
            f"cells and rows that repeat more than {_MAX_REPEATED} times are written {_MAX_REPEATED} times",
        )

    def pages(self) -> list[Page]:
        return [page.page(number, positions=True) for number, page in enumerate(self._pages, 1)]

    def start_table(self, name: str, attributes: Attributes) -> None:
        if name == "table:table":
            self._depth += 1
            if self._depth == 1:
                self._pages.append(MarkdownPage(self._limits))
                self._name = attributes.get("table:name", "")
                self._row = 1
        elif self._depth != 1:
            return
        elif name == "table:table-row":
            self._cells, self._gap = [], 0
            self._row_repeated = _count(attributes, "table:number-rows-repeated")
        else:
            self._cell = []
            self._cell_repeated = _count(attributes, "table:number-columns-repeated")
            self._value = next((attributes[key] for key in _VALUES if key in attributes), "")

    def end_table(self, name: str) -> None:
        if name == "table:table":
            self._depth -= 1
        elif self._depth != 1 or self._cells is None:
            return
        elif name == "table:table-row":
            self._end_row(self._cells)
        elif self._cell is not None:
            self._end_cell(self._cells, " ".join(self._cell) or self._value)
            self._cell = None

    def _end_cell(self, cells: list[str], text: str) -> None:
        if not text.strip():
            self._gap += self._cell_repeated
            return
        cells += [""] * min(self._gap, _MAX_REPEATED)
        self._gap = 0
        cells += [text] * self._at_most(self._cell_repeated)

    def _end_row(self, cells: list[str]) -> None:
        if cells:
            for number in range(self._row, self._row + self._at_most(self._row_repeated)):
                self._add(Block("", number, cells=tuple(cells)))
        elif self._pages:
            self._pages[-1].add(END_OF_TABLE)
        self._row += self._row_repeated
        self._cells = None
        self._follow()

    def _at_most(self, repeated: int) -> int:
        self._cut = self._cut or repeated > _MAX_REPEATED
        return min(repeated, _MAX_REPEATED)

    def place(self, block: Block) -> None:
        if self._cell is not None:
            self._cell.append(block.text)
        else:
            self._add(block)

    def _follow(self) -> None:
        """Write the comments of a row after the row."""
        if self._cells is None and not self._stack:
            following, self._following = self._following, []
            for block in following:
                self._add(block)

    def _add(self, block: Block) -> None:
        if not self._pages:
            return
        position = max(1, self._row)
        if self._name:
            self._pages[-1].add(Block(self._name, position, level=1))
            self._name = ""
        self._pages[-1].add(block if block.cells else block._replace(position=position))


def _count(attributes: Attributes, name: str) -> int:
    digits = attributes.get(name, "1")
    return max(1, int(digits)) if digits.isascii() and digits.isdigit() and len(digits) < 10 else 1
