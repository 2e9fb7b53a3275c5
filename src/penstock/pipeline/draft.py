"""Drafts: the pages of a file, cut into chunks, before embedding; and the fingerprints of what made them.

Small files are drafted in the worker process, large ones in the sandbox. A fingerprint has the names and
versions of the parts behind a document: a new one means work to repeat.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec.structs import replace

from penstock.catalog.rules.identity import text_hash
from penstock.catalog.values import Failure, Fingerprints, NewChunk, NewPage, StoredProperties
from penstock.errors import NoText
from penstock.pipeline.chunk.text import (
    CHUNKING_VERSION,
    MAX_HEADING,
    Chunk,
    Chunker,
    ChunkSizes,
    ProseChunker,
    added_chunker,
    added_chunker_versions,
    estimated_tokens,
)
from penstock.pipeline.embed.protocol import Embedder
from penstock.pipeline.extract import file_types
from penstock.pipeline.extract.protocol import Attachment, ExtractedText, Page, Properties, Shape
from penstock.strict_json import fingerprint
from penstock.vocabulary import how_many, none_read, with_remedy

OCR_NEEDED = Failure("ERR_NO_TEXT", with_remedy("no text, OCR needed", "Index again with --ocr."))
"""Failure of a page that is a picture, while OCR is switched off."""
_OCR_OFF_REMEDY = (
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
        return replace(self, warnings=(*self.warnings, *more))

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
        pages = tuple(replace(page, file_path=file_path) if page.unread else page for page in pages)
    return replace(draft, pages=pages)


def awaiting_ocr(draft: Draft) -> Draft:
    """The draft with the pages for OCR left to tasks."""
    if not any(page.needs_ocr for page in draft.pages):
        return draft
    pages = [NewPage(number=page.number, needs_ocr=True) if page.needs_ocr else page for page in draft.pages]
    return replace(draft, pages=tuple(pages), has_pictures=True)


def without_ocr(draft: Draft, *, complete: bool) -> Draft:
    """The draft while OCR is switched off: text layers are kept, and pictures fail.

    Raises ``NoText`` if all pages of a complete document are such.
    """
    if not any(page.needs_ocr for page in draft.pages):
        return draft
    pages = [
        NewPage(number=page.number, failure=OCR_NEEDED)
        if page.unread and page.needs_ocr
        else replace(page, needs_ocr=False)
        for page in draft.pages
    ]
    if complete and all(page.failure is not None or not page.chunks for page in pages):
        where = f" on any of {how_many(len(pages), 'page')}" if len(pages) > 1 else ""
        raise NoText(f"no text{where}, OCR needed", remedy=_OCR_OFF_REMEDY)
    return replace(draft, pages=tuple(pages), has_pictures=True)


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


OCR_OFF = "off"
"""In the place of the fingerprint of OCR: pages that are pictures were left unread."""
NO_PICTURES = "none"
"""In the same place: every page has a usable text layer, so that OCR makes no difference."""


def fingerprints(
    sizes: ChunkSizes,
    embedder: Embedder,
    *,
    extractor_name: str | None = None,
    named: bool = True,
    grammar: str | None = None,
    ocr: str | None = None,
) -> Fingerprints:
    """Fingerprints of the extractors, the chunkers with their sizes, and the model. May load model files.

    With ``extractor_name`` (see ``FileType.extractor``) only this extractor counts. A new version of it then
    concerns only its own documents. Not ``named``: the name of the file stands for another extractor.
    ``grammar``: language of an optional grammar that is installed, and cuts the file. ``ocr``: fingerprint of
    how pictures are read, or OCR_OFF, for extractors of files that may hold some.
    """
    # Imported here: a search needs only ``fingerprint``, and should start quickly.
    from penstock.pipeline.extract.factory import extractor

    names = file_types.EXTRACTORS if extractor_name is None else (extractor_name,)
    parts: dict[str, object] = {
        "extract": {name: extractor(name).version for name in names},
        "chunk": CHUNKING_VERSION,
    } | added_chunker_versions(names)
    text_fingerprint = fingerprint(parts | ({} if grammar is None else {"grammar": grammar}))
    if ocr is not None:
        text_fingerprint += f"+{ocr}"
    return Fingerprints(
        # The sizes are readable: a task that continues a document finds its chunk sizes here.
        ocr=with_reader(
            f"{text_fingerprint}:{sizes.size}:{sizes.overlap}", None if named else extractor_name
        ),
        vector=embedder.fingerprint,
    )


def with_reader(fingerprint: str, reader: str | None) -> str:
    """A fingerprint with the name of the extractor, for a misnamed file.

    The file can then be compared by its name alone: it is not read again in each run, but it is when the
    extractor that read it changes.
    """
    return fingerprint if reader is None else f"{fingerprint}:{reader}"


def reader_in(fingerprint: str | None) -> str | None:
    """The extractor named in a fingerprint by ``with_reader``."""
    parts = (fingerprint or "").split(":")
    # Of a failure: the digits alone. Of a document: the digits and two sizes.
    return parts[-1] if len(parts) in (2, 4) else None


def ocr_in(made: str) -> str | None:
    """OCR fingerprint of a document, or OCR_OFF, or NO_PICTURES; None for formats without pictures."""
    return made.partition(":")[0].partition("+")[2] or None


def without_pictures(made: Fingerprints) -> Fingerprints:
    """The fingerprints of a document found to have no picture pages."""
    return made if ocr_in(made.ocr) is None else _with_ocr(made, NO_PICTURES)


def _with_ocr(made: Fingerprints, ocr: str) -> Fingerprints:
    first, *rest = made.ocr.split(":")
    return replace(made, ocr=":".join((f"{first.partition('+')[0]}+{ocr}", *rest)))


def keep_reading(wanted: Fingerprints, made: Fingerprints) -> Fingerprints:
    """The wanted fingerprints, or those of the source if OCR alone does not justify reading again.

    Documents without pictures are the same with and without OCR. Recognized text stays where a request does
    not want OCR.
    """
    if "+" not in wanted.ocr or wanted.ocr == made.ocr:
        return wanted
    asked, found = ocr_in(wanted.ocr), ocr_in(made.ocr)
    if found is None or found == OCR_OFF or (found != NO_PICTURES and asked != OCR_OFF):
        return wanted
    kept = _with_ocr(wanted, found)
    return kept if kept.ocr == made.ocr else wanted


def same_reading(wanted: Fingerprints, made: Fingerprints) -> bool:
    """Check whether an unfinished generation fits a request and can be finished for the request."""
    return wanted == made or (ocr_in(made.ocr) == NO_PICTURES and keep_reading(wanted, made) == made)


def sizes_of(made_with: Fingerprints) -> ChunkSizes | None:
    """Chunk sizes of a document, from the fingerprints; None for another format."""
    _, *numbers = made_with.ocr.split(":")[:3]
    if len(numbers) != 2 or not all(number.isdecimal() for number in numbers):
        return None
    return ChunkSizes(int(numbers[0]), int(numbers[1]))


def outdated(made: Fingerprints, wanted: Fingerprints) -> Literal["reading", "model", "graph"] | None:
    """First stage to repeat: reading and cutting, vectors, or entities; None if all is current."""
    if made.ocr != wanted.ocr:
        return "reading"
    if made.vector != wanted.vector:
        return "model"
    return "graph" if made != wanted else None
