"""Output: tables and fields for people, JSON for programs, one line for an error."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

import click

from penstock import clock
from penstock.cli import text_grid
from penstock.cli.exit_codes import PIPE_CLOSED
from penstock.errors import OutputFailed, PenstockError
from penstock.process_start import escape_control

SHORTEST_PATH = 20
STYLES = {"pending": "yellow", "running": "cyan", "done": "green", "failed": "red", "cancelled": "magenta"}


def emit(text: str) -> None:
    """Print to standard output. Every command prints through this function."""
    try:
        click.echo(text, color=text_grid.Screen.of(sys.stdout).coloured)
        sys.stdout.flush()
    except BrokenPipeError:
        drop_output()
        raise SystemExit(PIPE_CLOSED) from None
    except OSError as error:
        drop_output()
        raise OutputFailed(f"standard output cannot be written ({error.strerror})") from None


def emit_document_text(text: str) -> None:
    """Print text of a document. Into a file it goes exactly; a terminal must not be controlled by it."""
    shown = text.expandtabs(4).split("\n") if sys.stdout.isatty() else None
    emit(text if shown is None else "\n".join(map(printable, shown)))


def drop_output() -> None:
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
    width = text_grid.Screen.of(sys.stdout).width
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
        found.append(text_grid.Column([title, *map(printable, values)], right=numbers))
    return text_grid.columns(found, STYLES, text_grid.Screen.of(sys.stdout), fold=fold)


def space_left(header: Sequence[str], rows: Sequence[Sequence[object]]) -> int:
    """Columns of the terminal that a table with these columns leaves for one more."""
    width = text_grid.Screen.of(sys.stdout).width
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
    room = max(space_left(titles, others), SHORTEST_PATH)
    shorter = [shortened(printable(row[column]), room) for row in rows]
    return [(*row[:column], short, *row[column + 1 :]) for row, short in zip(rows, shorter, strict=True)]


def shortened(path: str, longest: int = 80) -> str:
    """The start and the longer end of a long path, where the name of the file is."""
    if text_grid.cells_wide(path) <= longest:
        return path
    start = longest // 3
    head = _beginning(path, start)
    return f"{head}…{_beginning(path[::-1], longest - start - 1)[::-1]}"


def _beginning(text: str, cells: int) -> str:
    """The first characters that fit into so many cells."""
    taken = 0
    for number, character in enumerate(text):
        taken += text_grid.cells_wide(character)
        if taken > cells:
            return text[:number]
    return text


def terminal_width() -> int:
    """Columns of the terminal; very many where the output is not one."""
    width = text_grid.Screen.of(sys.stdout).width
    return sys.maxsize if width is None else width


def fields(pairs: Iterable[tuple[str, object]]) -> str:
    """Names and values, one pair a line; pairs without a value are left out."""
    found = [(name, printable(value)) for name, value in pairs if value is not None and value != ""]
    return text_grid.pairs(found, STYLES, text_grid.Screen.of(sys.stdout))


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
