"""Drafts: the pages of a file, cut into chunks, before embedding.

Small files are drafted in the worker process, large ones in the sandbox.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from penstock.catalog.rules.identity import text_hash
from penstock.catalog.values import Failure, NewChunk, NewPage, StoredProperties
from penstock.errors import NoText
from penstock.pipeline.chunk.added_chunkers import added_chunker
from penstock.pipeline.chunk.prose import ProseChunker
from penstock.pipeline.chunk.protocol import MAX_HEADING, Chunk, Chunker, ChunkSizes, estimated_tokens
from penstock.pipeline.extract import file_types
from penstock.pipeline.extract.protocol import Attachment, ExtractedText, Page, Properties, Shape
from penstock.vocabulary import how_many, none_read, with_remedy

OCR_NEEDED = Failure("ERR_NO_TEXT", with_remedy("no text, OCR needed", "Index again with --ocr."))
"""Failure of a page that is a picture, while OCR is switched off."""
OCR_OFF = (
    "Index again with --ocr, or set PENSTOCK_OCR=true, to have the text recognized. Or leave out a file "
    "without text with --exclude."
)
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
    other_type: bool = False
    """The suffix is not the one of ``media_type``: the file is misnamed, or compressed."""
    has_pictures: bool = False
    """Some pages show what their text layer does not say: with OCR their text is another one."""

    @property
    def stored_properties(self) -> StoredProperties:
        """The properties and warnings for the catalog."""
        return StoredProperties(
            **msgspec.structs.asdict(self.properties),
            media_type=self.media_type if self.other_type else "",
            warnings=self.warnings,
        )

    def suffix(self, name: str) -> str:
        """The suffix of the name, or the first one of the content's type where the name is wrong."""
        types = file_types.BY_SUFFIX.items() if self.misnamed else ()
        found = (suffix for suffix, file_type in types if file_type.media_type == self.media_type)
        return next(found, file_types.suffix_of(name))

    def with_warnings(self, more: Sequence[str]) -> Draft:
        """The draft with further warnings."""
        if not more:
            return self
        return msgspec.structs.replace(self, warnings=(*self.warnings, *more))

    @property
    def chunks(self) -> list[NewChunk]:
        return [chunk for page in self.pages for chunk in page.chunks or ()]

    @property
    def unread(self) -> bool:
        """Check whether a task is needed to read some of the pages."""
        return any(page.unread for page in self.pages)

    @property
    def all_layers(self) -> bool:
        """Check whether every page was read, and no page is a picture."""
        return not self.has_pictures and not any(page.unread or page.failure for page in self.pages)

    @property
    def tokens(self) -> int:
        return sum([estimated_tokens(chunk.text) for page in self.pages for chunk in page.chunks or ()])


def build_draft(extracted: ExtractedText, sizes: ChunkSizes, *, complete: bool) -> Draft:
    """Cut extracted pages into chunks. ``complete``: these are all pages of the document.

    Pages that need OCR are marked so; see ``awaiting_ocr`` and ``without_ocr``. Raises ``NoText`` if no page
    of a complete document could be read.
    """
    pages = tuple(_new_page(page, extracted, sizes) for page in extracted.pages)
    if complete:
        refuse_textless(pages)
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
        return NewPage(number=page.number, failure=Failure(page.failure_code, page.failure))
    if page.needs_ocr and not page.text:
        return NewPage(number=page.number, needs_ocr=True)
    chunks = _chunks(page.text, extracted, sizes)
    lines = page.positions or (range(1, page.text.count("\n") + 2) if extracted.line_numbers else None)
    recognized = page.recognition
    return NewPage(
        number=page.number,
        chunks=tuple(_new_chunk(chunk, lines) for chunk in chunks),
        needs_ocr=page.needs_ocr,
        text=page.text if recognized or page.warnings else None,
        engine=recognized.engine if recognized else "",
        confidence=recognized.confidence if recognized else None,
        warnings=page.warnings,
    )


def with_all_pages(draft: Draft, file_path: str | None) -> Draft:
    """The draft of the first pages with all pages of the document. ``file_path``: the file of the others."""
    numbers = range(len(draft.pages) + 1, draft.page_count + 1)
    if not numbers and file_path is None:
        return draft
    pages = draft.pages + tuple(NewPage(number=number) for number in numbers)
    if file_path is not None:
        pages = tuple(
            msgspec.structs.replace(page, file_path=file_path) if page.unread else page for page in pages
        )
    return msgspec.structs.replace(draft, pages=pages)


def awaiting_ocr(draft: Draft) -> Draft:
    """The draft with the pages for OCR left to tasks."""
    if not any(page.needs_ocr for page in draft.pages):
        return draft
    pages = [NewPage(number=page.number, needs_ocr=True) if page.needs_ocr else page for page in draft.pages]
    return msgspec.structs.replace(draft, pages=tuple(pages), has_pictures=True)


def without_ocr(draft: Draft, *, complete: bool) -> Draft:
    """The draft while OCR is switched off: text layers are kept, and pictures fail.

    Raises ``NoText`` if all pages of a complete document are such.
    """
    if not any(page.needs_ocr for page in draft.pages):
        return draft
    pages = [
        NewPage(number=page.number, failure=OCR_NEEDED)
        if page.unread and page.needs_ocr
        else msgspec.structs.replace(page, needs_ocr=False)
        for page in draft.pages
    ]
    if complete and all(page.failure is not None or not page.chunks for page in pages):
        where = f" on any of {how_many(len(pages), 'page')}" if len(pages) > 1 else ""
        raise NoText(f"no text{where}, OCR needed", remedy=OCR_OFF)
    return msgspec.structs.replace(draft, pages=tuple(pages), has_pictures=True)


def _chunks(text: str, extracted: ExtractedText, sizes: ChunkSizes) -> list[Chunk]:
    added = added_chunker(extracted.file_type.extractor)
    if added is not None:
        return added.chunk(text, sizes) if text else []
    return chunk_page(text, extracted.shape, extracted.file_type.language, sizes)


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


def refuse_textless(pages: Sequence[NewPage]) -> None:
    """Raise ``NoText`` if every page of a document failed. Blank pages, and pages for OCR, did not fail."""
    failures = [page.failure.message for page in pages if page.failure is not None]
    if failures and not any(page.chunks or page.needs_ocr for page in pages):
        raise NoText(f"{none_read(len(pages))}: {failures[0]}")
