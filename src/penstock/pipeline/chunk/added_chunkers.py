"""Chunkers of extensions: one may cut the documents of an extractor instead of Penstock's own."""

from __future__ import annotations

import functools
from collections.abc import Iterable

from penstock import extensions
from penstock.extensions import Extension, ExtensionKind
from penstock.pipeline.chunk.protocol import Chunk, Chunker, ChunkSizes


class CheckedChunker:
    """A chunker of an extension, with a check of every chunk against the text."""

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
