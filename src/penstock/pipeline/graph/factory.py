"""Extractors by type of file, and the fingerprint of an extraction."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from penstock.pipeline.extract import file_types
from penstock.pipeline.graph.code import SYNTAX, CodeExtractor
from penstock.pipeline.graph.protocol import GraphExtractor
from penstock.strict_json import fingerprint

if TYPE_CHECKING:
    from penstock.pipeline.graph.llm import LlmExtractor

_CODE, _MARKDOWN, _PROSE = "code", "markdown", "prose"
_DATA = frozenset(["json", "rows", "table", "xml", "sheets"])
"""Data in rows and fields: names stand together there without being related."""
_PLAIN = frozenset(["text", "subtitles", "pdf"])


def extractor_for(name: str, llm: LlmExtractor | None = None) -> GraphExtractor | None:
    """The extractor for a file of this name; None: no entities are looked for in such files.

    ``llm`` reads prose instead of the rules for it. Code has rules that know better.
    """
    kind = _kind_of(name)
    if kind is None:
        return None
    if llm is None or kind == _CODE:
        return _extractor(kind)
    if kind == _PROSE:
        return llm
    from penstock.pipeline.graph.prose import MarkdownExtractor

    return MarkdownExtractor(llm)


def _kind_of(name: str) -> str | None:
    file_type = file_types.by_name(name) or file_types.TEXT
    if file_type.language is not None:
        return _CODE if file_type.language in SYNTAX else None
    if file_type.extractor in _DATA:
        return None
    return _PROSE if file_type.extractor in _PLAIN else _MARKDOWN


def language_of(name: str) -> str:
    """The language of a source file, else an empty text."""
    file_type = file_types.by_name(name)
    return (file_type.language or "") if file_type is not None else ""


def graph_fingerprint(name: str, llm: LlmExtractor | None = None) -> str:
    """The fingerprint of the extractor for a file of this name; empty without one."""
    kind = _kind_of(name)
    if kind is None:
        return ""
    return _fingerprint(kind, "" if llm is None or kind == _CODE else llm.fingerprint)


def fingerprints_here(llm: LlmExtractor | None = None) -> frozenset[str]:
    """The fingerprints of all extractors with these settings."""
    reader = llm.fingerprint if llm is not None else ""
    return frozenset([_fingerprint(_CODE, ""), _fingerprint(_PROSE, reader), _fingerprint(_MARKDOWN, reader)])


@functools.cache
def _fingerprint(kind: str, llm: str) -> str:
    if llm and kind == _PROSE:
        return llm
    parts: dict[str, object] = {"graph": kind, "version": _extractor(kind).version}
    return fingerprint(parts | {"llm": llm} if llm else parts)


@functools.cache
def _extractor(kind: str) -> GraphExtractor:
    if kind == _CODE:
        return CodeExtractor()
    # Imported here: the patterns for prose are compiled at the import, and few processes need them.
    from penstock.pipeline.graph.prose import MarkdownExtractor, ProseExtractor

    return MarkdownExtractor() if kind == _MARKDOWN else ProseExtractor()
