"""Area that the cells of a sheet span, found without parsing the sheet."""

from __future__ import annotations

import re

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
