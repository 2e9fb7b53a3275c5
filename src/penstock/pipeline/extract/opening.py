"""Which extractor reads which type, and the one call that does it."""

from __future__ import annotations

from penstock.errors import DocumentTooLarge
from penstock.pipeline.extract import kinds
from penstock.pipeline.extract.decoding import SNIFFED
from penstock.pipeline.extract.protocol import Content, Extracted, Extractor, Limits
from penstock.pipeline.extract.text import TextExtractor

BOXED = frozenset(["pdf", "office"])
"""Extractors whose libraries may crash, hang or eat the memory: they run in a child process."""


def extractor(name: str) -> Extractor:
    """The extractor a ``Kind`` names. Its library is imported at the first file."""
    return TextExtractor(name)


def extract(content: Content, limits: Limits | None = None, *, pages: range | None = None) -> Extracted:
    """The pages of a file, read in this process whatever its type; ``boxed.Box.extract`` is the safe way.

    Raises an ``UnreadableDocument`` that says why there are none.
    """
    limits = limits or Limits()
    if len(content.data) > limits.file_bytes:
        raise DocumentTooLarge(
            f"the file has {len(content.data):,} bytes; the limit is {limits.file_bytes:,}"
        )
    kind = kinds.detect(content.name, content.data[:SNIFFED])
    return extractor(kind.extractor).extract(content, kind, limits, pages)
