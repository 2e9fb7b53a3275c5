"""Chunks of text with content-defined boundaries: cuts are chosen by the text around them, not by counting.

A text is a sequence of units (paragraphs, headings, lines …), none longer than a chunk. The start of each
unit is a possible cut. Its key is a rank (how good a place it is) and a hash of the words there. A start
becomes a cut if its key is the smallest within reach on both sides. So a cut depends only on the text
within reach: an edit moves cuts near it and no others. Stretches that are still too long are split in two,
again at the smallest key.

``Chunker`` is the interface of all chunkers, ``ProseChunker`` the one for prose, marked-up text and rows;
``code`` cuts source code by the same rule.
"""

from __future__ import annotations

import bisect
import functools
import re
import zlib
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, islice
from types import MappingProxyType
from typing import Protocol, TypeAlias

import msgspec

from penstock import extensions
from penstock.extensions import Extension, ExtensionKind
from penstock.pipeline.extract.protocol import Shape
from penstock.queue.payloads import LARGEST_CHUNK, SMALLEST_CHUNK, USUAL_CHUNK

CHARS_PER_TOKEN = 4
"""Rough length of a token in English prose or code. Sizes are in characters, so chunking needs no model."""


MAX_HEADING = 500
"""Characters of a heading that are stored with each chunk below it."""


