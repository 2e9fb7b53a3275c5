"""Comma, tab and otherwise separated values: one row a line, whatever line feeds its cells hold."""

from __future__ import annotations

import csv

from penstock.pipeline.extract.decoding import clean, decode
from penstock.pipeline.extract.protocol import Content, Extracted, Kind, Limits, Shape
from penstock.pipeline.extract.text import decoding_warnings, one_page

_DELIMITERS = ",;\t|"
_SAMPLED_LINES = 50
_WIDEST_CELL = 16 * 1024 * 1024


class TableExtractor:
    name = "table"
    version = "1"

    def extract(
        self,
        content: Content,
        kind: Kind,
        limits: Limits,
        pages: range | None = None,  # noqa: ARG002 - there is one page
    ) -> Extracted:
        decoded = decode(content.data)
        text = clean(decoded.text)
        delimiter = "\t" if kind.media_type == "text/tab-separated-values" else _delimiter(text)
        rows, readable = _rows(text, delimiter)
        warnings = decoding_warnings(decoded)
        if not readable:
            warnings = (*warnings, "not a table throughout: its lines are kept as they are")
        return one_page(
            "\n".join(rows),
            kind,
            limits,
            shape=Shape.ROWS,
            line_numbers=len(rows) == len(text.splitlines()),
            warnings=warnings,
        )


def _delimiter(text: str) -> str:
    """That which most lines have, and as often as each other."""
    lines = [line for line in text[:100_000].splitlines()[:_SAMPLED_LINES] if line.strip()]

    def agreement(delimiter: str) -> tuple[int, int]:
        counts = [line.count(delimiter) for line in lines]
        common = max(set(counts), key=lambda count: (count > 0, counts.count(count), count), default=0)
        return (counts.count(common) if common else 0, common)

    return max(_DELIMITERS, key=agreement)


def _rows(text: str, delimiter: str) -> tuple[list[str], bool]:
    before = csv.field_size_limit(_WIDEST_CELL)
    try:
        reader = csv.reader(text.splitlines(keepends=True), delimiter=delimiter, strict=False)
        return [" | ".join(" ".join(cell.split()) for cell in row) for row in reader], True
    except csv.Error:
        return text.splitlines(), False
    finally:
        csv.field_size_limit(before)
