"""Words of a PDF page with their places on the page's picture."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from penstock.pipeline.extract.protocol import PlacedWord

if TYPE_CHECKING:
    from pypdfium2 import PdfPage, PdfTextPage

MOST_CHARS = 200_000
"""Characters of a page that are looked at."""
_GRID = 1_000_000
"""Pixels of the picture on which places are calculated."""


def placed_words(page: PdfPage) -> tuple[PlacedWord, ...]:
    """Words of the page's text layer, in its order. Those outside the picture are left out."""
    layer = page.get_textpage()
    try:
        return _words(page, layer)
    finally:
        layer.close()


def _words(page: PdfPage, layer: PdfTextPage) -> tuple[PlacedWord, ...]:
    import pypdfium2.raw as pdfium

    found: list[PlacedWord] = []
    text: list[str] = []
    corners: list[tuple[float, float]] = []
    left, right, bottom, top = (ctypes.c_double() for _ in range(4))
    for at in range(min(layer.count_chars(), MOST_CHARS)):
        letter = chr(min(pdfium.FPDFText_GetUnicode(layer, at), 0x10FFFF))
        if letter.isspace() or letter == "\0":
            _end_word(found, page, text, corners)
        elif pdfium.FPDFText_GetCharBox(layer, at, left, right, bottom, top):
            text.append(letter)
            corners += [(left.value, bottom.value), (right.value, top.value)]
    _end_word(found, page, text, corners)
    return tuple(found)


def _end_word(
    found: list[PlacedWord], page: PdfPage, text: list[str], corners: list[tuple[float, float]]
) -> None:
    if text:
        across, up = zip(*corners, strict=True)
        ends = [_on_picture(page, min(across), min(up)), _on_picture(page, max(across), max(up))]
        (left, right), (top, bottom) = (sorted(sides) for sides in zip(*ends, strict=True))
        if left < 1 and right > 0 and top < 1 and bottom > 0:
            word = "".join(text).encode(errors="ignore").decode()
            found.append(PlacedWord(word, max(left, 0.0), max(top, 0.0), min(right, 1.0), min(bottom, 1.0)))
    text.clear()
    corners.clear()


def _on_picture(page: PdfPage, x: float, y: float) -> tuple[float, float]:
    """A point of the page as parts of the picture's width and height, with the page's box and rotation."""
    import pypdfium2.raw as pdfium

    across, down = ctypes.c_int(), ctypes.c_int()
    pdfium.FPDF_PageToDevice(page, 0, 0, _GRID, _GRID, 0, x, y, across, down)
    return across.value / _GRID, down.value / _GRID
