"""How documents are made into chunks and vectors: the parts in use, and the fingerprints of their work."""

from __future__ import annotations

from functools import lru_cache

import msgspec

from penstock.catalog.values import Fingerprints
from penstock.errors import InvalidPayload
from penstock.pipeline.budget import FileLimiter, MemoryShare, Work
from penstock.pipeline.chunk.protocol import CHARS_PER_TOKEN, ChunkSizes
from penstock.pipeline.draft import Draft, drafted
from penstock.pipeline.embed.protocol import Embedder, space_of
from penstock.pipeline.extract import file_types
from penstock.pipeline.extract.protocol import Content, ExtractLimits
from penstock.pipeline.extract.sandbox import Sandbox
from penstock.pipeline.fingerprint import fingerprint
from penstock.pipeline.fingerprints import fingerprints


class Pipeline:
    """One process has one: it holds the embedder's weights and the box parsers run in."""

    def __init__(
        self, embedder: Embedder, *, limits: ExtractLimits | None = None, memory: MemoryShare | None = None
    ) -> None:
        self.embedder = embedder
        self.limits = limits or ExtractLimits()
        self._box = Sandbox(self.limits)
        self._limiter = FileLimiter(memory)
        self._fingerprints: dict[tuple[str, ChunkSizes], Fingerprints] = {}
        """The same for all files of a kind: worked out once, not once a file."""
        self._made_with: dict[str | None, str] = {}

    @property
    def space(self) -> str:
        """Where this embedder's vectors live: they compare with no others."""
        return space_of(self.embedder)

    def fingerprints(self, name: str, sizes: ChunkSizes) -> Fingerprints:
        """Of what would be done to a file of this name. Told by the name alone, so that nothing is read."""
        kind = file_types.by_name(name) or file_types.TEXT
        found = self._fingerprints.get((kind.extractor, sizes))
        if found is None:
            found = fingerprints(sizes, self.embedder, reader=kind.extractor)
            self._fingerprints[kind.extractor, sizes] = found
        return found

    def made_with(self, wanted: Fingerprints) -> str:
        """Of a failure: with another parser, or other limits, the file may not fail."""
        found = self._made_with.get(wanted.ocr)
        if found is None:
            found = fingerprint({"ocr": wanted.ocr, "limits": msgspec.structs.asdict(self.limits)})
            self._made_with[wanted.ocr] = found
        return found

    def draft(self, content: Content, sizes: ChunkSizes, *, pages: range | None = None) -> Draft:
        """Raises an ``UnreadableDocument`` when nothing of it can become text, though it is not blank, or it
        exceeds its budget; ``MemoryInUse`` when it has to wait for another large file.
        """
        limits, size = self.limits, len(content.data)
        whole = pages is None

        def here(memory_bytes: int | None) -> Draft:
            extracted = self._box.extract(content, pages=pages, memory_bytes=memory_bytes)
            return drafted(extracted, sizes, whole=whole)

        def in_sandbox(memory_bytes: int) -> Draft:
            # The file, and what comes back, is in this process as well.
            return self._box.draft(content, sizes, pages=pages, memory_bytes=memory_bytes - 2 * size)

        work = Work(here, in_sandbox)
        return self._limiter.run(limits.seconds_for(size), size if whole else 0, work)

    def embed(self, texts: list[str]) -> list[bytes]:
        vectors = self.embedder.embed(texts)
        return [vector.astype("<f4", copy=False).tobytes() for vector in vectors]

    def close(self) -> None:
        self._box.close()
        self._limiter.close()


@lru_cache(64)
def chunk_sizes(size: int | None, overlap: int | None) -> ChunkSizes:
    """From tokens, as requests give them, to characters."""
    usual = ChunkSizes()
    try:
        return ChunkSizes(
            usual.size if size is None else size * CHARS_PER_TOKEN,
            usual.overlap if overlap is None else overlap * CHARS_PER_TOKEN,
        )
    except ValueError as error:
        raise InvalidPayload(f"chunk_size and chunk_overlap: {error}") from None
