"""PDF, page by page: text layer, form fields and notes, pages as pictures; properties and damage of the file.

``PdfPages`` is an open document. The text layer and its measures are in ``text``.
"""

from __future__ import annotations

import ctypes
import logging
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta, timezone
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.errors import DocumentDamaged, DocumentEncrypted, DocumentTooLarge
from penstock.pipeline.extract.charset import clean
from penstock.pipeline.extract.pdf.text import (
    Shown,
    incomplete,
    is_telling,
    measure,
    normalised,
    placed_words,
    raw_text,
    unusable,
)
from penstock.pipeline.extract.protocol import (
    Attachment,
    Content,
    ExtractedText,
    ExtractLimits,
    FileType,
    Page,
    PageImage,
    PlacedWord,
    Properties,
    Shape,
)
from penstock.pipeline.extract.text import MAX_CHARS, extract_pages, one_line
from penstock.vocabulary import how_many

if TYPE_CHECKING:
    from pypdfium2 import PdfDocument, PdfPage


MAX_ATTACHMENTS = 100
_PLACEHOLDERS = frozenset(["", "untitled", "anonymous", "unspecified", "unknown"])
_DATE = re.compile(
    r"(?:D:)?\s*(\d{4})(\d\d)?(\d\d)?(\d\d)?(\d\d)?(\d\d)?\s*(?:(Z)|([+-])(\d\d)'?(\d\d)?)?.*", re.DOTALL
)
_LANGUAGE = re.compile(r"[A-Za-z]{2,3}(?:-[A-Za-z0-9]{1,8})*")


def _title_of(document: PdfDocument) -> str | None:
    return _value(document, "Title") or None


def _properties_of(document: PdfDocument) -> Properties:
    return Properties(
        author=_value(document, "Author"),
        created=iso_date(document.get_metadata_value("CreationDate")),
        modified=iso_date(document.get_metadata_value("ModDate")),
        language=_language(document),
    )


def _attachments_of(document: PdfDocument, limits: ExtractLimits) -> tuple[tuple[Attachment, ...], list[str]]:
    """Files attached to a document, and warnings about those left out."""
    from pypdfium2 import PdfiumError

    found: list[Attachment] = []
    warnings: list[str] = []
    left = limits.file_bytes
    count = document.count_attachments()
    for number in range(min(count, MAX_ATTACHMENTS)):
        name = f"attachment {number + 1}"
        try:
            one = document.get_attachment(number)
            name = _file_name(one.get_name()) or name
            data = bytes(one.get_data())
        except PdfiumError:
            warnings.append(f"the attached file {name!r} cannot be read")
            continue
        if len(data) > left:
            warnings.append(f"the attached file {name!r} is left out: {len(data):,} bytes are too many")
            continue
        left -= len(data)
        found.append(Attachment(name, data))
    if count > MAX_ATTACHMENTS:
        files = how_many(count - MAX_ATTACHMENTS, "attached file is", "attached files are")
        warnings.append(f"{files} left out: the limit is {MAX_ATTACHMENTS}")
    return tuple(found), warnings


def _form_warnings(document: PdfDocument) -> list[str]:
    import pypdfium2.raw as pdfium

    if document.get_formtype() == pdfium.FORMTYPE_XFA_FULL:
        return ["the PDF is an XFA form: text that only its form program draws is missing"]
    return []


def iso_date(value: str) -> str:
    """Convert a PDF date such as ``D:20240103093826+01'00'`` to ISO 8601; empty if it is no date.

    A date without time stays one; a time without a zone has none.
    """
    value = value.strip().strip("\x00")
    found = _DATE.fullmatch(value)
    if found is None or not _plausible(found):
        return _other_date(value)
    year, month, day, hour, minute, second, utc, sign, hours, minutes = found.groups()
    try:
        moment = datetime(  # noqa: DTZ001 - the zone follows if there is one
            int(year), int(month or 1), int(day or 1), int(hour or 0), int(minute or 0), int(second or 0)
        )
        if hour is None:
            return moment.date().isoformat()
        if utc or sign:
            offset = timedelta(hours=int(hours or 0), minutes=int(minutes or 0))
            moment = moment.replace(tzinfo=timezone(-offset if sign == "-" else offset))
    except ValueError:
        return ""
    return moment.isoformat()


