"""Properties of a PDF: title, author, dates, language, attached files."""

from __future__ import annotations

import ctypes
import re
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from penstock.pipeline.extract.charset import clean
from penstock.pipeline.extract.protocol import Attachment, ExtractLimits, Properties
from penstock.pipeline.extract.stated_values import MAX_CHARS, one_line
from penstock.vocabulary import how_many

if TYPE_CHECKING:
    from pypdfium2 import PdfDocument

MAX_ATTACHMENTS = 100
_PLACEHOLDERS = frozenset(["", "untitled", "anonymous", "unspecified", "unknown"])
_DATE = re.compile(
    r"(?:D:)?\s*(\d{4})(\d\d)?(\d\d)?(\d\d)?(\d\d)?(\d\d)?\s*(?:(Z)|([+-])(\d\d)'?(\d\d)?)?.*", re.DOTALL
)
_LANGUAGE = re.compile(r"[A-Za-z]{2,3}(?:-[A-Za-z0-9]{1,8})*")


def title_of(document: PdfDocument) -> str | None:
    return _value(document, "Title") or None


def properties_of(document: PdfDocument) -> Properties:
    return Properties(
        author=_value(document, "Author"),
        created=iso_date(document.get_metadata_value("CreationDate")),
        modified=iso_date(document.get_metadata_value("ModDate")),
        language=_language(document),
    )


def attachments_of(document: PdfDocument, limits: ExtractLimits) -> tuple[tuple[Attachment, ...], list[str]]:
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


def form_warnings(document: PdfDocument) -> list[str]:
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
