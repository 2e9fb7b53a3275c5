"""Which chunker cuts which text."""

from __future__ import annotations

from penstock.pipeline.chunk.prose import ProseChunker
from penstock.pipeline.chunk.protocol import Chunk, Chunker, ChunkSizes
from penstock.pipeline.extract.protocol import Shape


def chunker(shape: Shape, language: str | None = None) -> Chunker:
    """``language`` is that of ``Kind``; a grammar is loaded at the first file of its language."""
    if shape is Shape.CODE:
        from penstock.pipeline.chunk.code import CodeChunker

        return CodeChunker(language)
    return ProseChunker(shape)


def chunk_page(
    text: str, shape: Shape, language: str | None = None, sizes: ChunkSizes | None = None
) -> list[Chunk]:
    """The chunks of one page, in order."""
    return chunker(shape, language).chunk(text, sizes or ChunkSizes()) if text else []
