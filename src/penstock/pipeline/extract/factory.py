"""Which extractor reads which type, and the one call that does it."""

from __future__ import annotations

import importlib

from penstock.errors import DocumentTooLarge
from penstock.pipeline.extract import file_types
from penstock.pipeline.extract.charset import SNIFFED
from penstock.pipeline.extract.protocol import Content, ExtractedText, ExtractLimits, Extractor

BOXED = frozenset(["pdf", "office"])
"""Extractors whose libraries may crash, hang or eat the memory: they run in a child process."""


def extractor(name: str) -> Extractor:
    """The extractor a ``Kind`` names. Its library is imported at the first file."""
    module, maker = _ELSEWHERE.get(name, ("text", "TextExtractor"))
    loaded = importlib.import_module(f"penstock.pipeline.extract.{module}")
    made: Extractor = getattr(loaded, maker)(*(() if name in _ELSEWHERE else (name,)))
    return made


_ELSEWHERE = {
    "html": ("html", "HtmlExtractor"),
    "json": ("structured", "JsonExtractor"),
    "notebook": ("structured", "NotebookExtractor"),
    "office": ("office", "OfficeExtractor"),
    "pdf": ("pdf", "PdfExtractor"),
    "table": ("tables", "TableExtractor"),
    "xml": ("structured", "XmlExtractor"),
}

EXTRACTORS = ("text", "markdown", "code", "rows", *_ELSEWHERE)
"""Every name ``extractor`` takes."""


def extract(
    content: Content, limits: ExtractLimits | None = None, *, pages: range | None = None
) -> ExtractedText:
    """The pages of a file, read in this process whatever its type; ``boxed.Box.extract`` is the safe way.

    Raises an ``UnreadableDocument`` that says why there are none.
    """
    limits = limits or ExtractLimits()
    check_size(content, limits)
    kind = file_types.detect(content.name, content.data[:SNIFFED])
    return extractor(kind.extractor).extract(content, kind, limits, pages)


def check_size(content: Content, limits: ExtractLimits) -> None:
    if len(content.data) > limits.file_bytes:
        raise DocumentTooLarge(
            f"the file has {len(content.data):,} bytes; the limit is {limits.file_bytes:,}"
        )
