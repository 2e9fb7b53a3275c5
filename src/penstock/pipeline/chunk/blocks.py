"""From text to units: headings, paragraphs, fenced code and tables, each whole while it fits a chunk."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

from penstock.pipeline.chunk.cutting import (
    AFTER_HEADING,
    ANYWHERE,
    HEADING,
    LINE,
    PARAGRAPH,
    SENTENCE,
    WORD,
    Unit,
)


class Heading(NamedTuple):
    start: int
    level: int
    """From 1."""
    text: str


class Outline(NamedTuple):
    units: list[Unit]
    headings: list[Heading]


class Line(NamedTuple):
    start: int
    end: int
    """Without the line feed."""
    text: str


HeadingFinder: TypeAlias = Callable[[Line, Line | None], tuple[int, str, int] | None]
"""Of a line and the one after it: the heading's level, its text, and how many lines it takes."""

_FENCE = re.compile(r"[ \t]*(?:>[ \t]*)*(?:[-*+][ \t]+|\d+[.)][ \t]+)?(`{3,}|~{3,})([^`]*)$")
_SENTENCE = re.compile(r"""[.!?…。！？]["'”’)\]]*\s+|[。！？]""")
# Some words, then all: a text of one line has so many that most of the time would go into choosing.
_FINER = (
    (re.compile(r"\n+"), LINE),
    (_SENTENCE, SENTENCE),
    (re.compile(r"\s+(?=[b-d])"), WORD),
    (re.compile(r"\s+"), WORD),
)


def outline(text: str, size: int, finder: HeadingFinder | None) -> Outline:
    """The units of prose or marked up text. Without a finder there are no headings and no fences."""
    units: list[Unit] = []
    headings: list[Heading] = []
    for start, rank, title in _blocks(text, finder):
        if title is not None:
            headings.append(Heading(start, rank - HEADING + 1, title))
        units.append(Unit(start, rank))
    return Outline(refined(text, units, size), headings)


def rows(text: str, size: int) -> Outline:
    """One unit a line."""
    starts = (line.start for line in _lines(text) if line.text.strip())
    return Outline(refined(text, [Unit(start, LINE) for start in starts], size), [])


def refined(text: str, units: list[Unit], size: int) -> list[Unit]:
    """Units that are too long replaced by their lines, sentences, words, and at last by plain cuts."""
    if not units:
        return units
    ends = [*(unit.start for unit in units[1:]), len(text)]
    if all(end - unit.start <= size for unit, end in zip(units, ends, strict=True)):
        return units
    found: list[Unit] = []
    for unit, end in zip(units, ends, strict=True):
        found += [unit] if end - unit.start <= size else _pieces(text, unit, end, size)
    return found


def _pieces(text: str, unit: Unit, end: int, size: int, finer: int = 0) -> list[Unit]:
    for step, (pattern, rank) in enumerate(_FINER[finer:], finer + 1):
        starts = [found.end() for found in pattern.finditer(text, unit.start, end)]
        inner = [start for start in starts if unit.start < start < end]
        if inner:
            pieces = [unit, *(Unit(start, rank) for start in inner)]
            ends = [*inner, end]
            return [
                small
                for piece, stop in zip(pieces, ends, strict=True)
                for small in (
                    [piece] if stop - piece.start <= size else _pieces(text, piece, stop, size, step)
                )
            ]
    # No place to cut by meaning: a base64 blob, a line of digits.
    return [unit, *(Unit(start, ANYWHERE) for start in range(unit.start + size, end, size))]


def _lines(text: str) -> Iterator[Line]:
    start = 0
    while start < len(text):
        end = text.find("\n", start)
        if end < 0:
            end = len(text)
        yield Line(start, end, text[start:end])
        start = end + 1


def _blocks(text: str, finder: HeadingFinder | None) -> Iterator[tuple[int, int, str | None]]:
    """Start, rank and, of a heading, its text."""
    lines = list(_lines(text))
    inside = False
    rank = PARAGRAPH
    index = 0
    while index < len(lines):
        line = lines[index]
        following = lines[index + 1] if index + 1 < len(lines) else None
        index += 1
        if not line.text or line.text.isspace():
            inside = False
            continue
        heading = finder(line, following) if finder else None
        if heading is not None:
            level, title, taken = heading
            yield line.start, HEADING + level - 1, title
            index += taken - 1
            inside, rank = False, AFTER_HEADING
            continue
        fence = _FENCE.match(line.text) if finder and ("```" in line.text or "~~~" in line.text) else None
        if fence or not inside:
            yield line.start, rank if not inside else LINE, None
        inside, rank = True, PARAGRAPH
        if fence:
            index = _after_fence(lines, index, fence[1])
            inside = False


def _after_fence(lines: list[Line], index: int, mark: str) -> int:
    """The line after the closing fence. One never closed is taken for a paragraph's first line."""
    closing = re.compile(rf"[ \t]*(?:>[ \t]*)*{re.escape(mark[0])}{{{len(mark)},}}[ \t]*$")
    for number in range(index, len(lines)):
        if closing.match(lines[number].text):
            return number + 1
    return index
