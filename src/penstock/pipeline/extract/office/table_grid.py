"""Tables of text documents, collected cell by cell."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from penstock.pipeline.extract.office.markdown_page import END_OF_TABLE, Block

MAX_COLUMNS = 63
"""Columns of a table in Word; the limit for columns that one cell spans."""
_LONG_CELL = 2_000
"""Characters of a cell from which a table only arranges the page: its cells are written one by one."""


class TableGrid:
    """The outermost table. A row of a table in a cell becomes a block; deeper ones become text."""

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
