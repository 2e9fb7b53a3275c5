"""Chunks of prose, marked-up text and rows."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.pipeline.chunk.blocks import Headings, outline, rows
from penstock.pipeline.chunk.boundaries import VERSION, cuts
from penstock.pipeline.chunk.headings import FINDERS
from penstock.pipeline.chunk.protocol import MAX_HEADING, Chunk, ChunkSizes
from penstock.pipeline.extract.protocol import Shape


class ProseChunker:
    """Cuts at headings, paragraphs or rows; see ``boundaries``."""

    version = VERSION

    def __init__(self, shape: Shape = Shape.PROSE) -> None:
        self.name = str(shape)
        self._rows = shape in (Shape.ROWS, Shape.TABLE)
        self._finder = FINDERS.get(shape)

    def chunk(self, text: str, sizes: ChunkSizes) -> list[Chunk]:
        found = (
            rows(text, sizes.size, self._finder) if self._rows else outline(text, sizes.size, self._finder)
        )
        return build_chunks(text, cuts(text, found.units, sizes.size), sizes, found.headings)


def build_chunks(
    text: str, starts: Sequence[int], sizes: ChunkSizes, headings: Headings | None = None
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

    def __init__(self, headings: Headings) -> None:
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
