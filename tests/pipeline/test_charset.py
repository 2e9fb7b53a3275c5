"""Encodings: told from marks, labels and bytes, and never lost in silence."""

from __future__ import annotations

import subprocess
import sys

import pytest

from penstock.pipeline.extract.charset import SAMPLED, codec_of, decode, whole_lines
from penstock.pipeline.extract.factory import extract, is_plain
from penstock.pipeline.extract.protocol import Content, ExtractedText, Properties

GERMAN = "Die Mühle steht am Fluß, und ihr Rad dreht sich langsam, wenn das Wasser für Räder zu niedrig ist."
CZECH = "Příliš žluťoučký kůň úpěl ďábelské ódy. Šťastný život u řeky měl každý mlynář."
RUSSIAN = "Мельница стоит у реки, и колесо вращается медленно, когда вода низкая."
GREEK = "Ο μύλος βρίσκεται δίπλα στο ποτάμι και ο τροχός γυρίζει αργά όταν το νερό είναι χαμηλό."
TURKISH = "Değirmen nehrin kıyısında durur ve su alçakken çarkı yavaşça döner. Baharda çok kişi gelir."
HEBREW = "הטחנה עומדת ליד הנהר, והגלגל שלה מסתובב לאט כשהמים נמוכים. באביב באים אנשים רבים."
ARABIC = "تقف الطاحونة بجانب النهر وتدور عجلتها ببطء عندما يكون الماء منخفضا. في الربيع يأتي كثير من الناس."
LITHUANIAN = (
    "Malūnas stovi prie upės, o jo ratas lėtai sukasi, kai vanduo žemas. Pavasarį atvyksta daug žmonių."
)
THAI = "โรงสีตั้งอยู่ริมแม่น้ำ และล้อของมันหมุนช้าๆ เมื่อน้ำน้อย ในฤดูใบไม้ผลิมีคนมามากมาย"
JAPANESE = "水車小屋は川のほとりにあり、春になると多くの人が訪れます。"
KOREAN = "물레방아는 강가에 서 있고 물이 적을 때 바퀴가 천천히 돈다. 봄에는 많은 사람들이 찾아온다."
CHINESE = "磨坊坐落在河边，水位低时轮子转得很慢。春天的时候有很多人从各地来到这里参观。"
TAIWANESE = "磨坊坐落在河邊，水位低時輪子轉得很慢。春天的時候有很多人從各地來到這裡參觀。"

NAMED_BY_BYTES = {
    GERMAN: "utf-8 utf-8-sig utf-16 utf-16-le utf-16-be utf-32 utf-32-le utf-32-be",
    RUSSIAN: "utf-16-le utf-16-be",
    JAPANESE: "iso2022_jp",
    KOREAN: "iso2022_kr",
}
GUESSED = {
    GERMAN: "cp1252 cp850 mac_roman",
    CZECH: "cp1250 iso8859_2 cp852",
    RUSSIAN: "cp1251 koi8-r cp866 cp855 iso8859_5 mac_cyrillic",
    GREEK: "cp1253 iso8859_7",
    TURKISH: "cp1254",
    HEBREW: "cp1255",
    ARABIC: "cp1256 iso8859_6",
    LITHUANIAN: "cp1257",
    THAI: "cp874",
    JAPANESE: "shift_jis euc-jp",
    KOREAN: "euc_kr johab",
    CHINESE: "gb18030",
    TAIWANESE: "big5",
}


def each_of(texts: dict[str, str]) -> pytest.MarkDecorator:
    cases = [(text, encoding) for text, encodings in texts.items() for encoding in encodings.split()]
    return pytest.mark.parametrize(("text", "encoding"), cases, ids=lambda value: value[:10])


def read(name: str, data: bytes) -> ExtractedText:
    return extract(Content(name, data))


