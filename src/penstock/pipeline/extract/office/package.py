"""Containers of office documents, read in memory and within limits, and what all formats in them share.

``Archive`` has the parts of a ZIP archive and parses their XML. ``Package`` is a document of Office Open
XML: parts, the relations between them, properties, texts of drawings. Documents of Office 97 to 2003 are
OLE containers.
"""

from __future__ import annotations

import datetime
import io
import posixpath
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from xml.parsers import expat

import msgspec

from penstock.errors import DocumentDamaged, DocumentEncrypted, DocumentTooLarge, NoText, UnreadableDocument
from penstock.pipeline.extract.protocol import ExtractLimits, Properties
from penstock.pipeline.extract.text import one_line, stated_date, stated_title
from penstock.vocabulary import how_many

if TYPE_CHECKING:
    from olefile import OleFileIO


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


class XmlHandler:
    """Receiver of the events of one document. Names are ``prefix:name``, or ``name`` in other namespaces."""

    elements_read: frozenset[str] | None = None
    """Elements whose attributes are usable; None: those of all. Leaving some out saves time."""

    def start(self, name: str, attributes: Attributes) -> None: ...

    def end(self, name: str) -> None: ...

    def text(self, data: str) -> None: ...


class _Parser:
    """XML as a stream of events, without a tree and without recursion.

    A document type is refused, so nothing can be expanded and no other file is named. The depth is limited.
    """

    def __init__(self, handler: XmlHandler, part: str, outer_doctype: bool) -> None:
        self._handler = handler
        self._outer_doctype = outer_doctype
        self._part = part
        self._read = handler.elements_read
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


MAX_MEMBERS = 10_000
_UNPACKED = 4
"""Bytes that may be unpacked, as a multiple of the size limit of a file."""
_PIECE = 64 * 1024
_ENCRYPTED_MEMBER = 1
_DAMAGE = (zipfile.BadZipFile, zlib.error, OSError, EOFError, ValueError, NotImplementedError, RuntimeError)


