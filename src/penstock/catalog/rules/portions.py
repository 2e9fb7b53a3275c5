"""Transaction sizes of ``store``: small generations share one, a large one gets several.

While a transaction writes, no other writer of a SQLite catalog gets on, nor of a queue in the same file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from penstock.catalog.values import NewChunk, NewGeneration, NewPage
from penstock.named_tuple import NamedTuple


class Slice(NamedTuple):
    """Consecutive chunks of a page. ``first``: the index of the first of them; 0: the page itself is new."""

    page: NewPage
    first: int
    chunks: tuple[NewChunk, ...]

    @property
    def rows(self) -> int:
        return len(self.chunks) + (self.first == 0)


class Portions(NamedTuple):
    """Maximum number of page and chunk rows, and of characters, in a part of a large generation. ``uncut``:
    parts that one transaction may hold all the same, where that is all there is to write."""

    rows: int = 64
    chars: int = 128 << 10
    uncut: int = 16

    def large(self, new: NewGeneration) -> bool:
        """Check whether a generation is written in parts: one of up to ``uncut`` parts is not."""
        rows, chars = _size(new)
        return rows > self.uncut * self.rows or chars > self.uncut * self.chars

    def groups(self, generations: Iterable[NewGeneration]) -> Iterator[Sequence[NewGeneration]]:
        """Group generations into transactions, in order; a large one is alone."""
        most_rows, most_chars = self.uncut * self.rows, self.uncut * self.chars
        group: list[NewGeneration] = []
        rows = chars = 0
        for new in generations:
            own_rows, own_chars = _size(new)
            if group and (rows + own_rows > most_rows or chars + own_chars > most_chars):
                yield group
                group, rows, chars = [], 0, 0
            group.append(new)
            rows, chars = rows + own_rows, chars + own_chars
        if group:
            yield group

    def parts(self, pages: Sequence[NewPage]) -> Iterator[list[Slice]]:
        """The pages and chunks of a large generation, in their order. A page may stretch over many parts."""
        part: list[Slice] = []
        rows = chars = 0
        for page in pages:
            first, chunks = 0, page.chunks or ()
            while first < len(chunks) or first == 0:
                if part and (rows >= self.rows or chars >= self.chars):
                    yield part
                    part, rows, chars = [], 0, 0
                taken = self._fitting(chunks, first, self.rows - rows, self.chars - chars)
                part.append(Slice(page, first, taken))
                rows += part[-1].rows
                chars += sum([len(chunk.text) for chunk in taken]) + (
                    len(page.text or "") if not first else 0
                )
                if not taken:
                    break
                first += len(taken)
        if part:
            yield part

    def _fitting(self, chunks: Sequence[NewChunk], first: int, rows: int, chars: int) -> tuple[NewChunk, ...]:
        """At least one, where there is one: a chunk is not cut."""
        end = first
        while end < len(chunks) and (end == first or (end - first < rows and chars > 0)):
            chars -= len(chunks[end].text)
            end += 1
        return tuple(chunks[first:end])


def count_rows(new: NewGeneration) -> int:
    return len(new.pages) + sum([len(page.chunks) for page in new.pages if page.chunks])


def _size(new: NewGeneration) -> tuple[int, int]:
    """Number of page and chunk rows, and of characters. Most generations have one page with one chunk."""
    rows = chars = 0
    for page in new.pages:
        rows += 1
        if page.text:
            chars += len(page.text)
        for chunk in page.chunks or ():
            rows += 1
            chars += len(chunk.text)
    return rows, chars
