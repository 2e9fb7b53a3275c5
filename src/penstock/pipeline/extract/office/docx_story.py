"""Stories of a Word document: the body, and each header, footer, note and comment, as blocks of text."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from penstock.pipeline.extract.office.docx_styles import (
    Numbering,
    Style,
    Styles,
    outline_level,
    small_number,
)
from penstock.pipeline.extract.office.markdown_page import Block
from penstock.pipeline.extract.office.table_grid import MAX_COLUMNS, TableGrid, cell_text
from penstock.pipeline.extract.office.xml_events import Attributes

_LEFT_OUT = frozenset(
    "mc:Fallback w:del w:moveFrom w:instrText w:delText w:delInstrText w:rt w:pPrChange w:rPrChange "
    "w:tblPrChange w:trPrChange w:tcPrChange w:sectPrChange".split()
)
"""Second forms of drawings, deleted text, commands of fields, reading aids, and former properties."""
_TEXTS = frozenset(["w:t", "m:t", "a:t"])
_SIGNS = {"w:tab": "\t", "w:ptab": "\t", "w:br": "\n", "w:cr": "\n", "w:noBreakHyphen": "-"}
_REFERENCES = {"w:footnoteReference": "footnotes", "w:endnoteReference": "endnotes"}


class WordNotes:
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


class Story:
    """Handler of a part with paragraphs. Blocks go to ``sink`` in reading order."""

    def __init__(
        self, styles: Styles, numbering: Numbering, notes: WordNotes | None, sink: Callable[[Block], None]
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
            paragraph.level = outline_level(attributes.get("w:val", ""))
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

    def _block(self, paragraph: _Paragraph, style: Style) -> Block:
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


class NoteStories(Story):
    """Handler of a part with many notes or comments."""

    def __init__(self, styles: Styles, notes: WordNotes, kind: str) -> None:
        super().__init__(styles, Numbering(), None, self._add)
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
