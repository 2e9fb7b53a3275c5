"""XML of office documents as a stream of events, without a tree and without recursion.

A document type is refused, so nothing can be expanded and no other file is named. The depth is limited.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol
from xml.parsers import expat

from penstock.errors import DocumentDamaged

MAX_DEPTH = 500
"""Elements inside each other. Documents of people have about 50."""

Attributes = dict[str, str]

_PREFIXES = {
    "http://schemas.openxmlformats.org/wordprocessingml/2006/main": "w",
    "http://purl.oclc.org/ooxml/wordprocessingml/main": "w",
    "http://schemas.openxmlformats.org/drawingml/2006/main": "a",
    "http://purl.oclc.org/ooxml/drawingml/main": "a",
    "http://schemas.openxmlformats.org/presentationml/2006/main": "p",
    "http://purl.oclc.org/ooxml/presentationml/main": "p",
    "http://schemas.openxmlformats.org/spreadsheetml/2006/main": "x",
    "http://purl.oclc.org/ooxml/spreadsheetml/main": "x",
    "http://schemas.microsoft.com/office/spreadsheetml/2018/threadedcomments": "tc",
    "http://schemas.openxmlformats.org/officeDocument/2006/relationships": "r",
    "http://purl.oclc.org/ooxml/officeDocument/relationships": "r",
    "http://schemas.openxmlformats.org/officeDocument/2006/math": "m",
    "http://purl.oclc.org/ooxml/officeDocument/math": "m",
    "http://schemas.openxmlformats.org/drawingml/2006/chart": "c",
    "http://purl.oclc.org/ooxml/drawingml/chart": "c",
    "http://schemas.openxmlformats.org/drawingml/2006/diagram": "dgm",
    "http://purl.oclc.org/ooxml/drawingml/diagram": "dgm",
    "http://schemas.openxmlformats.org/markup-compatibility/2006": "mc",
    "http://schemas.openxmlformats.org/package/2006/relationships": "rel",
    "http://schemas.openxmlformats.org/package/2006/metadata/core-properties": "cp",
    "http://purl.org/dc/elements/1.1/": "dc",
    "http://purl.org/dc/terms/": "dcterms",
    "http://www.w3.org/XML/1998/namespace": "xml",
    "urn:oasis:names:tc:opendocument:xmlns:office:1.0": "office",
    "urn:oasis:names:tc:opendocument:xmlns:text:1.0": "text",
    "urn:oasis:names:tc:opendocument:xmlns:table:1.0": "table",
    "urn:oasis:names:tc:opendocument:xmlns:drawing:1.0": "draw",
    "urn:oasis:names:tc:opendocument:xmlns:presentation:1.0": "presentation",
    "urn:oasis:names:tc:opendocument:xmlns:style:1.0": "style",
    "urn:oasis:names:tc:opendocument:xmlns:meta:1.0": "meta",
    "urn:oasis:names:tc:opendocument:xmlns:manifest:1.0": "manifest",
    "urn:oasis:names:tc:opendocument:container": "ocf",
    "urn:oasis:names:tc:opendocument:xmlns:container": "ocf",
    "http://www.idpf.org/2007/opf": "opf",
    "http://www.w3.org/2001/04/xmlenc#": "enc",
}
"""Short prefixes of namespaces. A strict document has other namespaces with the same elements."""


class XmlHandler(Protocol):
    """Receiver of the events of one document. Names are ``prefix:name``, or ``name`` in other namespaces.

    A handler with a set ``elements_read`` gets usable attributes for these elements only, which saves time.
    """

    def start(self, name: str, attributes: Attributes) -> None: ...

    def end(self, name: str) -> None: ...

    def text(self, data: str) -> None: ...


def parse_xml(
    pieces: Iterable[bytes], handler: XmlHandler, part: str, *, outer_doctype: bool = False
) -> None:
    """Parse the pieces of one XML document. Raises DocumentDamaged if it is not well-formed.

    ``outer_doctype`` admits the name of a document type that another file defines. That file is not read.
    """
    _Parser(handler, part, outer_doctype).parse(pieces)


class _Parser:
    def __init__(self, handler: XmlHandler, part: str, outer_doctype: bool) -> None:
        self._handler = handler
        self._outer_doctype = outer_doctype
        self._part = part
        self._read: frozenset[str] | None = getattr(handler, "elements_read", None)
        self._names: dict[str, str] = {}
        self._depth = 0
        self._expat = expat.ParserCreate(namespace_separator="}")
        self._expat.buffer_text = True
        self._expat.StartElementHandler = self._start
        self._expat.EndElementHandler = self._end
        self._expat.CharacterDataHandler = handler.text
        self._expat.StartDoctypeDeclHandler = self._refuse

    def parse(self, pieces: Iterable[bytes]) -> None:
        try:
            for piece in pieces:
                self._expat.Parse(piece, False)
            self._expat.Parse(b"", True)
        except (expat.ExpatError, ValueError, LookupError) as error:
            raise DocumentDamaged(f"the part {self._part!r} is not well-formed XML: {error}") from error

    def _start(self, name: str, attributes: Attributes) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise DocumentDamaged(
                f"the part {self._part!r} has more than {MAX_DEPTH} elements inside each other"
            )
        known = self._names
        short = known.get(name) or self._short(name)
        if attributes and (self._read is None or short in self._read):
            attributes = {known.get(key) or self._short(key): value for key, value in attributes.items()}
        self._handler.start(short, attributes)

    def _end(self, name: str) -> None:
        self._depth -= 1
        self._handler.end(self._names.get(name) or self._short(name))

    def _short(self, name: str) -> str:
        found = self._names.get(name)
        if found is None:
            space, _, local = name.rpartition("}")
            prefix = _PREFIXES.get(space)
            found = self._names[name] = f"{prefix}:{local}" if prefix else local
        return found

    def _refuse(self, _: str, __: str | None, ___: str | None, has_definitions: int) -> None:
        if self._outer_doctype and not has_definitions:
            return
        raise DocumentDamaged(
            f"the part {self._part!r} declares a document type, which office documents never have",
            remedy="The file is hostile or was not made by an office program. Leave it out with --exclude.",
        )