def estimated_tokens(text: str) -> int:
    return -(-len(text) // CHARS_PER_TOKEN)


class ChunkSizes(msgspec.Struct, frozen=True):
    """Chunk sizes in characters. A chunk's own text never exceeds ``size``; ``overlap`` comes on top."""

    size: int = USUAL_CHUNK * CHARS_PER_TOKEN
    overlap: int = 0
    """Most characters of the preceding text that are repeated at the start of a chunk."""

    def __post_init__(self) -> None:
        if not SMALLEST_CHUNK <= self.size / CHARS_PER_TOKEN <= LARGEST_CHUNK:
            raise ValueError(f"size must lie between 64 and 32,768 characters, got {self.size}")
        if not 0 <= self.overlap <= self.size // 2:
            raise ValueError(f"overlap must lie between 0 and half the size, got {self.overlap}")


class Chunk(msgspec.Struct, frozen=True, gc=False):
    """A stretch of one page. ``text`` is exactly ``page.text[start:end]``."""

    text: str
    start: int
    end: int
    start_line: int
    """Line of the first character, counted from 1 within the page; see ``ExtractedText.line_numbers``."""
    end_line: int
    headings: tuple[str, ...] = ()
    """Headings above the start of the chunk, outermost first; long ones are shortened."""
    symbols: tuple[str, ...] = ()
    """Qualified names defined here, in order: ``Queue.claim``."""


class Chunker(Protocol):
    """Cuts a page into chunks. Pure. Every character except white space is in some chunk, in order."""

    name: str
    version: str
    """Part of the fingerprint. Changes when the same text may be cut elsewhere."""

    def chunk(self, text: str, sizes: ChunkSizes) -> list[Chunk]: ...


_WIDTH = 64
"""Number of keys, or minima, under one minimum of the level above."""

_Keys: TypeAlias = "array[int]"


class Minima:
    """Levels of minima over an array of keys: the keys, the minimum of each 64 of them, and so on.

    Without them, cutting a text with steadily rising keys takes quadratic time.
    """

    def __init__(self, keys: _Keys) -> None:
        self._levels = [keys]
        while len(keys) > 2 * _WIDTH:
            keys = array("Q", (min(keys[at : at + _WIDTH]) for at in range(0, len(keys), _WIDTH)))
            self._levels.append(keys)

    def lowest(self, low: int, high: int, level: int = 0) -> int:
        """The smallest key of a range, which must not be empty."""
        keys = self._levels[level]
        if high - low <= 2 * _WIDTH:
            return min(keys[low:high])
        first, last = -(-low // _WIDTH), high // _WIDTH
        between = self.lowest(first, last, level + 1)
        return min([between, *keys[low : first * _WIDTH], *keys[last * _WIDTH : high]])

    def first(self, lowest: int, low: int, high: int, level: int = 0) -> int | None:
        """The first place of ``lowest`` in a range without smaller keys."""
        keys = self._levels[level]
        if high - low <= 2 * _WIDTH:
            return _first(keys, lowest, low, high)
        first, last = -(-low // _WIDTH), high // _WIDTH
        found = _first(keys, lowest, low, first * _WIDTH)
        if found is None:
            block = self.first(lowest, first, last, level + 1)
            start, stop = (last, high) if block is None else (block, (block + 1) * _WIDTH)
            found = _first(keys, lowest, start * _WIDTH, stop)
        return found

    def last(self, lowest: int, low: int, high: int, level: int = 0) -> int | None:
        """The last place of ``lowest`` in a range without smaller keys."""
        keys = self._levels[level]
        if high - low <= 2 * _WIDTH:
            return _last(keys, lowest, low, high)
        first, last = -(-low // _WIDTH), high // _WIDTH
        found = _last(keys, lowest, last * _WIDTH, high)
        if found is None:
            block = self.last(lowest, first, last, level + 1)
            start, stop = (low, first) if block is None else (block * _WIDTH, block + 1)
            found = _last(keys, lowest, start, stop * _WIDTH)
        return found


def _first(keys: _Keys, key: int, low: int, high: int) -> int | None:
    some = keys[low:high]
    return low + some.index(key) if key in some else None


def _last(keys: _Keys, key: int, low: int, high: int) -> int | None:
    some = keys[low:high][::-1]
    return high - 1 - some.index(key) if key in some else None


CHUNKING_VERSION = "1"
"""Version of every chunker: all share the rule of this module. Changes when the same text may be cut
elsewhere."""

REACH = 0.3
"""Share of the chunk size. A larger reach makes chunks fuller, but an edit moves cuts further away."""

HASHED = 64
"""Characters of a unit that its key depends on. A change after them moves no cut."""

HEADING = 0
"""Ranks: a smaller rank is a better place to cut. A heading of level n has rank n - 1."""
_PARAGRAPH = 8
LINE = 10
SENTENCE = 11
_WORD = 12
AFTER_HEADING = 13
"""A poor place: a heading should not end a chunk."""
_ANYWHERE = 14


_SCANNED = 256
"""Up to this many units, the best one is found by a plain scan."""

Starts: TypeAlias = "array[int]"


class Units:
    """Places where a text may be cut, in rising order. Each unit ends at the start of the next.

    Two arrays instead of an object per unit: a file of short lines has tens of millions of units.
    """

    __slots__ = ("ranks", "starts")

    def __init__(self, places: Iterable[tuple[int, int]] = ()) -> None:
        self.starts: Starts = array("I")
        self.ranks = bytearray()
        """Rank of each start as a place to cut."""
        for start, rank in places:
            self.add(start, rank)

    def add(self, start: int, rank: int) -> None:
        self.starts.append(start)
        self.ranks.append(rank)

    def __len__(self) -> int:
        return len(self.ranks)


def cuts(text: str, units: Units, size: int) -> list[int]:
    """Offsets where chunks begin, including the start of the first unit."""
    if not units:
        return []
    if len(text) - units.starts[0] <= size:
        return [units.starts[0]]
    starts = array("I", units.starts)
    starts.append(len(text))
    crc32 = zlib.crc32
    keys = array(
        "Q",
        (
            rank << 32 | crc32(text[start : start + HASHED].encode("utf-8", "surrogatepass"))
            for start, rank in zip(units.starts, units.ranks, strict=True)
        ),
    )
    chosen = _lowest_within_reach(starts, keys, int(size * REACH))
    return [starts[index] for index in _split_long(starts, keys, chosen, size)]


def _lowest_within_reach(starts: Starts, keys: _Keys, reach: int) -> list[int]:
    """Indexes of units with no smaller key within ``reach``. Of equal keys, the first counts as smaller.

    Both ends of the text count as smaller than every key, so that no sliver is cut off there.
    """
    free = _lowest_to_the_right(starts, keys, reach)
    chosen = [0]
    lower: deque[int] = deque()
    for index, key in enumerate(keys):
        start = starts[index]
        while lower and keys[lower[-1]] > key:
            lower.pop()
        # Units out of reach no longer matter.
        while lower and start - starts[lower[0]] >= reach:
            lower.popleft()
        if index and free[index] and not lower and start - starts[0] >= reach:
            chosen.append(index)
        lower.append(index)
    return chosen


def _lowest_to_the_right(starts: Starts, keys: _Keys, reach: int) -> bytearray:
    """1 for each unit without a smaller key in the next ``reach`` characters."""
    free = bytearray(len(keys))
    waiting: deque[int] = deque()
    for index, key in enumerate(keys):
        start = starts[index]
        while waiting and start - starts[waiting[0]] >= reach:
            free[waiting.popleft()] = 1
        while waiting and keys[waiting[-1]] > key:
            waiting.pop()
        waiting.append(index)
    for index in waiting:
        free[index] = starts[len(keys)] - starts[index] >= reach
    return free


def _split_long(starts: Starts, keys: _Keys, chosen: list[int], size: int) -> list[int]:
    """Add cuts to the chosen ones until every chunk is within ``size``."""
    margin = int(size * REACH / 2)
    found = []
    best = _SplitPoint(starts, keys, margin)
    spans = list(zip(chosen, [*chosen[1:], len(keys)], strict=True))[::-1]
    while spans:
        first, last = spans.pop()
        if last - first == 1 or starts[last] - starts[first] <= size:
            found.append(first)
            continue
        middle = best.between(first, last)
        spans += [(middle, last), (first, middle)]
    return found


class _SplitPoint:
    """Finds where to split a stretch: the smallest key not too near an end; of equal keys, the middle one."""

    def __init__(self, starts: Starts, keys: _Keys, margin: int) -> None:
        self._starts = starts
        self._keys = keys
        self._margin = margin
        self._minima: Minima | None = None

    def between(self, first: int, last: int) -> int:
        starts = self._starts
        low = bisect.bisect_left(starts, starts[first] + self._margin, first + 1, last)
        high = bisect.bisect_right(starts, starts[last] - self._margin, low, last)
        if low == high:
            low, high = first + 1, last
        centre = bisect.bisect_left(starts, (starts[first] + starts[last]) // 2, low, high)
        # Repetitive text has many equal keys: preferring one side would cut sliver after sliver.
        before, after = self._nearest(low, centre, high)
        if before is not None and (after is None or centre - before < after - centre):
            return before
        return centre if after is None else after

    def _nearest(self, low: int, centre: int, high: int) -> tuple[int | None, int | None]:
        """Nearest places of the smallest key: the last one before ``centre`` and the first one after."""
        if high - low > _SCANNED:
            minima = self._minima = self._minima or Minima(self._keys)
            lowest = minima.lowest(low, high)
            return minima.last(lowest, low, centre), minima.first(lowest, centre, high)
        before, after = self._keys[low:centre][::-1], self._keys[centre:high]
        lowest = min(self._keys[low:high])
        return (
            centre - 1 - before.index(lowest) if lowest in before else None,
            centre + after.index(lowest) if lowest in after else None,
        )


_HeadingFinder: TypeAlias = Callable[[str, str | None], tuple[int, str, int] | None]
"""From a line and the next line to a heading: level, text, and number of lines."""


class _Headings:
    """The headings of a text: start and level (from 1) of each. Titles are read on demand."""

    def __init__(self, text: str, finder: _HeadingFinder | None) -> None:
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


class Outline(msgspec.Struct, frozen=True):
    units: Units
    headings: _Headings


_FENCE = re.compile(r"[ \t]*(?:>[ \t]*)*(?:[-*+][ \t]+|\d+[.)][ \t]+)?(`{3,}+|~{3,}+)[^`]*$")
_CLOSING = re.compile(r"\n[ \t]*(?:>[ \t]*)*(`{3,}+|~{3,}+)[ \t]*(?=\n|\Z)")
_SENTENCE = re.compile(r"""[.!?…。！？]["'”’)\]]*\s+|[。！？]""")
# Some words first, then all: a text of one line has so many words that choosing among all would be slow.
# One space before the letter, not ``\s+``: a run of spaces would be scanned again from each space.
_SPLITTERS = (
    (re.compile(r"\n+"), LINE),
    (_SENTENCE, SENTENCE),
    (re.compile(r"\s(?=[b-d])"), _WORD),
    (re.compile(r"\s+"), _WORD),
)


def _outline(text: str, size: int, finder: _HeadingFinder | None) -> Outline:
    """The units of prose or marked-up text. Without a finder there are no headings and no fences."""
    units = Units()
    headings = _Headings(text, finder)
    for start, rank in _blocks(text, finder):
        if rank < _PARAGRAPH:
            headings.add(start, rank - HEADING + 1)
        units.add(start, rank)
    return Outline(split_long_units(text, units, size), headings)


def _rows(text: str, size: int, finder: _HeadingFinder | None = None) -> Outline:
    """One unit per line. With a finder, the first line is the heading of the others."""
    units = Units()
    headings = _Headings(text, finder)
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
        found.add(start, _ANYWHERE)


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


def _blocks(text: str, finder: _HeadingFinder | None) -> Iterator[tuple[int, int]]:
    """Start and rank of each block. The rank of a heading encodes the level."""
    fence_ends: _FenceEnds | None = None
    in_block = False
    rank = _PARAGRAPH
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
            in_block, rank = True, _PARAGRAPH
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


_ATX = re.compile(r" {0,3}(#{1,6})(?=[ \t]|$)")
_SETEXT = re.compile(r" {0,3}(=+|-{2,})[ \t]*$")
_LIST_OR_QUOTE = re.compile(r"[ \t]*(?:[-*+>|]|\d+[.)])[ \t]")


def markdown(line: str, following: str | None) -> tuple[int, str, int] | None:
    if line.lstrip(" ").startswith("#"):
        found = _ATX.match(line)
        if found:
            return len(found[1]), _without_closing(line[found.end() :].strip(" \t")), 1
    if following is not None and following.startswith(("=", "-", " ")):
        underline = _SETEXT.match(following)
        if underline and not _LIST_OR_QUOTE.match(line) and "|" not in line:
            return (1 if underline[1][0] == "=" else 2), line.strip(), 2
    return None


def _without_closing(title: str) -> str:
    """Remove the closing hash signs of a heading. Without a space before them they belong to the title."""
    shorter = title.rstrip("#")
    return shorter.rstrip(" \t") if shorter.endswith((" ", "\t")) else title


_UNDERLINE = re.compile(r"([=\-~^\"'`#*+:.<>_])\1+[ \t]*$")
_RST_LEVELS = {mark: level for level, mark in enumerate("=-~^\"'", 1)}
_ASCIIDOC = re.compile(r"(={1,6})[ \t]+(\S.*)$")
_ORG = re.compile(r"(\*{1,8})[ \t]+(\S.*)$")


def rst(line: str, following: str | None) -> tuple[int, str, int] | None:
    """A line with an underline. Each text may assign marks to levels; this is the usual assignment."""
    if following is None or line[0].isspace():
        return None
    underline = _UNDERLINE.match(following)
    title = line.rstrip()
    if underline is None or len(following.rstrip()) < len(title) or _UNDERLINE.match(title):
        return None
    return _RST_LEVELS.get(underline[1], 6), title, 2


def asciidoc(line: str, _: str | None) -> tuple[int, str, int] | None:
    found = _ASCIIDOC.match(line)
    return (len(found[1]), found[2].rstrip(), 1) if found else None


def org(line: str, _: str | None) -> tuple[int, str, int] | None:
    found = _ORG.match(line)
    return (min(len(found[1]), 6), found[2].rstrip(), 1) if found else None


_SECTION = re.compile(r"""\[{1,2}[ \t]*([\w."'][\w."' /:@+-]*?)[ \t]*\]{1,2}[ \t]*(?:[#;].*)?$""")
_TOP_KEY = re.compile(r"""(["']?[A-Za-z_][\w./ -]*["']?):[ \t]*(?:#.*)?$""")


def sections(line: str, following: str | None) -> tuple[int, str, int] | None:
    """A ``[section]``, or a top-level key with the value on the lines below."""
    if line[0] == "[":
        found = _SECTION.match(line)
        return (1, found[1], 1) if found else None
    if following is None or not following.startswith((" ", "\t", "-")):
        return None
    found = _TOP_KEY.match(line)
    return (1, found[1].strip("\"'"), 1) if found else None


def header(line: str, _: str | None) -> tuple[int, str, int]:
    """The first row of a table, above all others."""
    return 1, line.strip(), 1


_FINDERS: Mapping[Shape, _HeadingFinder] = MappingProxyType(
    {
        Shape.MARKDOWN: markdown,
        Shape.RST: rst,
        Shape.ASCIIDOC: asciidoc,
        Shape.ORG: org,
        Shape.SECTIONS: sections,
        Shape.TABLE: header,
    }
)


class ProseChunker:
    """Cuts at headings, paragraphs or rows."""

    version = CHUNKING_VERSION

    def __init__(self, shape: Shape = Shape.PROSE) -> None:
        self.name = str(shape)
        self._rows = shape in (Shape.ROWS, Shape.TABLE)
        self._finder = _FINDERS.get(shape)

    def chunk(self, text: str, sizes: ChunkSizes) -> list[Chunk]:
        found = (
            _rows(text, sizes.size, self._finder) if self._rows else _outline(text, sizes.size, self._finder)
        )
        return build_chunks(text, cuts(text, found.units, sizes.size), sizes, found.headings)


def build_chunks(
    text: str, starts: Sequence[int], sizes: ChunkSizes, headings: _Headings | None = None
) -> list[Chunk]:
    """Build the chunks between the given starts, without surrounding white space."""
    chunks: list[Chunk] = []
    if not starts:
        return chunks
    line, counted = 1, 0
    paths = HeadingPaths(headings) if headings and headings.starts else None
    for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
        inner = text[start:end]
        kept = inner.strip()
        if not kept:
            continue
        start += len(inner) - len(inner.lstrip())
        end = start + len(kept)
        path = paths.at(start) if paths else ()
        if sizes.overlap and chunks:
            start = _overlap_start(text, start, sizes.overlap)
            kept = text[start:end]
        line += text.count("\n", counted, start) if start >= counted else -text.count("\n", start, counted)
        counted = start
        chunks.append(Chunk(kept, start, end, line, line + kept.count("\n"), path))
    return chunks


def _overlap_start(text: str, start: int, overlap: int) -> int:
    """Start of the overlap: the first word within ``overlap`` characters before ``start``."""
    earliest = max(0, start - overlap)
    if earliest == 0:
        return start - len(text[:start].lstrip())
    for place in range(earliest, start):
        if text[place - 1].isspace() and not text[place].isspace():
            return place
    return start


def shortened_heading(title: str) -> str:
    """Shorten a long heading for the chunks below. The chunk of the heading itself has the whole heading."""
    return title if len(title) <= MAX_HEADING else title[: MAX_HEADING - 1] + "…"


class HeadingPaths:
    """Headings above a place, outermost first. Places must be asked for in rising order."""

    def __init__(self, headings: _Headings) -> None:
        self._headings = headings
        self._next = 0
        self._open: list[tuple[int, int]] = []
        self._path: tuple[str, ...] | None = ()

    def at(self, place: int) -> tuple[str, ...]:
        starts, levels = self._headings.starts, self._headings.levels
        while self._next < len(starts) and starts[self._next] <= place:
            level = levels[self._next]
            while self._open and self._open[-1][0] >= level:
                self._open.pop()
            self._open.append((level, starts[self._next]))
            self._next += 1
            self._path = None
        if self._path is None:
            titles = (self._headings.title(start) for _, start in self._open)
            self._path = tuple(shortened_heading(title) for title in titles if title)
        return self._path


class CheckedChunker:
    """A chunker of an extension, for one extractor. Every chunk is checked against the text."""

    def __init__(self, chunker: Chunker, extension: Extension) -> None:
        self.name = chunker.name
        self.version = chunker.version
        self._chunker = chunker
        self._extension = extension

    def chunk(self, text: str, sizes: ChunkSizes) -> list[Chunk]:
        """Cut a page. Raises ``ExtensionFailed`` unless the chunks are stretches of the text, in order."""
        chunks = self._chunker.chunk(text, sizes)
        lines, before = text.count("\n") + 1, 0
        for number, chunk in enumerate(chunks, 1):
            if chunk.text != text[chunk.start : chunk.end] or not before <= chunk.start < chunk.end:
                raise self._extension.failure(f"returned a chunk {number} that is not the text at its place")
            if not 1 <= chunk.start_line <= chunk.end_line <= lines:
                raise self._extension.failure(f"returned a chunk {number} with a line that does not exist")
            before = chunk.start
        return chunks


@functools.cache
def added_chunker(extractor_name: str) -> CheckedChunker | None:
    """The chunker of an extension for the documents of an extractor."""
    found = extensions.find(ExtensionKind.CHUNKER, extractor_name)
    return None if found is None else CheckedChunker(found.call(), found)


def added_chunker_versions(extractor_names: Iterable[str]) -> dict[str, object]:
    """Parts of a fingerprint: the chunkers of extensions for some extractors. Empty without one."""
    found = {name: added_chunker(name) for name in extractor_names}
    versions = {name: f"{one.name} {one.version}" for name, one in found.items() if one is not None}
    return {"chunkers": versions} if versions else {}
