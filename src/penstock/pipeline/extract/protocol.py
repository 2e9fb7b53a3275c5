"""Interface of an extractor: the bytes of a file in, pages of text out."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Protocol

import msgspec

from penstock.catalog.values import Properties as Properties

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Shape(enum.StrEnum):
    """Structure of a page's text, which decides the chunker."""

    PROSE = "prose"
    """Paragraphs between blank lines."""
    MARKDOWN = "markdown"
    """Prose with headings, lists, fenced code and tables."""
    RST = "rst"
    ASCIIDOC = "asciidoc"
    ORG = "org"
    """Like Markdown, with their own headings."""
    ROWS = "rows"
    """One record per line. A line that fits a chunk is never cut."""
    TABLE = "table"
    """Rows below a first line that names the columns, which serves as their heading."""
    SECTIONS = "sections"
    """Settings below ``[names]`` or top-level keys."""
    CODE = "code"
    """Source code in ``FileType.language``."""


class FileType(msgspec.Struct, frozen=True):
    """A type of file: media type, name of the extractor, and language of source code."""

    media_type: str
    extractor: str
    language: str | None = None
    page_unit: str = "page"
    """Name of a page in hits: page, slide, sheet, chapter."""
    position_unit: str = "line"
    """Unit of the positions of chunks: line, paragraph, cell."""


class Content(msgspec.Struct, frozen=True):
    """The bytes and the name of a file. Only the name's suffix counts."""

    name: str
    data: bytes
    size: int | None = None
    """Size of the whole file, where ``data`` is only its beginning."""


class Recognition(msgspec.Struct, frozen=True):
    """Source of recognized text: the engine, and the mean confidence from 0 to 100."""

    engine: str
    confidence: float | None = None


class OcrReason(enum.StrEnum):
    """Reason why a page with a text layer, or without one, is to be read by OCR.

    For ``HIDDEN_LAYER`` and ``VERTICAL``, the page's text is a layer that OCR may replace. For the others, it
    is text that OCR cannot see or misses (field values, notes, few words), and stays beside the OCR text.
    """

    NO_TEXT = "no_text"
    """The page shows something, but has no text."""
    UNDECODABLE = "undecodable"
    """Many glyphs have no character."""
    SHIFTED = "shifted"
    """The letters are too rare ones: glyph numbers were taken for characters."""
    NOISE = "noise"
    """Many words mix scripts or have no vowel."""
    SPARSE = "sparse"
    """Few characters beside a large picture."""
    HIDDEN_LAYER = "hidden_layer"
    """Invisible text on a picture: an earlier OCR."""
    VERTICAL = "vertical"
    """Vertical writing, of which characters are missing."""


class Page(msgspec.Struct, frozen=True):
    """One page, numbered from 1. Text is NFC with ``\\n`` line ends, no NUL and no lone surrogate."""

    number: int
    text: str
    needs_ocr: bool = False
    """The page shows something that its text layer does not say, or not reliably; see ``ocr_reason``."""
    failure: str | None = None
    """Reason why this page could not be read, although others could."""
    recognition: Recognition | None = None
    """Set if the text comes from OCR."""
    ocr_reason: OcrReason | None = None
    """Set by extractors that decide about OCR by measure."""
    positions: tuple[int, ...] | None = None
    """For each line of the text its line, paragraph or cell in the source (``FileType.position_unit``)."""
    warnings: tuple[str, ...] = ()
    """Losses and guesses on this page, as messages for people."""
    failure_code: str = "ERR_PARSE"
    """Code of the failure, if there is one."""


class Attachment(msgspec.Struct, frozen=True):
    """A file inside another: attached to a mail, embedded in a PDF, or member of an archive."""

    name: str
    """Safe as the end of a path, and unique in its container; see ``member_names``."""
    data: bytes
    error: str = ""
    """Name of the class of the error for which it cannot be read, from ``penstock.errors``."""
    message: str = ""


