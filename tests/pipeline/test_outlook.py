"""Messages of Outlook: properties, code pages, attachments, attached messages."""

from __future__ import annotations

import pytest

from penstock.errors import DocumentDamaged, UnsupportedType
from penstock.pipeline.extract import mail as outlook_module
from penstock.pipeline.extract.factory import extract
from penstock.pipeline.extract.protocol import Content, ExtractedText, ExtractLimits
from tests.pipeline.mail_samples import mail
from tests.pipeline.outlook_samples import compound, outlook

FILLED = b"Flour of the mill. " * 300


def read(data: bytes) -> ExtractedText:
    return extract(Content("x.msg", data))


def test_a_message_is_its_subject_headers_and_body():
    found = read(compound(outlook("Grist", attachments={"report.txt": FILLED})))

    assert "Grist" == found.title
    assert [
        "# Grist",
        "",
        "From: Ada Miller <ada@example.org>",
        "To: bob@example.org",
        "Date: 2020-03-02T09:11:12+00:00",
        "Attachments: report.txt",
        "",
        "Water drives the wheel.",
    ] == found.pages[0].text.splitlines()
    assert ("Ada Miller <ada@example.org>", "2020-03-02T09:11:12+00:00") == (
        found.properties.author,
        found.properties.created,
    )
    assert [("report.txt", FILLED)] == [(one.name, one.data) for one in found.attachments]


@pytest.mark.parametrize(
    ("codepage", "encoding", "text"),
    [
        (950, "cp950", "磨坊在河邊"),
        (932, "cp932", "水車は川のそば"),
        (1251, "cp1251", "Мельница у реки"),
        (65001, "utf-8", "Mühle"),
    ],
)
def test_text_is_decoded_by_its_code_page(codepage: int, encoding: str, text: str):
    assert text in read(compound(outlook(body=text.encode(encoding), codepage=codepage))).pages[0].text


def test_html_is_read_where_there_is_no_plain_text():
    page = b"<h2>Wheel</h2><p>It turns.</p>".ljust(4096)
    assert "## Wheel\n\nIt turns." in read(compound(outlook(body="", p10130102=page))).pages[0].text


def test_an_attached_message_becomes_a_mail():
    inner = outlook("Inner", "Bread rises.", {"leaf.txt": FILLED}, top=False)
    found = read(compound(outlook(attachments={"Inner": inner})))
    (one,) = found.attachments
    assert "Inner.eml" == one.name
    again = extract(Content(one.name, one.data))
    assert ("Inner", True) == (again.title, "Bread rises." in again.pages[0].text)
    assert [("leaf.txt", FILLED)] == [(each.name, each.data) for each in again.attachments]


def test_other_containers_and_damage_are_refused():
    with pytest.raises(UnsupportedType, match="no message of Outlook"):
        read(compound({"Unknown": b"x"}))
    with pytest.raises(DocumentDamaged, match="Word"):
        read(compound({"WordDocument": b"x"}))
    with pytest.raises(DocumentDamaged):
        read(compound(outlook())[:700])
    with pytest.raises(UnsupportedType, match="not an Outlook message"):
        read(bytes(range(32)) * 9)


def test_a_plain_mail_with_this_suffix_is_read():
    assert "Water drives the wheel." in read(mail()).pages[0].text


def test_compressed_rich_text_is_unpacked():
    # The example of MS-OXRTFCP 3.1.
    packed = bytes.fromhex(
        "2d0000002b0000004c5a4675f1c5c7a703000a007263706731323542320af32068656c090020627705b06c647d0a800fa0"
    )
    assert "hello world" in outlook_module.rich_text(packed, ExtractLimits())
    assert "hello world" in read(compound(outlook(body="", p10090102=packed))).pages[0].text


def unpacked(text: bytes) -> bytes:
    """An RTF body without compression."""
    return len(text).to_bytes(4, "little") * 2 + b"MELA" + bytes(4) + text


def test_rich_text_keeps_its_structure_and_encodings():
    body = (
        rb"{\rtf1\ansi\ansicpg1251{\fonttbl{\f0\fcharset204 Arial;}}\f0 \'cc\'e5\'eb\'fc\par"
        rb"\trowd\intbl Wheel\cell 4 m\cell\row\pard Done\par}"
    )
    text = outlook_module.rich_text(unpacked(body), ExtractLimits())
    assert "Мель" in text
    assert "| Wheel | 4 m |" in text
    assert text.endswith("Done")


@pytest.mark.parametrize(
    "body", [b"{" * 20_000, b"{\\rtf1 " + b"\\u99999999999 ?" * 9, b"", b"{\\rtf1 {\\bin999999999 x"]
)
def test_damaged_rich_text_is_no_error(body: bytes):
    assert isinstance(outlook_module.rich_text(unpacked(body), ExtractLimits()), str)
