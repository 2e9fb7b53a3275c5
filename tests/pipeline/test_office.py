"""Word documents."""

from __future__ import annotations

import sys

import pytest

from penstock.errors import ComponentMissing, DocumentDamaged, DocumentEncrypted, DocumentTooLarge, NoText
from penstock.pipeline.extract.factory import extract
from penstock.pipeline.extract.protocol import Content, ExtractedText, ExtractLimits, Shape
from tests.pipeline.sample_documents import docx, paragraph, table

OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600)


def read(data: bytes, **limits: int) -> ExtractedText:
    return extract(Content("a.docx", data), ExtractLimits(**limits))


def test_headings_paragraphs_and_tables_in_order():
    body = [paragraph("Mill", "Heading1"), paragraph("It grinds ü."), table(["n", "t"], ["mill", "wheel"])]

    extracted = read(docx(*body, paragraph("End.")))

    lines = [line for line in extracted.pages[0].text.split("\n") if line]
    assert "Mill" == lines[0].lstrip("# ")
    assert ["It grinds ü.", "| n | t |"] == lines[1:3]
    assert ["| mill | wheel |", "End."] == lines[-2:]
    assert Shape.MARKDOWN is extracted.shape


def test_an_empty_document_is_blank():
    assert read(docx("<w:p/>")).blank


def test_pictures_alone_are_no_text():
    with pytest.raises(NoText):
        read(docx("<w:p/>", parts={"word/media/image1.png": b"\x89PNG"}))


def test_a_password_is_a_permanent_failure():
    with pytest.raises(DocumentEncrypted):
        read(OLE + "EncryptedPackage".encode("utf-16-le"))


@pytest.mark.parametrize("data", [OLE, b"PK\x03\x04 and no more", docx()[:200], docx(paragraph("x"))[:-30]])
def test_damage(data: bytes):
    with pytest.raises(DocumentDamaged):
        read(data)


def test_an_archive_of_something_else():
    whole = docx(paragraph("words"))

    with pytest.raises(DocumentDamaged):
        read(whole.replace(b"word/document.xml", b"w0rd/document.xml"))


def test_bombs_are_not_unpacked():
    with pytest.raises(DocumentTooLarge):
        read(docx(parts={"word/media/zeros": bytes(5_000_000)}), file_bytes=1_000_000)
    with pytest.raises(DocumentTooLarge):
        read(docx(parts={f"word/{number}": b"" for number in range(5001)}))


def test_without_the_extra_the_command_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "kreuzberg", None)

    with pytest.raises(ComponentMissing, match=r"kreuzberg: pip install 'kreuzberg[<>=.,\d]+'"):
        read(docx(paragraph("words")))
