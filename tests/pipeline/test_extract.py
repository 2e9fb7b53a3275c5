"""Guarantees of every extractor, and the text formats."""

from __future__ import annotations

import gzip
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import DocumentDamaged, DocumentTooLarge, UnreadableDocument, UnsupportedType
from penstock.pipeline.extract import file_types
from penstock.pipeline.extract.factory import extract, extractor
from penstock.pipeline.extract.file_types import EXTRACTORS
from penstock.pipeline.extract.protocol import Content, ExtractedText, ExtractLimits, Shape
from penstock.queue import retry
from tests.pipeline.mail_samples import mail, zipped
from tests.pipeline.office_samples import cell, epub, excel, opendocument, powerpoint, shape
from tests.pipeline.ole_samples import powerpoint97, text_atoms, word97
from tests.pipeline.outlook_samples import compound, outlook
from tests.pipeline.pictures import drawn, encoded
from tests.pipeline.sample_documents import docx, paragraph, pdf

NOTEBOOK = b'{"cells": [{"cell_type": "markdown", "source": ["# Mill\\n", "words"]}]}'
SAMPLES = {
    "archive": ("a.zip", zipped({"words.txt": b"words"})),
    "compressed": ("a.txt.gz", gzip.compress(b"words", mtime=0)),
    "mail": ("a.eml", mail("Mill", "words")),
    "mailbox": ("a.mbox", b"From ada Mon Mar  2 10:11:12 2020\n" + mail("Mill", "words")),
    "outlook": ("a.msg", compound(outlook("Mill", "words"))),
    "text": ("a.txt", b"words\n"),
    "markdown": ("a.md", b"# Mill\n\nwords\n"),
    "code": ("a.py", b"words = 1\n"),
    "rows": ("a.jsonl", b'{"a": "words"}\n'),
    "html": ("a.html", b"<h1>Mill</h1><p>words"),
    "image": ("a.png", encoded(drawn("words"))),
    "json": ("a.json", b'{"a": "words"}'),
    "notebook": ("a.ipynb", NOTEBOOK),
    "docx": ("a.docx", docx(paragraph("words"))),
    "opendocument": ("a.odt", opendocument("text", "<text:p>words</text:p>")),
    "doc": ("a.doc", word97("words\r")),
    "epub": ("a.epub", epub("<h1>Mill</h1>words")),
    "pdf": ("a.pdf", pdf("words")),
    "ppt": ("a.ppt", powerpoint97([(text_atoms(1, "words"), b"")])),
    "rtf": ("a.rtf", b"{\\rtf1\\ansi words\\par}"),
    "pptx": ("a.pptx", powerpoint(shape("words"))),
    "sheets": ("a.xlsx", excel({"S": f"<row>{cell('A1', 'words')}</row>"})),
    "subtitles": ("a.srt", b"1\n00:00:01,000 --> 00:00:02,000\nwords\n"),
    "table": ("a.csv", b"a,b\nwords,2\n"),
    "xml": ("a.xml", b"<a><b>words</b></a>"),
}
each = pytest.mark.parametrize("name", EXTRACTORS)


def read(name: str, data: bytes, **limits: int) -> ExtractedText:
    return extract(Content(name, data), ExtractLimits(**limits))


def text_of(name: str, data: bytes) -> str:
    return "\n".join(page.text for page in read(name, data).pages)


def test_every_extractor_has_a_sample():
    assert set(EXTRACTORS) == SAMPLES.keys()


@each
def test_an_extractor_reads_its_type(name: str):
    extracted = read(*SAMPLES[name])

    assert name == extracted.file_type.extractor == extractor(name).name
    recognized = name == "image"
    assert recognized or "words" in extracted.pages[0].text
    assert [1] == [page.number for page in extracted.pages]
    assert (1, False, recognized) == (extracted.page_count, extracted.blank, extracted.needs_ocr)
    assert extractor(name).version


@each
def test_the_same_bytes_give_the_same_pages(name: str):
    assert read(*SAMPLES[name]) == read(*SAMPLES[name])


@each
@pytest.mark.parametrize("damage", ["cut", "zeroed", "doubled", "flipped"])
def test_damage_gives_text_or_a_reason(name: str, damage: str):
    file, data = SAMPLES[name]
    middle = len(data) // 2
    damaged = {
        "cut": data[:middle],
        "zeroed": data[:middle] + bytes(64) + data[middle + 64 :],
        "doubled": data + data,
        "flipped": bytes(byte ^ (7 if place % 5 == 0 else 0) for place, byte in enumerate(data)),
    }[damage]
    reason = None
    try:
        assert read(file, damaged).pages
    except UnreadableDocument as error:
        reason = error

    assert reason is None or retry.Classification("permanent", reason.code) == retry.classify(reason)


@each
def test_limits_hold_for_every_type(name: str):
    with pytest.raises(DocumentTooLarge):
        read(*SAMPLES[name], file_bytes=5, text_bytes=5)
    if name == "image":
        return  # its text comes from OCR
    with pytest.raises(DocumentTooLarge):
        read(*SAMPLES[name], text_chars=3)


