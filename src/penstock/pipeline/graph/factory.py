"""Extractors by type of file, and the fingerprint of what they find."""

from __future__ import annotations

import functools

from penstock.pipeline.extract import file_types
from penstock.pipeline.fingerprints import fingerprint
from penstock.pipeline.graph.protocol import GraphExtractor
from penstock.pipeline.graph.syntax import SYNTAX

_DATA = frozenset(["json", "rows", "table", "xml", "sheets"])
"""Data in rows and fields: names stand together there without being related."""
_PLAIN = frozenset(["text", "subtitles", "pdf"])


def extractor_for(name: str) -> GraphExtractor | None:
    """The extractor for a file of this name; None: no entities are looked for in such files."""
    file_type = file_types.by_name(name) or file_types.TEXT
    if file_type.language is not None:
        return _extractor("code") if file_type.language in SYNTAX else None
    if file_type.extractor in _DATA:
        return None
    return _extractor("prose" if file_type.extractor in _PLAIN else "markdown")


def language_of(name: str) -> str:
    """The language of a source file, else an empty text."""
    file_type = file_types.by_name(name)
    return (file_type.language or "") if file_type is not None else ""


def graph_fingerprint(name: str) -> str:
    """The fingerprint of the extractor for a file of this name; empty without one."""
    extractor = extractor_for(name)
    return _fingerprint(extractor.name, extractor.version) if extractor else ""


@functools.cache
def _fingerprint(name: str, version: int) -> str:
    return fingerprint({"graph": name, "version": version})


@functools.cache
def _extractor(name: str) -> GraphExtractor:
    # Imported here: their patterns are compiled at the import, and few processes need them.
    if name == "code":
        from penstock.pipeline.graph.code import CodeExtractor

        return CodeExtractor()
    if name == "markdown":
        from penstock.pipeline.graph.markdown import MarkdownExtractor

        return MarkdownExtractor()
    from penstock.pipeline.graph.prose import ProseExtractor

    return ProseExtractor()
