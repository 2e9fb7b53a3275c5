"""Recognition on this machine: picture prepared, engines asked in turn, the better text taken."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.named_tuple import NamedTuple
from penstock.pipeline.ocr import geometry, rapid, tesseract
from penstock.pipeline.ocr.protocol import OcrOptions, RecognizedText

if TYPE_CHECKING:
    from penstock.pipeline.extract.protocol import PageImage
    from penstock.pipeline.ocr.geometry import Pixels

TURNED = 60.0
"""Mean confidence below which the page may stand on its side or its head."""
NARROW_WIDTH = 1000
"""Width to which narrow pictures such as receipts are brought."""
_NARROW_SHARE = 1.5
"""Height of a narrow picture, at least, in relation to its width."""
_LARGEST_GAIN = 3
"""Factor by which a picture is enlarged at most."""
_NARROW_CONFIDENCE = 90.0
"""Confidence of a narrow picture below which the second engine is asked: Tesseract is too sure of them."""
_LOW_DPI = 180
"""Resolution below which a picture is doubled, unless it has many pixels."""
_MANY_PIXELS = 2_500
_NOISE = 45.0
"""Mean confidence below which unreadable words are taken for the texture of a photograph."""
_READABLE = 70
"""Confidence of a word that shows that a picture has text."""


class _Reading(NamedTuple):
    words: tesseract.Words
    rotation: int
    skew: float
    pixels: Pixels
    """Gray picture, upright and level."""

    @property
    def confidence(self) -> float:
        return self.words.confidence or 0.0


class LocalEngine:
    """Tesseract, and rapidocr for the pages that Tesseract reads badly. Use in one thread at a time."""

    name = tesseract.NAME

    def __init__(self, options: OcrOptions) -> None:
        """Load the models. Raises ComponentMissing if the library or a model is not installed."""
        self._options = options
        self._tesseract = tesseract.Tesseract(options.languages, options.tessdata_dir)
        self._second = rapid.RapidEngine() if rapid.usable(options.languages) else None

    def recognize(self, image: PageImage) -> RecognizedText:
        reading = self._upright(geometry.gray(image.pixels), image.dpi)
        found = _recognized(reading)
        if self._second is None or reading.confidence >= self._least_confidence(reading.pixels):
            return found
        second = self._second.recognize(reading.pixels)
        if _better(second, found):
            return RecognizedText(
                text=second.text,
                engine=rapid.NAME,
                confidence=second.confidence,
                rotation=reading.rotation,
                skew=reading.skew,
            )
        return found

    def _least_confidence(self, pixels: Pixels) -> float:
        least = self._options.min_confidence
        return max(least, _NARROW_CONFIDENCE) if least and is_narrow(pixels) else least

    def _upright(self, pixels: Pixels, dpi: int) -> _Reading:
        first = self._read(pixels, dpi, 0)
        if first.confidence >= TURNED:
            return first
        # Tesseract reads text that stands on its left side by itself, and takes the other side for its head.
        rotation = self._tesseract.turn(pixels, dpi) or (180 if first.words.text else 0)
        if not rotation:
            return first
        second = self._read(geometry.turned(pixels, rotation), dpi, rotation)
        return second if second.confidence > first.confidence else first

    def _read(self, pixels: Pixels, dpi: int, rotation: int) -> _Reading:
        skew = geometry.skew(pixels)
        if skew:
            pixels = geometry.level(pixels, skew)
        return _Reading(self._words(pixels, dpi), rotation, skew, pixels)

    def _words(self, pixels: Pixels, dpi: int) -> tesseract.Words:
        if is_narrow(pixels):
            prepared = geometry.stretched(geometry.resized(pixels, NARROW_WIDTH))
            return self._tesseract.read(prepared, dpi, mode=tesseract.ONE_COLUMN, uneven=True)
        if dpi < _LOW_DPI and max(pixels.shape) < _MANY_PIXELS:
            return self._tesseract.read(geometry.resized(pixels, 2 * pixels.shape[1]), 2 * dpi)
        return self._tesseract.read(pixels, dpi)


def is_narrow(pixels: Pixels) -> bool:
    """Check whether a picture has the form of a receipt, and too few pixels for small print."""
    height, width = int(pixels.shape[0]), int(pixels.shape[1])
    return NARROW_WIDTH / _LARGEST_GAIN <= width < NARROW_WIDTH and height >= _NARROW_SHARE * width


def _recognized(reading: _Reading) -> RecognizedText:
    words = reading.words
    if words.text and _is_noise(words):
        words = tesseract.Words("", ())
    return RecognizedText(
        text=words.text,
        engine=tesseract.NAME,
        confidence=None if words.confidence is None else round(words.confidence, 1),
        rotation=reading.rotation if words.text else 0,
        skew=reading.skew if words.text else 0.0,
    )


def _is_noise(words: tesseract.Words) -> bool:
    """Check whether no word can be read, as in a photograph without text."""
    readable = any(
        confidence >= _READABLE and sum(map(str.isalnum, word)) >= 3
        for word, confidence in zip(words.text.split(), words.confidences, strict=False)
    )
    return (words.confidence or 0.0) < _NOISE and not readable


def _better(second: RecognizedText, first: RecognizedText) -> bool:
    """Choose the more confident engine, unless the text has less than half the length of a confident one."""
    if not second.text:
        return False
    fewer = len(second.text) < len(first.text) / 2 and (first.confidence or 0.0) >= TURNED
    return not fewer and (second.confidence or 0.0) > (first.confidence or 0.0)
