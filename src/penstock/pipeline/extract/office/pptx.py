"""PowerPoint presentations since 2007: a page for each slide, with tables, diagrams, notes and comments."""

from __future__ import annotations

from penstock.errors import DocumentDamaged
from penstock.pipeline.extract.office import drawn_texts
from penstock.pipeline.extract.office.markdown_page import END_OF_TABLE, Block, MarkdownPage
from penstock.pipeline.extract.office.ooxml import Package
from penstock.pipeline.extract.office.pages import page_warnings, read_pages
from penstock.pipeline.extract.office.xml_events import Attributes
from penstock.pipeline.extract.protocol import Content, ExtractedText, ExtractLimits, FileType, Page, Shape
from penstock.pipeline.extract.stated_values import stated_title

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
            page.add_all(Block(text) for text in drawn_texts.texts(package.archive, relation.part))
    for relation in relations:
        if relation.kind == "notesSlide":
            notes = SlideShapes(_NOT_NOTES)
            package.archive.parse(relation.part, notes)
            page.add_all(block._replace(quoted=True, marker="") for block in notes.blocks)
        elif relation.kind == "comments":
            page.add_all(
                Block(text, quoted=True) for text in drawn_texts.texts(package.archive, relation.part)
            )
    return page.page(number)


class _SlideOrder:
    def __init__(self) -> None:
        self.ids: list[str] = []

    def start(self, name: str, attributes: Attributes) -> None:
        if name == "p:sldId":
            self.ids.append(attributes.get("r:id", ""))

    def end(self, name: str) -> None: ...

    def text(self, data: str) -> None: ...


class SlideShapes:
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
