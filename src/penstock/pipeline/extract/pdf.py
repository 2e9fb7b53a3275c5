"""The text layer of a PDF, page by page."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.errors import DocumentDamaged, DocumentEncrypted, DocumentTooLarge
from penstock.pipeline.extract.charset import clean
from penstock.pipeline.extract.protocol import Content, ExtractedText, ExtractLimits, FileType, Page, Shape
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

    def extract(
        self, content: Content, file_type: FileType, limits: ExtractLimits, pages: range | None = None
    ) -> ExtractedText:
        with _opened(content.data) as document:
            count = len(document)
            title = _title(document)
        if count == 0:
            raise DocumentDamaged("the PDF has no pages")
        if count > limits.pages:
            raise DocumentTooLarge(f"the PDF has {how_many(count, 'page')}; the limit is {limits.pages:,}")
        wanted = (
            range(1, count + 1) if pages is None else range(max(1, pages.start), min(count + 1, pages.stop))
        )
        found = _pages(content.data, wanted, limits, limits.batch_seconds if pages is not None else None)
        if found and all(page.failure for page in found):
            raise DocumentDamaged(f"no page of the PDF can be read: {found[0].failure}")
        failed = [str(page.number) for page in found if page.failure]
        return ExtractedText(
            pages=tuple(found),
            file_type=file_type,
            shape=Shape.PROSE,
            page_count=count,
            title=title,
            warnings=(f"pages that cannot be read: {', '.join(failed)}",) if failed else (),
        )


@contextmanager
def _opened(data: bytes) -> Iterator[PdfDocument]:
    import pypdfium2

    try:
        document = pypdfium2.PdfDocument(data)
    except pypdfium2.PdfiumError as error:
        # pdfium keeps the code of an earlier failure, so the code alone may belong to another file.
        if error.err_code == _WRONG_PASSWORD and b"/Encrypt" in data:
            raise DocumentEncrypted("the PDF is encrypted and opens only with a password") from error
        raise DocumentDamaged("the PDF cannot be opened: it is damaged, or not a PDF") from error
    try:
        yield document
    finally:
        document.close()


def _pages(data: bytes, wanted: range, limits: ExtractLimits, seconds: float | None) -> list[Page]:
    """Read pages. ``seconds``: CPU time after which to stop, with the pages read so far."""
    found: list[Page] = []
    chars, until = 0, math.inf if seconds is None else time.process_time() + seconds
    for first in range(0, len(wanted), _PAGES_AT_ONCE):
        with _opened(data) as document:
            for number in wanted[first : first + _PAGES_AT_ONCE]:
                page = _page(document, number)
                chars += len(page.text)
                if chars > limits.text_chars:
                    raise DocumentTooLarge(f"the text has more than {limits.text_chars:,} characters")
                found.append(page)
                if time.process_time() > until:
                    return found
    return found


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