@each_of(NAMED_BY_BYTES)
def test_bytes_that_name_their_encoding_need_no_warning(text: str, encoding: str):
    extracted = read("a.txt", text.encode(encoding))

    assert text == extracted.pages[0].text
    assert () == extracted.warnings


@each_of(GUESSED)
def test_an_encoding_is_guessed_from_one_sentence_and_told(text: str, encoding: str):
    extracted = read("a.txt", text.encode(encoding))

    assert text == extracted.pages[0].text
    assert (f"encoding guessed: {extracted.properties.encoding}",) == extracted.warnings
    assert text == text.encode(encoding).decode(extracted.properties.encoding)


def test_a_guess_looks_where_the_letters_are():
    data = b"a line of plain letters\n" * (SAMPLED // 10) + (RUSSIAN + "\n").encode("koi8-r")

    assert decode(data).text.endswith(RUSSIAN + "\n")


def test_too_few_letters_are_windows_1252_with_a_warning():
    extracted = read("a.txt", "Köln".encode("cp1252"))

    assert ("Köln", Properties(encoding="cp1252")) == (extracted.pages[0].text, extracted.properties)
    assert ("encoding guessed: cp1252",) == extracted.warnings
    assert () == read("a.txt", b"Koeln").warnings


def test_a_few_wrong_bytes_do_not_change_the_encoding():
    extracted = read("a.txt", RUSSIAN.encode() + b"\xff" + RUSSIAN.encode()[:-1])

    assert RUSSIAN in extracted.pages[0].text
    assert Properties(replaced=1) == extracted.properties
    assert "1 character is not utf-8" in extracted.warnings[0]


def test_a_label_holds_in_spite_of_a_few_wrong_bytes():
    text = JAPANESE * 10
    data = b"<meta charset=x-sjis><p>" + text.encode("cp932") + b"\x85"

    extracted = read("a.html", data)

    assert Properties(encoding="cp932", replaced=1) == extracted.properties
    assert text in extracted.pages[0].text


@pytest.mark.parametrize(
    ("name", "text", "codec"),
    [
        ("a.html", '<meta charset="x-sjis"><p>{}', "cp932"),
        ("a.html", '<meta http-equiv="Content-Type" content="text/html; charset=windows-31j"><p>{}', "cp932"),
        ("a.xml", "<?xml version='1.0' encoding='x-euc-jp'?><a>{}</a>", "euc_jp"),
        ("a.py", "#!/usr/bin/python\n# -*- coding: {codec} -*-\n# {}\n", "euc_jp"),
        ("a.txt", "{}\n\n# vim: set fileencoding=sjis :\n", "cp932"),
        ("a.css", '@charset "Shift_JIS";\n/* {} */', "cp932"),
        ("a.po", 'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=EUC-JP\\n"\n\n"{}"', "euc_jp"),
        ("a.tex", "\\documentclass{{article}}\n\\usepackage[sjis]{{inputenc}}\n{}", "cp932"),
        ("a.html", "<meta charset=hz-gb-2312><p>{}", "hz"),
    ],
)
def test_a_label_decides_before_a_guess(name: str, text: str, codec: str):
    # Two characters are too few for a guess.
    written = text.format("水山", codec=codec)

    extracted = read(name, written.encode(codec))

    assert "水山" in extracted.pages[0].text
    assert (codec, ()) == (extracted.properties.encoding, extracted.warnings)


def test_a_label_that_cannot_be_right_is_not_followed():
    page = "<meta charset=utf-16><p>" + GERMAN

    assert GERMAN in read("a.html", page.encode()).pages[0].text
    assert GERMAN in read("a.html", page.encode("cp1252")).pages[0].text


LABELS = {
    "cp932": "x-sjis windows-31j MS_Kanji Shift-JIS csShiftJIS",
    "euc_jp": "x-euc-jp EUC-JP",
    "cp949": "windows-949 ks_c_5601-1987 euc-kr KSC5601",
    "cp950": "Big5 windows-950 x-x-big5 cn-big5",
    "gb18030": "gb2312 GBK chinese windows-936 gb_2312-80",
    "cp874": "windows-874 tis-620 iso-8859-11",
    "cp1252": "iso-8859-1 latin1 us-ascii x-cp1252 ISO_8859-1:1987",
    "cp1251": "x-cp1251 windows-1251",
    "cp1254": "iso-8859-9 latin5",
    "iso8859-8": "iso-8859-8-i visual logical hebrew",
    "iso8859-6": "asmo-708 iso-8859-6-e",
    "koi8-r": "koi koi8 cskoi8r",
    "koi8-u": "koi8-ru",
    "mac-roman": "macintosh x-mac-roman",
    "mac-cyrillic": "x-mac-cyrillic x-mac-ukrainian",
    "mac-latin2": "x-mac-ce",
    "cp866": "866 ibm866",
    "utf-8": "unicode-1-1-utf-8 UTF8",
    "cp437": "cp437",
}


@pytest.mark.parametrize(
    ("label", "codec"), [(label, codec) for codec, labels in LABELS.items() for label in labels.split()]
)
def test_labels_of_the_web_and_of_windows(label: str, codec: str):
    assert codec == codec_of(label)
    assert "a" == b"a".decode(codec)


@pytest.mark.parametrize("label", ["utf-16", "UTF-32LE", "punycode", "utf-7", "no-such", "", "a\0b", "rot13"])
def test_what_is_no_label_of_a_file(label: str):
    codec = codec_of(label)

    assert codec is None or GERMAN == decode(GERMAN.encode("cp1252"), label).text


def test_the_detector_is_native_and_loaded_only_for_a_guess():
    code = (
        "import sys; from penstock.pipeline.extract.charset import decode; decode('Mühle'.encode());"
        "decode(b'a', 'x-sjis'); assert 'chardet' not in sys.modules;"
        "decode(b'\\xc4\\xd6\\xdc\\xdf\\xe4'); assert 'chardet' in sys.modules"
    )

    assert 0 == subprocess.run([sys.executable, "-P", "-c", code], check=False).returncode
    assert not is_plain(Content("a.txt", GERMAN.encode("cp1252")))
    assert is_plain(Content("a.txt", GERMAN.encode()))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.txt", "{}"),
        ("a.md", "# {}"),
        ("a.csv", 'a,b\n1,"{}"'),
        ("a.json", '{{"a": "{}"}}'),
        ("a.jsonl", '{{"a": "{}"}}'),
        ("a.html", "<p>{}"),
        ("a.xml", "<a>{}</a>"),
        ("a.py", "# {}"),
        ("a.ipynb", '{{"cells": [{{"cell_type": "markdown", "source": "{}"}}]}}'),
    ],
)
def test_every_text_format_tells_its_encoding(name: str, text: str):
    extracted = read(name, text.format(RUSSIAN).encode("koi8-r"))

    assert RUSSIAN in extracted.pages[0].text
    assert "koi8-r" == extracted.properties.encoding
    assert Properties() == read(name, text.format(RUSSIAN).encode()).properties


@pytest.mark.parametrize(
    ("data", "quoted", "expected"),
    [
        (b"one\ntwo\nthr", False, b"one\ntwo\n"),
        (b"one\ntwo\n", False, b"one\ntwo\n"),
        (b"one", False, b"one"),
        (b"a,b\nc,d\ne", True, b"a,b\nc,d\n"),
        (b'a,b\nc,"d\ne', True, b"a,b\n"),
        (b'a,b\nc,"d\ne"\nf', True, b'a,b\nc,"d\ne"\n'),
        (b'a,"b\nc', True, b'a,"b\nc'),
        ("größer".encode("utf-16")[:-1], False, "größe".encode("utf-16")),
    ],
)
def test_the_beginning_of_a_text_ends_with_a_whole_line(data: bytes, quoted: bool, expected: bytes):
    assert expected == whole_lines(data, quoted=quoted)
