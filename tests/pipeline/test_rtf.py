"""RTF documents."""

from __future__ import annotations

import pytest

from penstock.errors import DocumentDamaged, NoText
from penstock.pipeline.extract.factory import extract
from penstock.pipeline.extract.protocol import Content, ExtractedText, Properties


def read(body: str | bytes, head: str = "") -> ExtractedText:
    data = body if isinstance(body, bytes) else body.encode("cp1252")
    return extract(Content("a.rtf", b"{\\rtf1\\ansi" + head.encode() + b" " + data + b"}"))


def text_of(body: str | bytes, head: str = "") -> str:
    return read(body, head).pages[0].text


def test_headings_paragraphs_and_lists():
    styles = r"{\stylesheet{\s0 Normal;}{\s3\outlinelevel1 Mine;}{\s4 heading 3;}{\*\cs9 Default;}}"
    body = (
        r"\pard\outlinelevel0 Mill\par\pard It turns\line slowly.\par\pard\s3 Wheel\par{\pard\s4 Rim\par}"
        r"\pard{\listtext\tab 7.\tab}one\par{\listtext\'b7\tab}\ilvl1 two\par"
    )

    extracted = read(body, styles)

    assert "# Mill\n\nIt turns\nslowly.\n\n## Wheel\n\n### Rim\n\n7. one\n  - two" == extracted.pages[0].text
    assert "Mill" == extracted.title
    assert (1, 1, 2, 2, 2, 3, 3, 4, 4, 5, 6) == extracted.pages[0].positions


def test_tables():
    body = (
        r"\pard Before\par\trowd\pard\intbl a\cell b\par c\cell\row\pard\intbl d\cell\cell\row\pard After\par"
    )

    assert "Before\n\n| a | b c |\n|---|---|\n| d |  |\n\nAfter" == text_of(body)


FONTS = (
    r"\ansicpg1251{\fonttbl{\f0\fcharset0 A;}{\f1\fcharset204 B;}{\f2\fcharset128 C;}{\f3\fnil D;}"
    r"{\f4\cpg1253 E;}}"
)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (r"\f1 \'ec\'e8\'f0", "мир"),
        (rb"\f1 \'ec" + "ир".encode("cp1251"), "мир"),
        (r"\f3 \'ec\'e8\'f0", "мир"),
        (r"\f0 caf\'e9", "café"),
        (r"\f2 \'83A\'83\'42", "アィ"),
        (r"\f4 \'e1", "α"),
        (r"{\f1 \'ec}\f0 \'ec", "мì"),
        (r"\u1084?\u8364\'80\uc2\u176\'81\'8b!", "м€°!"),
        (r"\u-10179?\u-8704?", "\U0001f600"),
        (r"a\~b\_c\-d\{\}\\\lquote\emdash", "a b-cd{}\\‘—"),
    ],
)
def test_every_font_has_its_encoding(body: str | bytes, expected: str):
    assert expected == text_of(body, FONTS)


def test_notes_comments_headers_and_shapes():
    body = (
        r"{\header Secret\par}{\headerf Secret\par}\pard Mill{\footnote By the river.\par}"
        r"{\*\atnid A}{\*\atnauthor Ada}{\*\annotation{\*\atndate 1}Which one?}"
        r"{\shp{\*\shpinst{\sp{\sn x}{\sv 1}}{\shptxt boxed\par}}{\shprslt again}}{\deleted gone} turns\par"
    )

    assert "Mill[^1] turns\n\nSecret\n\n[^1]: By the river.\n\n> Ada: Which one?\n\nboxed" == text_of(body)


def test_what_is_no_text_is_left_out():
    body = (
        rb"{\pict\bin5 }}}}}ffd8}{\*\unknown x}{\object{\*\objdata 00}{\result shown}}"
        rb'{\field{\*\fldinst HYPERLINK "http://a"}{\fldrslt link}}{\colortbl;\red1;}'
    )

    assert "shownlink" == text_of(body)


def test_title_and_properties():
    info = r"{\info{\title The mill}{\author Ada}{\creatim\yr2024\mo1\dy31\hr10\min5}{\revtim\yr2025\mo13}}"

    extracted = read("words", info)

    assert "The mill" == extracted.title
    assert Properties(author="Ada", created="2024-01-31T10:05:00") == extracted.properties


def test_pictures_alone_are_no_text():
    with pytest.raises(NoText):
        read(r"{\pict ffd8}")
    assert read("").blank


def test_damage():
    with pytest.raises(DocumentDamaged, match="groups inside each other"):
        read("{" * 200_000)
    cut = extract(Content("a.rtf", rb"{\rtf1 words{\b and"))
    assert ("words and".replace(" ", ""), 1) == (cut.pages[0].text.replace(" ", ""), len(cut.warnings))


def test_the_content_decides_whether_a_file_is_rtf():
    assert "text" == extract(Content("a.rtf", b"words")).file_type.extractor
    assert "rtf" == extract(Content("a.doc", rb"{\rtf1 words}")).file_type.extractor
