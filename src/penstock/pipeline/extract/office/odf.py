"""OpenDocument files: texts on one page, presentations by slide, spreadsheets by sheet, as blocks of text."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from penstock.errors import DocumentDamaged, DocumentEncrypted
from penstock.pipeline.extract.office.docx import small_number
from penstock.pipeline.extract.office.markdown_page import (
    END_OF_TABLE,
    MAX_COLUMNS,
    Block,
    MarkdownPage,
    TableGrid,
    read_pages,
)
from penstock.pipeline.extract.office.package import Archive, Attributes, PropertyReader, XmlHandler, no_text
from penstock.pipeline.extract.protocol import (
    Content,
    ExtractedText,
    ExtractLimits,
    FileType,
    Page,
    Properties,
    Shape,
)
from penstock.pipeline.extract.text import stated_date, stated_title

_LEVELS = {"Title": 1, "Subtitle": 2}
_CODE = "Preformatted_20_Text"


class _OdfStyles(XmlHandler):
    """Paragraph and list styles, of ``styles.xml`` and of the automatic styles in ``content.xml``."""

    def __init__(self) -> None:
        self._parents: dict[str, str] = {}
        self._roots: dict[str, str] = {}
        self._numbered: set[tuple[str, int]] = set()
        self._list_style = ""

    def start(self, name: str, attributes: Attributes) -> None:
        if name == "style:style" and attributes.get("style:family") == "paragraph":
            self._parents[attributes.get("style:name", "")] = attributes.get("style:parent-style-name", "")
        elif name == "text:list-style":
            self._list_style = attributes.get("style:name", "")
        elif name == "text:list-level-style-number":
            level = small_number(attributes.get("text:level", "")) or 1
            # Without a format the items show no number.
            if attributes.get("style:num-format"):
                self._numbered.add((self._list_style, level))

    def is_numbered(self, list_style: str, level: int) -> bool:
        return (list_style, level) in self._numbered

    def heading_level(self, style: str) -> int:
        """Heading level of a paragraph style; 0 for other styles."""
        return _LEVELS.get(self._root(style), 0)

    def is_title(self, style: str) -> bool:
        return self._root(style) == "Title"

    def is_code(self, style: str) -> bool:
        return self._root(style) == _CODE

    def _root(self, style: str) -> str:
        """Nearest known base style of a style. Each is looked up once."""
        passed: list[str] = []
        while style not in self._roots and style not in _LEVELS and style != _CODE and style:
            self._roots[style] = ""
            passed.append(style)
            style = self._parents.get(style, "")
        root = self._roots.get(style, style)
        self._roots.update(dict.fromkeys(passed, root))
        return root


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


class _OdfStory(XmlHandler):
    """Handler of a part with paragraphs. Blocks go to ``sink`` in reading order."""

    def __init__(self, styles: _OdfStyles, sink: Callable[[Block], None]) -> None:
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
            self._sink(replace(block, position=max(1, self.paragraphs)))


_MAX_REPEATED = 100
_VALUES = (
    "office:string-value",
    "office:date-value",
    "office:time-value",
    "office:value",
    "office:boolean-value",
)


class _OdfSheets(_OdfStory):
    """Handler of ``content.xml``: a page for each sheet, with the sheet's name as a heading.

    Repeated cells are written out only up to a limit.
    """

    def __init__(self, limits: ExtractLimits) -> None:
        super().__init__(_OdfStyles(), self._add)
        self._limits = limits
        self._pages: list[MarkdownPage] = []
        self._name = ""
        self._depth = 0
        self._row = 1
        self._row_repeated = 1
        self._cells: list[str] | None = None
        self._gap = 0
        """Empty cells before the next one with a value."""
        self._cell: list[str] | None = None
        self._cell_repeated = 1
        self._value = ""
        self._cut = False

    @property
    def warnings(self) -> tuple[str, ...]:
        if not self._cut:
            return ()
        return (
            f"cells and rows that repeat more than {_MAX_REPEATED} times are written {_MAX_REPEATED} times",
        )

    def pages(self) -> list[Page]:
        return [page.page(number, positions=True) for number, page in enumerate(self._pages, 1)]

    def start_table(self, name: str, attributes: Attributes) -> None:
        if name == "table:table":
            self._depth += 1
            if self._depth == 1:
                self._pages.append(MarkdownPage(self._limits))
                self._name = attributes.get("table:name", "")
                self._row = 1
        elif self._depth != 1:
            return
        elif name == "table:table-row":
            self._cells, self._gap = [], 0
            self._row_repeated = _count(attributes, "table:number-rows-repeated")
        else:
            self._cell = []
            self._cell_repeated = _count(attributes, "table:number-columns-repeated")
            self._value = next((attributes[key] for key in _VALUES if key in attributes), "")

    def end_table(self, name: str) -> None:
        if name == "table:table":
            self._depth -= 1
        elif self._depth != 1 or self._cells is None:
            return
        elif name == "table:table-row":
            self._end_row(self._cells)
        elif self._cell is not None:
            self._end_cell(self._cells, " ".join(self._cell) or self._value)
            self._cell = None

    def _end_cell(self, cells: list[str], text: str) -> None:
        if not text.strip():
            self._gap += self._cell_repeated
            return
        cells += [""] * min(self._gap, _MAX_REPEATED)
        self._gap = 0
        cells += [text] * self._at_most(self._cell_repeated)

    def _end_row(self, cells: list[str]) -> None:
        if cells:
            for number in range(self._row, self._row + self._at_most(self._row_repeated)):
                self._add(Block("", number, cells=tuple(cells)))
        elif self._pages:
            self._pages[-1].add(END_OF_TABLE)
        self._row += self._row_repeated
        self._cells = None
        self._follow()

    def _at_most(self, repeated: int) -> int:
        self._cut = self._cut or repeated > _MAX_REPEATED
        return min(repeated, _MAX_REPEATED)

    def place(self, block: Block) -> None:
        if self._cell is not None:
            self._cell.append(block.text)
        else:
            self._add(block)

    def _follow(self) -> None:
        """Write the comments of a row after the row."""
        if self._cells is None and not self._stack:
            following, self._following = self._following, []
            for block in following:
                self._add(block)

    def _add(self, block: Block) -> None:
        if not self._pages:
            return
        position = max(1, self._row)
        if self._name:
            self._pages[-1].add(Block(self._name, position, level=1))
            self._name = ""
        self._pages[-1].add(block if block.cells else replace(block, position=position))


def _count(attributes: Attributes, name: str) -> int:
    digits = attributes.get(name, "1")
    return max(1, int(digits)) if digits.isascii() and digits.isdigit() and len(digits) < 10 else 1


class OpenDocumentExtractor:
    """Reads ``odt``, ``ods`` and ``odp``. Deleted text of tracked changes is left out."""

    name = "opendocument"
    version = "1"

    def extract(
        self, content: Content, file_type: FileType, limits: ExtractLimits, pages: range | None = None
    ) -> ExtractedText:
        archive = Archive(content.data, limits)
        archive.parse_if_present("META-INF/manifest.xml", _Manifest())
        if "content.xml" not in archive:
            raise DocumentDamaged("the archive is not an OpenDocument file: it lacks 'content.xml'")
        title, properties = _about(archive)
        read = {"sheet": _sheets, "slide": _slides}.get(file_type.page_unit, _text)
        all_pages, own_title, warnings = read(archive, limits)
        found = read_pages(len(all_pages), lambda number: all_pages[number - 1], limits, pages)
        pictures = any(name.startswith("Pictures/") for name in archive.names)
        if pictures and pages is None and not any(page.text for page in found):
            raise no_text()
        return ExtractedText(
            pages=found,
            file_type=file_type,
            shape=Shape.MARKDOWN,
            page_count=len(all_pages),
            title=title or stated_title(own_title),
            warnings=warnings,
            properties=properties,
        )


_Read = tuple[list[Page], str, tuple[str, ...]]
"""Pages, a title found in the text, and warnings."""


def _styles(archive: Archive) -> _OdfStyles:
    styles = _OdfStyles()
    archive.parse_if_present("styles.xml", styles)
    archive.parse("content.xml", styles)
    return styles


def _text(archive: Archive, limits: ExtractLimits) -> _Read:
    styles = _styles(archive)
    page = MarkdownPage(limits)
    margins = _Margins(styles)
    archive.parse_if_present("styles.xml", margins)
    page.add_all(replace(block, position=1, level=0) for block in margins.headers)
    story = _OdfStory(styles, page.add)
    archive.parse("content.xml", story)
    last = max(1, story.paragraphs)
    page.add_all(replace(block, position=last, level=0) for block in margins.footers)
    return [page.page(positions=True)], story.title or story.first_heading, ()


def _slides(archive: Archive, limits: ExtractLimits) -> _Read:
    slides = _Slides(_styles(archive))
    archive.parse("content.xml", slides)
    pages: list[Page] = []
    for number, (titles, blocks) in enumerate(slides.found, 1):
        page = MarkdownPage(limits)
        page.add(Block(" ".join(titles), level=1))
        page.add_all(blocks)
        pages.append(page.page(number))
    first = slides.found[0][0] if slides.found else []
    return pages, " ".join(first), ()


def _sheets(archive: Archive, limits: ExtractLimits) -> _Read:
    sheets = _OdfSheets(limits)
    archive.parse("content.xml", sheets)
    return sheets.pages(), "", sheets.warnings


class _Manifest(XmlHandler):
    def start(self, name: str, attributes: Attributes) -> None:
        if name == "manifest:encryption-data":
            raise DocumentEncrypted("the document is encrypted and opens only with a password")


def _about(archive: Archive) -> tuple[str | None, Properties]:
    about = PropertyReader(
        *("dc:title", "dc:creator", "meta:initial-creator", "meta:creation-date", "dc:date", "dc:language")
    )
    archive.parse_if_present("meta.xml", about)
    found = about.found
    return stated_title(found["dc:title"]), Properties(
        author=found["meta:initial-creator"] or found["dc:creator"],
        created=stated_date(found["meta:creation-date"]),
        modified=stated_date(found["dc:date"]),
        language=found["dc:language"],
    )


class _Margins(_OdfStory):
    """Headers and footers of the page styles; equal ones once."""

    def __init__(self, styles: _OdfStyles) -> None:
        super().__init__(styles, self._add)
        self.headers: list[Block] = []
        self.footers: list[Block] = []
        self._region = ""
        self._seen: set[tuple[str, str]] = set()

    def start(self, name: str, attributes: Attributes) -> None:
        if name.startswith(("style:header", "style:footer")) and not name.endswith(("-style", "-properties")):
            self._region = name
        elif self._region:
            super().start(name, attributes)

    def end(self, name: str) -> None:
        if name == self._region:
            self._region = ""
        elif self._region:
            super().end(name)

    def _add(self, block: Block) -> None:
        kind = "footer" if self._region.startswith("style:footer") else "header"
        if (kind, block.text) not in self._seen or block.cells is not None:
            self._seen.add((kind, block.text))
            (self.footers if kind == "footer" else self.headers).append(block)


class _Slides(_OdfStory):
    """Slides: the texts of the title frame, and the other blocks, of each."""

    def __init__(self, styles: _OdfStyles) -> None:
        super().__init__(styles, self._add)
        self.found: list[tuple[list[str], list[Block]]] = []
        self._kind = ""
        self._in_notes = False

    def start(self, name: str, attributes: Attributes) -> None:
        if name == "draw:page":
            self.found.append(([], []))
        elif name == "presentation:notes":
            self._in_notes = True
        elif name.startswith("draw:") and "presentation:class" in attributes:
            self._kind = attributes["presentation:class"]
        super().start(name, attributes)

    def end(self, name: str) -> None:
        super().end(name)
        if name == "presentation:notes":
            self._in_notes = False
        elif name in ("draw:frame", "draw:custom-shape"):
            self._kind = ""

    def _add(self, block: Block) -> None:
        if not self.found or self._kind == "page-number":
            return
        titles, blocks = self.found[-1]
        if self._in_notes:
            blocks.append(replace(block, quoted=True, marker="", level=0))
        elif self._kind == "title" and block.cells is None:
            titles.append(block.text)
        else:
            blocks.append(block)
