"""Structured files as text: JSON, XML, notebooks, tables and subtitles. Every value in order; nothing is
executed."""

from __future__ import annotations

import csv
import html
import re
from array import array
from collections.abc import Iterator
from contextlib import suppress
from itertools import accumulate
from typing import Any
from xml.parsers import expat

import msgspec

from penstock.errors import DocumentDamaged
from penstock.pipeline.extract.charset import clean, decode, markup_label, text_label
from penstock.pipeline.extract.protocol import Content, ExtractedText, ExtractLimits, FileType, Shape
from penstock.pipeline.extract.text import fence_around, markdown_title, one_page
from penstock.vocabulary import how_many

_LONG_LINE = 2000
_MAX_OUTPUT = 2000
_MAX_CELL_OUTPUT = 10 * _MAX_OUTPUT
_MAX_NAME = 200
"""Characters of a name, which is repeated with each of its values."""
_MAX_PARTS = 1000
"""Pieces of text that are joined to one line, in spite of elements between them."""
_MAX_DEFAULTS = 1000
"""Characters of default attributes that a document type may declare."""
_MAX_INDENT = 100
"""Levels of JSON that are indented. Deeper lines would begin with too many spaces."""
_TOKEN = re.compile(r'"(?:[^"\\]++|\\.)*+"?|([\[{\]},])', re.DOTALL)


class JsonExtractor:
    """JSON as written. A document on one long line is split into lines first."""

    name = "json"
    version = "2"

    def extract(
        self, content: Content, file_type: FileType, limits: ExtractLimits, pages: range | None = None
    ) -> ExtractedText:
        decoded = decode(content.data)
        text = clean(decoded.text)
        lines: bool | tuple[int, ...] = True
        if text.find("\n", 0, _LONG_LINE) < 0 and len(text) > _LONG_LINE:
            # Not JSON, or nested too deeply: kept as text.
            with suppress(msgspec.DecodeError, RecursionError):
                one_line = "\n" not in text.rstrip()
                text = _with_lines(text)
                lines = (1,) * (text.count("\n") + 1) if one_line else False
        return one_page(text, file_type, limits, shape=Shape.PROSE, line_numbers=lines, decoded=decoded)


def _with_lines(text: str) -> str:
    """One value per line, indented unless the nesting is too deep."""
    if text.count("[") + text.count("{") <= _MAX_INDENT or _depth(text) <= _MAX_INDENT:
        return msgspec.json.format(text, indent=1)
    # Still formatted by the library, so that invalid JSON is refused.
    compact = msgspec.json.format(text, indent=-1)
    return _TOKEN.sub(lambda token: token[0] + "\n" if token[1] else token[0], compact)


def _depth(text: str) -> int:
    steps = {"[": 1, "{": 1, "]": -1, "}": -1}
    return max(accumulate(steps.get(token, 0) for token in _TOKEN.findall(text)), default=0)


class NotebookExtractor:
    """Notebook cells as Markdown; code and output in fences. Positions are numbers of cells."""

    name = "notebook"
    version = "2"

    def extract(
        self, content: Content, file_type: FileType, limits: ExtractLimits, pages: range | None = None
    ) -> ExtractedText:
        decoded = decode(content.data)
        try:
            notebook = msgspec.json.decode(clean(decoded.text))
            cells = notebook["cells"] if "cells" in notebook else notebook["worksheets"][0]["cells"]
            language = notebook.get("metadata", {}).get("language_info", {}).get("name", "")
            name = str(language)
            writer = _NotebookText(name[:_MAX_NAME])
            for number, cell in enumerate(cells, 1):
                writer.add(number, cell)
        except (msgspec.DecodeError, RecursionError, LookupError, TypeError, AttributeError) as error:
            raise DocumentDamaged(f"this is not a notebook: {error}") from error
        warnings = [_cut("the name of the language")] if len(name) > _MAX_NAME else []
        if writer.shortened:
            cut = how_many(writer.shortened, "output is", "outputs are")
            warnings.append(f"{cut} cut: a cell keeps {_MAX_CELL_OUTPUT:,} characters of them")
        text = "\n".join(writer.lines)
        return one_page(
            text,
            file_type,
            limits,
            shape=Shape.MARKDOWN,
            title=markdown_title(text),
            line_numbers=tuple(writer.cells),
            decoded=decoded,
            warnings=tuple(warnings),
        )


def _cut(what: str) -> str:
    return f"{what} is cut after {_MAX_NAME} characters"


