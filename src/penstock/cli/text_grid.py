"""Text in aligned columns, no wider than the terminal. Standard library only: it is part of every command."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import TextIO

from penstock.named_tuple import NamedTuple

GAP = "  "
NARROWEST = 6
"""Width below which no column is cut."""
WITHOUT_TERMINAL = 80
_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"
_COLOURS = {"red": 31, "green": 32, "yellow": 33, "magenta": 35, "cyan": 36}


class Screen(NamedTuple):
    """Width of the output in cells, None if unlimited, and whether it shows colours."""

    width: int | None
    coloured: bool

    @classmethod
    def of(cls, stream: TextIO) -> Screen:
        """Screen of a stream. Files and programs get whole values, without colours."""
        forced = bool(os.environ.get("FORCE_COLOR"))
        if not forced and not stream.isatty():
            return cls(None, False)
        plain = os.environ.get("TERM", "").lower() in ("dumb", "unknown") and not forced
        return cls(_terminal_width(stream), not plain and not os.environ.get("NO_COLOR"))


def _terminal_width(stream: TextIO) -> int:
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given):
        return int(given)
    try:
        return os.get_terminal_size(stream.fileno()).columns or WITHOUT_TERMINAL
    except (OSError, ValueError):
        return WITHOUT_TERMINAL


class Column(NamedTuple):
    """Cells of one column, top to bottom; right-aligned if they are numbers."""

    cells: Sequence[str]
    right: bool = False


def columns(
    found: Sequence[Column], colours: Mapping[str, str], screen: Screen, *, fold: bool = False
) -> str:
    """Lines of columns, the first one a header. The last column gives way where the screen is narrow.

    Its cells are cut, or with ``fold`` continued below. ``colours`` gives cells with these words a colour.
    """
    widths = _fitted([max(map(cells_wide, column.cells), default=0) for column in found], screen.width)
    lines = []
    for number, row in enumerate(zip(*(column.cells for column in found), strict=True)):
        parts = [
            list(folded(text, width)) if fold else [cut(text, width)]
            for text, width in zip(row, widths, strict=True)
        ]
        styles = [_BOLD if number == 0 else _style(text, colours) for text in row]
        for words in zip_longest(*parts, fillvalue=""):
            cells = zip(words, styles, widths, found, strict=True)
            shown = [
                _cell(word, style if screen.coloured else "", width, column)
                for word, style, width, column in cells
            ]
            lines.append(GAP.join(shown).rstrip())
    return "\n".join(lines)


def _cell(word: str, style: str, width: int, column: Column) -> str:
    shown = f"{style}{word}{_PLAIN}" if style and word else word
    padding = " " * (width - cells_wide(word))
    return padding + shown if column.right else shown + padding


def pairs(found: Sequence[tuple[str, str]], colours: Mapping[str, str], screen: Screen) -> str:
    """Lines of names and values. A value wider than the screen continues below itself."""
    indent = max((cells_wide(name) for name, _ in found), default=0)
    room = None if screen.width is None else max(screen.width - indent - len(GAP), NARROWEST)
    lines = []
    for name, value in found:
        style = _style(value, colours) if screen.coloured else ""
        name_padding = " " * (indent - cells_wide(name))
        shown_name = f"{_BOLD}{name}{_PLAIN}" if screen.coloured else name
        for number, part in enumerate(folded(value, room)):
            left = shown_name + name_padding if number == 0 else " " * indent
            lines.append(f"{left}{GAP}{f'{style}{part}{_PLAIN}' if style else part}".rstrip())
    return "\n".join(lines)


def _style(text: str, colours: Mapping[str, str]) -> str:
    colour = colours.get(text.partition(" (")[0])
    return f"\x1b[{_COLOURS[colour]}m" if colour else ""


def _fitted(widths: list[int], most: int | None) -> list[int]:
    """Widths that fit: first the last column gives way, then the widest of the others."""
    fitted = list(widths)
    over = sum(fitted) + len(GAP) * (len(fitted) - 1) - most if most is not None else 0
    if over > 0:
        fitted[-1] = max(fitted[-1] - over, min(fitted[-1], NARROWEST))
        over -= widths[-1] - fitted[-1]
    while over > 0 and max(fitted) > NARROWEST:
        fitted[fitted.index(max(fitted))] -= 1
        over -= 1
    return fitted


def cells_wide(text: str) -> int:
    """Width on a terminal: Chinese, Japanese and Korean characters take two cells, accents none."""
    return len(text) if text.isascii() and text.isprintable() else sum(map(cell_width, text))


def cell_width(character: str) -> int:
    """Width of one character; control characters have none."""
    from unicodedata import category, east_asian_width

    if category(character) in ("Mn", "Me", "Cf", "Cc"):
        return 0
    return 2 if east_asian_width(character) in "WF" else 1


def cut(text: str, width: int) -> str:
    """The text, or its beginning and an ellipsis where it is wider."""
    return text if cells_wide(text) <= width else next(folded(text, max(width - 1, 1))).rstrip() + "…"


def folded(text: str, width: int | None) -> Iterator[str]:
    """Pieces of a text, none wider than ``width``, broken at spaces where there are some."""
    while width is not None and cells_wide(text) > width:
        end, taken = 0, 0
        for character in text:
            taken += cell_width(character)
            if taken > width:
                break
            end += 1
        space = text.rfind(" ", 0, end + 1)
        end = space if space > end // 2 else max(end, 1)
        yield text[:end].rstrip()
        text = text[end:].lstrip()
    yield text
