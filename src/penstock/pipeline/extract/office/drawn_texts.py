"""Texts of drawings and comments: diagrams, charts and shapes, by the paragraphs in them."""

from __future__ import annotations

from penstock.pipeline.extract.office.archive import Archive
from penstock.pipeline.extract.office.xml_events import Attributes

_TEXTS = frozenset(["a:t", "p:text", "tc:text"])
"""Runs of drawings, and comments of presentations and sheets."""


def texts(archive: Archive, part: str) -> list[str]:
    """Paragraphs of a drawing, and the names in a chart: its titles, series and categories."""
    handler = _DrawingTexts()
    archive.parse(part, handler)
    return handler.found


class _DrawingTexts:
    def __init__(self) -> None:
        self.found: list[str] = []
        self._parts: list[str] = []
        self._left_out = 0
        self._in_text = False
        self._names = 0
        self._seen_names: set[str] = set()

    def start(self, name: str, attributes: Attributes) -> None:  # noqa: ARG002
        if self._left_out or name == "mc:Fallback":
            self._left_out += 1
        elif name in _TEXTS or (name == "c:v" and self._names):
            self._in_text = True
        elif name == "a:br":
            self._parts.append("\n")
        elif name == "c:strCache":
            self._names += 1

    def end(self, name: str) -> None:
        if self._left_out:
            self._left_out -= 1
        elif name == "a:t":
            self._in_text = False
        elif name in ("a:p", "p:text", "tc:text"):
            self._in_text = False
            self._flush()
        elif name == "c:v" and self._names:
            self._in_text = False
            text = "".join(self._parts)
            if text in self._seen_names:
                self._parts.clear()
            self._seen_names.add(text)
            self._flush()
        elif name == "c:strCache":
            self._names -= 1

    def text(self, data: str) -> None:
        if self._in_text and not self._left_out:
            self._parts.append(data)

    def _flush(self) -> None:
        text = "".join(self._parts)
        self._parts.clear()
        if text.strip():
            self.found.append(text)