def _plausible(found: re.Match[str]) -> bool:
    """Check that a year alone is not the start of another notation, such as ``2024-01-03``."""
    return found[2] is not None or found.end(1) == len(found.string)


def _other_date(value: str) -> str:
    try:
        return datetime.fromisoformat(value).isoformat()
    except ValueError:
        return ""


def _value(document: PdfDocument, key: str) -> str:
    value = one_line(document.get_metadata_value(key))
    return "" if value.lower().strip("()") in _PLACEHOLDERS else value


def _language(document: PdfDocument) -> str:
    import pypdfium2.raw as pdfium

    size = pdfium.FPDFCatalog_GetLanguage(document, None, 0)
    if not 2 < size <= 2 * MAX_CHARS:
        return ""
    buffer = (ctypes.c_ushort * (size // 2 + 1))()
    pdfium.FPDFCatalog_GetLanguage(document, buffer, size)
    language = bytes(buffer)[: size - 2].decode("utf-16-le", "replace").strip().replace("_", "-")
    return language if _LANGUAGE.fullmatch(language) else ""


def _file_name(name: str) -> str:
    last = re.split(r"[/\\]", clean(name))[-1]
    return "".join(char for char in last if char.isprintable()).strip()[:255]


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


class _PageAdditions(msgspec.Struct, frozen=True):
    """Values of form fields and texts of notes on a page."""

    texts: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def _has_additions(page: PdfPage) -> bool:
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


def _additions(page: PdfPage) -> _PageAdditions:
    """Read the values of form fields and the texts of notes, in the order of the file.

    Those that are not in the text of the page once it is flattened are added below it.
    """
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
    return _PageAdditions(tuple(filter(None, texts)), tuple(filter(None, warnings)))


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


def _flatten(page: PdfPage) -> None:
    """Draw fields and notes, which the text layer lacks, into the page as people see them.

    The page must be closed and opened again to show them.
    """
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


_TAIL = 2_048
_MAX_ENTRIES = 1_000
_ENTRY_BYTES = 20
_START = re.compile(rb"startxref\s+(\d+)")
_OBJECT = re.compile(rb"\s*(\d+)\s+(\d+)\s+obj")
_TABLE = re.compile(rb"\s*xref\s+")
_SECTION = re.compile(rb"(\d+)\s+(\d+)\s*?(?:\r\n|\n|\r|(?=\d{10} ))")
_ENTRY = re.compile(rb"(\d{10}) (\d{5}) ([nf])(?: \r| \n|\r\n)")
_TRAILER = re.compile(rb"\s*trailer\s*(<<.*?)startxref", re.DOTALL)
_STRING = re.compile(rb"\((?:\\.|[^()\\])*\)", re.DOTALL)

CUT_OFF = "the PDF is cut off: its end is missing, so that later pages or changes may be missing, too"
WRONG_TABLE = "the PDF is damaged: its table of objects is wrong, so that parts may be missing"


def _damage_warnings(data: bytes) -> list[str]:
    """Warnings about a damaged file, which pdfium opened nevertheless: it repairs silently.

    This checks the last table of objects of a file against the objects it points to.
    """
    starts = _START.findall(data[-_TAIL:])
    if not starts:
        return [CUT_OFF]
    header = max(0, data[:1024].find(b"%PDF-"))
    at = int(starts[-1])
    places = {at, at + header}
    sound = any(_is_sound(data, place, header) for place in places if 0 < place < len(data))
    return [] if sound else [WRONG_TABLE]


def _is_sound(data: bytes, at: int, header: int) -> bool:
    table = _TABLE.match(data, at)
    if table is None:
        # A stream of object positions, which pdfium checks when it unpacks it.
        return _OBJECT.match(data, at) is not None
    end = _checked_sections(data, table.end(), header)
    return end is not None and _balanced(data, end)


def _checked_sections(data: bytes, at: int, header: int) -> int | None:
    """The end of the table at this offset, or None if an entry is wrong."""
    left = _MAX_ENTRIES
    while section := _SECTION.match(data, at):
        first, count = int(section[1]), int(section[2])
        at = section.end()
        for number in range(first, first + min(count, left)):
            entry = _ENTRY.match(data, at + _ENTRY_BYTES * (number - first))
            if entry is None or (entry[3] == b"n" and not _points_to(data, number, int(entry[1]), header)):
                return None
        at += _ENTRY_BYTES * count
        left = max(0, left - count)
    return at


def _points_to(data: bytes, number: int, at: int, header: int) -> bool:
    # Unused entries may be marked as used, with position 0.
    return at == 0 or any(
        (found := _OBJECT.match(data, place)) is not None and int(found[1]) == number
        for place in (at, at + header)
    )


def _balanced(data: bytes, at: int) -> bool:
    trailer = _TRAILER.match(data, at)
    if trailer is None:
        return False
    plain = _STRING.sub(b"", trailer[1])
    return plain.count(b"<<") == plain.count(b">>") and plain.count(b"[") == plain.count(b"]")


_SAMPLE = 5
"""Objects looked at from both ends of a page, to find out whether it has invisible text."""
_MAX_OBJECTS = 20_000
_MAX_DEPTH = 4
_NO_WIDTH = 0.1

Matrix = tuple[float, float, float, float, float, float]
_IDENTITY: Matrix = (1.0, 0.0, 0.0, 1.0, 0.0, 0.0)


def _survey(page: PdfPage, *, whole: bool) -> Shown:
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


MAX_PIXELS = 40_000_000
"""Pixels of a page's picture: A2 at 300 dpi. Larger pages get a lower resolution."""
_WRONG_PASSWORD = 4
_PAGES_AT_ONCE = 2_000
"""Pages after which the document is reopened: pdfium keeps some memory for every page."""
_POINTS_PER_INCH = 72


class PdfExtractor:
    """Extractor for PDF. Use in one thread at a time: pdfium has global state."""

    name = "pdf"
    version = "2"
    shape = Shape.PROSE

    def extract(
        self, content: Content, file_type: FileType, limits: ExtractLimits, pages: range | None = None
    ) -> ExtractedText:
        return extract_pages(self, content, file_type, limits, pages)

    def open(self, content: Content, limits: ExtractLimits) -> PdfPages:
        return PdfPages(content.data, limits)


class PdfPages:
    """An open PDF."""

    def __init__(self, data: bytes, limits: ExtractLimits) -> None:
        self._data = data
        self._limits = limits
        self._document = _open(data)
        self._flattened: PdfDocument | None = None
        self._read = 0
        self.page_count = len(self._document)
        if self.page_count == 0:
            self.close()
            raise DocumentDamaged("the PDF has no pages")
        if self.page_count > limits.pages:
            self.close()
            pages = how_many(self.page_count, "page")
            raise DocumentTooLarge(f"the PDF has {pages}; the limit is {limits.pages:,}")
        self.title = _title_of(self._document)
        self.properties = _properties_of(self._document)

    @cached_property
    def attachments(self) -> tuple[Attachment, ...]:
        return self._attached[0]

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        found = _damage_warnings(self._data) + _form_warnings(self._document)
        return (*found, *self._attached[1])

    @cached_property
    def _attached(self) -> tuple[tuple[Attachment, ...], list[str]]:
        return _attachments_of(self._document, self._limits)

    def page(self, number: int) -> Page:
        import pypdfium2

        self._count_page()
        try:
            page = self._document[number - 1]
        except pypdfium2.PdfiumError as error:
            return Page(number, "", failure=str(error))
        try:
            return self._page(page, number)
        except pypdfium2.PdfiumError as error:
            return Page(number, "", failure=str(error))
        finally:
            page.close()

    def image(self, number: int, dpi: int) -> PageImage:
        """Render one page in gray, with form fields; in a lower resolution if the page is very large."""
        import numpy as np
        import pypdfium2

        self._count_page()
        try:
            page = self._document[number - 1]
        except pypdfium2.PdfiumError as error:
            raise DocumentDamaged(f"page {number} cannot be rendered: {error}") from error
        try:
            scale = _scale(page.get_width() * page.get_height(), dpi)
            pixels = page.render(scale=scale, grayscale=True).to_numpy()
        except (pypdfium2.PdfiumError, ValueError) as error:
            raise DocumentDamaged(f"page {number} cannot be rendered: {error}") from error
        finally:
            page.close()
        flat = pixels.reshape(pixels.shape[:2])
        return PageImage(np.ascontiguousarray(flat), max(1, round(scale * _POINTS_PER_INCH)))

    def words(self, number: int) -> tuple[PlacedWord, ...]:
        """Words of the text layer, with their places on the picture of the page."""
        import pypdfium2

        self._count_page()
        try:
            page = self._document[number - 1]
        except pypdfium2.PdfiumError as error:
            raise DocumentDamaged(f"page {number} cannot be read: {error}") from error
        try:
            return placed_words(page)
        except pypdfium2.PdfiumError as error:
            raise DocumentDamaged(f"page {number} cannot be read: {error}") from error
        finally:
            page.close()

    def close(self) -> None:
        self._document.close()
        if self._flattened is not None:
            self._flattened.close()
            self._flattened = None

    def _count_page(self) -> None:
        if self._read >= _PAGES_AT_ONCE:
            self.close()
            self._document = _open(self._data)
            self._read = 0
        self._read += 1

    def _page(self, page: PdfPage, number: int) -> Page:
        raw = raw_text(page)
        measures = measure(raw)
        reason = unusable(measures)
        added = _PageAdditions()
        if _has_additions(page):
            added = _additions(page)
            raw = self._flattened_text(number, raw)
        text = "" if reason else normalised(raw)
        text = with_additions(text, added.texts)
        if reason is None:
            shown = _survey(page, whole=not is_telling(measures))
            reason = incomplete(measures, shown, has_text=bool(text))
        return Page(number, text, needs_ocr=reason is not None, warnings=added.warnings, ocr_reason=reason)

    def _flattened_text(self, number: int, raw: str) -> str:
        """Text of a page with fields and notes drawn in; ``raw`` if drawing damages the page.

        This changes the document, so it is done in a second one: pages stay as they are for rendering.
        """
        if self._flattened is None:
            self._flattened = _open(self._data)
        page = self._flattened[number - 1]
        try:
            _flatten(page)
        finally:
            page.close()
        page = self._flattened[number - 1]
        try:
            flattened = raw_text(page)
        finally:
            page.close()
        return flattened if keeps_words(raw, flattened) else raw


def _open(data: bytes) -> PdfDocument:
    import pypdfium2

    try:
        document = pypdfium2.PdfDocument(data)
    except pypdfium2.PdfiumError as error:
        # pdfium keeps the code of an earlier failure, so the code alone may belong to another file.
        if error.err_code == _WRONG_PASSWORD and b"/Encrypt" in data:
            raise DocumentEncrypted("the PDF is encrypted and opens only with a password") from error
        raise DocumentDamaged("the PDF cannot be opened: it is damaged, or not a PDF") from error
    # An XFA form has a warning of its own.
    logging.getLogger("pypdfium2").setLevel(logging.ERROR)
    document.init_forms()
    return document


def _scale(area: float, dpi: int) -> float:
    """Pixels per point, with at most ``MAX_PIXELS`` on a page of this area."""
    return min(dpi / _POINTS_PER_INCH, math.sqrt(MAX_PIXELS / max(1.0, area)))
