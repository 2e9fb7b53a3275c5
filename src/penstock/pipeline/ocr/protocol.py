"""Interface of an OCR engine: the picture of a page in, text and confidence out."""

from __future__ import annotations

from typing import Protocol

import msgspec

from penstock.pipeline.extract.protocol import PageImage, Recognition


class OcrOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of recognition on this machine. Holds no secret: it is handed to the sandbox."""

    languages: str = "eng"
    """Tesseract's names of the languages, joined by ``+``: ``eng+deu``. The first one weighs most."""
    tessdata_dir: str = ""
    """Folder of the user with more ``.traineddata`` files. Its models win over those of the wheels."""
    dpi: int = 300
    """Resolution at which pages are rendered."""
    min_confidence: float = 72.0
    """Mean confidence below which the second engine is asked, if it is installed."""


class RecognizedText(msgspec.Struct, frozen=True, kw_only=True):
    """Text of one page: NFC, paragraphs between blank lines. Empty if the picture shows no text."""

    text: str
    engine: str
    confidence: float | None = None
    """Mean confidence of the words, from 0 to 100; None if there are none or the engine does not tell."""
    rotation: int = 0
    """Degrees (0, 90, 180, 270) by which the picture was turned clockwise to stand upright."""
    skew: float = 0.0
    """Degrees by which the picture was then turned clockwise to make its lines level."""
    warnings: tuple[str, ...] = ()

    @property
    def recognition(self) -> Recognition:
        return Recognition(self.engine, self.confidence)


class OcrEngine(Protocol):
    """Recognizes the text of one page."""

    name: str
    """Name of the engine in ``Recognition.engine``."""

    def recognize(self, image: PageImage) -> RecognizedText:
        """Recognize the text of a page.

        Raises ComponentMissing if the library or the model of a language is not installed, ServiceUnavailable
        or TransientFailure if an endpoint does not answer now, and DocumentDamaged for a page without result.
        """
        ...