class Archive:
    """A ZIP archive of parts. Nothing is written to the disk, so names of parts are only keys.

    Sizes in the directory limit what is unpacked: more than that is never read from a part.
    """

    def __init__(self, data: bytes, limits: ExtractLimits) -> None:
        try:
            self._zip = zipfile.ZipFile(io.BytesIO(data))
            members = self._zip.infolist()
        except _DAMAGE as error:
            raise DocumentDamaged(f"the document is a damaged archive: {error}") from error
        if len(members) > MAX_MEMBERS:
            raise DocumentTooLarge(
                f"the document has {how_many(len(members), 'part')}; the limit is {MAX_MEMBERS:,}",
                remedy="Split the document, or save it again with fewer pictures and embedded objects.",
            )
        # Of members with the same name, the last counts, as in most programs.
        self._members = {_key(member.filename): member for member in members}
        self.has_duplicates = len(self._members) < len(members)
        self._most = _UNPACKED * limits.file_bytes
        self._left = self._most

    @property
    def names(self) -> list[str]:
        return [member.filename.replace("\\", "/") for member in self._members.values()]

    def __contains__(self, name: str) -> bool:
        return _key(name) in self._members

    def pieces(self, name: str) -> Iterator[bytes]:
        """Unpack a part piece by piece. The pieces grow with the part: a parser that begins a long token
        again with each piece still needs linear time."""
        member = self._members.get(_key(name))
        if member is None:
            raise DocumentDamaged(f"the document lacks its part {name!r}")
        if member.flag_bits & _ENCRYPTED_MEMBER:
            raise DocumentEncrypted("the document is encrypted and opens only with a password")
        self._charge(member.file_size)
        try:
            with self._zip.open(member) as source:
                read = 0
                while piece := source.read(max(_PIECE, read)):
                    read += len(piece)
                    yield piece
        except _DAMAGE as error:
            raise DocumentDamaged(f"the part {name!r} is damaged: {error}") from error

    def read(self, name: str) -> bytes:
        return b"".join(self.pieces(name))

    def check(self, name: str) -> None:
        """Unpack a part and discard the data: a check of the limits before another library reads the part."""
        for _ in self.pieces(name):
            pass

    def parse(self, name: str, handler: XmlHandler, *, outer_doctype: bool = False) -> None:
        """Parse a part. Raises DocumentDamaged if it is not well-formed.

        ``outer_doctype`` admits the name of a document type that another file defines, which is not read.
        """
        _Parser(handler, name, outer_doctype).parse(self.pieces(name))

    def parse_if_present(self, name: str, handler: XmlHandler) -> None:
        """Parse an optional part."""
        if name in self:
            self.parse(name, handler)

    def _charge(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise DocumentTooLarge(
                f"the document unpacks to more than {self._most:,} bytes, the limit for its parts"
            )


def _key(name: str) -> str:
    """Name of a part in the form of comparisons: without regard to case, with forward slashes."""
    return name.replace("\\", "/").lstrip("/").lower()


def resolve(part: str, target: str) -> str:
    """Name of the part behind the reference ``target`` in ``part``."""
    target = target.partition("#")[0]
    if target.startswith("/"):
        return target.lstrip("/")
    return posixpath.normpath(posixpath.join(posixpath.dirname(part), target)).lstrip("/")


OLE_MAGIC = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_ENCRYPTED = "EncryptedPackage".encode("utf-16-le")
AS_PDF = "Save the document as a PDF and index that: its pages are then read by OCR."


class PartRelation(msgspec.Struct, frozen=True):
    kind: str
    """Last part of the type: styles, image, slide."""
    part: str


class Package:
    """A document of Word, PowerPoint or Excel since 2007."""

    def __init__(self, data: bytes, limits: ExtractLimits, default_part: str) -> None:
        """``default_part``: name of the main part if no relation names it."""
        refuse_ole(data)
        self.archive = Archive(data, limits)
        roots = self.relations("")
        named = [one.part for one in roots.values() if one.kind == "officeDocument"]
        self.main = next((part for part in named if part in self.archive), default_part)
        folder = posixpath.dirname(default_part)
        if posixpath.dirname(self.main).lower() != folder or self.main not in self.archive:
            raise DocumentDamaged(f"the archive is another kind of document: it lacks {default_part!r}")
        about = _CoreProperties()
        cores = [one.part for one in roots.values() if one.kind == "core-properties"]
        self.archive.parse_if_present(next(iter(cores), "docProps/core.xml"), about)
        self.title = about.title
        self.properties = about.properties

    def relations(self, part: str) -> dict[str, PartRelation]:
        """Relations of a part by their ids, without those to other files."""
        folder, name = posixpath.split(part)
        found = _Relations(part)
        self.archive.parse_if_present(posixpath.join(folder, "_rels", f"{name}.rels"), found)
        return found.by_id

    def related(self, part: str, kind: str) -> list[str]:
        """Existing parts referred to by relations of this kind."""
        found = self.relations(part).values()
        return [one.part for one in found if one.kind == kind and one.part in self.archive]

    def refuse_if_pictures(self) -> None:
        """Raise NoText for a document of pictures without text."""
        if any("/media/" in name for name in self.archive.names):
            raise no_text()


def no_text() -> NoText:
    return NoText("the document shows pictures, but has no text", remedy=AS_PDF)


def refuse_ole(data: bytes) -> None:
    """Raise the reason why a container of Office 97 is not a document of a newer format."""
    if data.startswith(OLE_MAGIC[:4]):
        refuse_encrypted_package(data)
        raise DocumentDamaged("this is a document of an older format, in spite of its name")


def refuse_encrypted_package(data: bytes) -> None:
    """Raise DocumentEncrypted for an encrypted newer document in a container."""
    if _ENCRYPTED in data:
        raise DocumentEncrypted("the document is encrypted and opens only with a password")


class _Relations(XmlHandler):
    def __init__(self, part: str) -> None:
        self._part = part
        self.by_id: dict[str, PartRelation] = {}

    def start(self, name: str, attributes: Attributes) -> None:
        if name == "rel:Relationship" and attributes.get("TargetMode") != "External":
            kind = attributes.get("Type", "").rpartition("/")[2]
            part = resolve(self._part, attributes.get("Target", ""))
            self.by_id[attributes.get("Id", "")] = PartRelation(kind, part)


class PropertyReader(XmlHandler):
    """Texts of property elements: the first with text of each name."""

    def __init__(self, *names: str) -> None:
        self.found = dict.fromkeys(names, "")
        self._current = ""
        self._parts: list[str] = []

    def start(self, name: str, attributes: Attributes) -> None:
        if name in self.found and not self.found[name]:
            self._current = name
            self._parts.clear()

    def end(self, name: str) -> None:
        if name == self._current:
            self.found[name] = one_line("".join(self._parts))
            self._current = ""

    def text(self, data: str) -> None:
        if self._current:
            self._parts.append(data)


class _CoreProperties(PropertyReader):
    def __init__(self) -> None:
        super().__init__("dc:title", "dc:creator", "dc:language", "dcterms:created", "dcterms:modified")

    @property
    def title(self) -> str | None:
        return stated_title(self.found["dc:title"])

    @property
    def properties(self) -> Properties:
        return Properties(
            author=self.found["dc:creator"],
            created=stated_date(self.found["dcterms:created"]),
            modified=stated_date(self.found["dcterms:modified"]),
            language=self.found["dc:language"],
        )


_TEXTS = frozenset(["a:t", "p:text", "tc:text"])
"""Runs of drawings, and comments of presentations and sheets."""


def drawn_texts(archive: Archive, part: str) -> list[str]:
    """Paragraphs of a diagram, a shape or comments, and the names in a chart: titles, series and
    categories."""
    handler = _DrawingTexts()
    archive.parse(part, handler)
    return handler.found


class _DrawingTexts(XmlHandler):
    def __init__(self) -> None:
        self.found: list[str] = []
        self._parts: list[str] = []
        self._left_out = 0
        self._in_text = False
        self._names = 0
        self._seen_names: set[str] = set()

    def start(self, name: str, attributes: Attributes) -> None:
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


@contextmanager
def opened_container(data: bytes) -> Iterator[OleFileIO]:
    """Open a container of Office 97 to 2003, by olefile. Its errors inside become ``DocumentDamaged``."""
    import olefile

    try:
        with olefile.OleFileIO(io.BytesIO(data)) as container:
            yield container
    except (UnreadableDocument, MemoryError):
        raise
    except Exception as error:
        raise DocumentDamaged(f"the document is a damaged container: {str(error)[:300]}") from error


def read_stream(container: OleFileIO, name: str) -> bytes | None:
    """Read the stream of this name; None if missing."""
    if not container.exists(name):
        return None
    data: bytes = container.openstream(name).read()
    return data


def container_properties(container: OleFileIO) -> tuple[str | None, Properties]:
    """Title and other properties of a container."""
    if not container.exists("\x05SummaryInformation"):
        return None, Properties()
    try:
        about = container.get_metadata()
    except Exception:  # noqa: BLE001 - damaged properties do not make the text unreadable
        return None, Properties()
    encoding = f"cp{about.codepage & 0xFFFF}" if isinstance(about.codepage, int) else "cp1252"
    return stated_title(_text(about.title, encoding)), Properties(
        author=one_line(_text(about.author, encoding)),
        created=_date(about.create_time),
        modified=_date(about.last_saved_time),
    )


def _text(value: object, encoding: str) -> str:
    if not isinstance(value, bytes):
        return value if isinstance(value, str) else ""
    names = {"cp65001": "utf-8", "cp1200": "utf-16-le", "cp10000": "mac_roman"}
    try:
        text = value.decode(names.get(encoding, encoding), "replace")
    except LookupError:
        text = value.decode("cp1252", "replace")
    return text.partition("\0")[0]


def _date(value: object) -> str:
    if not isinstance(value, datetime.datetime) or value.year < 1970:
        return ""
    return value.replace(microsecond=0).isoformat() + "Z"
