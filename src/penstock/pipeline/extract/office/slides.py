"""PowerPoint presentations, since 2007 and of PowerPoint 97 to 2003: a page for each slide.

The newer ones have tables, diagrams, notes and comments, the older ones texts and notes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from penstock.errors import DocumentDamaged, DocumentEncrypted
from penstock.pipeline.extract.office.markdown_page import (
    END_OF_TABLE,
    Block,
    MarkdownPage,
    page_warnings,
    read_pages,
)
from penstock.pipeline.extract.office.package import (
    Attributes,
    Package,
    XmlHandler,
    container_properties,
    drawn_texts,
    no_text,
    opened_container,
    read_stream,
    refuse_encrypted_package,
)
from penstock.pipeline.extract.protocol import Content, ExtractedText, ExtractLimits, FileType, Page, Shape
from penstock.pipeline.extract.text import stated_title

_TITLES = frozenset(["title", "ctrTitle"])
_BULLETED = frozenset(["body", "obj", ""])
_NUMBERS = frozenset(["sldNum", "sldImg"])
_NOT_NOTES = frozenset(["sldNum", "sldImg", "hdr", "ftr", "dt"])


class PptxExtractor:
    """One page for each slide, in the order of the presentation. The title of a slide is a heading."""

    name = "pptx"
    version = "1"

    def extract(
        self, content: Content, file_type: FileType, limits: ExtractLimits, pages: range | None = None
    ) -> ExtractedText:
        package = Package(content.data, limits, "ppt/presentation.xml")
        slides = _slides(package)
        found = read_pages(
            len(slides), lambda number: _page(package, slides[number - 1], number, limits), limits, pages
        )
        if pages is None and not any(page.text or page.failure for page in found):
            package.refuse_if_pictures()
        return ExtractedText(
            pages=found,
            file_type=file_type,
            shape=Shape.MARKDOWN,
            page_count=len(slides),
            title=package.title or _first_title(found),
            warnings=page_warnings(found, "slide"),
            properties=package.properties,
        )


def _slides(package: Package) -> list[str | None]:
    """Parts of the slides in order; None for a missing one."""
    order = _SlideOrder()
    package.archive.parse(package.main, order)
    relations = package.relations(package.main)
    parts = [relations[one].part if one in relations else "" for one in order.ids]
    return [part if part in package.archive else None for part in parts]


def _first_title(pages: tuple[Page, ...]) -> str | None:
    first = pages[0].text.partition("\n")[0] if pages and pages[0].number == 1 else ""
    return stated_title(first.removeprefix("# ")) if first.startswith("# ") else None


def _page(package: Package, part: str | None, number: int, limits: ExtractLimits) -> Page:
    if part is None:
        raise DocumentDamaged("the slide is missing in the file")
    shapes = SlideShapes()
    package.archive.parse(part, shapes)
    page = MarkdownPage(limits)
    page.add(Block(" ".join(shapes.titles), level=1))
    page.add_all(shapes.blocks)
    relations = [one for one in package.relations(part).values() if one.part in package.archive]
    for relation in relations:
        if relation.kind in ("diagramData", "chart"):
            page.add_all(Block(text) for text in drawn_texts(package.archive, relation.part))
    for relation in relations:
        if relation.kind == "notesSlide":
            notes = SlideShapes(_NOT_NOTES)
            package.archive.parse(relation.part, notes)
            page.add_all(replace(block, quoted=True, marker="") for block in notes.blocks)
        elif relation.kind == "comments":
            page.add_all(Block(text, quoted=True) for text in drawn_texts(package.archive, relation.part))
    return page.page(number)


class _SlideOrder(XmlHandler):
    def __init__(self) -> None:
        self.ids: list[str] = []

    def start(self, name: str, attributes: Attributes) -> None:
        if name == "p:sldId":
            self.ids.append(attributes.get("r:id", ""))


class SlideShapes(XmlHandler):
    """Handler of a slide: titles, and blocks of other shapes."""

    def __init__(self, left_out: frozenset[str] = _NUMBERS) -> None:
        """``left_out``: placeholders without text of the author."""
        self.titles: list[str] = []
        self.blocks: list[Block] = []
        self._unwanted = left_out
        self._left_out = 0
        self._placeholder: str | None = None
        self._parts: list[str] = []
        self._level = 0
        self._bullet: str | None = None
        self._number = 0
        self._in_text = False
        self._row: list[list[str]] | None = None
        self._tables = 0

    def start(self, name: str, attributes: Attributes) -> None:
        if self._left_out or name == "mc:Fallback":
            self._left_out += 1
        elif name == "a:t":
            self._in_text = True
        elif name == "a:br":
            self._parts.append("\n")
        elif name in ("p:sp", "p:graphicFrame", "p:cxnSp"):
            self._placeholder = None
            self._number = 0
        elif name == "p:ph":
            self._placeholder = attributes.get("type", "")
        elif name == "a:tbl":
            self._tables += 1
        elif name == "a:tr" and self._tables == 1:
            self._row = []
        elif name == "a:tc" and self._row is not None and self._tables == 1:
            self._row.append([])
        else:
            self._start_in_paragraph(name, attributes)

    def _start_in_paragraph(self, name: str, attributes: Attributes) -> None:
        if name == "a:p":
            self._level, self._bullet = 0, None
        elif name == "a:pPr":
            level = attributes.get("lvl", "0")
            self._level = int(level) if level in "012345678" and level else 0
        elif name == "a:buNone":
            self._bullet = ""
        elif name == "a:buChar":
            self._bullet = "-"
        elif name == "a:buAutoNum":
            self._bullet = "1."

    def end(self, name: str) -> None:
        if self._left_out:
            self._left_out -= 1
        elif name == "a:t":
            self._in_text = False
        elif name == "a:p":
            self._end_paragraph("".join(self._parts))
            self._parts.clear()
        elif name == "a:tr" and self._row is not None and self._tables == 1:
            self.blocks.append(Block("", cells=tuple(map(" ".join, self._row))))
            self._row = None
        elif name == "a:tbl":
            self._tables -= 1
            self.blocks.append(END_OF_TABLE)

    def text(self, data: str) -> None:
        if self._in_text and not self._left_out:
            self._parts.append(data)

    def _end_paragraph(self, text: str) -> None:
        if not text.strip() or self._placeholder in self._unwanted:
            return
        if self._row:
            self._row[-1].append(text)
        elif self._placeholder in _TITLES:
            self.titles.append(text)
        else:
            self.blocks.append(Block(text, marker=self._marker(), depth=self._level))

    def _marker(self) -> str:
        if self._bullet is None:
            # The master slide gives bullets to the texts of its placeholders.
            return "-" if self._placeholder in _BULLETED else ""
        if self._bullet == "1.":
            self._number += 1
            return f"{self._number}."
        return self._bullet


_DOCUMENT, _SLIDE_ATOM, _SLIDE_PERSIST = 1000, 1007, 1011
_TEXT_HEADER, _TEXT_CHARS, _TEXT_BYTES = 3999, 4000, 4008
_SLIDE_LIST, _USER_EDIT, _PERSIST_DIRECTORY = 4080, 4085, 6002
_SLIDES, _NOTES = 0, 2
"""Instances of the lists; 1 is that of the master slides, which hold no text of the author."""
_CONTAINER = 0xF
_USER_EDIT_START = struct.pack("<HHI", 0, _USER_EDIT, 28)
_ENCRYPTED = 0xF3D1C4DF
_TITLE_PLACES, _BODIES = (0, 6), (1, 5, 7, 8)
_NO_HEADER = 4


class PptExtractor:
    """PowerPoint 97 to 2003. The title of a slide is a heading; notes follow the text."""

    name = "ppt"
    version = "1"

    def extract(
        self, content: Content, file_type: FileType, limits: ExtractLimits, pages: range | None = None
    ) -> ExtractedText:
        refuse_encrypted_package(content.data)
        with opened_container(content.data) as container:
            records = read_stream(container, "PowerPoint Document")
            user = read_stream(container, "Current User")
            pictures = container.exists("Pictures")
            title, properties = container_properties(container)
        if records is None or user is None or len(user) < 20:
            raise DocumentDamaged("the container holds no PowerPoint presentation")
        if int.from_bytes(user[12:16], "little") == _ENCRYPTED:
            raise DocumentEncrypted("the presentation is encrypted and opens only with a password")
        presentation = _Presentation(records, int.from_bytes(user[16:20], "little"))
        slides = presentation.slides
        found = read_pages(
            len(slides), lambda number: presentation.page(slides[number - 1], number, limits), limits, pages
        )
        if pictures and pages is None and not any(page.text or page.failure for page in found):
            raise no_text()
        return ExtractedText(
            pages=found,
            file_type=file_type,
            shape=Shape.MARKDOWN,
            page_count=len(slides),
            title=title or _first_title(found),
            properties=properties,
        )


class _Record(msgspec.Struct, frozen=True):
    kind: int
    instance: int
    start: int
    end: int
    is_container: bool


class _Text(msgspec.Struct, frozen=True):
    kind: int
    text: str


class _Slide(msgspec.Struct, frozen=True):
    reference: int
    identifier: int
    outline: list[_Text]


class _Presentation:
    def __init__(self, data: bytes, edit: int) -> None:
        self._data = data
        self._places: dict[int, int] = {}
        document = self._read_edits(edit)
        lists = self._lists(self._places.get(document, -1))
        self.slides = lists.get(_SLIDES, [])
        self._notes = {one.identifier: one for one in lists.get(_NOTES, [])}

    def _read_edits(self, place: int) -> int:
        """Follow the edits from the newest to the oldest; returns the reference of the document."""
        document = 0
        seen: set[int] = set()
        if (named := self._record(place)) is None or named.kind != _USER_EDIT:
            # A program that was interrupted may have left the old place behind.
            place = self._data.rfind(_USER_EDIT_START)
        while place not in seen and (record := self._record(place)) and record.kind == _USER_EDIT:
            seen.add(place)
            if record.end - record.start < 20:
                break
            before, directory, reference = struct.unpack_from("<III", self._data, record.start + 8)
            document = document or reference
            if record.end - record.start >= 32:
                raise DocumentEncrypted("the presentation is encrypted and opens only with a password")
            self._read_directory(self._record(directory))
            place = before
        if not seen:
            raise DocumentDamaged("the presentation lacks the record of its last edit")
        return document

    def _read_directory(self, record: _Record | None) -> None:
        if record is None or record.kind != _PERSIST_DIRECTORY:
            raise DocumentDamaged("the presentation lacks the directory of its parts")
        count = (record.end - record.start) // 4
        numbers = struct.unpack_from(f"<{count}I", self._data, record.start)
        at = 0
        while at < count:
            first, length = numbers[at] & 0xFFFFF, numbers[at] >> 20
            for index, place in enumerate(numbers[at + 1 : at + 1 + length]):
                self._places.setdefault(first + index, place)
            at += 1 + length

    def _record(self, place: int) -> _Record | None:
        """The record at this place; None outside the stream."""
        if place < 0 or place + 8 > len(self._data):
            return None
        flags, kind, length = struct.unpack_from("<HHI", self._data, place)
        end = min(place + 8 + length, len(self._data))
        return _Record(kind, flags >> 4, place + 8, end, flags & 0xF == _CONTAINER)

    def _records(self, start: int, end: int) -> Iterator[_Record]:
        """All records in a range, those inside containers after them."""
        while start + 8 <= end and (record := self._record(start)) is not None:
            yield record
            start = record.start if record.is_container else record.end

    def _lists(self, place: int) -> dict[int, list[_Slide]]:
        """Slides and notes in order, with the texts of their outline."""
        document = self._record(place)
        if document is None or document.kind != _DOCUMENT:
            raise DocumentDamaged("the presentation lacks its main part")
        lists: dict[int, list[_Slide]] = {}
        current: list[_Slide] = []
        kind = _NO_HEADER
        until = 0
        for record in self._records(document.start, document.end):
            if record.kind == _SLIDE_LIST:
                current = lists.setdefault(record.instance, [])
                until = record.end
            elif record.start >= until:
                continue
            elif record.kind == _SLIDE_PERSIST and record.end - record.start >= 16:
                reference, _, _, identifier = struct.unpack_from("<IIII", self._data, record.start)
                current.append(_Slide(reference, identifier, []))
            elif record.kind == _TEXT_HEADER:
                kind = self._data[record.start] if record.end > record.start else _NO_HEADER
            elif record.kind in (_TEXT_CHARS, _TEXT_BYTES) and current:
                current[-1].outline.append(_Text(kind, self._text(record)))
        return lists

    def _text(self, record: _Record) -> str:
        data = self._data[record.start : record.end]
        return data.decode("utf-16-le" if record.kind == _TEXT_CHARS else "latin-1", "replace")

    def page(self, slide: _Slide, number: int, limits: ExtractLimits) -> Page:
        record = self._record(self._places.get(slide.reference, -1))
        if record is None:
            raise DocumentDamaged("the slide is missing in the file")
        texts = slide.outline + list(self._texts(record))
        page = MarkdownPage(limits)
        titles = [each.text for each in texts if each.kind in _TITLE_PLACES]
        page.add(Block(" ".join(titles).replace("\r", " "), level=1))
        for each in texts:
            if each.kind not in _TITLE_PLACES:
                page.add_all(_blocks(each.text, "-" if each.kind in _BODIES else ""))
        for text in self._notes_of(record):
            page.add_all(replace(block, quoted=True) for block in _blocks(text, ""))
        return page.page(number)

    def _texts(self, container: _Record) -> Iterator[_Text]:
        kind = _NO_HEADER
        for record in self._records(container.start, container.end):
            if record.kind == _TEXT_HEADER and record.end > record.start:
                kind = self._data[record.start]
            elif record.kind in (_TEXT_CHARS, _TEXT_BYTES):
                yield _Text(kind, self._text(record))

    def _notes_of(self, slide: _Record) -> list[str]:
        for record in self._records(slide.start, slide.end):
            if record.kind == _SLIDE_ATOM and record.end - record.start >= 20:
                identifier = int.from_bytes(self._data[record.start + 16 : record.start + 20], "little")
                note = self._notes.get(identifier)
                place = self._places.get(note.reference, -1) if note is not None else -1
                container = self._record(place)
                return [each.text for each in self._texts(container)] if container else []
        return []


def _blocks(text: str, marker: str) -> Iterator[Block]:
    for line in text.split("\r"):
        yield Block(line.replace("\x0b", "\n"), marker=marker)
