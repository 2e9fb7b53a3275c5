"""Interface of a chunker: chunk sizes in, chunks out."""

from __future__ import annotations

from typing import Protocol

import msgspec

from penstock.payloads import LARGEST_CHUNK, SMALLEST_CHUNK, USUAL_CHUNK

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
