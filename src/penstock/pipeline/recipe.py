"""How documents are made into chunks and vectors: the parts in use, and the fingerprints of their work."""

from __future__ import annotations

from functools import lru_cache

import msgspec

from penstock.catalog.identity import text_hash
from penstock.catalog.values import Failure, Fingerprints, NewChunk, NewPage
from penstock.errors import InvalidPayload, NoText
from penstock.pipeline.chunk import opening as chunking
from penstock.pipeline.chunk.protocol import (
    CHARS_PER_TOKEN,
    LONGEST_HEADING,
    Chunk,
    ChunkSizes,
    estimated_tokens,
)
from penstock.pipeline.embed.protocol import Embedder, space_of
from penstock.pipeline.extract import kinds
from penstock.pipeline.extract.boxed import Box
from penstock.pipeline.extract.protocol import Content, Extracted, Limits, Page
from penstock.pipeline.plan import fingerprints
from penstock.vocabulary import how_many

OCR_NEEDED = Failure("ERR_NO_TEXT", "no text layer: this page needs OCR")
_HEADINGS = " > "


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """A document read and cut, its chunks without vectors."""

    pages: tuple[NewPage, ...]
    page_count: int
    media_type: str
    title: str
    warnings: tuple[str, ...]

    @property
    def chunks(self) -> list[NewChunk]:
        return [chunk for page in self.pages for chunk in page.chunks or ()]

    @property
    def tokens(self) -> int:
        return sum([estimated_tokens(chunk.text) for page in self.pages for chunk in page.chunks or ()])


class Recipe:
    """One process has one: it holds the embedder's weights and the box parsers run in."""

    def __init__(self, embedder: Embedder, *, limits: Limits | None = None) -> None:
        self.embedder = embedder
        self.limits = limits or Limits()
        self._box = Box(self.limits)
        self._fingerprints: dict[tuple[str, ChunkSizes], Fingerprints] = {}
        """The same for all files of a kind: worked out once, not once a file."""

    @property
    def space(self) -> str:
        """Where this embedder's vectors live: they compare with no others."""
        return space_of(self.embedder)

    def fingerprints(self, name: str, sizes: ChunkSizes) -> Fingerprints:
        """Of what would be done to a file of this name. Told by the name alone, so that nothing is read."""
        kind = kinds.by_name(name) or kinds.TEXT
        found = self._fingerprints.get((kind.extractor, sizes))
        if found is None:
            found = fingerprints(sizes, self.embedder, reader=kind.extractor)
            self._fingerprints[kind.extractor, sizes] = found
        return found

    def draft(self, content: Content, sizes: ChunkSizes, *, pages: range | None = None) -> Draft:
        """Raises an ``UnreadableDocument`` when nothing of it can become text, though it is not blank."""
        extracted = self._box.extract(content, pages=pages)
        if pages is None and not extracted.blank and not any(page.text for page in extracted.pages):
            raise _nothing_usable(extracted)
        read = tuple(self._page(page, extracted, sizes) for page in extracted.pages)
        return Draft(
            pages=read,
            page_count=extracted.page_count,
            media_type=extracted.kind.media_type,
            title=extracted.title or "",
            warnings=(*extracted.warnings, *_cut_headings(read)),
        )

    def _page(self, page: Page, extracted: Extracted, sizes: ChunkSizes) -> NewPage:
        if page.failure is not None:
            return NewPage(number=page.number, failure=Failure("ERR_PARSE", page.failure))
        if page.needs_ocr and not page.text:
            return NewPage(number=page.number, failure=OCR_NEEDED)
        cut = chunking.chunk_page(page.text, extracted.shape, extracted.kind.language, sizes)
        lines = extracted.line_numbers
        return NewPage(number=page.number, chunks=tuple(_chunk(chunk, lines) for chunk in cut))

    def embed(self, texts: list[str]) -> list[bytes]:
        vectors = self.embedder.embed(texts)
        return [vector.astype("<f4", copy=False).tobytes() for vector in vectors]

    def close(self) -> None:
        self._box.close()


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


def _chunk(chunk: Chunk, lines: bool) -> NewChunk:
    return NewChunk(
        text=chunk.text,
        text_hash=text_hash(chunk.text),
        start=chunk.start,
        end=chunk.end,
        first_line=chunk.start_line if lines else None,
        last_line=chunk.end_line if lines else None,
        heading_path=_HEADINGS.join(chunk.headings),
        symbols=" ".join(chunk.symbols),
    )


def _cut_headings(pages: tuple[NewPage, ...]) -> tuple[str, ...]:
    paths = {chunk.heading_path for page in pages for chunk in page.chunks or ()}
    long = (path for path in paths if len(path) >= LONGEST_HEADING)
    if any(part.endswith("…") for path in long for part in path.split(_HEADINGS)):
        return (f"the chunks below a heading carry its first {LONGEST_HEADING} characters",)
    return ()


def _nothing_usable(extracted: Extracted) -> NoText:
    failures = [page.failure for page in extracted.pages if page.failure]
    if failures:
        return NoText(f"none of {how_many(len(extracted.pages), 'page')} could be read: {failures[0]}")
    return NoText(f"no text on any of {how_many(len(extracted.pages), 'page')}: OCR needed")
