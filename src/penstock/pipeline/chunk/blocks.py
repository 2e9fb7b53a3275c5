"""Units of prose: headings, paragraphs, fenced code and tables, each whole if short enough for a chunk."""

from __future__ import annotations

import bisect
import re
from array import array
from collections.abc import Callable, Iterator
from itertools import accumulate, chain, islice
from typing import TypeAlias

from penstock.named_tuple import NamedTuple
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
"""From a line and the next line to a heading: level, text, and number of lines."""


class Headings:
    """The headings of a text: start and level (from 1) of each. Titles are read on demand."""

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
# Some words first, then all: a text of one line has so many words that choosing among all would be slow.
# One space before the letter, not ``\s+``: a run of spaces would be scanned again from each space.
_SPLITTERS = (
    (re.compile(r"\n+"), LINE),
    (_SENTENCE, SENTENCE),
    (re.compile(r"\s(?=[b-d])"), WORD),
    (re.compile(r"\s+"), WORD),
)


def outline(text: str, size: int, finder: HeadingFinder | None) -> Outline:
    """The units of prose or marked-up text. Without a finder there are no headings and no fences."""
    units = Units()
    headings = Headings(text, finder)
    for start, rank in _blocks(text, finder):
        if rank < PARAGRAPH:
            headings.add(start, rank - HEADING + 1)
        units.add(start, rank)
    return Outline(split_long_units(text, units, size), headings)


def rows(text: str, size: int, finder: HeadingFinder | None = None) -> Outline:
    """One unit per line. With a finder, the first line is the heading of the others."""
    units = Units()
    headings = Headings(text, finder)
    for start, line in _lines(text):
        if line and not line.isspace():
            units.add(start, LINE)
    if finder is not None and units:
        headings.add(units.starts[0], 1)
    return Outline(split_long_units(text, units, size), headings)


def split_long_units(text: str, units: Units, size: int) -> Units:
    """Replace overlong units by their lines, sentences, words, and finally by plain cuts."""
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


def _refine(found: Units, text: str, unit: range, rank: int, size: int, next_splitter: int = 0) -> None:
    for step, (pattern, inner_rank) in enumerate(_SPLITTERS[next_splitter:], next_splitter + 1):
        inner = _match_ends(pattern, text, unit)
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
    # There is no meaningful place to cut: a base64 blob, a line of digits.
    found.add(unit.start, rank)
    for start in range(unit.start + size, unit.stop, size):
        found.add(start, ANYWHERE)


def _match_ends(pattern: re.Pattern[str], text: str, unit: range) -> array[int]:
    """Ends of the pattern's matches within ``unit``."""
    first, last = unit.start, unit.stop
    ends = (match.end() for match in pattern.finditer(text, first, last))
    return array("I", (end for end in ends if first < end < last))


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """The start and the text of each line, without line feeds."""
    start = 0
    while start < len(text):
        line = _line_at(text, start)
        yield start, line
        start += len(line) + 1


def _line_at(text: str, start: int) -> str:
    end = text.find("\n", start)
    return text[start:] if end < 0 else text[start:end]


def _blocks(text: str, finder: HeadingFinder | None) -> Iterator[tuple[int, int]]:
    """Start and rank of each block. The rank of a heading encodes the level."""
    fence_ends: _FenceEnds | None = None
    in_block = False
    rank = PARAGRAPH
    start, line = 0, _line_at(text, 0)
    while start < len(text):
        after = start + len(line) + 1
        following = _line_at(text, after) if after < len(text) else None
        heading = fence = None
        if not line or line.isspace():
            in_block = False
        elif finder and (heading := finder(line, following)) is not None:
            level, _, line_count = heading
            yield start, HEADING + level - 1
            in_block, rank = False, AFTER_HEADING
            if line_count > 1 and following is not None:
                after += len(following) + 1
                following = None
        else:
            fence = _FENCE.match(line) if finder and ("```" in line or "~~~" in line) else None
            if fence or not in_block:
                yield start, rank if not in_block else LINE
            in_block, rank = True, PARAGRAPH
            if fence:
                fence_ends = fence_ends or _FenceEnds(text)
                after = fence_ends.after(after, fence[1])
                in_block, following = False, None
        start, line = after, _line_at(text, after) if following is None else following


class _FenceEnds:
    """Possible closing lines of fences. An unclosed fence counts as the first line of a paragraph."""

    def __init__(self, text: str) -> None:
        self._lines = {mark: _FenceLines() for mark in "`~"}
        for found in _CLOSING.finditer(text):
            mark = found[1]
            self._lines[mark[0]].add(found.start() + 1, found.end() + 1, len(mark))
        for lines in self._lines.values():
            lines.longest_from = array("I", accumulate(reversed(lines.lengths), max))[::-1]

    def after(self, place: int, mark: str) -> int:
        """Start of the line after the closing fence; ``place`` itself if there is no closing fence."""
        lines = self._lines[mark[0]]
        index = bisect.bisect_left(lines.starts, place)
        if index == len(lines.starts) or lines.longest_from[index] < len(mark):
            return place
        while lines.lengths[index] < len(mark):
            index += 1
        return lines.ends[index]


class _FenceLines:
    """Closing lines of one mark: their starts, the starts of the next lines, and the numbers of marks."""

    def __init__(self) -> None:
        self.starts = array("I")
        self.ends = array("I")
        self.lengths = array("I")
        self.longest_from = array("I")
        """Longest run of marks in this line or any later one."""

    def add(self, start: int, end: int, length: int) -> None:
        self.starts.append(start)
        self.ends.append(end)
        self.lengths.append(length)
