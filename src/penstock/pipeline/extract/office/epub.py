"""EPUB books: a page for each chapter, in the order of the spine, read as HTML."""

from __future__ import annotations

import re
from urllib.parse import unquote

from penstock.errors import DocumentDamaged, DocumentEncrypted
from penstock.pipeline.extract import file_types
from penstock.pipeline.extract.html import HtmlExtractor
from penstock.pipeline.extract.office.markdown_page import page_warnings, read_pages
from penstock.pipeline.extract.office.package import Archive, Attributes, XmlHandler, no_text, resolve
from penstock.pipeline.extract.protocol import (
    Content,
    ExtractedText,
    ExtractLimits,
    FileType,
    Page,
    Properties,
    Shape,
)
from penstock.pipeline.extract.text import one_line, stated_date, stated_title

_FONTS_ONLY = frozenset(["http://www.idpf.org/2008/embedding", "http://ns.adobe.com/pdf/enc#RC"])
"""Algorithms that hide fonts from other programs. The text stays readable."""
_MARKUP = frozenset(["application/xhtml+xml", "text/html", "text/x-oeb1-document", "application/xml", ""])
_MAX_AUTHORS = 20
_CLOSED = re.compile(rb"<([A-Za-z][\w:.-]*+)([^<>]*)/>")
_VOID = frozenset(b"area base br col embed hr img input link meta param source track wbr".split())


class EpubExtractor:
    """Title, authors, dates and language come from the package file."""

    name = "epub"
    version = "1"

    def extract(
        self, content: Content, file_type: FileType, limits: ExtractLimits, pages: range | None = None
    ) -> ExtractedText:
        archive = Archive(content.data, limits)
        book = _package(archive)
        encrypted = _Encryption()
        archive.parse_if_present("META-INF/encryption.xml", encrypted)
        if encrypted.parts & {part for part, _ in book.chapters}:
            raise DocumentEncrypted(
                "the book is protected against copying",
                remedy="Leave it out with --exclude, or index an unprotected copy.",
            )
        found = read_pages(
            len(book.chapters),
            lambda number: _page(archive, *book.chapters[number - 1], number, limits),
            limits,
            pages,
        )
        if pages is None and not any(page.text or page.failure for page in found) and book.has_pictures:
            raise no_text()
        return ExtractedText(
            pages=found,
            file_type=file_type,
            shape=Shape.MARKDOWN,
            page_count=len(book.chapters),
            title=book.title,
            warnings=page_warnings(found, "chapter"),
            properties=book.properties,
        )


def _package(archive: Archive) -> _Package:
    container = _Container()
    archive.parse_if_present("META-INF/container.xml", container)
    name = container.path or next((one for one in archive.names if one.endswith(".opf")), "")
    if name not in archive:
        raise DocumentDamaged("the archive is not an EPUB book: it lacks a package file")
    package = _Package(name)
    archive.parse(name, package, outer_doctype=True)
    if not package.chapters:
        raise DocumentDamaged("the book has no chapters")
    return package


def _page(archive: Archive, part: str, media_type: str, number: int, limits: ExtractLimits) -> Page:
    if media_type not in _MARKUP:
        return Page(number, "")
    markup = _CLOSED.sub(_with_end_tag, archive.read(part))
    read = HtmlExtractor().extract(Content("chapter.xhtml", markup), file_types.HTML, limits)
    page = read.pages[0]
    return Page(number, page.text, positions=page.positions, warnings=read.warnings)


def _with_end_tag(tag: re.Match[bytes]) -> bytes:
    """Give an end tag to a self-closed XML element: HTML allows this only for void elements."""
    name, rest = tag.group(1, 2)
    return tag[0] if name.lower() in _VOID else b"<%s%s></%s>" % (name, rest, name)


class _Container(XmlHandler):
    def __init__(self) -> None:
        self.path = ""

    def start(self, name: str, attributes: Attributes) -> None:
        if name == "ocf:rootfile" and not self.path:
            self.path = attributes.get("full-path", "")


class _Encryption(XmlHandler):
    """Encrypted parts, except obfuscated fonts."""

    def __init__(self) -> None:
        self.parts: set[str] = set()
        self._algorithm = ""

    def start(self, name: str, attributes: Attributes) -> None:
        if name == "enc:EncryptionMethod":
            self._algorithm = attributes.get("Algorithm", "")
        elif name == "enc:CipherReference" and self._algorithm not in _FONTS_ONLY:
            self.parts.add(unquote(attributes.get("URI", "")).lstrip("/"))


class _Package(XmlHandler):
    """Handler of the package file: parts, reading order, and metadata of the book."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._items: dict[str, tuple[str, str]] = {}
        self._order: list[str] = []
        self._current = ""
        self._parts: list[str] = []
        self._facts: dict[str, list[str]] = {}

    def start(self, name: str, attributes: Attributes) -> None:
        if name == "opf:item":
            part = resolve(self._name, unquote(attributes.get("href", "")))
            self._items[attributes.get("id", "")] = part, attributes.get("media-type", "")
        elif name == "opf:itemref":
            self._order.append(attributes.get("idref", ""))
        elif name.startswith("dc:"):
            self._current = name
            event = attributes.get("opf:event", "")
            if event:
                self._current = f"{name} {event}"
        elif name == "opf:meta" and attributes.get("property") == "dcterms:modified":
            self._current = "modified"
        self._parts.clear()

    def end(self, name: str) -> None:
        text = one_line("".join(self._parts)) if self._current else ""
        if text:
            known = self._facts.setdefault(self._current, [])
            if len(known) < _MAX_AUTHORS:
                known.append(text)
        self._current = ""

    def text(self, data: str) -> None:
        if self._current:
            self._parts.append(data)

    def _fact(self, *names: str) -> str:
        return next((self._facts[name][0] for name in names if name in self._facts), "")

    @property
    def chapters(self) -> list[tuple[str, str]]:
        """Part and media type of each chapter."""
        return [self._items[one] for one in self._order if one in self._items]

    @property
    def has_pictures(self) -> bool:
        return any(media_type.startswith("image/") for _, media_type in self._items.values())

    @property
    def title(self) -> str | None:
        return stated_title(self._fact("dc:title"))

    @property
    def properties(self) -> Properties:
        return Properties(
            author=one_line(", ".join(self._facts.get("dc:creator", []))),
            created=stated_date(self._fact("dc:date", "dc:date publication", "dc:date creation")),
            modified=stated_date(self._fact("modified", "dc:date modification")),
            language=self._fact("dc:language"),
        )
