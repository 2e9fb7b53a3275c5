"""OpenDocument files: texts on one page, presentations by slide, spreadsheets by sheet."""

from __future__ import annotations

from penstock.errors import DocumentDamaged, DocumentEncrypted
from penstock.pipeline.extract.office.archive import Archive
from penstock.pipeline.extract.office.markdown_page import Block, MarkdownPage
from penstock.pipeline.extract.office.odf_sheets import OdfSheets
from penstock.pipeline.extract.office.odf_story import OdfStory
from penstock.pipeline.extract.office.odf_styles import OdfStyles
from penstock.pipeline.extract.office.ooxml import PropertyReader, no_text
from penstock.pipeline.extract.office.pages import read_pages
from penstock.pipeline.extract.office.xml_events import Attributes
from penstock.pipeline.extract.protocol import (
    Content,
    ExtractedText,
    ExtractLimits,
    FileType,
    Page,
    Properties,
    Shape,
)
from penstock.pipeline.extract.stated_values import stated_date, stated_title


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


def _styles(archive: Archive) -> OdfStyles:
    styles = OdfStyles()
    archive.parse_if_present("styles.xml", styles)
    archive.parse("content.xml", styles)
    return styles


def _text(archive: Archive, limits: ExtractLimits) -> _Read:
    styles = _styles(archive)
    page = MarkdownPage(limits)
    margins = _Margins(styles)
    archive.parse_if_present("styles.xml", margins)
    page.add_all(block._replace(position=1, level=0) for block in margins.headers)
    story = OdfStory(styles, page.add)
    archive.parse("content.xml", story)
    last = max(1, story.paragraphs)
    page.add_all(block._replace(position=last, level=0) for block in margins.footers)
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
    sheets = OdfSheets(limits)
    archive.parse("content.xml", sheets)
    return sheets.pages(), "", sheets.warnings


class _Manifest:
    def start(self, name: str, attributes: Attributes) -> None:  # noqa: ARG002
        if name == "manifest:encryption-data":
            raise DocumentEncrypted("the document is encrypted and opens only with a password")

    def end(self, name: str) -> None: ...

    def text(self, data: str) -> None: ...


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


class _Margins(OdfStory):
    """Headers and footers of the page styles; equal ones once."""

    def __init__(self, styles: OdfStyles) -> None:
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


class _Slides(OdfStory):
    """Slides: the texts of the title frame, and the other blocks, of each."""

    def __init__(self, styles: OdfStyles) -> None:
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
            blocks.append(block._replace(quoted=True, marker="", level=0))
        elif self._kind == "title" and block.cells is None:
            titles.append(block.text)
        else:
            blocks.append(block)