class ExtractedText(msgspec.Struct, frozen=True, kw_only=True):
    """Text extracted from a file. ``pages`` may be only some of the pages; see ``page_count``."""

    pages: tuple[Page, ...]
    file_type: FileType
    shape: Shape
    page_count: int
    """Number of pages of the whole document."""
    title: str | None = None
    line_numbers: bool = False
    """True if line numbers of page 1 are line numbers of the file."""
    warnings: tuple[str, ...] = ()
    """Losses and guesses, as messages for people."""
    properties: Properties = Properties()
    attachments: tuple[Attachment, ...] = ()
    """Files inside this one, which become documents of their own below it."""

    @property
    def needs_ocr(self) -> bool:
        return any(page.needs_ocr for page in self.pages)

    @property
    def blank(self) -> bool:
        """Check whether the document is empty: not even OCR could read something. This is not a failure."""
        return not any(page.text or page.needs_ocr or page.failure for page in self.pages)


class ExtractLimits(msgspec.Struct, frozen=True):
    """Limits for one file."""

    file_bytes: int = 64 * 1024 * 1024
    """Size of a file that has to be read whole; larger ones are refused."""
    text_bytes: int = 64 * 1024 * 1024
    """Part of a text file that is read, from its start; see ``file_types.READ_IN_PART``."""
    text_chars: int = 64 * 1024 * 1024
    """Limit for all pages together; parsers of archives use it as well."""
    pages: int = 50_000
    parser_memory_bytes: int = 1024 * 1024 * 1024
    """Memory for parsing and chunking one file, in the worker and in the sandbox."""
    parser_seconds: float = 20.0
    """CPU time for parsing and chunking one file, plus a tenth of it per MiB."""
    batch_seconds: float = 3.0
    """CPU time after which a call for a range of pages ends early, with the pages read so far."""

    @classmethod
    def of(cls, file_mb: int, text_mb: int, memory_mb: int, seconds: float) -> ExtractLimits:
        file_bytes, text_bytes = file_mb << 20, text_mb << 20
        return cls(
            file_bytes=file_bytes,
            text_bytes=text_bytes,
            # Never less than the bytes of a file may have.
            text_chars=max(cls().text_chars, file_bytes, text_bytes),
            parser_memory_bytes=memory_mb << 20,
            parser_seconds=seconds,
        )

    def seconds_for(self, size: int) -> float:
        """CPU time allowed for a file of ``size`` bytes."""
        return self.parser_seconds * (1 + size / (10 << 20))


class Extractor(Protocol):
    """Reads one family of file types. The same bytes give the same pages."""

    name: str
    """Name in ``FileType.extractor``."""
    version: str
    """Part of the fingerprint. Changes when the same bytes may give other text."""

    def extract(
        self, content: Content, file_type: FileType, limits: ExtractLimits, pages: range | None = None
    ) -> ExtractedText:
        """Extract the pages with these numbers, or all pages.

        A call for a range may stop after its first pages; see ``ExtractLimits.batch_seconds``. For a damaged
        file, raises an ``UnreadableDocument`` and no other error.
        """
        ...


class PageImage(msgspec.Struct, frozen=True):
    """A page as a picture: bytes of gray (rows, columns) or RGB (rows, columns, 3)."""

    pixels: NDArray[np.uint8]
    dpi: int


class PlacedWord(msgspec.Struct, frozen=True, array_like=True):
    """A word and its place on the picture of its page, as parts of its width and height from the top left."""

    text: str
    left: float
    top: float
    right: float
    bottom: float


class PagedDocument(Protocol):
    """An open document, read page by page, with limits for each page."""

    page_count: int
    title: str | None
    properties: Properties

    @property
    def warnings(self) -> tuple[str, ...]: ...

    @property
    def attachments(self) -> tuple[Attachment, ...]:
        """Files inside the document. Reading them may take long: ask once per document."""
        ...

    def page(self, number: int) -> Page:
        """Read one page. An error of this page alone is returned as ``failure``."""
        ...

    def image(self, number: int, dpi: int) -> PageImage:
        """Render one page for OCR."""
        ...

    def words(self, number: int) -> tuple[PlacedWord, ...]:
        """The words of the page's text layer with their places; none without a layer."""
        ...

    def close(self) -> None: ...


class PagedExtractor(Extractor, Protocol):
    """Extractor of documents with separately readable pages."""

    shape: Shape

    def open(self, content: Content, limits: ExtractLimits) -> PagedDocument:
        """Open a document. Raises an ``UnreadableDocument`` for a damaged, encrypted or too large one."""
        ...
