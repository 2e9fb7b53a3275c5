"""Word documents since 2007: paragraphs, lists, tables, notes, comments and text boxes as Markdown."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator

import msgspec
from msgspec.structs import replace

from penstock.pipeline.extract.office.markdown_page import (
    MAX_COLUMNS,
    Block,
    MarkdownPage,
    TableGrid,
    cell_text,
)
from penstock.pipeline.extract.office.package import Attributes, Package, XmlHandler, drawn_texts
from penstock.pipeline.extract.protocol import Content, ExtractedText, ExtractLimits, FileType, Page, Shape
from penstock.pipeline.extract.text import stated_title

_HEADING = re.compile(
    r"(?:heading|ü?berschrift|titre|titolo|t[íi]?tulo|kop|rubrik|overskrift|otsikko|nag[łl]?[óo]?wek|nadpis|"
    r"c[íi]msor|ba[şs]l[ıi]k|заголовок|επικεφαλ[ίι]δα|标题|標題|見出し|제목)\s*([1-9])",
    re.I,
)
"""Names of heading styles, in the languages of programs that translate them."""
_TITLE = frozenset(["title", "titel", "titulo", "título", "titolo", "titre", "название"])
_CODE = frozenset(
    [
        *["code", "code block", "codeblock", "code listing", "source code", "sourcecode", "program listing"],
        *["listing", "verbatim", "macro text", "html preformatted", "htmlpreformatted", "preformatted text"],
    ]
)
_BODY = 9
"""Outline level of text that is not a heading."""


class _Style(msgspec.Struct, frozen=True):
    """Format of a paragraph style. None: the base style decides."""

    level: int | None = None
    """Level of a heading from 1; 0 for other text."""
    number_id: str | None = None
    list_level: int | None = None
    code: bool | None = None
    title: bool = False

    def over(self, base: _Style) -> _Style:
        return _Style(
            base.level if self.level is None else self.level,
            base.number_id if self.number_id is None else self.number_id,
            base.list_level if self.list_level is None else self.list_level,
            base.code if self.code is None else self.code,
            self.title,
        )


class _Styles(XmlHandler):
    """Paragraph styles by id. Handler of the part ``styles.xml``."""

    elements_read = frozenset("w:style w:name w:basedOn w:outlineLvl w:numId w:ilvl".split())

    def __init__(self) -> None:
        self._own: dict[str, _Style] = {}
        self._bases: dict[str, str] = {}
        self._resolved: dict[str, _Style] = {}
        self._id = ""
        self.default = ""

    def start(self, name: str, attributes: Attributes) -> None:
        if name == "w:style":
            self._start_style(attributes)
        elif self._id and name in self.elements_read:
            self._note(name, attributes.get("w:val", ""))

    def _start_style(self, attributes: Attributes) -> None:
        self._id = attributes.get("w:styleId", "") if attributes.get("w:type") == "paragraph" else ""
        if self._id:
            self._own[self._id] = _Style()
            if attributes.get("w:default") in ("1", "true", "on"):
                self.default = self._id

    def _note(self, name: str, value: str) -> None:
        if name == "w:name":
            self._change(**_by_name(value))
        elif name == "w:basedOn":
            self._bases[self._id] = value
        elif name == "w:outlineLvl" and self._own[self._id].level is None:
            self._change(level=_outline_level(value))
        elif name == "w:numId":
            self._change(number_id=value)
        elif name == "w:ilvl":
            self._change(list_level=small_number(value))

    def end(self, name: str) -> None:
        if name == "w:style":
            self._id = ""

    def _change(self, **facts: object) -> None:
        self._own[self._id] = replace(self._own[self._id], **facts)

    def get(self, style_id: str) -> _Style:
        """Format by a style and the base styles. Each is looked up once, however long the chain."""
        if style_id not in self._own:
            return _Style(**_by_name(style_id))  # type: ignore[arg-type]
        chain: list[str] = []
        at = style_id
        while at in self._own and at not in self._resolved:
            self._resolved[at] = self._own[at]
            chain.append(at)
            at = self._bases.get(at, "")
        base = self._resolved.get(at, _Style())
        for one in reversed(chain):
            base = self._resolved[one] = self._own[one].over(base)
        return self._resolved.get(style_id, _Style())


def heading_by_name(name: str) -> int:
    """Heading level of a style, by name; 0 for other names."""
    heading = _HEADING.fullmatch(name.strip())
    return int(heading[1]) if heading else 0


def _by_name(name: str) -> dict[str, object]:
    level = heading_by_name(name)
    if level:
        return {"level": level}
    if name.lower() in _TITLE:
        return {"level": 1, "title": True}
    if name.lower() == "subtitle":
        return {"level": 2}
    return {"code": True} if name.lower() in _CODE else {}


def _outline_level(value: str) -> int | None:
    """Level of a heading from the outline level of a paragraph, where 9 is body text."""
    level = small_number(value)
    return None if level is None else (0 if level >= _BODY else level + 1)


def small_number(value: str) -> int | None:
    return int(value) if re.fullmatch(r"[0-9]{1,4}", value) else None


class _Level(msgspec.Struct, frozen=True):
    bullet: bool = False
    hidden: bool = False
    start: int = 1


class _Numbering(XmlHandler):
    """Lists by id, with the numbers of their items. Handler of the part ``numbering.xml``."""

    def __init__(self) -> None:
        self._levels: dict[str, dict[int, _Level]] = defaultdict(dict)
        """Levels of each abstract list, and of each list that overrides some."""
        self._abstract: dict[str, str] = {}
        self._counts: dict[str, list[int]] = {}
        self._owner = ""
        self._level = 0

    def start(self, name: str, attributes: Attributes) -> None:
        value = attributes.get("w:val", "")
        if name == "w:abstractNum":
            self._owner = "abstract " + attributes.get("w:abstractNumId", "")
        elif name == "w:num":
            self._owner = attributes.get("w:numId", "")
        elif name == "w:abstractNumId":
            self._abstract[self._owner] = "abstract " + value
        elif name in ("w:lvl", "w:lvlOverride"):
            self._level = small_number(attributes.get("w:ilvl", "")) or 0
        elif name == "w:numFmt":
            self._change(bullet=value == "bullet", hidden=value == "none")
        elif name in ("w:start", "w:startOverride"):
            self._change(start=small_number(value) or 0)

    def _change(self, **facts: object) -> None:
        base = self._levels.get(self._abstract.get(self._owner, ""), {})
        levels = self._levels[self._owner]
        known = levels.get(self._level) or base.get(self._level) or _Level()
        levels[self._level] = replace(known, **facts)

    def marker(self, number_id: str, level: int) -> str:
        """Marker of the next item of a list; empty for a list without markers."""
        if number_id in ("", "0"):
            return ""
        if number_id not in self._abstract:
            return "-"
        level = min(level, _BODY - 1)
        about = self._about(number_id, level)
        if about.hidden:
            return ""
        # Lists of one definition are counted together, as Word does, unless one begins again.
        key = number_id if number_id in self._levels else self._abstract.get(number_id, number_id)
        counts = self._counts.setdefault(key, [])
        del counts[level + 1 :]
        while len(counts) <= level:
            counts.append(self._about(number_id, len(counts)).start - 1)
        counts[level] += 1
        return "-" if about.bullet else f"{counts[level]}."

    def _about(self, number_id: str, level: int) -> _Level:
        own = self._levels.get(number_id, {}).get(level)
        return own or self._levels.get(self._abstract.get(number_id, ""), {}).get(level) or _Level()


_LEFT_OUT = frozenset(
    "mc:Fallback w:del w:moveFrom w:instrText w:delText w:delInstrText w:rt w:pPrChange w:rPrChange "
    "w:tblPrChange w:trPrChange w:tcPrChange w:sectPrChange".split()
)
"""Second forms of drawings, deleted text, commands of fields, reading aids, and former properties."""
_TEXTS = frozenset(["w:t", "m:t", "a:t"])
_SIGNS = {"w:tab": "\t", "w:ptab": "\t", "w:br": "\n", "w:cr": "\n", "w:noBreakHyphen": "-"}
_REFERENCES = {"w:footnoteReference": "footnotes", "w:endnoteReference": "endnotes"}


class _WordNotes:
    """Notes and comments by kind and id. Each is given out once, after the first reference to it."""

    def __init__(self) -> None:
        self._texts: dict[tuple[str, str], list[str]] = {}
        self._authors: dict[tuple[str, str], str] = {}
        self._labels: dict[tuple[str, str], int] = {}

    def begin(self, kind: str, note_id: str, author: str) -> None:
        self._texts[kind, note_id] = []
        self._authors[kind, note_id] = author

    def add(self, kind: str, note_id: str, block: Block) -> None:
        text = cell_text([block])
        if text.strip():
            self._texts[kind, note_id].append(text)

    def label(self, kind: str, note_id: str) -> str:
        """Mark of a note in the text."""
        key = kind, note_id
        if key not in self._texts and key not in self._labels:
            return ""
        return f"[^{self._labels.setdefault(key, len(self._labels) + 1)}]"

    def take(self, kind: str, note_id: str, position: int) -> Iterator[Block]:
        """The text of a note, unless given out before."""
        texts = self._texts.pop((kind, note_id), [])
        text = " ".join(texts)
        if kind == "comments":
            author = self._authors[kind, note_id] if texts else ""
            yield Block(f"{author}: {text}" if author else text, position, quoted=True)
        elif text:
            yield Block(f"{self.label(kind, note_id) or '[^]'}: {text}", position)

    def rest(self, position: int) -> Iterator[Block]:
        """Notes without a reference."""
        for kind, note_id in list(self._texts):
            self.label(kind, note_id)
            yield from self.take(kind, note_id, position)


class _Paragraph:
    def __init__(self, position: int) -> None:
        self.position = position
        self.parts: list[str] = []
        self.style = ""
        self.level: int | None = None
        self.number_id: str | None = None
        self.list_level: int | None = None
        self.after: list[Block] = []
        """Text boxes anchored in this paragraph."""


class _Story(XmlHandler):
    """Handler of a part with paragraphs: the body, a header or a footer. Blocks go to ``sink`` in reading
    order."""

    def __init__(
        self, styles: _Styles, numbering: _Numbering, notes: _WordNotes | None, sink: Callable[[Block], None]
    ) -> None:
        self._styles = styles
        self._numbering = numbering
        self._notes = notes
        self._sink = sink
        self._left_out = 0
        self._open: list[_Paragraph] = []
        self._table: TableGrid | None = None
        self._in_row_properties = False
        self._in_text = False
        self._referred: list[tuple[str, str]] = []
        """Notes and comments whose texts follow the current paragraph or table."""
        self.paragraphs = 0
        self.title = ""
        self.first_heading = ""

    def start(self, name: str, attributes: Attributes) -> None:
        if self._left_out or name in _LEFT_OUT:
            if name == "w:del" and self._in_row_properties and self._table:
                self._table.deleted = True
            self._left_out += 1
        elif name in _TEXTS:
            self._in_text = True
        elif name == "w:p":
            self.paragraphs += 1
            self._open.append(_Paragraph(self.paragraphs))
        elif name in ("w:tbl", "w:tr", "w:tc", "w:trPr", "w:gridSpan"):
            self._start_table(name, attributes)
        elif self._open:
            self._start_in_paragraph(name, attributes, self._open[-1])

    def _start_in_paragraph(self, name: str, attributes: Attributes, paragraph: _Paragraph) -> None:
        if name in _SIGNS:
            paragraph.parts.append(_SIGNS[name])
        elif name == "w:pStyle":
            paragraph.style = attributes.get("w:val", "")
        elif name == "w:outlineLvl":
            paragraph.level = _outline_level(attributes.get("w:val", ""))
        elif name == "w:numId":
            paragraph.number_id = attributes.get("w:val", "")
        elif name == "w:ilvl":
            paragraph.list_level = small_number(attributes.get("w:val", ""))
        elif name in _REFERENCES:
            self._refer(_REFERENCES[name], attributes.get("w:id", ""), paragraph)
        elif name == "w:commentReference":
            self._referred.append(("comments", attributes.get("w:id", "")))

    def _refer(self, kind: str, note_id: str, paragraph: _Paragraph) -> None:
        if self._notes is not None:
            paragraph.parts.append(self._notes.label(kind, note_id))
            self._referred.append((kind, note_id))

    def _start_table(self, name: str, attributes: Attributes) -> None:
        if name == "w:tbl" and self._table is None:
            self._table = TableGrid()
        elif self._table is None:
            return
        elif name == "w:tbl":
            self._table.depth += 1
        elif name == "w:tr":
            self._table.start_row()
        elif name == "w:tc":
            self._table.start_cell()
        elif name == "w:trPr":
            self._in_row_properties = self._table.depth == 1
        elif self._table.depth == 1:
            self._table.span = max(1, min(small_number(attributes.get("w:val", "")) or 1, MAX_COLUMNS))

    def end(self, name: str) -> None:
        if self._left_out:
            self._left_out -= 1
        elif name in _TEXTS:
            self._in_text = False
        elif name == "w:p" and self._open:
            self._end_paragraph(self._open.pop())
        elif name == "w:trPr":
            self._in_row_properties = False
        elif self._table is not None and name in ("w:tbl", "w:tr", "w:tc"):
            self._end_table(name, self._table)

    def _end_table(self, name: str, table: TableGrid) -> None:
        if name == "w:tc":
            table.end_cell()
        elif name == "w:tr":
            table.end_row(max(1, self.paragraphs))
        elif table.depth > 1:
            table.depth -= 1
        else:
            self._table = None
            for block in table.blocks():
                self._place(block)
            self._give_notes()

    def text(self, data: str) -> None:
        if self._in_text and self._open and not self._left_out:
            self._open[-1].parts.append(data)

    def _end_paragraph(self, paragraph: _Paragraph) -> None:
        style = self._styles.get(paragraph.style or self._styles.default)
        block = self._block(paragraph, style)
        if block.level and style.title:
            self.title = self.title or block.text
        if block.level == 1:
            self.first_heading = self.first_heading or block.text
        self._place(block)
        for inner in paragraph.after:
            self._place(inner)
        self._give_notes()

    def _block(self, paragraph: _Paragraph, style: _Style) -> Block:
        text = "".join(paragraph.parts)
        position = paragraph.position
        level = paragraph.level if paragraph.level is not None else style.level
        if level:
            return Block(text, position, level=level)
        if style.code:
            return Block(text, position, code=True)
        number_id = paragraph.number_id if paragraph.number_id is not None else style.number_id
        depth = paragraph.list_level if paragraph.list_level is not None else style.list_level
        marker = self._numbering.marker(number_id or "", depth or 0)
        return Block(text, position, marker=marker, depth=depth or 0)

    def _place(self, block: Block) -> None:
        if self._table is not None:
            self._table.add(block)
        elif self._open:
            self._open[0].after.append(block)
        else:
            self._sink(block)

    def _give_notes(self) -> None:
        if self._notes is None or self._table is not None or self._open:
            return
        for kind, note_id in self._referred:
            for block in self._notes.take(kind, note_id, max(1, self.paragraphs)):
                self._sink(block)
        self._referred.clear()


class _NoteStories(_Story):
    """Handler of a part with many notes or comments."""

    def __init__(self, styles: _Styles, notes: _WordNotes, kind: str) -> None:
        super().__init__(styles, _Numbering(), None, self._add)
        self._all = notes
        self._kind = kind
        self._element = {"footnotes": "w:footnote", "endnotes": "w:endnote"}.get(kind, "w:comment")
        self._note_id: str | None = None

    def start(self, name: str, attributes: Attributes) -> None:
        if name == self._element:
            # Notes with a type are the lines that separate notes from the text.
            self._note_id = attributes.get("w:id", "") if "w:type" not in attributes else None
            if self._note_id is not None:
                self._all.begin(self._kind, self._note_id, attributes.get("w:author", ""))
        super().start(name, attributes)

    def _add(self, block: Block) -> None:
        if self._note_id is not None:
            self._all.add(self._kind, self._note_id, block)


class DocxExtractor:
    """One page with paragraph positions. Deleted text of tracked changes is left out."""

    name = "docx"
    version = "1"

    def extract(
        self, content: Content, file_type: FileType, limits: ExtractLimits, pages: range | None = None
    ) -> ExtractedText:
        package = Package(content.data, limits, "word/document.xml")
        reader = _Reader(package, limits)
        page = reader.read()
        if not page.text:
            package.refuse_if_pictures()
        return ExtractedText(
            pages=(page,),
            file_type=file_type,
            shape=Shape.MARKDOWN,
            page_count=1,
            title=package.title or reader.title,
            properties=package.properties,
        )


class _Reader:
    def __init__(self, package: Package, limits: ExtractLimits) -> None:
        self._package = package
        self._page = MarkdownPage(limits)
        self._styles = _Styles()
        self._numbering = _Numbering()
        self._notes = _WordNotes()
        self._relations = list(package.relations(package.main).values())
        self.title: str | None = None

    def read(self) -> Page:
        parse = self._package.archive.parse
        for part in self._parts("styles"):
            parse(part, self._styles)
        for part in self._parts("numbering"):
            parse(part, self._numbering)
        for kind in ("footnotes", "endnotes", "comments"):
            for part in self._parts(kind):
                parse(part, _NoteStories(self._styles, self._notes, kind))
        seen: set[tuple[str, ...]] = set()
        self._page.add_all(self._margins("header", 1, seen))
        body = _Story(self._styles, self._numbering, self._notes, self._page.add)
        parse(self._package.main, body)
        self.title = stated_title(body.title or body.first_heading)
        last = max(1, body.paragraphs)
        self._page.add_all(self._drawings(last))
        self._page.add_all(self._notes.rest(last))
        self._page.add_all(self._margins("footer", last, seen))
        return self._page.page(positions=True)

    def _parts(self, kind: str) -> list[str]:
        found = (one.part for one in self._relations if one.kind == kind)
        return [part for part in found if part in self._package.archive]

    def _margins(self, kind: str, position: int, seen: set[tuple[str, ...]]) -> Iterator[Block]:
        """Headers or footers. Sections repeat them: equal ones are given once."""
        for part in self._parts(kind):
            found: list[Block] = []
            self._package.archive.parse(part, _Story(self._styles, _Numbering(), None, found.append))
            key = tuple(block.text for block in found)
            if key not in seen:
                seen.add(key)
                yield from (replace(block, position=position, level=0) for block in found)

    def _drawings(self, position: int) -> Iterator[Block]:
        for part in (*self._parts("diagramData"), *self._parts("chart")):
            for text in drawn_texts(self._package.archive, part):
                yield Block(text, position)
