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


_UNDERLINE = re.compile(r"([=\-~^\"'`#*+:.<>_])\1+[ \t]*$")
_RST_LEVELS = {mark: level for level, mark in enumerate("=-~^\"'", 1)}
_ASCIIDOC = re.compile(r"(={1,6})[ \t]+(\S.*)$")
_ORG = re.compile(r"(\*{1,8})[ \t]+(\S.*)$")


def rst(line: Line, following: Line | None) -> tuple[int, str, int] | None:
    """A line and its underline. Which mark means which level is each text's choice; this is the usual one."""
    if following is None or line.text[0].isspace():
        return None
    underline = _UNDERLINE.match(following.text)
    title = line.text.rstrip()
    if underline is None or len(following.text.rstrip()) < len(title) or _UNDERLINE.match(title):
        return None
    return _RST_LEVELS.get(underline[1], 6), title, 2


def asciidoc(line: Line, _: Line | None) -> tuple[int, str, int] | None:
    found = _ASCIIDOC.match(line.text)
    return (len(found[1]), found[2].rstrip(), 1) if found else None


def org(line: Line, _: Line | None) -> tuple[int, str, int] | None:
    found = _ORG.match(line.text)
    return (min(len(found[1]), 6), found[2].rstrip(), 1) if found else None


FINDERS: Mapping[Shape, HeadingFinder] = MappingProxyType(
    {Shape.MARKDOWN: markdown, Shape.RST: rst, Shape.ASCIIDOC: asciidoc, Shape.ORG: org}
)