class _NotebookText:
    """Lines of Markdown, with the cell number of each line."""

    def __init__(self, language: str) -> None:
        self._language = language
        self.lines: list[str] = []
        self.cells: list[int] = []
        self.shortened = 0

    def add(self, number: int, cell: dict[str, Any]) -> None:
        source = _joined(cell.get("source", cell.get("input", "")))
        if cell.get("cell_type") == "heading":
            source = "#" * int(cell.get("level", 1)) + f" {source}"
        if cell.get("cell_type") != "code":
            self._add_part(number, source)
            return
        self._add_part(number, _fenced(source, self._language))
        left = _MAX_CELL_OUTPUT
        for output in cell.get("outputs", []):
            printed = _printed(output)
            kept = printed[: min(left, _MAX_OUTPUT)]
            self.shortened += len(kept) < len(printed)
            left -= len(kept)
            self._add_part(number, _fenced(kept, ""))

    def _add_part(self, number: int, text: str) -> None:
        if not text.strip():
            return
        lines = clean(text).split("\n")
        if self.lines:
            lines.insert(0, "")
        self.lines += lines
        self.cells += [number] * len(lines)


def _printed(output: dict[str, Any]) -> str:
    """Text of an output: printed, shown as text, or the message of an error."""
    if output.get("output_type") in ("error", "pyerr"):
        return f"{output.get('ename', '')}: {output.get('evalue', '')}"
    data = output.get("data", output)
    found = (data.get(kind) for kind in ("text/plain", "text/markdown", "text/latex"))
    return _joined(output.get("text") or next(filter(None, found), ""))


def _joined(lines: object) -> str:
    return "".join(map(str, lines)) if isinstance(lines, list) else str(lines)


def _fenced(text: str, language: str) -> str:
    if not text.strip():
        return ""
    fence = fence_around(text)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


class XmlExtractor:
    """XML as one line per value, ``element: text``, with a blank line between the children of the root.

    Entities that a document declares are not expanded, and no other file is read.
    """

    name = "xml"
    version = "2"

    def extract(
        self, content: Content, file_type: FileType, limits: ExtractLimits, pages: range | None = None
    ) -> ExtractedText:
        decoded = decode(content.data, markup_label)
        text = clean(decoded.text)
        reader = _XmlLines()
        try:
            lines = reader.read(text)
        except (expat.ExpatError, _Refused) as error:
            return one_page(
                text,
                file_type,
                limits,
                shape=Shape.PROSE,
                line_numbers=True,
                decoded=decoded,
                warnings=(f"kept as written, not well-formed XML: {error}",),
            )
        return one_page(
            clean("\n".join(lines)),
            file_type,
            limits,
            shape=Shape.PROSE,
            line_numbers=tuple(reader.positions),
            decoded=decoded,
            warnings=(_cut("the name of an element"),) if reader.long_names else (),
        )


class _Refused(Exception):
    """The document declares entities or long defaults, which can expand a short text without end."""


class _XmlLines:
    """Lines of text, each with the line number of the value in the file."""

    def __init__(self) -> None:
        self._parser = expat.ParserCreate("utf-8")
        self._lines: list[str] = []
        self.positions: list[int] = []
        self._names: list[str] = []
        self._text: list[str] = []
        self._text_line = 1
        self._inline = 0
        """Open elements inside a running text, such as emphasis: they do not end it."""
        self._later: list[str] = []
        """Attributes of such elements, to follow the text."""
        self._defaults = 0
        self.long_names = False

    def read(self, text: str) -> list[str]:
        parser = self._parser
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text.append
        parser.EntityDeclHandler = self._refuse
        parser.AttlistDeclHandler = self._default
        parser.Parse(text.encode("utf-8"), True)
        return self._lines

    def _refuse(self, name: str, *_: object) -> None:
        raise _Refused(f"it defines the entity {name!r}")

    def _default(self, _: str, __: str, ___: str, value: str | None, ____: int) -> None:
        self._defaults += len(value) if value else 0
        if self._defaults > _MAX_DEFAULTS:
            raise _Refused(f"it gives attributes of more than {_MAX_DEFAULTS:,} characters to elements")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if len(name) > _MAX_NAME:
            name = name[:_MAX_NAME] + "…"
            self.long_names = True
        values = (
            [f"{name} {key}: {' '.join(value.split())}" for key, value in attributes.items()]
            if attributes
            else []
        )
        if len(self._text) == 1 and self._text[0].isspace():
            self._text.clear()
        elif self._text:
            if self._inline or self._is_in_text():
                self._inline += 1
                self._later += values
                return
            self._flush()
        self._text_line = self._parser.CurrentLineNumber
        if len(self._names) == 1 and self._lines:
            values.insert(0, "")
        self._names.append(name)
        if values:
            self._add(values)

    def _end(self, _: str) -> None:
        if self._inline:
            self._inline -= 1
            return
        if self._text:
            self._flush()
        self._names.pop()

    def _is_in_text(self) -> bool:
        """Check for a running text around an element. Text beside the records of a root is not one."""
        in_record = len(self._names) > 1 and len(self._text) < _MAX_PARTS
        return in_record and not all(map(str.isspace, self._text))

    def _flush(self) -> None:
        written = self._text[0] if len(self._text) == 1 else "".join(self._text)
        self._text.clear()
        if self._names and not written.isspace():
            text = " ".join(written.split())
            # The position is that of the first word.
            feeds = written.count("\n")
            before = written.count("\n", 0, len(written) - len(written.lstrip())) if feeds else 0
            self._text_line += before
            self._add([f"{self._names[-1]}: {text}", *self._later])
            self._later.clear()
            self._text_line += feeds - before
        else:
            self._text_line += written.count("\n")

    def _add(self, lines: list[str]) -> None:
        self._lines += lines
        self.positions += [self._text_line] * len(lines)


