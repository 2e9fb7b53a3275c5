"""Extractors by file type, extraction in this process, and the table of formats.

The table (what is read of each type, and what it needs) is for the documentation and ``doctor``.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping
from types import MappingProxyType

import msgspec

from penstock.errors import DocumentTooLarge
from penstock.pipeline.chunk.languages import GRAMMARS, MORE_GRAMMARS
from penstock.pipeline.extract import file_types
from penstock.pipeline.extract.file_types import BY_SUFFIX, CLASSES, EXTRACTORS, added_formats
from penstock.pipeline.extract.protocol import Content, ExtractedText, ExtractLimits, Extractor, FileType

SANDBOXED = frozenset(
    "archive compressed doc docx epub image mail mailbox opendocument outlook pdf ppt pptx rtf sheets".split()
)
"""Extractors that run in a child process: their libraries may crash, hang or exhaust the memory."""

LIBRARIES: Mapping[str, tuple[str, ...]] = MappingProxyType({"pdf": ("pypdfium2",)})
"""Modules that an extractor imports at its first file. The sandbox loads them once for all its children.

Not those that start threads when they are loaded."""

PLAIN = frozenset(["text", "markdown", "rows", "subtitles", "table"])
"""Extractors without native code of other projects, as far as the text is UTF-8: they cannot crash."""


def is_sandboxed(name: str) -> bool:
    """Check whether an extractor runs in a child process. Those of extensions always do."""
    return name in SANDBOXED or (name not in EXTRACTORS and name in added_formats())


def is_plain(content: Content) -> bool:
    """Check whether a file can be read by Python code alone."""
    try:
        content.data.decode()
    except UnicodeDecodeError:
        return False
    return file_types.detect(content.name, content.data).extractor in PLAIN


def extractor(name: str) -> Extractor:
    """The extractor of this name (see ``FileType.extractor``). Libraries are imported at the first file."""
    if name not in EXTRACTORS and name in added_formats():
        return added_formats()[name].extractor()
    made: Extractor = _extractor_class(name)(*(() if name in CLASSES else (name,)))
    return made


@functools.cache
def _extractor_class(name: str) -> Callable[..., Extractor]:
    module, _, class_name = CLASSES.get(name, "text.TextExtractor").rpartition(".")
    loaded = importlib.import_module(f"penstock.pipeline.extract.{module}")
    made: Callable[..., Extractor] = getattr(loaded, class_name)
    return made


def extract(
    content: Content, limits: ExtractLimits | None = None, *, pages: range | None = None
) -> ExtractedText:
    """Extract the pages of a file in this process. ``sandbox.Sandbox.extract`` is the safe way.

    Raises an ``UnreadableDocument`` if there are none.
    """
    limits = limits or ExtractLimits()
    check_size(content, limits)
    file_type = file_types.detect(content.name, content.data)
    return extractor(file_type.extractor).extract(content, file_type, limits, pages)


def check_size(content: Content, limits: ExtractLimits) -> None:
    """Raise DocumentTooLarge for more bytes than the type may have."""
    if len(content.data) <= limits.file_bytes:
        return
    file_type = file_types.detect(content.name, content.data)
    if file_type.extractor not in file_types.READ_IN_PART or len(content.data) > limits.text_bytes:
        raise DocumentTooLarge(
            f"the file has {len(content.data):,} bytes; the limit is {limits.file_bytes:,}"
        )


class Reader(msgspec.Struct, frozen=True):
    """Facts about an extractor. ``positions``: chunks have line numbers, or numbers of ``position_unit``."""

    read: str
    positions: bool = True
    paged: bool = False
    extra: str | None = None


class Format(msgspec.Struct, frozen=True):
    """One line of the table."""

    name: str
    suffixes: tuple[str, ...]
    read: str
    page_unit: str | None
    """Name of a page, such as ``slide``; None: the whole file is one page."""
    position_unit: str | None
    extra: str | None
    """The extra that it needs."""


READERS: Mapping[str, Reader] = MappingProxyType(
    {
        "archive": Reader("its files, as documents below it, where this is asked for", positions=False),
        "code": Reader("unchanged, with the names of functions and classes"),
        "compressed": Reader("the file inside", positions=False),
        "doc": Reader("paragraphs and tables"),
        "docx": Reader("headings, lists, tables, headers, notes, comments and text boxes"),
        "epub": Reader("chapters in reading order", paged=True),
        "html": Reader("headings, lists, code and tables; no scripts, styles and hidden parts"),
        "image": Reader("text recognized by OCR", positions=False, paged=True),
        "json": Reader("unchanged; a single long line is broken into lines"),
        "mail": Reader("subject, people, date and text; attachments as documents below it", positions=False),
        "mailbox": Reader("each message", positions=False, paged=True),
        "markdown": Reader("unchanged; headings give the structure"),
        "notebook": Reader("Markdown cells, code and its output"),
        "opendocument": Reader("headings, lists, tables, notes and the cells of sheets"),
        "outlook": Reader(
            "subject, people, date and text; attachments as documents below it", positions=False
        ),
        "pdf": Reader(
            "the text layer, form fields and notes; OCR where there is none", positions=False, paged=True
        ),
        "ppt": Reader("the text of slides"),
        "pptx": Reader("the text of slides, tables, diagrams and notes"),
        "rows": Reader("unchanged, one record per line"),
        "rtf": Reader("paragraphs and tables"),
        "sheets": Reader("the cells of each sheet, as rows"),
        "subtitles": Reader("what is said, without times and styles"),
        "table": Reader("one line for each row, cells joined by a vertical bar"),
        "text": Reader("unchanged"),
        "xml": Reader("`element: text`, one line for each value; no entities"),
    }
)
"""Facts about each extractor, by name."""

NAMES: Mapping[str, str] = MappingProxyType(
    {
        "application/epub+zip": "EPUB book",
        "application/gzip": "Compressed file",
        "application/json": "JSON",
        "application/jsonl": "JSON lines",
        "application/mbox": "Mailbox",
        "application/msword": "Word 97",
        "application/pdf": "PDF",
        "application/rtf": "RTF",
        "application/vnd.ms-excel": "Excel 97",
        "application/vnd.ms-outlook": "Outlook message",
        "application/vnd.ms-powerpoint": "PowerPoint 97",
        "application/vnd.oasis.opendocument.presentation": "OpenDocument presentation",
        "application/vnd.oasis.opendocument.spreadsheet": "OpenDocument spreadsheet",
        "application/vnd.oasis.opendocument.text": "OpenDocument text",
        "application/vnd.openxmlformats-officedocument.presentationml.presentation": "PowerPoint",
        "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "Excel",
        "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "Word",
        "application/x-ipynb+json": "Jupyter notebook",
        "application/x-subrip": "Subtitles (SRT)",
        "application/x-tar": "tar archive",
        "application/xml": "XML",
        "application/zip": "ZIP archive",
        "image/bmp": "BMP picture",
        "image/gif": "GIF picture",
        "image/jpeg": "JPEG picture",
        "image/png": "PNG picture",
        "image/tiff": "TIFF picture",
        "image/webp": "WebP picture",
        "message/rfc822": "Mail",
        "text/asciidoc": "AsciiDoc",
        "text/csv": "CSV",
        "text/html": "HTML",
        "text/markdown": "Markdown",
        "text/plain": "Text",
        "text/tab-separated-values": "TSV",
        "text/toml": "TOML",
        "text/vtt": "Subtitles (WebVTT)",
        "text/x-ini": "INI and settings",
        "text/x-org": "Org",
        "text/x-rst": "reStructuredText",
        "text/yaml": "YAML",
    }
)
"""Usual names of types, by media type."""


_SHORT_PAGES = ("slide", "chapter")
"""Pages that say enough about a place; their chunks have no positions."""


def formats() -> list[Format]:
    """All formats but source code, by name."""
    found = (_format(file_type, suffixes) for file_type, suffixes in _types() if not file_type.language)
    return sorted(found, key=lambda one: one.name.lower())


class Language(msgspec.Struct, frozen=True):
    """A programming language. ``extra``: it is cut between definitions with this extra, else by lines."""

    name: str
    suffixes: tuple[str, ...]
    structured: bool
    extra: str | None


def languages() -> list[Language]:
    """All programming languages, by name."""
    found = (
        Language(
            name=file_type.language,
            suffixes=suffixes,
            structured=file_type.language in GRAMMARS,
            extra="grammars" if file_type.language in MORE_GRAMMARS else None,
        )
        for file_type, suffixes in _types()
        if file_type.language
    )
    return sorted(found, key=lambda one: (one.name, one.suffixes))


def _types() -> list[tuple[FileType, tuple[str, ...]]]:
    suffixes: dict[FileType, list[str]] = {}
    for suffix, file_type in BY_SUFFIX.items():
        suffixes.setdefault(file_type, []).append(suffix)
    return [(file_type, tuple(some)) for file_type, some in suffixes.items()]


def has_pages(file_type: FileType) -> bool:
    """Check whether files of a type have pages, or other numbered parts such as slides."""
    return READERS[file_type.extractor].paged or file_type.page_unit != "page"


def _format(file_type: FileType, suffixes: tuple[str, ...]) -> Format:
    reader = READERS[file_type.extractor]
    paged = has_pages(file_type)
    positions = reader.positions and file_type.page_unit not in _SHORT_PAGES
    return Format(
        name=NAMES[file_type.media_type],
        suffixes=suffixes,
        read=reader.read,
        page_unit=file_type.page_unit if paged else None,
        position_unit=file_type.position_unit if positions else None,
        extra=reader.extra,
    )
