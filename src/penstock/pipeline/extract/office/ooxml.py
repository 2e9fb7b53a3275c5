"""Packages of Office Open XML: parts, the relations between them, and the properties of the document."""

from __future__ import annotations

import posixpath

from penstock.errors import DocumentDamaged, DocumentEncrypted, NoText
from penstock.named_tuple import NamedTuple
from penstock.pipeline.extract.office.archive import Archive, resolve
from penstock.pipeline.extract.office.xml_events import Attributes
from penstock.pipeline.extract.protocol import ExtractLimits, Properties
from penstock.pipeline.extract.stated_values import one_line, stated_date, stated_title

OLE_MAGIC = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_ENCRYPTED = "EncryptedPackage".encode("utf-16-le")
AS_PDF = "Save the document as a PDF and index that: its pages are then read by OCR."


class PartRelation(NamedTuple):
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


class _Relations:
    def __init__(self, part: str) -> None:
        self._part = part
        self.by_id: dict[str, PartRelation] = {}

    def start(self, name: str, attributes: Attributes) -> None:
        if name == "rel:Relationship" and attributes.get("TargetMode") != "External":
            kind = attributes.get("Type", "").rpartition("/")[2]
            part = resolve(self._part, attributes.get("Target", ""))
            self.by_id[attributes.get("Id", "")] = PartRelation(kind, part)

    def end(self, name: str) -> None: ...

    def text(self, data: str) -> None: ...


class PropertyReader:
    """Texts of property elements: the first with text of each name."""

    def __init__(self, *names: str) -> None:
        self.found = dict.fromkeys(names, "")
        self._current = ""
        self._parts: list[str] = []

    def start(self, name: str, attributes: Attributes) -> None:  # noqa: ARG002
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
