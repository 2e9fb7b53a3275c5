"""From text to units: headings, paragraphs, fenced code and tables, each whole while it fits a chunk."""

from __future__ import annotations

import bisect
import re
from array import array
from collections.abc import Callable, Iterator
from itertools import accumulate, chain, islice
from typing import NamedTuple, TypeAlias

from penstock.pipeline.chunk.boundaries import (
    AFTER_HEADING,
    ANYWHERE,
    HEADING,
    LINE,
    PARAGRAPH,
    SENTENCE,
    WORD,
    Units,
)

HeadingFinder: TypeAlias = Callable[[str, str | None], tuple[int, str, int] | None]
"""Of a line and the one after it: the heading's level, its text, and how many lines it takes."""


class Headings:
    """The headings of a text: where each begins and its level, from 1. Titles are read when asked for."""

    def __init__(self, text: str, finder: HeadingFinder | None) -> None:
        self._text = text
        self._finder = finder
        self.starts = array("I")
        self.levels = bytearray()

    def add(self, start: int, level: int) -> None:
        self.starts.append(start)
        self.levels.append(level)

    def title(self, start: int) -> str:
        line = _line_at(self._text, start)
        found = self._finder(line, _line_at(self._text, start + len(line) + 1)) if self._finder else None
        return found[1] if found else ""


class Outline(NamedTuple):
    units: Units
    headings: Headings


_FENCE = re.compile(r"[ \t]*(?:>[ \t]*)*(?:[-*+][ \t]+|\d+[.)][ \t]+)?(`{3,}+|~{3,}+)[^`]*$")
_CLOSING = re.compile(r"\n[ \t]*(?:>[ \t]*)*(`{3,}+|~{3,}+)[ \t]*(?=\n|\Z)")
_SENTENCE = re.compile(r"""[.!?…。！？]["'”’)\]]*\s+|[。！？]""")
# Some words, then all: a text of one line has so many that most of the time would go into choosing.
# One space before the letter, not all of them: a run of spaces would be read again from each of its spaces.
_FINER = (
    (re.compile(r"\n+"), LINE),
    (_SENTENCE, SENTENCE),
    (re.compile(r"\s(?=[b-d])"), WORD),
    (re.compile(r"\s+"), WORD),
)


def outline(text: str, size: int, finder: HeadingFinder | None) -> Outline:
    """The units of prose or marked up text. Without a finder there are no headings and no fences."""
    units = Units()
    headings = Headings(text, finder)
    for start, rank in _blocks(text, finder):
        if rank < PARAGRAPH:
            headings.add(start, rank - HEADING + 1)
        units.add(start, rank)
    return Outline(refined(text, units, size), headings)


def rows(text: str, size: int) -> Outline:
    """One unit a line."""
    units = Units()
    for start, line in _lines(text):
        if line and not line.isspace():
            units.add(start, LINE)
    return Outline(refined(text, units, size), Headings(text, None))


def refined(text: str, units: Units, size: int) -> Units:
    """Units that are too long replaced by their lines, sentences, words, and at last by plain cuts."""
    if not units:
        return units
    starts = units.starts
    longest = max(map(int.__sub__, chain(islice(starts, 1, None), (len(text),)), starts))
    if longest <= size:
        return units
    found = Units()
    ends = chain(islice(starts, 1, None), (len(text),))
    for start, rank, end in zip(starts, units.ranks, ends, strict=True):
        if end - start <= size:
            found.add(start, rank)
        else:
            _refine(found, text, range(start, end), rank, size)
    return found


def _refine(found: Units, text: str, unit: range, rank: int, size: int, finer: int = 0) -> None:
    for step, (pattern, inner_rank) in enumerate(_FINER[finer:], finer + 1):
        inner = _places(pattern, text, unit)
        if not inner:
            continue
        start = unit.start
        for end in chain(inner, (unit.stop,)):
            if end - start <= size:
                found.add(start, rank)
            else:
                _refine(found, text, range(start, end), rank, size, step)
            start, rank = end, inner_rank
        return
    # No place to cut by meaning: a base64 blob, a line of digits.
    found.add(unit.start, rank)
    for start in range(unit.start + size, unit.stop, size):
        found.add(start, ANYWHERE)


def _places(pattern: re.Pattern[str], text: str, unit: range) -> array[int]:
    """Where the pattern's matches within ``unit`` end."""
    first, last = unit.start, unit.stop
    ends = (match.end() for match in pattern.finditer(text, first, last))
    return array("I", (end for end in ends if first < end < last))


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Each line's start, and the line without its line feed."""
    start = 0
    while start < len(text):
        line = _line_at(text, start)
        yield start, line
        start += len(line) + 1


def _line_at(text: str, start: int) -> str:
    end = text.find("\n", start)
    return text[start:] if end < 0 else text[start:end]


def _blocks(text: str, finder: HeadingFinder | None) -> Iterator[tuple[int, int]]:
    """Start and rank; that of a heading says its level."""
    closings: _Closings | None = None
    inside = False
    rank = PARAGRAPH
    start, line = 0, _line_at(text, 0)
    while start < len(text):
        after = start + len(line) + 1
        following = _line_at(text, after) if after < len(text) else None
        heading = fence = None
        if not line or line.isspace():
            inside = False
        elif finder and (heading := finder(line, following)) is not None:
            level, _, taken = heading
            yield start, HEADING + level - 1
            inside, rank = False, AFTER_HEADING
            if taken > 1 and following is not None:
                after += len(following) + 1
                following = None
        else:
            fence = _FENCE.match(line) if finder and ("```" in line or "~~~" in line) else None
            if fence or not inside:
                yield start, rank if not inside else LINE
            inside, rank = True, PARAGRAPH
            if fence:
                closings = closings or _Closings(text)
                after = closings.after(after, fence[1])
                inside, following = False, None
        start, line = after, _line_at(text, after) if following is None else following


class _Closings:
    """The lines that can close a fence. One never closed is taken for a paragraph's first line."""

    def __init__(self, text: str) -> None:
        self._lines = {mark: _ClosingLines() for mark in "`~"}
        for found in _CLOSING.finditer(text):
            mark = found[1]
            self._lines[mark[0]].add(found.start() + 1, found.end() + 1, len(mark))
        for lines in self._lines.values():
            lines.longest_from = array("I", accumulate(reversed(lines.lengths), max))[::-1]

    def after(self, place: int, mark: str) -> int:
        """Where the line after the closing fence begins; ``place`` itself when there is none."""
        lines = self._lines[mark[0]]
        index = bisect.bisect_left(lines.starts, place)
        if index == len(lines.starts) or lines.longest_from[index] < len(mark):
            return place
        while lines.lengths[index] < len(mark):
            index += 1
        return lines.ends[index]


class _ClosingLines:
    """Of one mark: where the lines begin, where those after them do, and how many marks each has."""

    def __init__(self) -> None:
        self.starts = array("I")
        self.ends = array("I")
        self.lengths = array("I")
        self.longest_from = array("I")
        """The most marks that any of the lines has from here on."""

    def add(self, start: int, end: int, length: int) -> None:
        self.starts.append(start)
        self.ends.append(end)
        self.lengths.append(length)
