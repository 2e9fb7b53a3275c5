"""A small document for every extractor, and damaged copies of them."""

from __future__ import annotations

import gzip
import random
from collections.abc import Iterator

from penstock.pipeline.extract import file_types
from penstock.pipeline.extract.protocol import Content
from tests.pipeline.mail_samples import mail, message, tarred, zipped
from tests.pipeline.office_samples import cell, epub, excel, item, opendocument, powerpoint, shape, word
from tests.pipeline.ole_samples import excel97, powerpoint97, text_atoms, word97
from tests.pipeline.outlook_samples import compound, outlook
from tests.pipeline.pdf_files import form, shown
from tests.pipeline.pictures import drawn, encoded
from tests.pipeline.sample_documents import paragraph, pdf, table

_NOTEBOOK = b'{"cells": [{"cell_type": "markdown", "source": ["words"]}], "nbformat": 4, "metadata": {}}'
_ODT = "<text:h>Words</text:h><text:p>and <text:note>a note</text:note> more</text:p>"
_ODS = (
    "<table:table table:name='S'><table:table-row>"
    "<table:table-cell><text:p>a</text:p></table:table-cell>"
    "<table:table-cell table:number-columns-repeated='3'><text:p>2</text:p></table:table-cell>"
    "</table:table-row></table:table>"
)
_ODP = (
    "<draw:page draw:name='One'><draw:frame><draw:text-box><text:p>words</text:p>"
    "</draw:text-box></draw:frame></draw:page>"
)
_RTF = (
    b"{\\rtf1\\ansi\\ansicpg1252{\\fonttbl{\\f0\\fcharset0 A;}}{\\info{\\author Ada}}\\b words\\b0\\par "
    b'{\\field{\\*\\fldinst HYPERLINK "http://a/"}{\\fldrslt link}}'
    b"\\trowd a\\cell b\\cell\\row \\u8364? \\'e4}"
)
_LETTER = mail("Words", "of the mill", notes__txt=b"water", more__eml=message("Inner", "wheel"))
_UNNAMED = _LETTER.replace(b'Content-Disposition: attachment; filename="notes.txt"\n', b"")
_MAILBOX = (
    b"From a@b Mon Mar  2 10:11:12 2020\n" + _LETTER + b"\n\nFrom c@d Tue Mar  3 10:11:12 2020\n" + mail()
)
_OUTLOOK = outlook("Words", "of the mill", {"a.txt": b"water", "b.msg": outlook("Inner", "wheel", top=False)})
_FORM_FIELD = b"/T (name) /FT /Tx /V (Ada) /Rect [50 600 200 620]"


def _documents() -> Iterator[Content]:
    """Documents of the formats whose parsers are not plain text."""
    yield Content(
        "a.docx", word(paragraph("Words", "Heading1") + item("one", 1) + table(("a", "b"), ("c", "d")))
    )
    yield Content("a.pptx", powerpoint(shape("Words", kind="title") + shape("of a mill"), shape("two")))
    yield Content("a.xlsx", excel({"S": f'<row r="1">{cell("A1", "words")}{cell("D1", "more")}</row>'}))
    yield Content("a.xls", excel97([["words", 2.5], ["more", 3]]))
    yield Content("a.doc", word97("Words\rof a\x07mill\x07\x07\r", ["note\r"], [(6, b"\0\0\x03\x24\x01")]))
    yield Content("a.ppt", powerpoint97([(text_atoms(0, "Words"), b""), (text_atoms(1, "more"), b"")]))
    yield Content("a.odt", opendocument("text", _ODT))
    yield Content("a.ods", opendocument("spreadsheet", _ODS))
    yield Content("a.odp", opendocument("presentation", _ODP))
    yield Content("a.rtf", _RTF)
    yield Content("a.epub", epub("<h1>Words</h1><p>a</p>", "<table><tr><td>b</td></tr></table>"))
    yield Content("a.pdf", pdf("words", "more", title="A mill"))
    yield Content("b.pdf", form(_FORM_FIELD, content=shown("words")))
    yield Content("a.eml", _LETTER)
    yield Content("b.eml", _UNNAMED)
    yield Content("a.mbox", _MAILBOX)
    yield Content("a.msg", compound(_OUTLOOK))
    yield Content("a.zip", zipped({"a.txt": b"words", "b/c.txt": b"more"}))
    yield Content("a.tar", tarred({"a.txt": b"words", "b/c.txt": b"more"}))
    for packing in ("gz", "bz2", "xz"):
        yield Content(f"a.tar.{packing}", tarred({"a.txt": b"words"}, packing))
    yield Content("a.txt.gz", gzip.compress(b"words of a mill", mtime=0))
    picture = drawn("Words", width=200, height=60)
    for suffix, kind in (("png", "PNG"), ("jpg", "JPEG"), ("webp", "WEBP"), ("bmp", "BMP"), ("gif", "GIF")):
        yield Content(f"a.{suffix}", encoded(picture, kind))
    yield Content("a.tif", encoded(picture, "TIFF", save_all=True, append_images=[picture]))


def _texts() -> Iterator[Content]:
    yield Content("a.html", b"<h1>Title</h1><p>words <table><tr><td>a<td>b</table>")
    yield Content("a.json", b'{"words": [1, 2]}')
    yield Content("a.ipynb", _NOTEBOOK)
    yield Content("a.csv", b"name,price\nmill,3\n")
    yield Content("a.xml", b"<?xml version='1.0'?><a><b c='d'>words</b></a>")
    yield Content("a.py", b"def words():\n    return 1\n")
    yield Content("a.md", b"# Title\n\nwords\n")
    yield Content("a.jsonl", b'{"words": 1}\n')
    yield Content("a.srt", b"1\n00:00:01,000 --> 00:00:02,000\nwords\n")
    yield Content("a.vtt", b"WEBVTT\n\n00:01.000 --> 00:02.000\nwords\n")
    yield Content("a.yaml", b"words:\n  - one\n")
    yield Content("a.toml", b"[words]\none = 1\n")
    for codec in ("utf-16", "utf-32", "cp1252", "utf-8"):
        yield Content("a.txt", "größere Worte".encode(codec))
    for codec in ("iso2022_jp", "shift_jis"):
        yield Content("a.txt", "水車小屋の歯車が回り始めた。".encode(codec))


DOCUMENTS = tuple(_documents())
SAMPLES = (*DOCUMENTS, *_texts())


def extractor_of(content: Content) -> str:
    return file_types.detect(content.name, content.data).extractor


def cut(content: Content, parts: int = 16) -> Iterator[Content]:
    """The document cut off after every part of it."""
    for part in range(parts):
        yield Content(content.name, content.data[: len(content.data) * part // parts])


def flipped(content: Content, copies: int, seed: int = 15) -> Iterator[Content]:
    """Copies with some bytes changed, always the same ones for a seed."""
    rng = random.Random(f"{content.name} {seed}")
    for _ in range(copies):
        data = bytearray(content.data)
        for _ in range(rng.choice((1, 1, 2, 8, 32))):
            data[rng.randrange(len(data))] = rng.choice((0, 0xFF, 0x7F, 0x80, rng.randrange(256)))
        yield Content(content.name, bytes(data))
