"""Recognition of the pages of a document: setup, memory, and the choice between recognized text and text
layer."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from penstock.errors import ComponentMissing, UnreadableDocument
from penstock.pipeline.endpoint import EndpointOptions
from penstock.pipeline.extract.protocol import ExtractedText, OcrReason, Page
from penstock.pipeline.ocr.protocol import OcrEngine, OcrOptions, RecognizedText, installed
from penstock.strict_json import fingerprint

if TYPE_CHECKING:
    from penstock.pipeline.extract.protocol import PagedDocument


SURE = 80.0
"""Mean confidence from which recognized text may replace a text layer."""
SAME_WORDS = 0.75
"""Share of the recognized words that a text layer must have to be kept."""
REPLACEABLE = frozenset([OcrReason.HIDDEN_LAYER, OcrReason.VERTICAL])
"""Reasons for which the text of a page is a layer that recognized text may replace."""
BYTES_PER_PIXEL = 16
"""Memory that Tesseract needs for a picture, at least."""
NOTHING_FOUND = "no text was recognized in the picture of this page"


class OcrSetup(msgspec.Struct, frozen=True):
    """Choice of the reader of pictures: engines on this machine, or an endpoint."""

    options: OcrOptions = OcrOptions()
    endpoint: EndpointOptions | None = None
    enabled: bool = True
    """Pictures are read unless a request says otherwise; False: only if it asks for that."""

    @property
    def fingerprint(self) -> str:
        """Fingerprint of everything that may change the recognized text. Holds no secret."""
        from penstock.pipeline.ocr.engines import engine_versions

        if self.endpoint is not None:
            return fingerprint({"model": self.endpoint.model, "dpi": self.options.dpi})
        return fingerprint(
            {"options": msgspec.structs.asdict(self.options), "versions": engine_versions()},
        )

    @property
    def languages(self) -> tuple[str, ...]:
        """Installed languages, as far as this user may see them."""
        return installed(self.options.tessdata_dir)


def recognize_page(
    page: Page, document: PagedDocument, engine: OcrEngine, dpi: int, memory_bytes: int | None = None
) -> Page:
    """Recognize the text of one page. An error of this page alone is returned as ``failure``.

    Raises ``MemoryError`` for a picture that is too large for ``memory_bytes``, which would crash Tesseract.
    """
    try:
        image = document.image(page.number, dpi)
        height, width = image.pixels.shape[:2]
        if memory_bytes is not None and height * width * BYTES_PER_PIXEL > memory_bytes:
            raise MemoryError
        return combined(page, engine.recognize(image))
    except ComponentMissing:
        raise
    except UnreadableDocument as error:
        return Page(page.number, "", failure=error.message, failure_code=error.code)


def combined(page: Page, found: RecognizedText) -> Page:
    """The page with recognized text, the text layer, or both.

    A layer that OCR left behind, or that lacks characters, is kept unless the recognized text is clearly
    different and confident. Other text of the page stays beside the recognized text; see ``OcrReason``.
    """
    warnings = (*page.warnings, *found.warnings)
    if not found.text:
        recognition = None if page.text else found.recognition
        warnings = warnings if page.text else (*warnings, NOTHING_FOUND)
        return replace(page, needs_ocr=False, recognition=recognition, warnings=warnings)
    text = found.text
    if page.ocr_reason in REPLACEABLE:
        poor = (found.confidence or 0.0) >= SURE and _share_of_words(found.text, page.text) < SAME_WORDS
        if page.text and not poor:
            return replace(page, needs_ocr=False)
    elif _share_of_words(page.text, found.text) < 1:
        text = f"{page.text}\n\n{found.text}" if page.text else found.text
    return Page(page.number, text, recognition=found.recognition, warnings=warnings)


def _share_of_words(text: str, other: str) -> float:
    """Share of the words of a text found in another one."""
    words, known = (Counter(re.findall(r"\w+", each.casefold())) for each in (text, other))
    return (words & known).total() / max(words.total(), 1)


class PageMemory(msgspec.Struct, frozen=True):
    """OCR setup of one page, and the memory for recognition."""

    setup: OcrSetup
    memory_bytes: int
    left_out: str = ""
    """Reason why the second engine is not used, although it is installed."""


def page_memory(setup: OcrSetup, most_bytes: int | None, file_bytes: int) -> PageMemory:
    """Choose the engines for a page, and the memory for them and its file.

    ``most_bytes``: what the worker has for a page; None: no limit.
    """
    # Imported here: the engines load numpy, and most processes recognize no page.
    from penstock.pipeline.ocr import engines

    if setup.endpoint is not None:
        return PageMemory(setup, engines.DRAWING_BYTES + file_bytes)
    needed = engines.memory_bytes(setup.options) + file_bytes
    alone = replace(setup.options, min_confidence=0.0)
    if most_bytes is None or needed <= most_bytes or not engines.rapidocr_usable(setup.options.languages):
        return PageMemory(setup, needed)
    left_out = (
        f"rapidocr was not used: it needs {needed >> 20:,} MiB for this page, and PENSTOCK_FILE_MEMORY_MB "
        f"leaves {most_bytes >> 20:,} MiB"
    )
    first = engines.FIRST_ENGINE_BYTES + file_bytes
    return PageMemory(replace(setup, options=alone), first, left_out)


def with_warning_if_poor(extracted: ExtractedText, min_confidence: float, warning: str) -> ExtractedText:
    """The text with a warning on pages of low confidence, which another engine might read better."""

    def warned(page: Page) -> Page:
        confidence = page.recognition.confidence if page.recognition is not None else None
        if page.recognition is None or (confidence or 0.0) >= min_confidence:
            return page
        return replace(page, warnings=(*page.warnings, warning))

    return replace(extracted, pages=tuple(map(warned, extracted.pages)))
