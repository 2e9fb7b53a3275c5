"""Text of documents on a terminal: no unprintable characters, lines wrapped by the width of characters."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from penstock.cli.text_grid import cell_width, cells_wide

JOINERS = "\u200c\u200d"
"""Invisible characters that letters need, as in Persian, and combined emoji."""
_ESCAPE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # colours, cursor, screen
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"  # titles, links, strings
    r"|\x1b[ -/]*[0-~]"
)


def strip_control(text: str, keep: str = "") -> str:
    """One line of printable characters: nothing in a document drives the terminal.

    Escape sequences and invisible characters are removed. Characters in ``keep`` stay.
    """
    line = " ".join(_ESCAPE.sub("", text).split())
    if line.isprintable():
        return line
    return "".join(one if one.isprintable() or one in keep else _visible(one) for one in line)


def _visible(character: str) -> str:
    if character in JOINERS:
        return character
    return "" if unicodedata.category(character) in ("Cc", "Cf") else "\N{REPLACEMENT CHARACTER}"


def wrap(text: str, width: int) -> list[str]:
    """Lines of at most ``width`` columns, broken at spaces, between wide characters and in long words."""
    lines, line, used = [], "", 0
    for unit, spaced in _units(text, width):
        size = cells_wide(unit)
        if line and used + spaced + size > width:
            lines.append(line)
            line, used, spaced = "", 0, False
        line += " " * spaced + unit
        used += spaced + size
    return [*lines, line] if line else lines


def _units(text: str, width: int) -> Iterator[tuple[str, bool]]:
    """Parts that stay on one line, and whether a space stands before."""
    for number, word in enumerate(text.split()):
        spaced, unit, used, wide = number > 0, "", 0, False
        for character in word:
            size = cell_width(character)
            # A wide character is a unit, with the combining ones behind it.
            if unit and size and (wide or size == 2 or used + size > width):
                yield unit, spaced
                unit, used, spaced = "", 0, False
            unit += character
            used += size
            wide = size == 2 or (wide and not size)
        yield unit, spaced
