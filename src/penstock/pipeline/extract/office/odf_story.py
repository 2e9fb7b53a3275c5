"""Text of OpenDocument files as blocks: paragraphs, lists, tables, notes, comments and frames."""

from __future__ import annotations

from collections.abc import Callable

from penstock.pipeline.extract.office.docx_styles import small_number
from penstock.pipeline.extract.office.markdown_page import Block
from penstock.pipeline.extract.office.odf_styles import OdfStyles
from penstock.pipeline.extract.office.table_grid import MAX_COLUMNS, TableGrid
from penstock.pipeline.extract.office.xml_events import Attributes

_LEFT_OUT = frozenset(
    "text:tracked-changes text:ruby-text text:note-citation office:forms office:automatic-styles "
    "office:font-face-decls office:scripts text:index-title-template draw:plugin draw:applet".split()
)
_PARAGRAPHS = frozenset(["text:p", "text:h"])
_ASIDES = frozenset(["text:note", "office:annotation"])
_TABLES = frozenset(
    "table:table table:table-row table:table-cell table:covered-table-cell".split(),
)
_LISTS = frozenset(["text:list", "text:list-item", "text:list-header"])
_MAX_SPACES = 100


class _Paragraph:
    def __init__(self, position: int, level: int, style: str) -> None:
        self.position = position
        self.level = level
        self.style = style
        self.parts: list[str] = []
        self.after: list[Block] = []


class _Aside:
    """A note or comment, which stands in the middle of a paragraph."""

    def __init__(self, *, comment: bool) -> None:
        self.comment = comment
        self.author: list[str] = []
        self.texts: list[str] = []


class _List:
    def __init__(self, style: str) -> None:
        self.style = style
        self.count = 0
        self.marker = ""
        """Marker of an item whose text has not begun yet."""


