"""How documents are made into chunks and vectors: the parts in use, and the fingerprints of their work."""

from __future__ import annotations

from functools import lru_cache

import msgspec

from penstock.catalog.identity import text_hash
from penstock.catalog.values import Failure, Fingerprints, NewChunk, NewPage
from penstock.errors import InvalidPayload, NoText
from penstock.pipeline.budget import FileLimiter, MemoryShare
from penstock.pipeline.chunk import opening as chunking
from penstock.pipeline.chunk.protocol import CHARS_PER_TOKEN, Chunk, ChunkSizes, estimated_tokens
from penstock.pipeline.embed.protocol import Embedder, space_of
from penstock.pipeline.extract import kinds
from penstock.pipeline.extract.boxed import Box
from penstock.pipeline.extract.protocol import Content, Extracted, Limits, Page
from penstock.pipeline.fingerprint import fingerprint
from penstock.pipeline.plan import fingerprints
from penstock.vocabulary import how_many

OCR_NEEDED = Failure("ERR_NO_TEXT", "no text layer: this page needs OCR")
_HEADINGS = " > "
LONGEST_HEADING = 200
"""Characters of a heading in the path of every chunk below it."""
LONGEST_TITLE = 500
_CUT = "…"
CUT_HEADINGS = f"headings of more than {LONGEST_HEADING} characters are shortened in the paths of chunks"


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

    def __init__(
        self, embedder: Embedder, *, limits: Limits | None = None, memory: MemoryShare | None = None
    ) -> None:
        self.embedder = embedder
        self.limits = limits or Limits()
        self._box = Box(self.limits)
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
        kind = kinds.by_name(name) or kinds.TEXT
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
        size = len(content.data)
        return self._limiter.run(
            self.limits.seconds_for(size),
            size,
            self.limits.parser_memory_bytes,
            lambda memory_bytes: self._draft(content, sizes, pages, memory_bytes),
            paged=pages is not None,
        )

    def _draft(
        self, content: Content, sizes: ChunkSizes, pages: range | None, memory_bytes: int | None
    ) -> Draft:
        extracted = self._box.extract(content, pages=pages, memory_bytes=memory_bytes)
        if pages is None and not extracted.blank and not any(page.text for page in extracted.pages):
            raise _nothing_usable(extracted)
        pages_made = tuple(self._page(page, extracted, sizes) for page in extracted.pages)
        cut = any(_CUT in chunk.heading_path for page in pages_made for chunk in page.chunks or ())
        return Draft(
            pages=pages_made,
            page_count=extracted.page_count,
            media_type=extracted.kind.media_type,
            title=(extracted.title or "")[:LONGEST_TITLE],
            warnings=(*extracted.warnings, *((CUT_HEADINGS,) if cut else ())),
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


def _chunk(chunk: Chunk, lines: bool) -> NewChunk:
    return NewChunk(
        text=chunk.text,
        text_hash=text_hash(chunk.text),
        start=chunk.start,
        end=chunk.end,
        first_line=chunk.start_line if lines else None,
        last_line=chunk.end_line if lines else None,
        heading_path=_HEADINGS.join(map(_shortened, chunk.headings)),
        symbols=" ".join(chunk.symbols),
    )


def _shortened(heading: str) -> str:
    return heading if len(heading) <= LONGEST_HEADING else heading[:LONGEST_HEADING] + _CUT


def _nothing_usable(extracted: Extracted) -> NoText:
    failures = [page.failure for page in extracted.pages if page.failure]
    if failures:
        return NoText(f"none of {how_many(len(extracted.pages), 'page')} could be read: {failures[0]}")
    return NoText(f"no text on any of {how_many(len(extracted.pages), 'page')}: OCR needed")
