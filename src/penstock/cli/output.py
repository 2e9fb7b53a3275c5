"""Output: tables, fields and wrapped text for people, JSON for programs, one line for an error.

Only the standard library is imported at the top: every command loads this module, and help needs no more.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import zip_longest
from typing import Any, NamedTuple, TextIO

import click

from penstock import clock
from penstock.cli.exit_codes import PIPE_CLOSED, REFUSED, exit_code
from penstock.errors import DiskFull, OutputFailed, PenstockError, TooManyFiles
from penstock.vocabulary import escape_control

_GAP = "  "
_NARROWEST = 6
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
            lines.append(_GAP.join(shown).rstrip())
    return "\n".join(lines)


def _cell(word: str, style: str, width: int, column: Column) -> str:
    shown = f"{style}{word}{_PLAIN}" if style and word else word
    padding = " " * (width - cells_wide(word))
    return padding + shown if column.right else shown + padding


def name_value_lines(found: Sequence[tuple[str, str]], colours: Mapping[str, str], screen: Screen) -> str:
    """Lines of names and values. A value wider than the screen continues below itself."""
    indent = max((cells_wide(name) for name, _ in found), default=0)
    room = None if screen.width is None else max(screen.width - indent - len(_GAP), _NARROWEST)
    lines = []
    for name, value in found:
        style = _style(value, colours) if screen.coloured else ""
        name_padding = " " * (indent - cells_wide(name))
        shown_name = f"{_BOLD}{name}{_PLAIN}" if screen.coloured else name
        for number, part in enumerate(folded(value, room)):
            left = shown_name + name_padding if number == 0 else " " * indent
            lines.append(f"{left}{_GAP}{f'{style}{part}{_PLAIN}' if style else part}".rstrip())
    return "\n".join(lines)


def _style(text: str, colours: Mapping[str, str]) -> str:
    colour = colours.get(text.partition(" (")[0])
    return f"\x1b[{_COLOURS[colour]}m" if colour else ""


def _fitted(widths: list[int], most: int | None) -> list[int]:
    """Widths that fit: first the last column gives way, then the widest of the others."""
    fitted = list(widths)
    over = sum(fitted) + len(_GAP) * (len(fitted) - 1) - most if most is not None else 0
    if over > 0:
        fitted[-1] = max(fitted[-1] - over, min(fitted[-1], _NARROWEST))
        over -= widths[-1] - fitted[-1]
    while over > 0 and max(fitted) > _NARROWEST:
        fitted[fitted.index(max(fitted))] -= 1
        over -= 1
    return fitted


def cells_wide(text: str) -> int:
    """Width on a terminal: Chinese, Japanese and Korean characters take two cells, accents none."""
    return len(text) if text.isascii() and text.isprintable() else sum(map(_cell_width, text))


def _cell_width(character: str) -> int:
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
            taken += _cell_width(character)
            if taken > width:
                break
            end += 1
        space = text.rfind(" ", 0, end + 1)
        end = space if space > end // 2 else max(end, 1)
        yield text[:end].rstrip()
        text = text[end:].lstrip()
    yield text


_SHORTEST_PATH = 20
_STYLES = {"pending": "yellow", "running": "cyan", "done": "green", "failed": "red", "cancelled": "magenta"}


def emit(text: str) -> None:
    """Print to standard output. Every command prints through this function."""
    try:
        click.echo(text, color=Screen.of(sys.stdout).coloured)
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_output()
        raise SystemExit(PIPE_CLOSED) from None
    except OSError as error:
        _drop_output()
        raise OutputFailed(f"standard output cannot be written ({error.strerror})") from None


def emit_document_text(text: str) -> None:
    """Print text of a document. Into a file it goes exactly; a terminal must not be controlled by it."""
    shown = text.expandtabs(4).split("\n") if sys.stdout.isatty() else None
    emit(text if shown is None else "\n".join(map(printable, shown)))


def _drop_output() -> None:
    """Send standard output to /dev/null, so that the flush at exit raises nothing."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextlib.contextmanager
