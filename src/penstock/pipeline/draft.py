"""From a file's pages to a draft: pages cut into chunks that have no vectors yet.

It runs in the worker for small files, in the sandbox for large ones.
"""

from __future__ import annotations

import msgspec

from penstock.catalog.rules.identity import text_hash
from penstock.catalog.values import Failure, NewChunk, NewPage
from penstock.errors import NoText
from penstock.pipeline.chunk import factory as chunking
from penstock.pipeline.chunk.protocol import LONGEST_HEADING, Chunk, ChunkSizes, estimated_tokens
from penstock.pipeline.extract.protocol import ExtractedText, Page
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


def drafted(extracted: ExtractedText, sizes: ChunkSizes, *, whole: bool) -> Draft:
    """Cut what was extracted. ``whole``: not some pages of it only.

    Raises ``NoText`` when nothing of it can become text, though it is not blank.
    """
    if whole and not extracted.blank and not any(page.text for page in extracted.pages):
        raise _nothing_usable(extracted)
    pages = tuple(_page(page, extracted, sizes) for page in extracted.pages)
    return Draft(
        pages=pages,
        page_count=extracted.page_count,
        media_type=extracted.kind.media_type,
        title=extracted.title or "",
        warnings=(*extracted.warnings, *_cut_headings(pages)),
    )


def _page(page: Page, extracted: ExtractedText, sizes: ChunkSizes) -> NewPage:
    if page.failure is not None:
        return NewPage(number=page.number, failure=Failure("ERR_PARSE", page.failure))
    if page.needs_ocr and not page.text:
        return NewPage(number=page.number, failure=OCR_NEEDED)
    cut = chunking.chunk_page(page.text, extracted.shape, extracted.kind.language, sizes)
    lines = extracted.line_numbers
    return NewPage(number=page.number, chunks=tuple(_chunk(chunk, lines) for chunk in cut))


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


def _nothing_usable(extracted: ExtractedText) -> NoText:
    failures = [page.failure for page in extracted.pages if page.failure]
    if failures:
        return NoText(f"none of {how_many(len(extracted.pages), 'page')} could be read: {failures[0]}")
    return NoText(f"no text on any of {how_many(len(extracted.pages), 'page')}: OCR needed")
