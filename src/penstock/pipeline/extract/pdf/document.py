"""PDF, page by page: text layer, form fields and notes, and pages as pictures."""

from __future__ import annotations

import logging
import math
from functools import cached_property
from typing import TYPE_CHECKING

from penstock.errors import DocumentDamaged, DocumentEncrypted, DocumentTooLarge
from penstock.pipeline.extract.paged import extract_pages
from penstock.pipeline.extract.pdf import damage, forms, layer, objects, properties
from penstock.pipeline.extract.pdf.text import normalised, raw_text
from penstock.pipeline.extract.pdf.word_places import placed_words
from penstock.pipeline.extract.protocol import (
    Attachment,
    Content,
    ExtractedText,
    ExtractLimits,
    FileType,
    Page,
    PageImage,
    PlacedWord,
    Shape,
)
from penstock.vocabulary import how_many

if TYPE_CHECKING:
    from pypdfium2 import PdfDocument, PdfPage

MAX_PIXELS = 40_000_000
"""Pixels of a page's picture: A2 at 300 dpi. Larger pages get a lower resolution."""
_WRONG_PASSWORD = 4
_PAGES_AT_ONCE = 2_000
"""Pages after which the document is reopened: pdfium keeps some memory for every page."""
_POINTS_PER_INCH = 72


class PdfExtractor:
    """Extractor for PDF. Use in one thread at a time: pdfium has global state."""

    name = "pdf"
    version = "2"
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
        self._limits = limits
        self._document = _open(data)
        self._flattened: PdfDocument | None = None
        self._read = 0
        self.page_count = len(self._document)
        if self.page_count == 0:
            self.close()
            raise DocumentDamaged("the PDF has no pages")
        if self.page_count > limits.pages:
            self.close()
            pages = how_many(self.page_count, "page")
            raise DocumentTooLarge(f"the PDF has {pages}; the limit is {limits.pages:,}")
        self.title = properties.title_of(self._document)
        self.properties = properties.properties_of(self._document)

    @cached_property
    def attachments(self) -> tuple[Attachment, ...]:
        return self._attached[0]

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        found = damage.damage_warnings(self._data) + properties.form_warnings(self._document)
        return (*found, *self._attached[1])

    @cached_property
    def _attached(self) -> tuple[tuple[Attachment, ...], list[str]]:
        return properties.attachments_of(self._document, self._limits)

    def page(self, number: int) -> Page:
        import pypdfium2

        self._count_page()
        try:
            page = self._document[number - 1]
        except pypdfium2.PdfiumError as error:
            return Page(number, "", failure=str(error))
        try:
            return self._page(page, number)
        except pypdfium2.PdfiumError as error:
            return Page(number, "", failure=str(error))
        finally:
            page.close()

    def image(self, number: int, dpi: int) -> PageImage:
        """Render one page in gray, with form fields; in a lower resolution if the page is very large."""
        import numpy as np
        import pypdfium2

        self._count_page()
        try:
            page = self._document[number - 1]
        except pypdfium2.PdfiumError as error:
            raise DocumentDamaged(f"page {number} cannot be rendered: {error}") from error
        try:
            scale = _scale(page.get_width() * page.get_height(), dpi)
            pixels = page.render(scale=scale, grayscale=True).to_numpy()
        except (pypdfium2.PdfiumError, ValueError) as error:
            raise DocumentDamaged(f"page {number} cannot be rendered: {error}") from error
        finally:
            page.close()
        flat = pixels.reshape(pixels.shape[:2])
        return PageImage(np.ascontiguousarray(flat), max(1, round(scale * _POINTS_PER_INCH)))

    def words(self, number: int) -> tuple[PlacedWord, ...]:
        """Words of the text layer, with their places on the picture of the page."""
        import pypdfium2

        self._count_page()
        try:
            page = self._document[number - 1]
        except pypdfium2.PdfiumError as error:
            raise DocumentDamaged(f"page {number} cannot be read: {error}") from error
        try:
            return placed_words(page)
        except pypdfium2.PdfiumError as error:
            raise DocumentDamaged(f"page {number} cannot be read: {error}") from error
        finally:
            page.close()

    def close(self) -> None:
        self._document.close()
        if self._flattened is not None:
            self._flattened.close()
            self._flattened = None

    def _count_page(self) -> None:
        if self._read >= _PAGES_AT_ONCE:
            self.close()
            self._document = _open(self._data)
            self._read = 0
        self._read += 1

    def _page(self, page: PdfPage, number: int) -> Page:
        raw = raw_text(page)
        measures = layer.measure(raw)
        reason = layer.unusable(measures)
        added = forms.PageAdditions()
        if forms.has_additions(page):
            added = forms.additions(page)
            raw = self._flattened_text(number, raw)
        text = "" if reason else normalised(raw)
        text = forms.with_additions(text, added.texts)
        if reason is None:
            few = measures.chars < layer.FEW_CHARS or measures.cjk >= layer.MOSTLY
            shown = objects.survey(page, whole=few)
            reason = layer.incomplete(measures, shown, has_text=bool(text))
        return Page(number, text, needs_ocr=reason is not None, warnings=added.warnings, ocr_reason=reason)

    def _flattened_text(self, number: int, raw: str) -> str:
        """Text of a page with fields and notes drawn in; ``raw`` if drawing damages the page.

        This changes the document, so it is done in a second one: pages stay as they are for rendering.
        """
        if self._flattened is None:
            self._flattened = _open(self._data)
        page = self._flattened[number - 1]
        try:
            forms.flatten(page)
        finally:
            page.close()
        page = self._flattened[number - 1]
        try:
            flattened = raw_text(page)
        finally:
            page.close()
        return flattened if forms.keeps_words(raw, flattened) else raw


def _open(data: bytes) -> PdfDocument:
    import pypdfium2

    try:
        document = pypdfium2.PdfDocument(data)
    except pypdfium2.PdfiumError as error:
        # pdfium keeps the code of an earlier failure, so the code alone may belong to another file.
        if error.err_code == _WRONG_PASSWORD and b"/Encrypt" in data:
            raise DocumentEncrypted("the PDF is encrypted and opens only with a password") from error
        raise DocumentDamaged("the PDF cannot be opened: it is damaged, or not a PDF") from error
    # An XFA form has a warning of its own.
    logging.getLogger("pypdfium2").setLevel(logging.ERROR)
    document.init_forms()
    return document


def _scale(area: float, dpi: int) -> float:
    """Pixels per point, with at most ``MAX_PIXELS`` on a page of this area."""
    return min(dpi / _POINTS_PER_INCH, math.sqrt(MAX_PIXELS / max(1.0, area)))