@given(st.binary(max_size=400), st.sampled_from([file for file, _ in SAMPLES.values()]))
@settings(max_examples=300, deadline=None)
def test_any_bytes_give_keepable_text_or_a_reason(data: bytes, name: str):
    try:
        extracted = read(name, data)
    except UnreadableDocument:
        return
    for page in extracted.pages:
        page.text.encode("utf-8")
        assert "\x00" not in page.text
        assert "\r" not in page.text
        assert unicodedata.is_normalized("NFC", page.text)


@pytest.mark.parametrize(("name", "data"), [("a.txt", b""), ("a.md", b" \n\t\r\n"), ("a.html", b"<p> </p>")])
def test_a_blank_document_is_no_failure(name: str, data: bytes):
    assert read(name, data).blank


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.txt", b"text \x00 and nul"),
        ("a.md", bytes(range(256)) * 4),
        ("program.py", b"\x7fELF" + bytes(100)),
        ("archive", b"PK\x03\x04" + bytes(30)),
        ("page.html", b"\x1f\x8b\x08" + bytes(30)),
    ],
)
def test_content_that_is_not_what_its_name_says(name: str, data: bytes):
    with pytest.raises(UnsupportedType) as refusal:
        read(name, data)

    assert "ERR_UNSUPPORTED_TYPE" == refusal.value.error_code
    assert name.rpartition("/")[2] in refusal.value.message


def test_a_pdf_under_another_name_is_read_as_one():
    assert "pdf" == read("report.txt", pdf("words")).file_type.extractor


@pytest.mark.parametrize(
    ("name", "head", "file_type"),
    [
        ("README", b"words", file_types.TEXT),
        ("page", b"<!DOCTYPE html><p>", file_types.HTML),
        ("feed", b"<?xml version='1.0'?><a/>", file_types.XML),
        ("a/B.MD", b"", file_types.MARKDOWN),
        ("tar.unknown", b"words", file_types.TEXT),
    ],
)
def test_a_type_without_a_telling_name(name: str, head: bytes, file_type: object):
    assert file_type == file_types.detect(name, head)


@pytest.mark.parametrize(
    ("name", "language"),
    [
        ("x.py", "python"),
        ("Makefile", "make"),
        ("src/CMakeLists.txt", "cmake"),
        ("a.tsx", "tsx"),
        ("a.H", "c"),
        ("run", "python"),
    ],
)
def test_source_code_knows_its_language(name: str, language: str):
    head = b"#!/usr/bin/env python3\n" if name == "run" else b""

    assert language == file_types.detect(name, head).language


def test_code_and_text_keep_their_lines():
    extracted = read("a.py", b"one\r\n\r\ntwo\rthree\n")

    assert "one\n\ntwo\nthree\n" == extracted.pages[0].text
    assert extracted.line_numbers
    assert Shape.CODE is extracted.shape


@pytest.mark.parametrize(
    ("name", "shape"),
    [("a.txt", Shape.PROSE), ("a.md", Shape.MARKDOWN), ("a.rst", Shape.RST), ("a.adoc", Shape.ASCIIDOC)],
)
def test_marked_up_text_has_its_shape(name: str, shape: Shape):
    assert shape is read(name, b"words").shape


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_table_rows_are_lines(delimiter: str):
    data = (
        delimiter.join(["name", "text"]) + "\n" + delimiter.join(["mill", '"two\nlines, ""quoted"""']) + "\n"
    )

    extracted = read("a.csv", data.encode())

    assert 'name | text\nmill | two lines, "quoted"' == extracted.pages[0].text
    assert (Shape.TABLE, False) == (extracted.shape, extracted.line_numbers)
    assert read("a.csv", b"a,b\nc,d\n").line_numbers


def test_xml_gives_every_value_and_expands_nothing():
    xml = b'<?xml version="1.0"?><list><m id="7"><n>Mill &amp; wheel</n></m><m><n>\xc3\xbc</n></m></list>'
    bomb = b'<!DOCTYPE a [<!ENTITY b "words">]><a>&b;</a>'

    assert "m id: 7\nn: Mill & wheel\n\nn: ü" == text_of("a.xml", xml)
    assert bomb.decode() == text_of("a.xml", bomb)
    assert "entity 'b'" in read("a.xml", bomb).warnings[0]


def test_notebooks_become_markdown():
    data = (
        b'{"metadata": {"language_info": {"name": "python"}}, "cells": ['
        b'{"cell_type": "markdown", "source": "# Mill"}, {"cell_type": "code", "source": ["x = 1\\n", "x"], '
        b'"outputs": [{"text": ["out"]}, {"data": {"text/plain": "1"}}]}]}'
    )

    assert "# Mill\n\n```python\nx = 1\nx\n```\n\n```\nout\n```\n\n```\n1\n```" == text_of("a.ipynb", data)


@pytest.mark.parametrize("data", [b"{}", b"[1]", b"{", b"[" * 100_000, b'{"cells": 7}', b'{"cells": [7]}'])
def test_what_is_no_notebook(data: bytes):
    with pytest.raises(DocumentDamaged):
        read("a.ipynb", data)


def test_json_on_one_line_is_given_lines():
    data = b'{"key": [' + b", ".join(b'"value %d"' % number for number in range(500)) + b"]}"

    extracted = read("a.json", data)

    assert ' "value 499"\n' in extracted.pages[0].text
    assert not extracted.line_numbers
    assert text_of("deep.json", b"[" * 50_000) == "[" * 50_000
