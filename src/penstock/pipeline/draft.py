"""Drafts: the pages of a file, cut into chunks, before embedding.

Small files are drafted in the worker process, large ones in the sandbox.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from penstock.catalog.rules.identity import text_hash
from penstock.catalog.values import Failure, NewChunk, NewPage, StoredProperties
from penstock.errors import NoText
from penstock.pipeline.chunk.prose import ProseChunker
from penstock.pipeline.chunk.protocol import MAX_HEADING, Chunk, Chunker, ChunkSizes, estimated_tokens
from penstock.pipeline.extract.protocol import Attachment, ExtractedText, Page, Properties, Shape
from penstock.vocabulary import how_many

OCR_NEEDED = Failure("ERR_NO_TEXT", "no text layer: this page needs OCR")
_HEADING_SEPARATOR = " > "


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """A document as pages and chunks, without vectors."""

    pages: tuple[NewPage, ...]
    page_count: int
    media_type: str
    title: str
    warnings: tuple[str, ...]
    properties: Properties = Properties()
    attachments: tuple[Attachment, ...] = ()
    misnamed: bool = False
    """The name stands for another type than ``media_type``."""

    @property
    def stored_properties(self) -> StoredProperties:
        """The properties and warnings for the catalog."""
        return StoredProperties(
            **msgspec.structs.asdict(self.properties),
            media_type=self.media_type if self.misnamed else "",
            warnings=self.warnings,
        )

    @property
    def chunks(self) -> list[NewChunk]:
        return [chunk for page in self.pages for chunk in page.chunks or ()]

    @property
    def tokens(self) -> int:
        return sum([estimated_tokens(chunk.text) for page in self.pages for chunk in page.chunks or ()])


def build_draft(extracted: ExtractedText, sizes: ChunkSizes, *, complete: bool) -> Draft:
    """Cut extracted pages into chunks. ``complete``: these are all pages of the document.

    Raises ``NoText`` if a complete document shows something, but has no text.
    """
    if complete and not extracted.blank and not any(page.text for page in extracted.pages):
        raise _no_text_error(extracted)
    pages = tuple(_new_page(page, extracted, sizes) for page in extracted.pages)
    return Draft(
        pages=pages,
        page_count=extracted.page_count,
        media_type=extracted.file_type.media_type,
        title=extracted.title or "",
        warnings=(*extracted.warnings, *_page_warnings(extracted), *_shortened_heading_warning(pages)),
        properties=extracted.properties,
        attachments=extracted.attachments,
    )


def _new_page(page: Page, extracted: ExtractedText, sizes: ChunkSizes) -> NewPage:
    if page.failure is not None:
        return NewPage(number=page.number, failure=Failure("ERR_PARSE", page.failure))
    if page.needs_ocr and not page.text:
        return NewPage(number=page.number, failure=OCR_NEEDED)
    chunks = chunk_page(page.text, extracted.shape, extracted.file_type.language, sizes)
    lines = page.positions or (range(1, page.text.count("\n") + 2) if extracted.line_numbers else None)
    return NewPage(number=page.number, chunks=tuple(_new_chunk(chunk, lines) for chunk in chunks))


def chunk_page(
    text: str, shape: Shape, language: str | None = None, sizes: ChunkSizes | None = None
) -> list[Chunk]:
    """The chunks of one page, in order."""
    return chunker(shape, language).chunk(text, sizes or ChunkSizes()) if text else []


def chunker(shape: Shape, language: str | None = None) -> Chunker:
    """The chunker for a shape. A grammar is loaded at the first file in the language."""
    if shape is Shape.CODE:
        from penstock.pipeline.chunk.code import CodeChunker

        return CodeChunker(language)
    return ProseChunker(shape)


def _new_chunk(chunk: Chunk, lines: Sequence[int] | None) -> NewChunk:
    return NewChunk(
        text=chunk.text,
        text_hash=text_hash(chunk.text),
        start=chunk.start,
        end=chunk.end,
        first_line=lines[chunk.start_line - 1] if lines else None,
        last_line=lines[chunk.end_line - 1] if lines else None,
        heading_path=_HEADING_SEPARATOR.join(chunk.headings),
        symbols=" ".join(chunk.symbols),
    )


def _page_warnings(extracted: ExtractedText) -> tuple[str, ...]:
    """Warnings of the pages, with their numbers where there are several pages."""
    unit = extracted.file_type.page_unit
    return tuple(
        f"{unit} {page.number}: {warning}" if extracted.page_count > 1 else warning
        for page in extracted.pages
        for warning in page.warnings
    )


def _shortened_heading_warning(pages: tuple[NewPage, ...]) -> tuple[str, ...]:
    paths = {chunk.heading_path for page in pages for chunk in page.chunks or ()}
    long = (path for path in paths if len(path) >= MAX_HEADING)
    if any(part.endswith("…") for path in long for part in path.split(_HEADING_SEPARATOR)):
        return (f"the chunks below a heading carry its first {MAX_HEADING} characters",)
    return ()


def _no_text_error(extracted: ExtractedText) -> NoText:
    failures = [page.failure for page in extracted.pages if page.failure]
    if failures:
        return NoText(f"none of {how_many(len(extracted.pages), 'page')} could be read: {failures[0]}")
    return NoText(f"no text on any of {how_many(len(extracted.pages), 'page')}: OCR needed")