_DELIMITERS = ",;\t|"
_SEPARATOR = " | "
_SAMPLED_LINES = 50
_WIDEST_CELL = 16 * 1024 * 1024
_LINES_AT_ONCE = 1024 * 1024
"""Characters of text that are split into lines at a time."""


class TableExtractor:
    """Comma, tab or otherwise separated values: one row per line, even with line feeds in cells."""

    name = "table"
    version = "2"

    def extract(
        self, content: Content, file_type: FileType, limits: ExtractLimits, pages: range | None = None
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


_TIME = r"(?:(\d{1,4}):)?(\d{1,2}):(\d{1,2})[.,](\d{1,3})"
_TIMES = re.compile(rf"[ \t]*{_TIME}[ \t]*-->[ \t]*{_TIME}")
_SPEAKER = re.compile(r"<v(?:\.[^\s>]*)?[ \t]+([^>]{1,100})>")
_TAG = re.compile(r"</?[A-Za-z][^<>]{0,200}>|<[\d:.]{5,12}>|\{\\[^{}]{0,100}\}")
_PAUSE_S = 4.0
"""Seconds without a spoken line after which a new paragraph begins."""


class SubtitleExtractor:
    """The spoken lines of SubRip and WebVTT files, without times, styles and notes.

    One line for each subtitle, in paragraphs between pauses. Positions are lines of the file.
    """

    name = "subtitles"
    version = "1"

    def extract(
        self, content: Content, file_type: FileType, limits: ExtractLimits, pages: range | None = None
    ) -> ExtractedText:
        decoded = decode(content.data)
        written = clean(decoded.text)
        lines: list[str] = []
        positions: list[int] = []
        for line, position in _spoken(written.split("\n")):
            lines.append(line)
            positions.append(position)
        if not lines and written.strip():
            # Not what the name says.
            return one_page(
                written,
                file_type,
                limits,
                shape=Shape.PROSE,
                line_numbers=True,
                decoded=decoded,
                warnings=("no subtitles found: kept as written",),
            )
        return one_page(
            clean("\n".join(lines)),
            file_type,
            limits,
            shape=Shape.PROSE,
            line_numbers=tuple(positions),
            decoded=decoded,
        )


def _spoken(lines: list[str]) -> Iterator[tuple[str, int]]:
    """Spoken lines with the numbers of their lines in the file; a blank line before a new paragraph."""
    ended = 0.0
    last = ""
    place = 0
    while place < len(lines):
        times = _TIMES.match(lines[place])
        place += 1
        if times is None:
            continue
        first = place
        while place < len(lines) and lines[place].strip():
            place += 1
        spoken = [text for text in map(_plain, lines[first:place]) if text]
        # Rolling captions repeat the line before.
        if spoken and spoken[0] == last:
            del spoken[0]
        if not spoken:
            continue
        started = _seconds(*times.group(1, 2, 3, 4))
        if last and started - ended >= _PAUSE_S:
            yield "", first + 1
        yield " ".join(spoken), first + 1
        last = spoken[-1]
        ended = _seconds(*times.group(5, 6, 7, 8))


def _plain(line: str) -> str:
    if "<" in line or "{" in line:
        line = _TAG.sub("", _SPEAKER.sub(r"\1: ", line))
    if "&" in line:
        line = html.unescape(line)
    return " ".join(line.split())


def _seconds(hours: str | None, minutes: str, seconds: str, fraction: str) -> float:
    return int(hours or 0) * 3600 + int(minutes) * 60 + int(seconds) + int(fraction.ljust(3, "0")) / 1000
