"""Objects on a PDF page: the part covered by pictures, invisible text, text without width."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from penstock.pipeline.extract.pdf.layer import Shown

if TYPE_CHECKING:
    from pypdfium2 import PdfPage

_SAMPLE = 5
"""Objects looked at from both ends of a page, to find out whether it has invisible text."""
_MAX_OBJECTS = 20_000
_MAX_DEPTH = 4
_NO_WIDTH = 0.1

Matrix = tuple[float, float, float, float, float, float]
_IDENTITY: Matrix = (1.0, 0.0, 0.0, 1.0, 0.0, 0.0)


def survey(page: PdfPage, *, whole: bool) -> Shown:
    """Survey the objects of a page. Unless ``whole``, only if some of its text is invisible."""
    import pypdfium2.raw as pdfium

    count = pdfium.FPDFPage_CountObjects(page)
    if count <= 0:
        return Shown(anything=False)
    if not whole and not _hidden_text_in_sample(page.raw, count):
        return Shown(anything=True)
    left, bottom, right, top = page.get_bbox()
    area = texts = hidden = narrow = 0.0
    for kind, thing, matrix in _walk(page.raw, count):
        if kind == pdfium.FPDF_PAGEOBJ_IMAGE:
            box = _bounds(thing, matrix)
            width, height = min(box[2], right) - max(box[0], left), min(box[3], top) - max(box[1], bottom)
            area += max(0.0, width) * max(0.0, height)
        elif kind == pdfium.FPDF_PAGEOBJ_TEXT:
            texts += 1
            hidden += pdfium.FPDFTextObj_GetTextRenderMode(thing) == pdfium.FPDF_TEXTRENDERMODE_INVISIBLE
            if whole:
                box = _bounds(thing, _IDENTITY)
                narrow += box[2] - box[0] < _NO_WIDTH < box[3] - box[1]
    size = max(1.0, (right - left) * (top - bottom))
    return Shown(True, min(1.0, area / size), hidden / max(1.0, texts), narrow / max(1.0, texts))


def _hidden_text_in_sample(page: Any, count: int) -> bool:
    import pypdfium2.raw as pdfium

    for at in _ends(count):
        thing = pdfium.FPDFPage_GetObject(page, at)
        if pdfium.FPDFPageObj_GetType(thing) == pdfium.FPDF_PAGEOBJ_FORM:
            inside = pdfium.FPDFFormObj_CountObjects(thing)
            if any(_is_hidden(pdfium.FPDFFormObj_GetObject(thing, one)) for one in _ends(inside)):
                return True
        elif _is_hidden(thing):
            return True
    return False


def _ends(count: int) -> Iterable[int]:
    return range(count) if count <= 2 * _SAMPLE else (*range(_SAMPLE), *range(count - _SAMPLE, count))


def _is_hidden(thing: Any) -> bool:
    import pypdfium2.raw as pdfium

    # Objects of other types have no mode.
    return bool(pdfium.FPDFTextObj_GetTextRenderMode(thing) == pdfium.FPDF_TEXTRENDERMODE_INVISIBLE)


def _walk(page: Any, count: int) -> Iterator[tuple[int, Any, Matrix]]:
    """All objects of a page with their type, and the matrix of the forms around them."""
    import pypdfium2.raw as pdfium

    found = (pdfium.FPDFPage_GetObject(page, at) for at in range(count))
    levels: list[tuple[Iterator[Any], Matrix]] = [(found, _IDENTITY)]
    left = _MAX_OBJECTS
    while levels and left:
        things, matrix = levels[-1]
        thing = next(things, None)
        if thing is None:
            levels.pop()
            continue
        left -= 1
        kind = pdfium.FPDFPageObj_GetType(thing)
        if kind != pdfium.FPDF_PAGEOBJ_FORM:
            yield kind, thing, matrix
        elif len(levels) < _MAX_DEPTH:
            levels.append((_members(thing), _product(_matrix(thing), matrix)))


def _members(form: Any) -> Iterator[Any]:
    import pypdfium2.raw as pdfium

    for at in range(pdfium.FPDFFormObj_CountObjects(form)):
        yield pdfium.FPDFFormObj_GetObject(form, at)


def _matrix(thing: Any) -> Matrix:
    import pypdfium2.raw as pdfium

    found = pdfium.FS_MATRIX()
    if not pdfium.FPDFPageObj_GetMatrix(thing, found):
        return _IDENTITY
    return found.a, found.b, found.c, found.d, found.e, found.f


def _product(inner: Matrix, outer: Matrix) -> Matrix:
    a, b, c, d, e, f = inner
    p, q, r, s, t, u = outer
    return a * p + b * r, a * q + b * s, c * p + d * r, c * q + d * s, e * p + f * r + t, e * q + f * s + u


def _bounds(thing: Any, matrix: Matrix) -> tuple[float, float, float, float]:
    import pypdfium2.raw as pdfium

    x1, y1, x2, y2 = (ctypes.c_float() for _ in range(4))
    if not pdfium.FPDFPageObj_GetBounds(thing, x1, y1, x2, y2):
        return 0.0, 0.0, 0.0, 0.0
    a, b, c, d, e, f = matrix
    corners = [(x, y) for x in (x1.value, x2.value) for y in (y1.value, y2.value)]
    xs, ys = [a * x + c * y + e for x, y in corners], [b * x + d * y + f for x, y in corners]
    return min(xs), min(ys), max(xs), max(ys)
