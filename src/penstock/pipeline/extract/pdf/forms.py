"""Form fields and notes of a PDF page, which the text layer lacks.

Flattening draws them into the page as people see them. Values and notes that are not in the text then are
added below it.
"""

from __future__ import annotations

import ctypes
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.pipeline.extract.charset import clean

if TYPE_CHECKING:
    from pypdfium2 import PdfPage

KEPT_WORDS = 0.95
"""Share of the earlier words that must be left after flattening, which can break a page's fonts."""
_MAX_ANNOTATIONS = 5_000
_HIDDEN = 2 | 32
"""Flags of annotations that are not shown: Hidden, NoView."""
_PASSWORD = 1 << 13
_GENERIC = re.compile(r"yes|on|true|x|off|\d*", re.IGNORECASE)
"""Names of a checked state that say nothing."""
_PATH = re.compile(r"\[\d+\]")
"""Mark of a field name that a form designer made."""


class PageAdditions(msgspec.Struct, frozen=True):
    """Values of form fields and texts of notes on a page."""

    texts: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def has_additions(page: PdfPage) -> bool:
    """Check whether a page has annotations besides links and popups."""
    import pypdfium2.raw as pdfium

    skipped = (pdfium.FPDF_ANNOT_LINK, pdfium.FPDF_ANNOT_POPUP)
    for number in range(min(pdfium.FPDFPage_GetAnnotCount(page), _MAX_ANNOTATIONS)):
        annotation = pdfium.FPDFPage_GetAnnot(page, number)
        if annotation:
            kind = pdfium.FPDFAnnot_GetSubtype(annotation)
            pdfium.FPDFPage_CloseAnnot(annotation)
            if kind not in skipped:
                return True
    return False


def additions(page: PdfPage) -> PageAdditions:
    """Read the values of form fields and the texts of notes, in the order of the file."""
    import pypdfium2.raw as pdfium

    texts: dict[str, None] = {}
    warnings: dict[str, None] = {}
    for number in range(min(pdfium.FPDFPage_GetAnnotCount(page), _MAX_ANNOTATIONS)):
        annotation = pdfium.FPDFPage_GetAnnot(page, number)
        if not annotation:
            continue
        try:
            text, warning = _read(page, annotation)
            texts[text] = None
            warnings[warning] = None
        finally:
            pdfium.FPDFPage_CloseAnnot(annotation)
    return PageAdditions(tuple(filter(None, texts)), tuple(filter(None, warnings)))


def _read(page: PdfPage, annotation: Any) -> tuple[str, str]:
    """Text of an annotation, and a warning; either may be empty."""
    import pypdfium2.raw as pdfium

    kind = pdfium.FPDFAnnot_GetSubtype(annotation)
    if kind in (pdfium.FPDF_ANNOT_LINK, pdfium.FPDF_ANNOT_POPUP):
        return "", ""
    if pdfium.FPDFAnnot_GetFlags(annotation) & _HIDDEN:
        return "", ""
    if kind == pdfium.FPDF_ANNOT_WIDGET:
        return _field(page, annotation), ""
    attached = kind == pdfium.FPDF_ANNOT_FILEATTACHMENT
    text = _string(pdfium.FPDFAnnot_GetStringValue, annotation, b"Contents")
    return text, "a file attached to a note is not read" if attached else ""


def flatten(page: PdfPage) -> None:
    """Draw fields and notes into the page, which must be closed and opened again to show them."""
    import pypdfium2.raw as pdfium

    pdfium.FPDFPage_Flatten(page, pdfium.FLAT_NORMALDISPLAY)


def keeps_words(before: str, after: str) -> bool:
    """Check whether flattening left the words of a page as they were."""
    old = Counter(before.split())
    kept = (old & Counter(after.split())).total()
    return kept >= KEPT_WORDS * old.total()


def with_additions(text: str, texts: Sequence[str]) -> str:
    """Append texts missing from the page's text, compared without white space."""
    if not texts:
        return text
    found = "".join(text.split())
    missing = [one for one in texts if "".join(one.split()) not in found]
    return "\n".join([text, "", *missing]) if text and missing else text or "\n".join(missing)


def _field(page: PdfPage, annotation: Any) -> str:
    """Value of a form field, with its label where it has one for people; empty if there is no value."""
    import pypdfium2.raw as pdfium

    form = page.formenv
    if not form:
        return ""
    kind = pdfium.FPDFAnnot_GetFormFieldType(form, annotation)
    if kind in (pdfium.FPDF_FORMFIELD_CHECKBOX, pdfium.FPDF_FORMFIELD_RADIOBUTTON):
        return _checked(form, annotation)
    if kind in (pdfium.FPDF_FORMFIELD_COMBOBOX, pdfium.FPDF_FORMFIELD_LISTBOX):
        return _chosen(form, annotation)
    if kind != pdfium.FPDF_FORMFIELD_TEXTFIELD:
        return ""
    if pdfium.FPDFAnnot_GetFormFieldFlags(form, annotation) & _PASSWORD:
        return ""
    return _string(pdfium.FPDFAnnot_GetFormFieldValue, form, annotation)


def _checked(form: Any, annotation: Any) -> str:
    import pypdfium2.raw as pdfium

    if not pdfium.FPDFAnnot_IsChecked(form, annotation):
        return ""
    label = _string(pdfium.FPDFAnnot_GetFormFieldAlternateName, form, annotation)
    name = _string(pdfium.FPDFAnnot_GetFormFieldName, form, annotation)
    state = _string(pdfium.FPDFAnnot_GetFormFieldExportValue, form, annotation)
    parts = [label or ("" if _PATH.search(name) else name), "" if _GENERIC.fullmatch(state) else state]
    said = ": ".join(filter(None, parts))
    return f"[x] {said}" if said else ""


def _chosen(form: Any, annotation: Any) -> str:
    import pypdfium2.raw as pdfium

    count = pdfium.FPDFAnnot_GetOptionCount(form, annotation)
    labels = [
        _string(pdfium.FPDFAnnot_GetOptionLabel, form, annotation, number)
        for number in range(max(0, min(count, _MAX_ANNOTATIONS)))
        if pdfium.FPDFAnnot_IsOptionSelected(form, annotation, number)
    ]
    chosen = "\n".join(filter(None, labels))
    return chosen or _string(pdfium.FPDFAnnot_GetFormFieldValue, form, annotation)


def _string(read: Callable[..., int], *arguments: Any) -> str:
    """Read a UTF-16 string: the first call returns its size in bytes, the second one fills a buffer."""
    size = read(*arguments, None, 0)
    if size <= 2:
        return ""
    buffer = (ctypes.c_ushort * (size // 2 + 1))()
    read(*arguments, buffer, size)
    return clean(bytes(buffer)[: size - 2].decode("utf-16-le", "replace")).replace("\x00", "").strip()
