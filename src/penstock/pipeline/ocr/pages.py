"""Recognition of the pages of a document, and the choice between recognized text and text layer."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from penstock.errors import ComponentMissing, UnreadableDocument
from penstock.pipeline.extract.protocol import Page
from penstock.pipeline.fingerprints import fingerprint
from penstock.pipeline.ocr.protocol import EndpointOptions, OcrEngine, OcrOptions, RecognizedText

if TYPE_CHECKING:
    from penstock.pipeline.extract.protocol import PagedDocument

SURE = 80.0
"""Mean confidence from which recognized text may replace a text layer."""
SAME_WORDS = 0.75
"""Share of the recognized words that a text layer must have to be kept."""
FEW_CHARS = 20
"""Characters below which a text layer is only a page number or a stamp, kept beside the recognized text."""
OCR_BYTES = 256 << 20
BOTH_ENGINES_BYTES = 1024 << 20
"""Memory for a page with rapidocr, which takes about 700 MB."""
NOTHING_FOUND = "no text was recognized in the picture of this page"
_WORD = re.compile(r"\w+")


class OcrSetup(NamedTuple):
    """Choice of the reader of pictures: engines on this machine, or an endpoint."""

    options: OcrOptions = OcrOptions()
    endpoint: EndpointOptions | None = None

    @property
    def fingerprint(self) -> str:
        """Fingerprint of everything that may change the recognized text. Holds no secret."""
        from penstock.pipeline.ocr.factory import engine_versions

        if self.endpoint is not None:
            return fingerprint({"model": self.endpoint.model, "dpi": self.options.dpi})
        return fingerprint(
            {"options": msgspec.structs.asdict(self.options), "versions": engine_versions()},
        )

    @property
    def memory_bytes(self) -> int:
        """Memory to recognize the text of a page, besides that for its file."""
        from penstock.pipeline.ocr import rapid

        both = self.endpoint is None and rapid.usable(self.options.languages)
        return BOTH_ENGINES_BYTES if both else OCR_BYTES

    @property
    def languages(self) -> tuple[str, ...]:
        """Installed languages, as far as this user may see them."""
        from penstock.pipeline.ocr import models

        return models.installed(self.options.tessdata_dir)


def recognize_page(page: Page, document: PagedDocument, engine: OcrEngine, dpi: int) -> Page:
    """Recognize the text of one page. An error of this page alone is its ``failure``."""
    try:
        return combined(page, engine.recognize(document.image(page.number, dpi)))
    except ComponentMissing:
        raise
    except UnreadableDocument as error:
        return Page(page.number, "", failure=error.message)


def combined(page: Page, found: RecognizedText) -> Page:
    """The page with recognized text, its text layer, or both.

    A text layer that OCR left behind may be poor: clearly different, confident text replaces it.
    """
    if not found.text:
        warnings = (*page.warnings, *found.warnings) if page.text else (*found.warnings, NOTHING_FOUND)
        recognition = None if page.text else found.recognition
        return msgspec.structs.replace(page, needs_ocr=False, recognition=recognition, warnings=warnings)
    few = sum(not char.isspace() for char in page.text) < FEW_CHARS
    poor = (found.confidence or 0.0) >= SURE and _share_of_words(found.text, page.text) < SAME_WORDS
    if page.text and not few and not poor:
        return msgspec.structs.replace(page, needs_ocr=False)
    text = found.text
    if few and page.text and _share_of_words(page.text, found.text) < 1:
        text = f"{page.text}\n\n{found.text}"
    return Page(page.number, text, recognition=found.recognition, warnings=(*page.warnings, *found.warnings))


def _share_of_words(text: str, other: str) -> float:
    """Share of the words of a text that another one has as well."""
    words, known = (Counter(_WORD.findall(each.casefold())) for each in (text, other))
    return (words & known).total() / max(words.total(), 1)
