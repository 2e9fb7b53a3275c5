"""PDF: the text layer by page, and pages without one."""

from __future__ import annotations

import zlib

import pytest

from penstock.errors import DocumentDamaged, DocumentEncrypted, DocumentTooLarge
from penstock.pipeline.extract.factory import extract
from penstock.pipeline.extract.protocol import Content, ExtractedText, ExtractLimits
from tests.pipeline.sample_documents import LOCKED, PIXEL, pdf


def read(data: bytes, pages: range | None = None, **limits: int) -> ExtractedText:
    return extract(Content("a.pdf", data), ExtractLimits(**limits), pages=pages)


def test_pages_keep_their_numbers_and_lines():
    extracted = read(pdf("The mill\nstands (here)", "größer", title="A mill"))

    assert ["The mill\nstands (here)", "größer"] == [page.text for page in extracted.pages]
    assert [1, 2] == [page.number for page in extracted.pages]
    assert ("A mill", 2) == (extracted.title, extracted.page_count)


def test_a_part_of_the_pages():
    extracted = read(pdf(*(f"page {number}" for number in range(1, 11))), range(4, 7))

    assert [4, 5, 6] == [page.number for page in extracted.pages]
    assert "page 5" == extracted.pages[1].text
    assert 10 == extracted.page_count
    assert () == read(pdf("one"), range(7, 9)).pages
    assert () == read(pdf("one"), range(1, 1)).pages


def test_a_document_of_many_pages():
    extracted = read(pdf(*(f"page {number}" for number in range(1, 4_502))))

    assert [f"page {number}" for number in range(1, 4_502)] == [page.text for page in extracted.pages]


def test_a_page_with_a_picture_alone_needs_ocr_and_an_empty_one_does_not():
    extracted = read(pdf("words", PIXEL, b""))

    assert ["words", "", ""] == [page.text for page in extracted.pages]
    assert [False, True, False] == [page.needs_ocr for page in extracted.pages]
    assert extracted.needs_ocr
    assert not extracted.blank
    assert read(pdf(b"")).blank


def test_drawn_lines_without_text_need_ocr():
    assert read(pdf(b"50 50 m 300 300 l S")).needs_ocr


def test_a_password_is_a_permanent_failure():
    with pytest.raises(DocumentEncrypted) as refusal:
        read(pdf("secret", encrypt=LOCKED))

    assert "ERR_ENCRYPTED" == refusal.value.error_code


@pytest.mark.parametrize("data", [b"%PDF-1.4\n", b"%PDF-1.7\n" + bytes(5000), pdf()])
def test_what_cannot_be_opened_says_so(data: bytes):
    with pytest.raises(DocumentDamaged):
        read(data)


def test_a_damaged_table_of_contents_is_rebuilt():
    whole = pdf("rescued")

    assert "rescued" == read(whole.replace(b"xref\n0", b"gone\n0")).pages[0].text


def test_text_before_the_header_is_forgiven():
    assert "words" == read(b"HTTP/1.1 200 OK\r\n\r\n" + pdf("words")).pages[0].text


def test_too_many_pages():
    with pytest.raises(DocumentTooLarge):
        extract(Content("a.pdf", pdf("one", "two", "three")), ExtractLimits(pages=2))


def test_compressed_text_is_read():
    stream = zlib.compress(b"BT /F1 12 Tf 50 700 Td (squeezed) Tj ET")
    length = b"/Length %d" % len(stream)

    squeezed = pdf(stream).replace(length, length + b" /Filter /FlateDecode")

    assert "squeezed" == read(squeezed).pages[0].text
