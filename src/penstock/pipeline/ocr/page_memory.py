"""Memory for the recognition of one page: engines within the memory of the worker."""

from __future__ import annotations

import msgspec

from penstock.named_tuple import NamedTuple
from penstock.pipeline.extract.protocol import ExtractedText, Page
from penstock.pipeline.ocr.pages import OcrSetup


class PageMemory(NamedTuple):
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
    from penstock.pipeline.ocr import factory, rapid

    if setup.endpoint is not None:
        return PageMemory(setup, factory.DRAWING_BYTES + file_bytes)
    needed = factory.memory_bytes(setup.options) + file_bytes
    alone = msgspec.structs.replace(setup.options, min_confidence=0.0)
    if most_bytes is None or needed <= most_bytes or not rapid.usable(setup.options.languages):
        return PageMemory(setup, needed)
    left_out = (
        f"rapidocr was not used: it needs {needed >> 20:,} MiB for this page, and PENSTOCK_FILE_MEMORY_MB "
        f"leaves {most_bytes >> 20:,} MiB"
    )
    first = factory.FIRST_ENGINE_BYTES + file_bytes
    return PageMemory(setup._replace(options=alone), first, left_out)


def with_warning_if_poor(extracted: ExtractedText, min_confidence: float, warning: str) -> ExtractedText:
    """The text with a warning on pages of low confidence, which another engine might read better."""

    def warned(page: Page) -> Page:
        confidence = page.recognition.confidence if page.recognition is not None else None
        if page.recognition is None or (confidence or 0.0) >= min_confidence:
            return page
        return msgspec.structs.replace(page, warnings=(*page.warnings, warning))

    return msgspec.structs.replace(extracted, pages=tuple(map(warned, extracted.pages)))
