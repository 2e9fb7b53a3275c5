"""``python -m scripts.terminal_picture``: the progress of a real index, as an SVG picture.

Documentation and code are copied to a new folder and indexed there, in a terminal of 100 columns. The picture
is the screen when about two thirds of the files were done.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import shutil
import struct
import sys
import tempfile
import termios
from collections.abc import Iterator
from html import escape
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / ".github" / "images" / "progress.svg"
COLUMNS, ROWS = 100, 40
CELL, LINE, MARGIN, BAR = 8.4, 20, 16, 34
COLOURS = {
    "30": "#6e7681",
    "31": "#ff7b72",
    "32": "#7ee787",
    "33": "#e3b341",
    "34": "#79c0ff",
    "35": "#d2a8ff",
    "36": "#76e3ea",
    "37": "#e6edf3",
    "90": "#8b949e",
}
_PIECE = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|(\r|\n)|([^\x1b\r\n]+)|\x1b.?", re.DOTALL)
_COUNT = re.compile(r"(\d[\d,]*) of (\d[\d,]*) files")


class Style(NamedTuple):
    """Look of a cell."""

    colour: str = "#e6edf3"
    bold: bool = False


class Screen:
    """A terminal that only knows what the commands print: colours, and lines written again."""

    def __init__(self) -> None:
        self.lines: list[list[tuple[str, Style]]] = [[]]
        self._column = 0
        self._style = Style()

    def write(self, text: str) -> None:
        """Print text with its control sequences."""
        for codes, command, move, plain in _PIECE.findall(text):
            if command == "K":
                self.lines[-1] = [] if codes == "2" else self.lines[-1][: self._column]
            elif command == "m":
                self._change_style(codes)
            elif move == "\r":
                self._column = 0
            elif move == "\n":
                self.lines.append([])
                self._column = 0
            else:
                self._put(plain)

    def _put(self, text: str) -> None:
        line = self.lines[-1]
        line += [(" ", Style())] * (self._column - len(line))
        line[self._column : self._column + len(text)] = [(sign, self._style) for sign in text]
        self._column += len(text)

    def _change_style(self, codes: str) -> None:
        for code in codes.split(";"):
            if code in ("", "0"):
                self._style = Style()
            elif code == "1":
                self._style = self._style._replace(bold=True)
            elif code in COLOURS:
                self._style = self._style._replace(colour=COLOURS[code])

    def text(self) -> str:
        """The screen without its styles."""
        return "\n".join("".join(sign for sign, _ in line) for line in self.lines)


def printed(command: list[str], folder: Path) -> Iterator[str]:
    """Run a command in a terminal; the parts of its output as they come."""
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(folder)
        os.execv(command[0], command)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    try:
        while part := os.read(terminal, 65_536):
            yield part.decode("utf-8", "replace")
    except OSError:  # how a terminal says that its process is gone
        pass
    finally:
        os.close(terminal)
        os.waitpid(child, 0)


def in_the_middle(screen: Screen, parts: Iterator[str]) -> str:
    """Play a whole index; the picture of the screen when about two thirds of the files were done."""
    picture, best = "", 1.0
    for part in parts:
        screen.write(part)
        counted = _COUNT.search(screen.text())
        if counted is not None:
            done, total = (int(number.replace(",", "")) for number in counted.groups())
            if abs(done / total - 0.66) < best:
                picture, best = svg(screen), abs(done / total - 0.66)
    return picture


def svg(screen: Screen) -> str:
    """The screen as a picture of a window."""
    lines = screen.lines if screen.lines[-1] else screen.lines[:-1]
    width, height = round(COLUMNS * CELL + 2 * MARGIN), BAR + len(lines) * LINE + MARGIN
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}"'
        ' font-family="ui-monospace, SFMono-Regular, Menlo, DejaVu Sans Mono, monospace" font-size="14">',
        f"<title>{escape(screen.text().splitlines()[0])}</title>",
        f'<rect width="{width}" height="{height}" rx="8" fill="#0d1117"/>',
        *(
            f'<circle cx="{20 + 18 * number}" cy="17" r="5.5" fill="{colour}"/>'
            for number, colour in enumerate(("#ff5f57", "#febc2e", "#28c840"))
        ),
    ]
    for number, line in enumerate(lines):
        column = 0
        for style, group in groupby(line, key=lambda cell: cell[1]):
            run = "".join(sign for sign, _ in group)
            if run.strip():
                out.append(_text(run, style, column, BAR + number * LINE + 15))
            column += len(run)
    return "\n".join([*out, "</svg>", ""])


def _text(run: str, style: Style, column: int, y: int) -> str:
    weight = ' font-weight="bold"' if style.bold else ""
    # The length keeps columns aligned, whatever font the reader has.
    length = f'textLength="{len(run) * CELL:.1f}" lengthAdjust="spacingAndGlyphs"'
    place = f'x="{MARGIN + column * CELL:.1f}" y="{y}"'
    return f'<text xml:space="preserve" {place} {length} fill="{style.colour}"{weight}>{escape(run)}</text>'


def main() -> None:
    command = str(Path(sys.executable).with_name("penstock"))
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        for name in ("docs", "src", "tests"):
            shutil.copytree(
                ROOT / name, place / "penstock" / name, ignore=shutil.ignore_patterns("__pycache__")
            )
        for name in ("NO_COLOR", "PENSTOCK_URL", "PENSTOCK_SERVER"):
            os.environ.pop(name, None)
        os.environ |= {"TERM": "xterm-256color", "PENSTOCK_STATE": str(place / "state")}
        screen = Screen()
        screen.write("$ penstock index penstock --include-code\r\n")
        picture = in_the_middle(screen, printed([command, "index", "penstock", "--include-code"], place))
    PICTURE.write_text(picture, encoding="utf-8")
    print(f"{PICTURE.relative_to(ROOT)}: {len(picture):,} bytes")


if __name__ == "__main__":
    main()
