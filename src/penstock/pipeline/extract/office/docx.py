"""Word documents since 2007: paragraphs, lists, tables, notes, comments and text boxes as Markdown."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.pipeline.extract.office import drawn_texts
from penstock.pipeline.extract.office.docx_story import NoteStories, Story, WordNotes
from penstock.pipeline.extract.office.docx_styles import Numbering, Styles
from penstock.pipeline.extract.office.markdown_page import Block, MarkdownPage
from penstock.pipeline.extract.office.ooxml import Package
from penstock.pipeline.extract.protocol import Content, ExtractedText, ExtractLimits, FileType, Page, Shape
from penstock.pipeline.extract.stated_values import stated_title


class DocxExtractor:
    """One page with paragraph positions. Deleted text of tracked changes is left out."""

    name = "docx"
    version = "1"

    def extract(
        self,
        content: Content,
        file_type: FileType,
        limits: ExtractLimits,
        pages: range | None = None,  # noqa: ARG002 - a Word document has pages only when it is printed
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
        self._styles = Styles()
        self._numbering = Numbering()
        self._notes = WordNotes()
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
                parse(part, NoteStories(self._styles, self._notes, kind))
        seen: set[tuple[str, ...]] = set()
        self._page.add_all(self._margins("header", 1, seen))
        body = Story(self._styles, self._numbering, self._notes, self._page.add)
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
            self._package.archive.parse(part, Story(self._styles, Numbering(), None, found.append))
            key = tuple(block.text for block in found)
            if key not in seen:
                seen.add(key)
                yield from (block._replace(position=position, level=0) for block in found)

    def _drawings(self, position: int) -> Iterator[Block]:
        for part in (*self._parts("diagramData"), *self._parts("chart")):
            for text in drawn_texts.texts(self._package.archive, part):
                yield Block(text, position)