def collected_json() -> Iterator[list[Any]]:
    """Collect what ``emit_json`` gets instead of printing it, to print one answer of several."""
    global _collected
    outer, _collected = _collected, []
    try:
        yield _collected
    finally:
        _collected = outer


_collected: list[Any] | None = None


def record_fields(record: Any) -> dict[str, Any]:
    """The fields of a record by name, also of one that JSON would have as an array."""
    from msgspec.structs import asdict

    return asdict(record)


def emit_json(value: Any) -> None:
    import msgspec

    plain = msgspec.to_builtins(value, builtin_types=(datetime,))
    if _collected is not None:
        _collected.append(plain)
        return
    import json

    emit(json.dumps(plain, indent=2, ensure_ascii=False, default=clock.format_time))


def emit_error(error: PenstockError, *, as_json: bool) -> None:
    if as_json and not isinstance(error, OutputFailed):
        import json

        answer = {"code": error.code, "message": error.message, "remedy": error.remedy}
        emit(json.dumps({"error": answer}, indent=2, ensure_ascii=False))
    else:
        message = printable(error.message).rstrip(".")
        click.echo(f"error: {message} ({error.code}). {printable(error.remedy)}", err=True)


def printable(value: object) -> str:
    """One line without control characters: queued text must not drive the terminal."""
    return "" if value is None else escape_control(str(value))


def wrapped(line: str, margin: str = "") -> str:
    """The line after a margin, broken between words where a terminal is narrower."""
    width = Screen.of(sys.stdout).width
    if width is None:
        return margin + line
    import textwrap

    return textwrap.fill(
        line,
        width=width,
        initial_indent=margin,
        subsequent_indent=f"{margin}  " if margin else "",
        break_on_hyphens=False,  # --no-code is one word
    )


def table(
    header: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    fold: bool = False,
    paths: int | None = None,
) -> str:
    """Aligned columns. On a terminal the last one is cut, or folded, to fit, and statuses are coloured.

    ``paths``: a column of paths, which is shortened before the last one is cut.
    """
    if paths is not None:
        rows = _with_short_paths(header, rows, paths)
    found = []
    for number, title in enumerate(header):
        values = [row[number] for row in rows]
        numbers = bool(rows) and all(isinstance(value, int) or value == "" for value in values)
        found.append(Column([title, *map(printable, values)], right=numbers))
    return columns(found, _STYLES, Screen.of(sys.stdout), fold=fold)


def space_left(header: Sequence[str], rows: Sequence[Sequence[object]]) -> int:
    """Columns of the terminal that a table with these columns leaves for one more."""
    width = Screen.of(sys.stdout).width
    if width is None:
        return sys.maxsize
    widths = [max(len(str(cell)) for cell in column) + 2 for column in zip(header, *rows, strict=True)]
    return max(width - sum(widths), 8)


def _with_short_paths(
    header: Sequence[str], rows: Sequence[Sequence[object]], column: int
) -> list[Sequence[object]]:
    """Shorten the paths of a column so far that the other columns fit the terminal beside it."""
    others = [[printable(cell) for number, cell in enumerate(row) if number != column] for row in rows]
    titles = [title for number, title in enumerate(header) if number != column]
    room = max(space_left(titles, others), _SHORTEST_PATH)
    shorter = [shortened(printable(row[column]), room) for row in rows]
    return [(*row[:column], short, *row[column + 1 :]) for row, short in zip(rows, shorter, strict=True)]


def shortened(path: str, longest: int = 80) -> str:
    """The start and the longer end of a long path, where the name of the file is."""
    if cells_wide(path) <= longest:
        return path
    start = longest // 3
    head = _beginning(path, start)
    return f"{head}…{_beginning(path[::-1], longest - start - 1)[::-1]}"


def _beginning(text: str, cells: int) -> str:
    """The first characters that fit into so many cells."""
    taken = 0
    for number, character in enumerate(text):
        taken += cells_wide(character)
        if taken > cells:
            return text[:number]
    return text


