"""Mail: headers, bodies in any encoding, attachments; damaged and hostile messages."""

from __future__ import annotations

from email.message import EmailMessage
from pathlib import Path

import pytest

from penstock.errors import UnreadableDocument
from penstock.pipeline.extract import mail as mail_module
from penstock.pipeline.extract.factory import SANDBOXED, extract
from penstock.pipeline.extract.protocol import Content, ExtractedText
from penstock.pipeline.extract.sandbox.sandbox import Sandbox
from tests.pipeline.mail_samples import mail, message

CORPUS = Path(__file__).parents[3] / "shared" / "corpus" / "mail"


def read(data: bytes, name: str = "x.eml") -> ExtractedText:
    return extract(Content(name, data))


def text_of(data: bytes, name: str = "x.eml") -> str:
    return read(data, name).pages[0].text


def test_a_message_is_its_subject_headers_and_body():
    found = read(mail("Grist", "Water drives the wheel.", report__txt=b"Flour"))

    assert "Grist" == found.title
    assert [
        "# Grist",
        "",
        "From: Ada Miller <ada@example.org>",
        "To: bob@example.org",
        "Date: Mon, 02 Mar 2020 10:11:12 +0100",
        "Attachments: report.txt",
        "",
        "Water drives the wheel.",
    ] == found.pages[0].text.splitlines()
    assert ("Ada Miller <ada@example.org>", "2020-03-02T10:11:12+01:00") == (
        found.properties.author,
        found.properties.created,
    )
    assert [("report.txt", b"Flour")] == [(one.name, one.data) for one in found.attachments]


def test_a_message_without_a_body_is_no_error():
    assert "# Empty" in text_of(mail("Empty", None))


@pytest.mark.parametrize(
    ("charset", "text"),
    [
        ("utf-8", "Mühle am Rauschenden Bach"),
        ("iso-8859-1", "Mühle am rauschenden Bäche, größer"),
        ("koi8-r", "Мельница стоит у реки и мелет муку"),
        ("shift_jis", "水車は川のそばにあります"),
        ("big5", "磨坊在河邊，水推動輪子"),
    ],
)
def test_bodies_are_decoded_by_their_label(charset: str, text: str):
    data = (
        f"Subject: s\r\nContent-Type: text/plain; charset={charset}\r\n"
        "Content-Transfer-Encoding: 8bit\r\n\r\n"
    ).encode() + text.encode(charset)
    assert text in text_of(data)


def test_the_label_windows_950_is_known():
    head = b"Subject: s\r\nContent-Type: text/plain; charset=windows-950\r\n\r\n"
    assert "磨坊在河邊" in text_of(head + "磨坊在河邊".encode("cp950"))


def test_a_file_in_utf_16_is_decoded_first():
    assert "Water drives the wheel." in text_of(mail().decode().encode("utf-16"))


def test_an_html_body_is_read_as_html():
    made = EmailMessage()
    made["Subject"] = "page"
    made.set_content("<h2>Wheel</h2><p>It <b>turns</b>.</p><script>no()</script>", subtype="html")
    text = text_of(made.as_bytes())
    assert "## Wheel" in text
    assert "It turns." in text.replace("**", "")
    assert "no()" not in text


def test_plain_text_is_preferred_and_html_taken_if_it_is_blank():
    both = message(body="The plain one.")
    both.add_alternative("<p>The other one.</p>", subtype="html")
    assert "The plain one." in text_of(both.as_bytes())
    assert "The other one." not in text_of(both.as_bytes())
    blank = message(body="  \n")
    blank.add_alternative("<p>The other one.</p>", subtype="html")
    assert "The other one." in text_of(blank.as_bytes())
    assert () == read(blank.as_bytes()).attachments


def test_an_attached_message_keeps_its_own_bytes():
    inner = message("Inner one", "Flour and bread.")
    found = read(mail(inner=inner))
    assert ["Inner one.eml"] == [one.name for one in found.attachments]
    again = read(found.attachments[0].data)
    assert ("Inner one", True) == (again.title, "Flour and bread." in again.pages[0].text)


def test_attachments_beyond_the_limit_are_named_in_a_warning(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(mail_module, "MAX_ATTACHMENTS", 2)
    found = read(mail(a__txt=b"1", b__txt=b"2", c__txt=b"3"))
    assert ["a.txt", "b.txt"] == [one.name for one in found.attachments]
    assert ("1 attachment is left out, unreadable or beyond the limits: c.txt",) == found.warnings


def test_names_of_attachments_cannot_leave_the_message():
    made = message()
    for name in ("../../etc/passwd", "/abs.txt", "C:\\Users\\x.txt", "a.txt", "a.txt", "b\u202etxt.exe"):
        made.add_attachment(b"x", "application", "octet-stream", filename=name)
    names = [one.name for one in read(made.as_bytes()).attachments]
    assert ["etc/passwd", "abs.txt", "Users/x.txt", "a.txt", "a (2).txt", "b_txt.exe"] == names


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no header at all",
        b"Subject: =?utf-8?b?????=?=\r\nFrom: <<<@>>>,,,;;\r\nDate: yesterday\r\n\r\nbody",
        b"Content-Type: multipart/mixed\r\n\r\nno boundary",
        b"Content-Type: text/plain; charset=nonsense\r\nContent-Transfer-Encoding: base64\r\n\r\n@@@@",
        b"Content-Type: message/rfc822\r\n\r\n",
        b"Subject: \xff\xfe\x80\r\n\r\n\x80\x81\xff",
        b"Content-Type: multipart/mixed; boundary=a\r\n\r\n--a\r\nContent-Type: text/html; charset*=x''%",
    ],
)
def test_malformed_messages_are_read_as_far_as_possible(data: bytes):
    assert 1 == read(data).page_count


def test_deep_nesting_is_refused_and_kills_nothing():
    deep = b"".join(
        b"Content-Type: multipart/mixed; boundary=b%d\r\n\r\n--b%d\r\n" % (level, level)
        for level in range(3_000)
    )
    with Sandbox() as sandbox:
        with pytest.raises(UnreadableDocument):
            sandbox.extract(Content("x.eml", deep))
        assert "wheel" in sandbox.extract(Content("x.eml", mail())).pages[0].text
    assert {"mail", "mailbox", "outlook", "archive", "compressed"} < SANDBOXED


def test_a_mailbox_has_one_page_per_message():
    start = b"From ada@example.org Mon Mar  2 10:11:12 2020\n"
    data = start + mail("One", "First.", a__txt=b"1") + b"\n" + start + mail("Two", "Second.", a__txt=b"2")
    found = read(data, "x.mbox")
    assert [(1, "# One"), (2, "# Two")] == [(page.number, page.text.split("\n")[0]) for page in found.pages]
    assert ["message 1/a.txt", "message 2/a.txt"] == [one.name for one in found.attachments]
    assert "message" == found.file_type.page_unit


def test_the_mail_of_the_corpus_is_read():
    if not CORPUS.is_dir():
        pytest.skip("the shared corpus is not here")
    for path in sorted(CORPUS.glob("*.eml")):
        found = read(path.read_bytes(), path.name)
        assert found.title, path.name
        assert "\ufffd" not in found.pages[0].text
        assert "Content-Transfer-Encoding" not in found.pages[0].text
