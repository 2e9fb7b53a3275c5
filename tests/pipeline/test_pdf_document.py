"""PDF documents as a whole: properties, attached files, damage, and pages as pictures."""

from __future__ import annotations

import pytest

from penstock.errors import DocumentDamaged
from penstock.pipeline.extract.pdf import document as pdf_document
from penstock.pipeline.extract.pdf.document import CUT_OFF, MAX_PIXELS, WRONG_TABLE, PdfPages, iso_date
from penstock.pipeline.extract.protocol import Attachment, ExtractLimits, Properties
from tests.pipeline.pdf_files import PdfWriter, shown
from tests.pipeline.sample_documents import pdf as plain_pdf
from tests.pipeline.test_pdf import read


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("D:20240103093826+01'00'", "2024-01-03T09:38:26+01:00"),
        ("D:20070227222958-06'30", "2007-02-27T22:29:58-06:30"),
        ("D:20221115193031Z", "2022-11-15T19:30:31+00:00"),
        ("D:20230421160435Z00'00'", "2023-04-21T16:04:35+00:00"),
        ("D:20160728141406", "2016-07-28T14:14:06"),
        ("20160728141406", "2016-07-28T14:14:06"),
        ("D:20160728", "2016-07-28"),
        ("D:2016", "2016-01-01"),
        ("2016-07-28T14:14:06Z", "2016-07-28T14:14:06+00:00"),
        ("D:20161328141406", ""),
        ("D:20160728141406+99'99'", ""),
        ("Tuesday", ""),
        ("", ""),
    ],
)
def test_dates_are_iso(value: str, expected: str):
    assert expected == iso_date(value)


def test_properties_of_a_document():
    info = b"/Title (Mills) /Author (A. Miller) /CreationDate (D:20240103093826+01'00') /ModDate (never)"
    writer = PdfWriter(catalog=b"/Lang (de_CH)", info=info)
    writer.page(shown("words"))

    extracted = read(writer.bytes())

    assert "Mills" == extracted.title
    expected = Properties(author="A. Miller", created="2024-01-03T09:38:26+01:00", language="de-CH")
    assert expected == extracted.properties


def test_placeholders_are_no_properties():
    writer = PdfWriter(catalog=b"/Lang ()", info=b"/Title (untitled) /Author (\\(anonymous\\))")
    writer.page(shown("words"))

    extracted = read(writer.bytes())

    assert (None, Properties()) == (extracted.title, extracted.properties)


def with_files(**files: bytes) -> bytes:
    writer = PdfWriter()
    listed = b""
    for name, data in files.items():
        embedded = writer.stream(data, b"/Type /EmbeddedFile")
        about = b"<< /Type /Filespec /F (%s) /UF (%s) /EF << /F %d 0 R >> >>"
        path = b"folder/" + name.encode() + b".txt"
        listed += b"(%s) %d 0 R " % (path, writer.add(about % (path, path, embedded)))
    writer._catalog = b"/Names << /EmbeddedFiles << /Names [%s] >> >>" % listed
    writer.page(shown("words"))
    return writer.bytes()


def test_attached_files_are_returned():
    extracted = read(with_files(one=b"first", two=b"second"))

    assert (Attachment("one.txt", b"first"), Attachment("two.txt", b"second")) == extracted.attachments
    assert () == extracted.warnings


def test_attached_files_have_limits(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pdf_document, "MAX_ATTACHMENTS", 2)
    data = with_files(one=bytes(900), two=bytes(2000), three=b"small")

    document = PdfPages(data, ExtractLimits(file_bytes=1000))

    assert ["one.txt"] == [each.name for each in document.attachments]
    assert (
        "the attached file 'two.txt' is left out: 2,000 bytes are too many",
        "1 attached file is left out: the limit is 2",
    ) == document.warnings
    document.close()


def test_damage_that_pdfium_repairs_is_a_warning():
    whole = plain_pdf("rescued")

    assert () == read(whole).warnings
    assert () == read(b"HTTP/1.1 200 OK\r\n\r\n" + whole).warnings
    for broken, warning in (
        (whole.replace(b"xref\n0", b"gone\n0"), WRONG_TABLE),
        (whole.replace(b"startxref", b"starting"), CUT_OFF),
        (whole.replace(b"\n2 0 obj", b"\n\n\n2 0 obj"), WRONG_TABLE),
        (whole.replace(b" n \n", b" n\n"), WRONG_TABLE),
    ):
        extracted = read(broken)
        assert "rescued" == extracted.pages[0].text
        assert (warning,) == extracted.warnings


def test_a_page_as_a_picture():
    document = PdfPages(plain_pdf("words", "more"), ExtractLimits())

    image = document.image(2, 144)

    assert ((1584, 1224), 144, "uint8") == (image.pixels.shape, image.dpi, image.pixels.dtype.name)
    assert image.pixels.flags.c_contiguous
    assert 255 == image.pixels[0, 0] > image.pixels.min()
    document.close()


def test_a_huge_page_gets_a_lower_resolution(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pdf_document, "MAX_PIXELS", MAX_PIXELS // 100)
    writer = PdfWriter(pages=b"/MediaBox [0 0 28346 28346]")
    writer.page(shown("words"))
    document = PdfPages(writer.bytes(), ExtractLimits())

    image = document.image(1, 300)

    assert image.pixels.size <= MAX_PIXELS // 100 * 1.01
    assert 1 <= image.dpi < 300
    document.close()


def test_a_page_that_cannot_be_loaded_has_no_picture():
    document = PdfPages(plain_pdf("words"), ExtractLimits())

    with pytest.raises(DocumentDamaged):
        document.image(7, 300)
    assert document.page(7).failure
    document.close()