class OdfStory:
    """Handler of a part with paragraphs. Blocks go to ``sink`` in reading order."""

    def __init__(self, styles: OdfStyles, sink: Callable[[Block], None]) -> None:
        self._styles = styles
        self._sink = sink
        self._left_out = 0
        self._stack: list[_Paragraph | _Aside] = []
        self._lists: list[_List] = []
        self._grid: TableGrid | None = None
        self._in_author = False
        self._following: list[Block] = []
        """Notes and comments that follow the current paragraph or table."""
        self._notes = 0
        self.paragraphs = 0
        self.title = ""
        self.first_heading = ""

    def start(self, name: str, attributes: Attributes) -> None:
        if self._left_out or name in _LEFT_OUT:
            self._left_out += 1
        elif name in _PARAGRAPHS:
            self.paragraphs += 1
            level = small_number(attributes.get("text:outline-level", "")) if name == "text:h" else None
            style = attributes.get("text:style-name", "")
            paragraph = _Paragraph(self.paragraphs, max(level or 1, 1) if name == "text:h" else 0, style)
            self._stack.append(paragraph)
        elif name in _ASIDES:
            self._stack.append(_Aside(comment=name == "office:annotation"))
        elif name in _TABLES:
            self.start_table(name, attributes)
        elif name in _LISTS:
            self._start_list(name, attributes)
        elif name == "dc:creator":
            self._in_author = True
        elif self._stack:
            self._sign(name, attributes)

    def _sign(self, name: str, attributes: Attributes) -> None:
        if name == "text:s":
            count = small_number(attributes.get("text:c", "1")) or 1
            self.text(" " * min(count, _MAX_SPACES))
        elif name == "text:tab":
            self.text("\t")
        elif name == "text:line-break":
            self.text("\n")

    def _start_list(self, name: str, attributes: Attributes) -> None:
        if name == "text:list":
            inherited = self._lists[-1].style if self._lists else ""
            self._lists.append(_List(attributes.get("text:style-name", inherited)))
        elif self._lists and name == "text:list-item":
            current = self._lists[-1]
            start = small_number(attributes.get("text:start-value", ""))
            current.count = start if start is not None else current.count + 1
            numbered = self._styles.is_numbered(current.style, len(self._lists))
            current.marker = f"{current.count}." if numbered else "-"

    def start_table(self, name: str, attributes: Attributes) -> None:
        if name == "table:table":
            if self._grid is None:
                self._grid = TableGrid()
            else:
                self._grid.depth += 1
        elif self._grid is None:
            return
        elif name == "table:table-row":
            self._grid.start_row()
        else:
            # A cell that spans others is followed by as many covered ones.
            self._grid.start_cell()
            if self._grid.depth == 1:
                repeated = small_number(attributes.get("table:number-columns-repeated", "1")) or 1
                self._grid.span = min(repeated, MAX_COLUMNS)

    def end(self, name: str) -> None:
        if self._left_out:
            self._left_out -= 1
        elif name in _PARAGRAPHS:
            top = self._stack.pop()
            assert isinstance(top, _Paragraph)
            self._end_paragraph(top)
        elif name in _ASIDES:
            top = self._stack.pop()
            assert isinstance(top, _Aside)
            self._end_aside(top)
        elif name in _TABLES:
            self.end_table(name)
        elif name == "text:list" and self._lists:
            self._lists.pop()
        elif name == "dc:creator":
            self._in_author = False

    def end_table(self, name: str) -> None:
        grid = self._grid
        if grid is None:
            return
        if name in ("table:table-cell", "table:covered-table-cell"):
            grid.end_cell()
        elif name == "table:table-row":
            grid.end_row(max(1, self.paragraphs))
        elif name == "table:table" and grid.depth > 1:
            grid.depth -= 1
        elif name == "table:table":
            self._grid = None
            for block in grid.blocks():
                self.place(block)
            self._follow()

    def text(self, data: str) -> None:
        if self._left_out or not self._stack:
            return
        top = self._stack[-1]
        if isinstance(top, _Paragraph):
            top.parts.append(data)
        elif self._in_author:
            top.author.append(data)

    def _end_paragraph(self, paragraph: _Paragraph) -> None:
        block = self._block(paragraph)
        aside = next((one for one in reversed(self._stack[-2:]) if isinstance(one, _Aside)), None)
        if aside is not None:
            aside.texts.append(block.text)
            aside.texts += [one.text for one in paragraph.after]
            return
        if block.level and self._styles.is_title(paragraph.style):
            self.title = self.title or block.text
        if block.level == 1:
            self.first_heading = self.first_heading or block.text
        self.place(block)
        for inner in paragraph.after:
            self.place(inner)
        self._follow()

    def _block(self, paragraph: _Paragraph) -> Block:
        text = "".join(paragraph.parts)
        level = paragraph.level or self._styles.heading_level(paragraph.style)
        if level or self._styles.is_code(paragraph.style):
            return Block(text, paragraph.position, level=level, code=not level)
        marker = ""
        if self._lists and text.strip():
            marker, self._lists[-1].marker = self._lists[-1].marker, ""
        return Block(text, paragraph.position, marker=marker, depth=max(0, len(self._lists) - 1))

    def _end_aside(self, aside: _Aside) -> None:
        text = " ".join(aside.texts)
        if not text.strip():
            return
        if aside.comment:
            author = " ".join("".join(aside.author).split())
            self._following.append(Block(f"{author}: {text}" if author else text, quoted=True))
        else:
            self._notes += 1
            self.text(f"[^{self._notes}]")
            self._following.append(Block(f"[^{self._notes}]: {text}"))
        self._follow()

    def place(self, block: Block) -> None:
        outer = self._stack[0] if self._stack else None
        if self._grid is not None:
            self._grid.add(block)
        elif isinstance(outer, _Paragraph):
            outer.after.append(block)
        else:
            self._sink(block)

    def _follow(self) -> None:
        if self._grid is not None or self._stack:
            return
        following, self._following = self._following, []
        for block in following:
            self._sink(block._replace(position=max(1, self.paragraphs)))