def terminal_width() -> int:
    """Columns of the terminal; very many where the output is not one."""
    width = Screen.of(sys.stdout).width
    return sys.maxsize if width is None else width


def fields(pairs: Iterable[tuple[str, object]]) -> str:
    """Names and values, one pair a line; pairs without a value are left out."""
    found = [(name, printable(value)) for name, value in pairs if value is not None and value != ""]
    return name_value_lines(found, _STYLES, Screen.of(sys.stdout))


def age(moment: datetime | None) -> str:
    """Time since a moment, or until it, in one unit: ``5 min ago``, ``in 2 h``."""
    if moment is None:
        return ""
    seconds = (clock.now() - moment).total_seconds()
    distance = span(abs(seconds))
    if distance == "0 s":
        return "now"
    return f"in {distance}" if seconds < 0 else f"{distance} ago"


def span(seconds: float) -> str:
    """A duration in one unit, rounded down: ``90 s`` is ``1 min``."""
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size or (unit != "d" and seconds >= size):
            return f"{seconds // size:.0f} {unit}"
    return f"{seconds:.0f} s"


_TOO_MANY = (errno.EMFILE, errno.ENFILE)
_FULL = (errno.ENOSPC, errno.EDQUOT)
_NOT_WRITTEN = (*_FULL, errno.EIO, errno.EBADF)


def mend_standard_streams() -> None:
    """Open closed standard streams on /dev/null; refuse to run without standard output.

    A store opened while descriptor 0, 1 or 2 is free would get that number, and everything printed with it.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    no_output = sys.stdout is None
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115 - for as long as the process lives
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal that cannot show a character gets its number, not a traceback.
            stream.reconfigure(errors="backslashreplace")
    if no_output:
        emit_error(OutputFailed("standard output is closed"), as_json=False)
        raise SystemExit(REFUSED)


def print_error(error: PenstockError | OSError | ImportError, *, as_json: bool) -> int | None:
    """Print a known error as one line and return its exit code; None for a bug of Penstock itself."""
    if isinstance(error, BrokenPipeError):
        _drop_output()
        return PIPE_CLOSED
    known = _known(error)
    if known is None:
        return None
    if isinstance(known, TooManyFiles):
        # Printing may import modules, which takes a descriptor; nothing reads standard input any more.
        os.close(0)
    try:
        emit_error(known, as_json=as_json)
    except OutputFailed as failure:
        emit_error(failure, as_json=False)
    return exit_code(known)


def _known(error: PenstockError | OSError | ImportError) -> PenstockError | None:
    if os.strerror(errno.EMFILE) in str(error) or getattr(error, "errno", None) in _TOO_MANY:
        # The remedy is the same whichever file could not be opened.
        return error if isinstance(error, TooManyFiles) else TooManyFiles(_one_line(error))
    if isinstance(error, PenstockError):
        return error
    if isinstance(error, OSError) and error.errno in _NOT_WRITTEN and error.filename is None:
        if _raised_by_click(error):
            _drop_output()
            return OutputFailed(f"standard output cannot be written ({error.strerror})")
        if error.errno in _FULL:
            return DiskFull(f"a file cannot be written ({error.strerror})")
    return None


def _raised_by_click(error: OSError) -> bool:
    """Check whether click was writing, a help text perhaps: commands print by functions of our own."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_globals.get("__name__", "").partition(".")[0] == "click"


def _one_line(error: BaseException) -> str:
    return " ".join((error.message if isinstance(error, PenstockError) else str(error)).split())


_JOINERS = "\u200c\u200d"
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
    if character in _JOINERS:
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
            size = _cell_width(character)
            # A wide character is a unit, with the combining ones behind it.
            if unit and size and (wide or size == 2 or used + size > width):
                yield unit, spaced
                unit, used, spaced = "", 0, False
            unit += character
            used += size
            wide = size == 2 or (wide and not size)
        yield unit, spaced
