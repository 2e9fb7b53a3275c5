"""Text of a PDF page as pdfium reads it, without text outside the page's box."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.pipeline.extract.charset import clean
from penstock.pipeline.extract.pdf.layer import HYPHENS

if TYPE_CHECKING:
    from pypdfium2 import PdfPage, PdfTextPage

_TOLERANCE = 1.0
"""Points by which text may stand out of the page's box."""
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0e-\x1f]")
_CONTROLS = bytes([*range(9), 11, *range(14, 32)])

Box = tuple[float, float, float, float]
"""Left, bottom, right, top."""


def raw_text(page: PdfPage) -> str:
    """Text of the page's layer, inside the page's box, unchanged."""
    layer = page.get_textpage()
    try:
        raw: str = layer.get_text_range(errors="surrogatepass")
        if not raw:
            return raw
        box = page.get_bbox()
        bounded = _bounded(layer, box, len(raw))
        # The bounded text has its cells glued, but shows at little cost that no character is outside.
        if _visible(bounded) == _visible(raw) or _all_inside(layer, box):
            return raw
        return _clipped(layer, box)
    finally:
        layer.close()


def normalised(raw: str) -> str:
    """The text with words joined at line ends, ``\\n`` line ends, NFC, and without control characters."""
    text = raw.replace("\r\n", "\n")
    for hyphen in HYPHENS:
        if hyphen in text:
            text = text.replace(hyphen + "\n", "").replace(hyphen, "")
    encoded = text.encode("utf-8", "surrogatepass")
    if len(encoded.translate(None, _CONTROLS)) < len(encoded):
        text = _CONTROL.sub(" ", text)
    return "\n".join([line.rstrip() for line in clean(text).split("\n")]).strip()


def _bounded(layer: PdfTextPage, box: Box, length: int) -> str:
    """Text inside the box, by one call where pypdfium2 makes two."""
    import pypdfium2.raw as pdfium

    left, bottom, right, top = box
    size = 2 * length + 64
    buffer = (ctypes.c_ushort * size)()
    count = pdfium.FPDFText_GetBoundedText(layer.raw, left, top, right, bottom, buffer, size)
    return bytes(buffer)[: 2 * count].decode("utf-16-le", "surrogatepass").rstrip("\0")


def _visible(text: str) -> int:
    """Number of characters besides spaces and line ends, some of which pdfium adds."""
    return len(text) - text.count(" ") - text.count("\r") - text.count("\n")


def _all_inside(layer: PdfTextPage, box: Box) -> bool:
    left, bottom, right, top = box
    for number in range(layer.count_rects()):
        one = layer.get_rect(number)
        if one[0] < left - _TOLERANCE or one[1] < bottom - _TOLERANCE:
            return False
        if one[2] > right + _TOLERANCE or one[3] > top + _TOLERANCE:
            return False
    return True


def _clipped(layer: PdfTextPage, box: Box) -> str:
    """Text of the characters that start inside the box."""
    parts: list[str] = []
    begun: int | None = None
    count = layer.count_chars()
    for at, inside in enumerate(_inside(layer, count, box)):
        if inside and begun is None:
            begun = at
        elif not inside and begun is not None:
            parts.append(layer.get_text_range(begun, at - begun, errors="surrogatepass"))
            begun = None
    if begun is not None:
        parts.append(layer.get_text_range(begun, count - begun, errors="surrogatepass"))
    return "".join([part if part[-1:].isspace() else part + "\n" for part in parts])


def _inside(layer: PdfTextPage, count: int, box: Box) -> Iterator[bool]:
    """Check for each character whether the place is on the page. Generated ones follow the one before.

    Its place is the start of its baseline, so that the letters of a line at the edge share one answer.
    """
    import pypdfium2.raw as pdfium

    left, bottom, right, top = box[0] - _TOLERANCE, box[1] - _TOLERANCE, box[2], box[3]
    x, y = ctypes.c_double(), ctypes.c_double()
    inside = False
    for at in range(count):
        generated = pdfium.FPDFText_IsGenerated(layer, at) == 1
        if not generated and pdfium.FPDFText_GetCharOrigin(layer, at, x, y):
            inside = left <= x.value <= right and bottom <= y.value <= top
        yield inside
