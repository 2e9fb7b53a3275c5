"""A chunker of Gemini pages: every heading begins a chunk, and long sections are cut between lines."""

from __future__ import annotations

from penstock.pipeline.chunk.text import Chunk, ChunkSizes


class SectionChunker:
    """Cuts a page at its headings."""

    name = "gemtext-sections"
    version = "1"

    def chunk(self, text: str, sizes: ChunkSizes) -> list[Chunk]:
        """Cut a page. A line that is too long for a chunk is cut as well."""
        chunks: list[Chunk] = []
        start = place = 0
        for line in _pieces(text, sizes.size):
            if line.startswith("#") or place + len(line) - start > sizes.size:
                _add(chunks, text, start, place)
                start = place
            place += len(line)
        _add(chunks, text, start, place)
        return chunks


def _pieces(text: str, size: int) -> list[str]:
    """The lines of a text with their ends, those longer than a chunk in parts."""
    lines = [line + "\n" for line in text.split("\n")]
    lines[-1] = lines[-1][:-1]
    return [line[at : at + size] for line in lines for at in range(0, len(line), size)]


def _add(chunks: list[Chunk], text: str, start: int, end: int) -> None:
    stretch = text[start:end]
    start += len(stretch) - len(stretch.lstrip())
    own = stretch.strip()
    if not own:
        return
    first = text.count("\n", 0, start) + 1
    heading = own.split("\n", 1)[0].lstrip("# ") if own.startswith("#") else ""
    chunks.append(
        Chunk(own, start, start + len(own), first, first + own.count("\n"), (heading,) if heading else ())
    )
