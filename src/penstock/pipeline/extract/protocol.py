"""What an extractor takes and gives."""

from __future__ import annotations

import enum
from typing import Protocol

import msgspec


class Shape(enum.StrEnum):
    """What a page's text is made of; the chunker follows it."""

    PROSE = "prose"
    """Paragraphs between blank lines."""
    MARKDOWN = "markdown"
    """The same with headings, lists, fenced code and tables."""
    RST = "rst"
    ASCIIDOC = "asciidoc"
    ORG = "org"
    """As Markdown, with the headings of these."""
    ROWS = "rows"
    """One record a line: a line is never cut while it fits a chunk."""
    CODE = "code"
    """Source code of ``ExtractedText.language``."""


class FileType(msgspec.Struct, frozen=True):
    """A type of file: its media type, which extractor reads it, and the language of source code."""

    media_type: str
    extractor: str
    language: str | None = None


class Content(msgspec.Struct, frozen=True):
    """The bytes to extract from and the name they go by; only the name's suffix counts."""

    name: str
    data: bytes


class Page(msgspec.Struct, frozen=True):
    """One page, numbered from 1. Text is NFC with ``\\n`` line ends, no NUL and no lone surrogate."""

    number: int
    text: str
    needs_ocr: bool = False
    """The page shows something, but has no text layer that can be used."""
    failure: str | None = None
    """Why this page could not be read, while others could."""


class ExtractedText(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a file. ``pages`` may be a part of it, see ``page_count``."""

    pages: tuple[Page, ...]
    kind: FileType
    shape: Shape
    page_count: int
    """How many pages the whole document has."""
    title: str | None = None
    line_numbers: bool = False
    """A line of page 1 is the line of that number in the file."""
    warnings: tuple[str, ...] = ()
    """What was lost or guessed on the way, for people."""

    @property
    def needs_ocr(self) -> bool:
        return any(page.needs_ocr for page in self.pages)

    @property
    def blank(self) -> bool:
        """There is nothing in it: not even something OCR could read. A blank document is no failure."""
        return not any(page.text or page.needs_ocr or page.failure for page in self.pages)


class ExtractLimits(msgspec.Struct, frozen=True):
    """What one file may cost."""

    file_bytes: int = 64 * 1024 * 1024
    text_chars: int = 64 * 1024 * 1024
    """All pages together; the parsers of archives stop there as well."""
    pages: int = 50_000
    parser_memory_bytes: int = 1024 * 1024 * 1024
    """Memory for parsing and chunking one file, in the worker and in the sandbox."""
    parser_seconds: float = 20.0
    """CPU time for parsing and chunking one file, and a tenth of it more for each MiB."""
    batch_seconds: float = 3.0
    """CPU time after which a call for a range of pages ends early, with the pages read so far."""

    @classmethod
    def of(cls, file_mb: int, memory_mb: int, seconds: float) -> ExtractLimits:
        return cls(file_bytes=file_mb << 20, parser_memory_bytes=memory_mb << 20, parser_seconds=seconds)

    def seconds_for(self, size: int) -> float:
        """CPU time that a file of so many bytes may use."""
        return self.parser_seconds * (1 + size / (10 << 20))


class Extractor(Protocol):
    """Reads one family of types. Pure but for its libraries: the same bytes give the same pages."""

    name: str
    """The word ``FileType.extractor`` uses."""
    version: str
    """Part of the fingerprint: changes whenever the same bytes may give other text."""

    def extract(
        self, content: Content, kind: FileType, limits: ExtractLimits, pages: range | None = None
    ) -> ExtractedText:
        """The pages whose numbers are in ``pages``, or all. A call for a range may end after its first pages,
        see ``ExtractLimits.batch_seconds``.

        Raises an ``UnreadableDocument``; nothing else is expected of a damaged file.
        """
        ...
