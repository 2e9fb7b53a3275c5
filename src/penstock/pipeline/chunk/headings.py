"""How headings look in each kind of marked up text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from penstock.pipeline.chunk.blocks import HeadingFinder, Line
from penstock.pipeline.extract.protocol import Shape

_ATX = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*$")
_SETEXT = re.compile(r" {0,3}(=+|-{2,})[ \t]*$")
_LIST_OR_QUOTE = re.compile(r"[ \t]*(?:[-*+>|]|\d+[.)])[ \t]")


def markdown(line: Line, following: Line | None) -> tuple[int, str, int] | None:
    if line.text.lstrip(" ").startswith("#"):
        found = _ATX.match(line.text)
        if found:
            return len(found[1]), found[2] or "", 1
    if following is not None and following.text.startswith(("=", "-", " ")):
        underline = _SETEXT.match(following.text)
        if underline and not _LIST_OR_QUOTE.match(line.text) and "|" not in line.text:
            return (1 if underline[1][0] == "=" else 2), line.text.strip(), 2
    return None


FINDERS: Mapping[Shape, HeadingFinder] = MappingProxyType({Shape.MARKDOWN: markdown})
