"""JSON, XML and notebooks as text: every value there, in order, none of it run."""

from __future__ import annotations

import re
from typing import Any
from xml.parsers import expat

import msgspec

from penstock.pipeline.extract.decoding import clean, decode
from penstock.pipeline.extract.protocol import Content, Extracted, Kind, Limits, Shape
from penstock.pipeline.extract.text import decoding_warnings, one_page
from penstock.unreadable import DocumentDamaged

_LONG_LINE = 2000
_LONGEST_OUTPUT = 2000


class JsonExtractor:
    """As it is written; what stands on one long line is given lines first."""

    name = "json"
    version = "1"

    def extract(
        self,
        content: Content,
        kind: Kind,
        limits: Limits,
        pages: range | None = None,  # noqa: ARG002 - there is one page
    ) -> Extracted:
        decoded = decode(content.data)
        text = clean(decoded.text)
        kept = True
        if text.find("\n", 0, _LONG_LINE) < 0 and len(text) > _LONG_LINE:
            try:
                text = msgspec.json.format(text, indent=1)
                kept = False
            except (msgspec.DecodeError, RecursionError):
                kept = True  # not JSON after all, or too deep: text it is
        return one_page(
            text, kind, limits, shape=Shape.PROSE, line_numbers=kept, warnings=decoding_warnings(decoded)
        )


class NotebookExtractor:
    """Cells as Markdown; code and what it printed in fences."""

    name = "notebook"
    version = "1"

    def extract(
        self,
        content: Content,
        kind: Kind,
        limits: Limits,
        pages: range | None = None,  # noqa: ARG002 - there is one page
    ) -> Extracted:
        try:
            notebook = msgspec.json.decode(content.data)
            cells = notebook["cells"] if "cells" in notebook else notebook["worksheets"][0]["cells"]
            language = notebook.get("metadata", {}).get("language_info", {}).get("name", "")
            text = "\n\n".join(part for cell in cells for part in _cell(cell, str(language)) if part.strip())
        except (msgspec.DecodeError, RecursionError, LookupError, TypeError, AttributeError) as error:
            raise DocumentDamaged(f"this is not a notebook: {error}") from error
        return one_page(clean(text), kind, limits, shape=Shape.MARKDOWN)


def _cell(cell: dict[str, Any], language: str) -> list[str]:
    source = _joined(cell.get("source", cell.get("input", "")))
    if cell.get("cell_type") != "code":
        return [source]
    printed = [
        _joined(output.get("text") or output.get("data", {}).get("text/plain", ""))[:_LONGEST_OUTPUT]
        for output in cell.get("outputs", [])
    ]
    return [_fenced(source, language), *(_fenced(text, "") for text in printed)]


def _joined(lines: object) -> str:
    return "".join(map(str, lines)) if isinstance(lines, list) else str(lines)


def _fenced(text: str, language: str) -> str:
    if not text.strip():
        return ""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


class XmlExtractor:
    """One line a value, ``element: text``; a blank line between the children of the root.

    Entities a document defines for itself are not expanded, and nothing outside it is read.
    """

    name = "xml"
    version = "1"

    def extract(
        self,
        content: Content,
        kind: Kind,
        limits: Limits,
        pages: range | None = None,  # noqa: ARG002 - there is one page
    ) -> Extracted:
        declared = re.match(rb"""\s*<\?xml[^>]*?encoding\s*=\s*["']([\w:.-]+)""", content.data[:1024])
        decoded = decode(content.data, declared[1].decode("ascii") if declared else None)
        text = clean(decoded.text)
        warnings = decoding_warnings(decoded)
        try:
            lines = _XmlLines().read(text)
        except (expat.ExpatError, _Refused) as error:
            return one_page(
                text,
                kind,
                limits,
                shape=Shape.PROSE,
                line_numbers=True,
                warnings=(*warnings, f"kept as it is written, not well-formed XML: {error}"),
            )
        return one_page("\n".join(lines), kind, limits, shape=Shape.PROSE, warnings=warnings)


class _Refused(Exception):
    """The document defines entities of its own: the way to make a little text endless."""


class _XmlLines:
    def __init__(self) -> None:
        self._lines: list[str] = []
        self._names: list[str] = []
        self._text: list[str] = []

    def read(self, text: str) -> list[str]:
        parser = expat.ParserCreate("utf-8")
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text.append
        parser.EntityDeclHandler = self._refuse
        parser.Parse(text.encode("utf-8"), True)
        return self._lines

    def _refuse(self, name: str, *_: object) -> None:
        raise _Refused(f"it defines the entity {name!r}")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._flush()
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
