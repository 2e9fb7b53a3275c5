"""Tables: comma, tab or otherwise separated values, one row per line, even with line feeds in cells."""

from __future__ import annotations

import csv
from array import array
from collections.abc import Iterator

from penstock.pipeline.extract.charset import clean, decode
from penstock.pipeline.extract.charset_labels import text_label
from penstock.pipeline.extract.protocol import Content, ExtractedText, ExtractLimits, FileType, Shape
from penstock.pipeline.extract.text import one_page

_DELIMITERS = ",;\t|"
_SEPARATOR = " | "
_SAMPLED_LINES = 50
_WIDEST_CELL = 16 * 1024 * 1024
_LINES_AT_ONCE = 1024 * 1024
"""Characters of text that are split into lines at a time."""


class TableExtractor:
    name = "table"
    version = "2"

    def extract(
        self,
        content: Content,
        file_type: FileType,
        limits: ExtractLimits,
        pages: range | None = None,  # noqa: ARG002 - there is one page
    ) -> ExtractedText:
        decoded = decode(content.data, text_label)
        text = clean(decoded.text)
        delimiter = "\t" if file_type.media_type == "text/tab-separated-values" else _delimiter(text)
        rows, lines, readable = _rows(text, delimiter)
        return one_page(
            "\n".join(rows),
            file_type,
            limits,
            shape=Shape.TABLE if readable and _has_header(rows) else Shape.ROWS,
            line_numbers=lines if lines is not None else True,
            decoded=decoded,
            warnings=() if readable else ("not a table throughout: lines are kept as written",),
        )


def _has_header(rows: list[str]) -> bool:
    """Check whether the first row names the columns: all cells differ, and none is empty or a number."""
    cells = rows[0].split(_SEPARATOR) if len(rows) > 1 else []
    distinct = len(cells) > 1 and len(set(cells)) == len(cells)
    return distinct and all(cell and not cell[0].isdecimal() and cell[0] not in "+-." for cell in cells)


def _delimiter(text: str) -> str:
    """The delimiter with the same count in most lines."""
    lines = [line for line in text[:100_000].splitlines()[:_SAMPLED_LINES] if line.strip()]

    def agreement(delimiter: str) -> tuple[int, int]:
        counts = [line.count(delimiter) for line in lines]
        common = max(set(counts), key=lambda count: (count > 0, counts.count(count), count), default=0)
        return (counts.count(common) if common else 0, common)

    return max(_DELIMITERS, key=agreement)


def _rows(text: str, delimiter: str) -> tuple[list[str], tuple[int, ...] | None, bool]:
    """The rows, the line of the text where each begins, and whether the whole text could be read as a table.

    The lines are None if every row is one line.
    """
    before = csv.field_size_limit(_WIDEST_CELL)
    lines = _Lines(text)
    starts = array("L")
    rows: list[str] = []
    start = 1
    try:
        reader = csv.reader(lines, delimiter=delimiter, strict=False)
        for row in reader:
            rows.append(_SEPARATOR.join([" ".join(cell.split()) for cell in row]))
            starts.append(start)
            start = reader.line_num + 1
        return rows, None if lines.count == len(rows) else tuple(starts), True
    except csv.Error:
        return text.splitlines(), None, False
    finally:
        csv.field_size_limit(before)


class _Lines:
    """Iterates over the lines of a text and counts them, without a list of all lines."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.count = 0

    def __iter__(self) -> Iterator[str]:
        start = 0
        while start < len(self._text):
            end = self._text.find("\n", start + _LINES_AT_ONCE) + 1 or len(self._text)
            for line in self._text[start:end].splitlines(keepends=True):
                self.count += 1
                yield line
            start = end
