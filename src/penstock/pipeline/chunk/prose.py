"""Chunks of prose, marked up text and rows."""

from __future__ import annotations

import bisect
from collections.abc import Sequence

from penstock.pipeline.chunk.blocks import Heading, outline, rows
from penstock.pipeline.chunk.cutting import VERSION, cuts
from penstock.pipeline.chunk.headings import FINDERS
from penstock.pipeline.chunk.protocol import Chunk, ChunkSizes
from penstock.pipeline.extract.protocol import Shape


class ProseChunker:
    """Cuts at headings and at paragraphs that their own words choose; see ``cutting``."""

    version = VERSION

    def __init__(self, shape: Shape = Shape.PROSE) -> None:
        self.name = str(shape)
        self._rows = shape is Shape.ROWS
        self._finder = FINDERS.get(shape)

    def chunk(self, text: str, sizes: ChunkSizes) -> list[Chunk]:
        found = rows(text, sizes.size) if self._rows else outline(text, sizes.size, self._finder)
        return assembled(text, cuts(text, found.units, sizes.size), sizes, found.headings)


def assembled(
    text: str, starts: Sequence[int], sizes: ChunkSizes, headings: Sequence[Heading] = ()
) -> list[Chunk]:
    """Chunks between the given starts, without the white space around them."""
    chunks: list[Chunk] = []
    if not starts:
        return chunks
    line, counted = 1, 0
    paths = HeadingPaths(headings)
    for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
        inner = text[start:end]
        kept = inner.strip()
        if not kept:
            continue
        start += len(inner) - len(inner.lstrip())
        end = start + len(kept)
        path = paths.at(start)
        if sizes.overlap and chunks:
            start = _overlapped(text, start, sizes.overlap)
            kept = text[start:end]
        line += text.count("\n", counted, start) if start >= counted else -text.count("\n", start, counted)
        counted = start
        chunks.append(Chunk(kept, start, end, line, line + kept.count("\n"), path))
    return chunks


def _overlapped(text: str, start: int, overlap: int) -> int:
    """So many characters earlier at most, at the start of a word."""
    earliest = max(0, start - overlap)
    if earliest == 0:
        return start - len(text[:start].lstrip())
    for place in range(earliest, start):
        if text[place - 1].isspace() and not text[place].isspace():
            return place
    return start


class HeadingPaths:
    """The headings a place stands under. Asked in rising order of places."""

    def __init__(self, headings: Sequence[Heading]) -> None:
        self._headings = headings
        self._starts = [heading.start for heading in headings]
        self._next = 0
        self._open: list[Heading] = []

    def at(self, place: int) -> tuple[str, ...]:
        upto = bisect.bisect_right(self._starts, place)
        for heading in self._headings[self._next : upto]:
            while self._open and self._open[-1].level >= heading.level:
                self._open.pop()
            self._open.append(heading)
        self._next = max(self._next, upto)
        return tuple(heading.text for heading in self._open if heading.text)
