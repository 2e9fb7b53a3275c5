"""Markdown extractor: sections below their documents, links, and the names in the prose."""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from urllib.parse import unquote

from penstock.catalog.entities import DOCUMENT, SECTION, Entity, Extraction, Relation
from penstock.pipeline.chunk import headings
from penstock.pipeline.graph import prose
from penstock.pipeline.graph.protocol import GraphChunk, GraphDocument, GraphExtractor

CONTAINS, LINKS = "contains", "links"
URL = "url"
HEADING_SEPARATOR = " > "

_FENCE = re.compile(r"^ {0,3}(```+|~~~+)")
_LINK = re.compile(r"(?<!!)\[([^\[\]]{0,300})\]\(\s*+<?([^\s()<>]{1,1000}+)>?[^()]{0,300}+\)")
_AUTOLINK = re.compile(r"<(https?://[^\s<>]{1,1000})>")
_REFERENCE = re.compile(r"^ {0,3}\[[^\[\]]{1,300}\]:\s+<?(\S{1,1000}?)>?(?:\s|$)")
_IMAGE = re.compile(r"!\[[^\[\]]{0,300}\]\([^()]{0,1000}\)")
_CODE = re.compile(r"`[^`\n]{1,300}`")
_MARKS = re.compile(r"[*_]{1,3}(?=\S)|(?<=\S)[*_]{1,3}|^\s*(?:[-*+]|\d+\.|>|#{1,6})\s+|\|")
_SCHEME = re.compile(r"[a-zA-Z][\w+.-]*:")


class MarkdownExtractor:
    """Headings and links as relations of the document; the rest is read as prose, or by another extractor."""

    name = "markdown"
    version = 2

    def __init__(self, reader: GraphExtractor | None = None) -> None:
        """``reader``: finds the entities of the text instead of the rules for prose."""
        self._reader = reader

    def extract(self, document: GraphDocument, wanted: Sequence[int]) -> list[Extraction]:
        return [self._chunk(document, at) for at in wanted]

    def _chunk(self, document: GraphDocument, at: int) -> Extraction:
        entities, links, plain = _structure(document, document.chunks[at])
        if self._reader is not None:
            (found,) = self._reader.extract(document, [at])
        else:
            found = prose.extract_text(plain)
        entities.update(found.entities)
        for source, _, target in links:
            entities.setdefault(source, 0)
            entities.setdefault(target, 0)
        related = [Relation(*parts, weight=float(count)) for parts, count in links.items()]
        return Extraction(entities, [*related, *found.relations])


def _structure(
    document: GraphDocument, chunk: GraphChunk
) -> tuple[Counter[Entity], Counter[tuple[Entity, str, Entity]], str]:
    """The document, the sections and links of a chunk, their relations, and the text without marks."""
    entities: Counter[Entity] = Counter({Entity(document.path, DOCUMENT): 1})
    links: Counter[tuple[Entity, str, Entity]] = Counter()
    plain: list[str] = []
    for place, line, heading in _lines(document, chunk):
        if heading is not None:
            entities[heading] += 1
            links[place, CONTAINS, heading] += 1
        else:
            plain.append(_plain(line))
        for target in _targets(line, document.path):
            entities[target] += 1
            links[heading or place, LINKS, target] += 1
    return entities, links, "\n".join(plain)


def _lines(document: GraphDocument, chunk: GraphChunk) -> Iterator[tuple[Entity, str, Entity | None]]:
    """The lines outside code blocks, each with the section around, and the section of a heading line."""
    above = [title for title in chunk.heading_path.split(HEADING_SEPARATOR) if title]
    first = chunk.text.lstrip().lstrip("#").lstrip()
    if above and first.startswith(above[-1]):
        # The path of a chunk that begins with a heading includes it.
        above.pop()
    open_sections = [(level, _section(document.path, title)) for level, title in enumerate(above, 1)]
    fence = ""
    lines = chunk.text.split("\n")
    for number, line in enumerate(lines):
        mark = _FENCE.match(line)
        if mark and (not fence or mark[1].startswith(fence)):
            fence = "" if fence else mark[1]
            continue
        if fence:
            continue
        level, title = _heading(line, lines[number + 1] if number + 1 < len(lines) else None)
        if not title:
            yield open_sections[-1][1] if open_sections else Entity(document.path, DOCUMENT), line, None
            continue
        while open_sections and open_sections[-1][0] >= level:
            open_sections.pop()
        section = _section(document.path, title)
        yield open_sections[-1][1] if open_sections else Entity(document.path, DOCUMENT), line, section
        open_sections.append((level, section))


def _heading(line: str, following: str | None) -> tuple[int, str]:
    found = headings.markdown(line, following) if line.strip() else None
    return (found[0], _plain(found[1])) if found else (0, "")


def _section(path: str, title: str) -> Entity:
    return Entity(f"{path}#{_plain(title)}", SECTION)


def _plain(line: str) -> str:
    """A line without marks, code and the targets of links."""
    line = _IMAGE.sub(" ", line)
    line = _LINK.sub(r"\1", line)
    line = _AUTOLINK.sub(" ", line)
    return _MARKS.sub(" ", _CODE.sub(" ", line)).strip()


def _targets(line: str, path: str) -> Iterator[Entity]:
    line = _CODE.sub(" ", line)
    found = [match[2] for match in _LINK.finditer(line)]
    found += [match[1] for match in _AUTOLINK.finditer(line)]
    found += [match[1] for match in _REFERENCE.finditer(line)]
    for target in found:
        target = target.partition("#")[0]
        if _SCHEME.match(target):
            if target.lower().startswith(("http:", "https:")):
                yield Entity(target, URL)
        elif target:
            target = unquote(target.partition("?")[0])
            joined = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
            yield Entity(joined, DOCUMENT)
