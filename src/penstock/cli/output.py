"""Output: tables and fields for people, JSON for programs, one line for an error."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, Literal

import click

from penstock import clock
from penstock.cli.exit_codes import PIPE_CLOSED
from penstock.errors import OutputFailed, PenstockError
from penstock.process_start import escape_control

WIDE = 100_000
"""Line width where the output is not a terminal: files and programs want whole values."""

SHORTEST_PATH = 20
STYLES = {"pending": "yellow", "running": "cyan", "done": "green", "failed": "red", "cancelled": "magenta"}


def emit(text: str) -> None:
    """Print to standard output. Every command prints through this function."""
    try:
        click.echo(text)
        sys.stdout.flush()
    except BrokenPipeError:
        drop_output()
        raise SystemExit(PIPE_CLOSED) from None
    except OSError as error:
        drop_output()
        raise OutputFailed(f"standard output cannot be written ({error.strerror})") from None


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
    emit(json.dumps(plain, indent=2, ensure_ascii=False, default=clock.format_time))


def emit_error(error: PenstockError, *, as_json: bool) -> None:
    if as_json and not isinstance(error, OutputFailed):
        answer = {"code": error.code, "message": error.message, "remedy": error.remedy}
        emit(json.dumps({"error": answer}, indent=2, ensure_ascii=False))
    else:
        message = printable(error.message).rstrip(".")
        click.echo(f"error: {message} ({error.code}). {printable(error.remedy)}", err=True)


def printable(value: object) -> str:
    """One line without control characters: queued text must not drive the terminal."""
    return "" if value is None else escape_control(str(value))


def wrapped(line: str) -> str:
    """The line, broken between words where a terminal is narrower."""
    if not sys.stdout.isatty():
        return line
    import shutil

    return click.wrap_text(line, width=shutil.get_terminal_size().columns)


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
    from rich.table import Table
    from rich.text import Text

    if paths is not None:
        rows = _with_short_paths(header, rows, paths)
    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for number, title in enumerate(header):
        numbers = all(isinstance(row[number], int) or row[number] == "" for row in rows)
        justify: Literal["left", "right"] = "right" if rows and numbers else "left"
        # Only a column that may wrap gives way when the terminal is narrow; its cells are cut, not wrapped.
        grid.add_column(title, justify=justify, no_wrap=number < len(header) - 1)
    for row in rows:
        words = [printable(value) for value in row]
        overflow: Literal["fold", "ellipsis"] = "fold" if fold else "ellipsis"
        grid.add_row(*(Text(word, _style(word), no_wrap=not fold, overflow=overflow) for word in words))
    return _rendered(grid)


def _with_short_paths(
    header: Sequence[str], rows: Sequence[Sequence[object]], column: int
) -> list[Sequence[object]]:
    """Shorten the paths of a column so far that the other columns fit the terminal beside it."""
    from rich.cells import cell_len

    widths = [
        max(cell_len(printable(row[number])) for row in (header, *rows)) + 2 for number in range(len(header))
    ]
    room = max(terminal_width() - sum(widths) + widths[column] - 2, SHORTEST_PATH)
    shorter = [shortened(printable(row[column]), room) for row in rows]
    return [(*row[:column], short, *row[column + 1 :]) for row, short in zip(rows, shorter, strict=True)]


def shortened(path: str, longest: int = 80) -> str:
    """The start and the longer end of a long path, where the name of the file is."""
    if len(path) <= longest:
        return path
    start = longest // 3
    return f"{path[:start]}…{path[len(path) - (longest - start - 1) :]}"


def terminal_width() -> int:
    """Columns of the terminal; very many where the output is not one."""
    from rich.console import Console

    terminal = Console(file=sys.stdout)
    return terminal.width if terminal.is_terminal else WIDE


def fields(pairs: Iterable[tuple[str, object]]) -> str:
    """Names and values, one pair a line; pairs without a value are left out."""
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in pairs:
        if value is not None and value != "":
            word = printable(value)
            grid.add_row(name, Text(word, _style(word)))
    return _rendered(grid)


def _style(word: str) -> str:
    return STYLES.get(word.partition(" (")[0], "")


def _rendered(grid: Any) -> str:
    from rich.console import Console

    terminal = Console(file=sys.stdout, highlight=False)
    console = terminal if terminal.is_terminal else Console(file=io.StringIO(), width=WIDE, highlight=False)
    with console.capture() as captured:
        console.print(grid, crop=False)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


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
