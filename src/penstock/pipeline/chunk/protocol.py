"""What a chunker takes and gives."""

from __future__ import annotations

from typing import Protocol

import msgspec

from penstock.payloads import LARGEST_CHUNK, SMALLEST_CHUNK, USUAL_CHUNK

CHARS_PER_TOKEN = 4
"""A token of English prose or code, about. Sizes are in characters so that no model is needed to chunk."""


LONGEST_HEADING = 500
"""Characters of a heading that the chunks below it carry."""


def estimated_tokens(text: str) -> int:
    return -(-len(text) // CHARS_PER_TOKEN)


class ChunkSizes(msgspec.Struct, frozen=True):
    """In characters. ``size`` is never exceeded by a chunk's own text; ``overlap`` comes on top."""

    size: int = USUAL_CHUNK * CHARS_PER_TOKEN
    overlap: int = 0
    """How much of the text before is repeated at the start of a chunk, at most."""

    def __post_init__(self) -> None:
        if not SMALLEST_CHUNK <= self.size / CHARS_PER_TOKEN <= LARGEST_CHUNK:
            raise ValueError(f"size must lie between 64 and 32,768 characters, got {self.size}")
        if not 0 <= self.overlap <= self.size // 2:
            raise ValueError(f"overlap must lie between 0 and half the size, got {self.overlap}")


class Chunk(msgspec.Struct, frozen=True, gc=False):
    """A stretch of one page: ``text`` is exactly ``page.text[start:end]``."""

    text: str
    start: int
    end: int
    start_line: int
    """Of the first character, counted from 1 within the page; see ``Extracted.line_numbers``."""
    end_line: int
    headings: tuple[str, ...] = ()
    """The headings the start of the chunk stands under, outermost first, long ones cut."""
    symbols: tuple[str, ...] = ()
    """Qualified names of what is defined here, in order: ``Queue.claim``."""


class Chunker(Protocol):
    """Cuts a page. Pure; every character that is not white space is in some chunk, in order."""

    name: str
    version: str
    """Part of the fingerprint: changes whenever the same text may be cut elsewhere."""

    def chunk(self, text: str, sizes: ChunkSizes) -> list[Chunk]: ...
