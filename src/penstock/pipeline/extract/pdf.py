"""The text layer of a PDF, page by page."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from penstock.errors import DocumentDamaged, DocumentEncrypted, DocumentTooLarge
from penstock.pipeline.extract.charset import clean
from penstock.pipeline.extract.paged import extract_pages
from penstock.pipeline.extract.protocol import (
    Attachment,
    Content,
    ExtractedText,
    ExtractLimits,
    FileType,
    Page,
    PageImage,
    Properties,
    Shape,
)
from penstock.vocabulary import how_many

if TYPE_CHECKING:
    from pypdfium2 import PdfDocument, PdfPage

_WRONG_PASSWORD = 4
_PAGES_AT_ONCE = 2_000
"""Pages after which the document is reopened: pdfium keeps some memory for every page."""
_DISGUISED = re.compile(r"[\ufffe\uffff\x02]\n?")
"""The form in which pdfium returns a hyphen at the end of a line."""
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0e-\x1f]")
_UNREADABLE = re.compile(r"[\ufffd\ue000-\uf8ff]")
"""Replacement or private characters: the text of a font without a character map."""

_NO_TITLES = frozenset(["", "untitled", "(anonymous)", "(unspecified)"])


class PdfExtractor:
    """Extractor for PDF. Use in one thread at a time: pdfium has global state."""

    name = "pdf"
    version = "1"
    shape = Shape.PROSE

    def extract(
        self, content: Content, file_type: FileType, limits: ExtractLimits, pages: range | None = None
    ) -> ExtractedText:
        return extract_pages(self, content, file_type, limits, pages)

    def open(self, content: Content, limits: ExtractLimits) -> PdfPages:
        return PdfPages(content.data, limits)


class PdfPages:
    """An open PDF."""

    def __init__(self, data: bytes, limits: ExtractLimits) -> None:
        self._data = data
        self._document = _open(data)
        self._read = 0
        self.page_count = len(self._document)
        self.title = _title(self._document)
        self.properties = Properties()
        self.warnings: tuple[str, ...] = ()
        self.attachments: tuple[Attachment, ...] = ()
        if self.page_count == 0:
            self.close()
            raise DocumentDamaged("the PDF has no pages")
        if self.page_count > limits.pages:
            self.close()
            pages = how_many(self.page_count, "page")
            raise DocumentTooLarge(f"the PDF has {pages}; the limit is {limits.pages:,}")

    def page(self, number: int) -> Page:
        if self._read >= _PAGES_AT_ONCE:
            self._document.close()
            self._document = _open(self._data)
            self._read = 0
        self._read += 1
        return _page(self._document, number)

    def image(self, number: int, dpi: int) -> PageImage:
        page = self._document[number - 1]
        try:
            return PageImage(page.render(scale=dpi / 72, grayscale=True).to_numpy().squeeze(), dpi)
        finally:
            page.close()

    def close(self) -> None:
        self._document.close()


def _open(data: bytes) -> PdfDocument:
    import pypdfium2

    try:
        return pypdfium2.PdfDocument(data)
    except pypdfium2.PdfiumError as error:
        # pdfium keeps the code of an earlier failure, so the code alone may belong to another file.
        if error.err_code == _WRONG_PASSWORD and b"/Encrypt" in data:
            raise DocumentEncrypted("the PDF is encrypted and opens only with a password") from error
        raise DocumentDamaged("the PDF cannot be opened: it is damaged, or not a PDF") from error


def _page(document: PdfDocument, number: int) -> Page:
    import pypdfium2

    try:
        page = document[number - 1]
    except pypdfium2.PdfiumError as error:
        return Page(number, "", failure=str(error))
    try:
        text = _text(page)
        if text and not _mostly_unreadable(text):
            return Page(number, text)
        return Page(number, "", needs_ocr=bool(text) or _shows_something(page))
    except pypdfium2.PdfiumError as error:
        return Page(number, "", failure=str(error))
    finally:
        page.close()


def _text(page: PdfPage) -> str:
    layer = page.get_textpage()
    try:
        raw = layer.get_text_range()
    finally:
        layer.close()
    text = _DISGUISED.sub("", raw.replace("\r\n", "\n"))
    text = clean(_CONTROL.sub(" ", text))
    return "\n".join(line.rstrip() for line in text.split("\n")).strip()


def _mostly_unreadable(text: str) -> bool:
    letters = sum(not char.isspace() for char in text)
    return len(_UNREADABLE.findall(text)) > letters / 2


def _shows_something(page: PdfPage) -> bool:
    return next(iter(page.get_objects(max_depth=1)), None) is not None


def _title(document: PdfDocument) -> str | None:
    title = clean(document.get_metadata_value("Title"))
    title = " ".join(title.split())[:500]
    return None if title.lower() in _NO_TITLES else title
