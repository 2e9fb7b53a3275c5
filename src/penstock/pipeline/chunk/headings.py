"""Heading finders for Markdown, reStructuredText, AsciiDoc, Org, settings and tables."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from penstock.pipeline.chunk.blocks import HeadingFinder
from penstock.pipeline.extract.protocol import Shape

_ATX = re.compile(r" {0,3}(#{1,6})(?=[ \t]|$)")
_SETEXT = re.compile(r" {0,3}(=+|-{2,})[ \t]*$")
_LIST_OR_QUOTE = re.compile(r"[ \t]*(?:[-*+>|]|\d+[.)])[ \t]")


def markdown(line: str, following: str | None) -> tuple[int, str, int] | None:
    if line.lstrip(" ").startswith("#"):
        found = _ATX.match(line)
        if found:
            return len(found[1]), _without_closing(line[found.end() :].strip(" \t")), 1
    if following is not None and following.startswith(("=", "-", " ")):
        underline = _SETEXT.match(following)
        if underline and not _LIST_OR_QUOTE.match(line) and "|" not in line:
            return (1 if underline[1][0] == "=" else 2), line.strip(), 2
    return None


def _without_closing(title: str) -> str:
    """Remove the closing hash signs of a heading. Without a space before them they belong to the title."""
    shorter = title.rstrip("#")
    return shorter.rstrip(" \t") if shorter.endswith((" ", "\t")) else title


_UNDERLINE = re.compile(r"([=\-~^\"'`#*+:.<>_])\1+[ \t]*$")
_RST_LEVELS = {mark: level for level, mark in enumerate("=-~^\"'", 1)}
_ASCIIDOC = re.compile(r"(={1,6})[ \t]+(\S.*)$")
_ORG = re.compile(r"(\*{1,8})[ \t]+(\S.*)$")


def rst(line: str, following: str | None) -> tuple[int, str, int] | None:
    """A line with an underline. Each text may assign marks to levels; this is the usual assignment."""
    if following is None or line[0].isspace():
        return None
    underline = _UNDERLINE.match(following)
    title = line.rstrip()
    if underline is None or len(following.rstrip()) < len(title) or _UNDERLINE.match(title):
        return None
    return _RST_LEVELS.get(underline[1], 6), title, 2


def asciidoc(line: str, _: str | None) -> tuple[int, str, int] | None:
    found = _ASCIIDOC.match(line)
    return (len(found[1]), found[2].rstrip(), 1) if found else None


def org(line: str, _: str | None) -> tuple[int, str, int] | None:
    found = _ORG.match(line)
    return (min(len(found[1]), 6), found[2].rstrip(), 1) if found else None


_SECTION = re.compile(r"""\[{1,2}[ \t]*([\w."'][\w."' /:@+-]*?)[ \t]*\]{1,2}[ \t]*(?:[#;].*)?$""")
_TOP_KEY = re.compile(r"""(["']?[A-Za-z_][\w./ -]*["']?):[ \t]*(?:#.*)?$""")


def sections(line: str, following: str | None) -> tuple[int, str, int] | None:
    """A ``[section]``, or a top-level key with the value on the lines below."""
    if line[0] == "[":
        found = _SECTION.match(line)
        return (1, found[1], 1) if found else None
    if following is None or not following.startswith((" ", "\t", "-")):
        return None
    found = _TOP_KEY.match(line)
    return (1, found[1].strip("\"'"), 1) if found else None


def header(line: str, _: str | None) -> tuple[int, str, int]:
    """The first row of a table, above all others."""
    return 1, line.strip(), 1


FINDERS: Mapping[Shape, HeadingFinder] = MappingProxyType(
    {
        Shape.MARKDOWN: markdown,
        Shape.RST: rst,
        Shape.ASCIIDOC: asciidoc,
        Shape.ORG: org,
        Shape.SECTIONS: sections,
        Shape.TABLE: header,
    }
)
