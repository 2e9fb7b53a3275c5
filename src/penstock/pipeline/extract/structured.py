"""JSON, XML and notebooks as text: every value in order. Nothing is executed."""

from __future__ import annotations

import re
from itertools import accumulate
from typing import Any
from xml.parsers import expat

import msgspec

from penstock.errors import DocumentDamaged
from penstock.pipeline.extract.charset import clean, decode
from penstock.pipeline.extract.charset_labels import markup_label
from penstock.pipeline.extract.protocol import Content, ExtractedText, ExtractLimits, FileType, Shape
from penstock.pipeline.extract.text import fence_around, one_page

_LONG_LINE = 2000
_MAX_OUTPUT = 2000
_MAX_NAME = 200
"""Characters of a name, which is repeated with each of its values."""
_MAX_DEFAULTS = 1000
"""Characters of default attributes that a document type may declare."""
_MAX_INDENT = 100
"""Levels of JSON that are indented. Deeper lines would begin with too many spaces."""
_TOKEN = re.compile(r'"(?:[^"\\]++|\\.)*+"?|([\[{\]},])', re.DOTALL)


class JsonExtractor:
    """JSON as written. A document on one long line is split into lines first."""

    name = "json"
    version = "2"

    def extract(
        self,
        content: Content,
        file_type: FileType,
        limits: ExtractLimits,
        pages: range | None = None,  # noqa: ARG002 - there is one page
    ) -> ExtractedText:
        decoded = decode(content.data)
        text = clean(decoded.text)
        kept = True
        if text.find("\n", 0, _LONG_LINE) < 0 and len(text) > _LONG_LINE:
            try:
                text = _with_lines(text)
                kept = False
            except (msgspec.DecodeError, RecursionError):
                kept = True  # not JSON, or nested too deeply: kept as text
        return one_page(text, file_type, limits, shape=Shape.PROSE, line_numbers=kept, decoded=decoded)


def _with_lines(text: str) -> str:
    """One value per line, indented unless the nesting is too deep."""
    if text.count("[") + text.count("{") <= _MAX_INDENT or _depth(text) <= _MAX_INDENT:
        return msgspec.json.format(text, indent=1)
    # Still formatted by the library, so that invalid JSON is refused.
    compact = msgspec.json.format(text, indent=-1)
    return _TOKEN.sub(lambda token: token[0] + "\n" if token[1] else token[0], compact)


def _depth(text: str) -> int:
    steps = {"[": 1, "{": 1, "]": -1, "}": -1}
    return max(accumulate(steps.get(token, 0) for token in _TOKEN.findall(text)), default=0)


class NotebookExtractor:
    """Notebook cells as Markdown; code and output in fences."""

    name = "notebook"
    version = "2"

    def extract(
        self,
        content: Content,
        file_type: FileType,
        limits: ExtractLimits,
        pages: range | None = None,  # noqa: ARG002 - there is one page
    ) -> ExtractedText:
        decoded = decode(content.data)
        try:
            notebook = msgspec.json.decode(clean(decoded.text))
            cells = notebook["cells"] if "cells" in notebook else notebook["worksheets"][0]["cells"]
            language = notebook.get("metadata", {}).get("language_info", {}).get("name", "")
            name = str(language)
            shown = name[:_MAX_NAME]
            text = "\n\n".join(part for cell in cells for part in _cell(cell, shown) if part.strip())
        except (msgspec.DecodeError, RecursionError, LookupError, TypeError, AttributeError) as error:
            raise DocumentDamaged(f"this is not a notebook: {error}") from error
        warnings = (_cut("the name of the language"),) if len(name) > _MAX_NAME else ()
        return one_page(
            clean(text), file_type, limits, shape=Shape.MARKDOWN, decoded=decoded, warnings=warnings
        )


def _cut(what: str) -> str:
    return f"{what} is cut after {_MAX_NAME} characters"


def _cell(cell: dict[str, Any], language: str) -> list[str]:
    source = _joined(cell.get("source", cell.get("input", "")))
    if cell.get("cell_type") != "code":
        return [source]
    printed = [
        _joined(output.get("text") or output.get("data", {}).get("text/plain", ""))[:_MAX_OUTPUT]
        for output in cell.get("outputs", [])
    ]
    return [_fenced(source, language), *(_fenced(text, "") for text in printed)]


def _joined(lines: object) -> str:
    return "".join(map(str, lines)) if isinstance(lines, list) else str(lines)


def _fenced(text: str, language: str) -> str:
    if not text.strip():
        return ""
    fence = fence_around(text)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


class XmlExtractor:
    """XML as one line per value, ``element: text``, with a blank line between the children of the root.

    Entities that a document declares are not expanded, and no other file is read.
    """

    name = "xml"
    version = "2"

    def extract(
        self,
        content: Content,
        file_type: FileType,
        limits: ExtractLimits,
        pages: range | None = None,  # noqa: ARG002 - there is one page
    ) -> ExtractedText:
        decoded = decode(content.data, markup_label)
        text = clean(decoded.text)
        reader = _XmlLines()
        try:
            lines = reader.read(text)
        except (expat.ExpatError, _Refused) as error:
            return one_page(
                text,
                file_type,
                limits,
                shape=Shape.PROSE,
                line_numbers=True,
                decoded=decoded,
                warnings=(f"kept as written, not well-formed XML: {error}",),
            )
        return one_page(
            "\n".join(lines),
            file_type,
            limits,
            shape=Shape.PROSE,
            decoded=decoded,
            warnings=(_cut("the name of an element"),) if reader.long_names else (),
        )


class _Refused(Exception):
    """The document declares entities or long defaults, which can expand a short text without end."""


class _XmlLines:
    def __init__(self) -> None:
        self._lines: list[str] = []
        self._names: list[str] = []
        self._text: list[str] = []
        self._defaults = 0
        self.long_names = False

    def read(self, text: str) -> list[str]:
        parser = expat.ParserCreate("utf-8")
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text.append
        parser.EntityDeclHandler = self._refuse
        parser.AttlistDeclHandler = self._default
        parser.Parse(text.encode("utf-8"), True)
        return self._lines

    def _refuse(self, name: str, *_: object) -> None:
        raise _Refused(f"it defines the entity {name!r}")

    def _default(self, _: str, __: str, ___: str, value: str | None, ____: int) -> None:
        self._defaults += len(value) if value else 0
        if self._defaults > _MAX_DEFAULTS:
            raise _Refused(f"it gives attributes of more than {_MAX_DEFAULTS:,} characters to elements")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._flush()
        if len(name) > _MAX_NAME:
            name = name[:_MAX_NAME] + "…"
            self.long_names = True
        if len(self._names) == 1 and self._lines:
            self._lines.append("")
        self._names.append(name)
        self._lines += [f"{name} {key}: {' '.join(value.split())}" for key, value in attributes.items()]

    def _end(self, _: str) -> None:
        self._flush()
        self._names.pop()

    def _flush(self) -> None:
        text = " ".join("".join(self._text).split())
        self._text.clear()
        if text and self._names:
            self._lines.append(f"{self._names[-1]}: {text}")
