"""The extractor for each file type, and extraction in this process."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping
from types import MappingProxyType

from penstock.errors import DocumentTooLarge
from penstock.pipeline.extract import file_types
from penstock.pipeline.extract.file_types import CLASSES, EXTRACTORS, added_formats
from penstock.pipeline.extract.protocol import Content, ExtractedText, ExtractLimits, Extractor

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
