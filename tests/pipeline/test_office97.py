"""Documents of Word, PowerPoint and Excel 97 to 2003."""

from __future__ import annotations

import struct

import pytest

from penstock.errors import DocumentDamaged, DocumentEncrypted, DocumentTooLarge, NoText, UnreadableDocument
from penstock.pipeline.extract.factory import extract
from penstock.pipeline.extract.protocol import Content, ExtractedText, ExtractLimits
from tests.pipeline.ole_samples import container, excel97, powerpoint97, text_atoms, word97


def read(name: str, data: bytes, pages: range | None = None, **limits: int) -> ExtractedText:
    return extract(Content(name, data), ExtractLimits(**limits), pages=pages)


def word_text(data: bytes) -> str:
    return read("a.doc", data).pages[0].text


@pytest.mark.parametrize("wide", [False, True])
def test_paragraphs_fields_and_signs(wide: bool):
    text = "Mill caf\u00e9\x13 PAGE \\* x\x147\x15\x0bturns\x1eon\x1f.\r\x13 A \x13 B \x14no\x15\x14yes\x15\r"

    assert "Mill café7\nturns-on.\n\nyes" == word_text(word97(text, wide=wide))


STYLE = struct.pack("<H", 0)


def test_headings_lists_and_tables():
    in_table = STYLE + struct.pack("<HB", 0x2416, 1)
    row_end = in_table + struct.pack("<HB", 0x2417, 1)
    item = STYLE + struct.pack("<HHHB", 0x460B, 3, 0x260A, 1)
    parts = [
        ("Mill\r", struct.pack("<H", 1)),
        ("text\r", STYLE),
        ("rim\r", item),
        ("a\r", in_table),
        ("b\x07", in_table),
        ("\x07", in_table),
        ("\x07", row_end),
        ("End\r", STYLE),
    ]
    formats = []
    whole = ""
    for text, about in parts:
        whole += text
        formats.append((len(whole), about))

    extracted = read("a.doc", word97(whole, formats=formats))

    assert "# Mill\n\ntext\n\n  - rim\n\n| a b |  |\n|---|---|\n\nEnd" == extracted.pages[0].text
    assert (1, 1, 2, 2, 3, 3, 7, 7, 7, 8) == extracted.pages[0].positions
    assert ("Mill", "paragraph") == (extracted.title, extracted.file_type.position_unit)


def test_tables_without_formats():
    assert "| a | b |\n|---|---|\n| c | d |\n\nEnd" == word_text(word97("a\x07b\x07\x07c\x07d\x07\x07End\r"))


def test_notes_and_headers_follow_the_text():
    data = word97("Mill\x02\r", ["\x02 By the river.\r", "Secret\rSecret\r"])

    assert "Mill\n\nBy the river.\n\nSecret" == word_text(data)


def test_refused_word_documents():
    with pytest.raises(NoText):
        word_text(word97("\x01\r"))
    assert read("a.doc", word97("\r")).blank
    with pytest.raises(DocumentEncrypted):
        word_text(word97("x", flags=0x0300))
    with pytest.raises(DocumentDamaged, match="no Word document"):
        word_text(container({"Other": b"x"}))
    with pytest.raises(DocumentDamaged, match="table of its pieces"):
        word_text(word97("x").replace(b"\x02\x10\0\0\0", b"\x07\x10\0\0\0"))
    with pytest.raises(DocumentTooLarge):
        read("a.doc", word97("x" * 100), text_chars=50)


def test_slides_in_order_with_titles_boxes_and_notes():
    data = powerpoint97(
        [
            (text_atoms(0, "Mill") + text_atoms(1, "rim\rhub"), text_atoms(4, "boxed")),
            (text_atoms(6, "Wheel\x0bof w\u014dod"), b""),
        ],
        notes=text_atoms(2, "Speak up."),
        old=text_atoms(0, "earlier"),
    )

    extracted = read("a.ppt", data)

    assert ["# Mill\n\n- rim\n- hub\n\nboxed\n\n> Speak up.", "# Wheel of wōod"] == [
        page.text for page in extracted.pages
    ]
    assert ("Mill", "slide") == (extracted.title, extracted.file_type.page_unit)
    assert [2] == [page.number for page in read("a.ppt", data, range(2, 3)).pages]


def test_the_last_edit_is_found_without_its_place():
    data = powerpoint97([(text_atoms(0, "Mill"), b"")])
    user = data.index(struct.pack("<II", 20, 0xE391C05F)) + 8

    assert "# Mill" == read("a.ppt", data[:user] + bytes(4) + data[user + 4 :]).pages[0].text


def test_word_95():
    plain = bytearray(0x300)
    struct.pack_into("<HH", plain, 0, 0xA5DC, 0x68)
    struct.pack_into("<II", plain, 0x18, 0x300, 0x305)
    pieces = bytearray(plain)
    struct.pack_into("<H", pieces, 0x0A, 4)
    struct.pack_into("<II", pieces, 0x160, 0x305, 21)
    table = b"\x02" + struct.pack("<IIIHIH", 16, 0, 5, 0, 0x300, 0)

    assert "Mill" == word_text(container({"WordDocument": bytes(plain) + b"Mill\r"}))
    assert "Mill" == word_text(container({"WordDocument": bytes(pieces) + b"Mill\r" + table}))


def test_refused_presentations():
    with pytest.raises(DocumentEncrypted):
        read("a.ppt", powerpoint97([(b"", b"")], token=0xF3D1C4DF))
    with pytest.raises(DocumentDamaged, match="no PowerPoint presentation"):
        read("a.ppt", container({"Other": b"x"}))


def test_an_old_workbook_with_a_password():
    locked = excel97([["a"]]).replace(b"\x85\0\x09\0", b"\x2f\0\x09\0")

    with pytest.raises(DocumentEncrypted):
        read("a.xls", locked)


def test_rows_of_an_old_workbook():
    extracted = read("a.xls", excel97([["name", "turns"], ["wh\u00eb\u0113l", 7.0]], "Wheels"))

    assert "# Wheels\n\n| name | turns |\n|---|---|\n| whëēl | 7 |" == extracted.pages[0].text
    assert "sheet" == extracted.file_type.page_unit


@pytest.mark.parametrize("name", ["a.doc", "a.ppt", "a.xls"])
def test_an_encrypted_package_and_a_damaged_container(name: str):
    with pytest.raises(DocumentEncrypted):
        read(name, container({"EncryptedPackage": b"x"}))
    with pytest.raises(DocumentDamaged):
        read(name, container({"Other": b"x"})[:1000])


@pytest.mark.parametrize(
    ("name", "data"), [("a.doc", word97("words " * 99)), ("a.ppt", powerpoint97([(b"", b"")]))]
)
def test_flipped_bytes_give_text_or_a_reason(name: str, data: bytes):
    for place in range(0, len(data), 61):
        flipped = data[:place] + bytes([data[place] ^ 0xFF]) + data[place + 1 :]
        try:
            assert read(name, flipped).pages is not None
        except UnreadableDocument as error:
            assert error.code  # noqa: PT017
