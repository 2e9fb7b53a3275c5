"""Real documents of every class, compared with the expectations in their manifest."""

from __future__ import annotations

import html
import io
import json
import re
import zipfile
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from penstock.errors import UnreadableDocument
from penstock.pipeline.draft import chunk_page
from penstock.pipeline.extract.charset import decode, markup_label, text_label
from penstock.pipeline.extract.protocol import Content, ExtractedText
from penstock.pipeline.extract.sandbox.sandbox import Sandbox
from tests.pipeline.conftest import CORPUS

Entry = dict[str, Any]


@cache
def manifest() -> list[Entry]:
    lines = (CORPUS / "MANIFEST.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def of(*classes: str) -> pytest.MarkDecorator:
    entries = [entry for entry in manifest() if entry["class"] in classes]
    assert entries
    return pytest.mark.parametrize("entry", entries, ids=lambda entry: entry["file"])


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox() as made:
        yield made


def content(entry: Entry) -> Content:
    return Content(entry["file"], (CORPUS / entry["file"]).read_bytes())


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def joined(extracted: ExtractedText) -> str:
    return "\n".join(page.text for page in extracted.pages)


def chunks_cover(extracted: ExtractedText) -> bool:
    return all(
        sum(len("".join(chunk.text.split())) for chunk in chunk_page(page.text, extracted.shape))
        == len("".join(page.text.split()))
        for page in extracted.pages
    )


@of("notdoc")
def test_what_is_no_document_is_refused(entry: Entry, sandbox: Sandbox):
    with pytest.raises(UnreadableDocument) as refusal:
        sandbox.extract(content(entry))

    assert "ERR_UNSUPPORTED_TYPE" == refusal.value.error_code


@of("docx", "html", "markup", "data")
def test_other_documents_give_text_in_chunks(entry: Entry, sandbox: Sandbox):
    extracted = sandbox.extract(content(entry))

    assert words(joined(extracted))
    assert chunks_cover(extracted)


@of("office")
def test_an_office_document_keeps_its_words(entry: Entry, sandbox: Sandbox):
    read = content(entry)

    extracted = sandbox.extract(read)

    assert chunks_cover(extracted)
    parts = OFFICE_PARTS.get(entry["file"].rpartition(".")[2])
    if parts:
        assert recall(extracted, text_nodes(read.data, parts)) >= 0.95


OFFICE_PARTS = {"odt": "content.xml", "pptx": r"ppt/(?:slides/slide|notesSlides/notesSlide)\d+\.xml"}
DOCX_PARTS = r"word/(?:document|header\d*|footer\d*|footnotes|endnotes|comments)\.xml"


def text_nodes(data: bytes, parts: str) -> Counter[str]:
    """Words of all paragraphs in the parts of a document, by the tags in them alone."""
    found: Counter[str] = Counter()
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for name in archive.namelist():
            if re.fullmatch(parts, name):
                xml = re.sub(r"<mc:Fallback>.*?</mc:Fallback>", "", archive.read(name).decode(), flags=re.S)
                for written in re.split(r"</(?:w|a|text):p>|<w:(?:br|tab)/>", xml):
                    tags = r"(?:<text:[^>]*>|<(?:w|m|a):t(?:\s[^>]*)?>)([^<]*)"
                    texts = re.findall(tags, written)
                    found.update(words(html.unescape("".join(texts))))
    return found


def recall(extracted: ExtractedText, reference: Counter[str]) -> float:
    found = Counter(words(joined(extracted)))
    return (found & reference).total() / reference.total()


@of("docx")
def test_a_word_document_keeps_its_words_and_headings(entry: Entry, sandbox: Sandbox):
    read = content(entry)

    extracted = sandbox.extract(read)

    assert recall(extracted, text_nodes(read.data, DOCX_PARTS)) >= 0.95
    with zipfile.ZipFile(io.BytesIO(read.data)) as archive:
        document = archive.read("word/document.xml").decode()
    marked = len(re.findall(r'<w:pStyle w:val="(?:Heading\d|Title)"/>', document))
    lines = joined(extracted).split("\n")
    assert marked == sum(line.startswith("#") for line in lines)
    assert extracted.pages[0].positions is not None
    assert len(lines) == len(extracted.pages[0].positions)


@of("html")
def test_a_page_shows_no_markup(entry: Entry, sandbox: Sandbox):
    text = joined(sandbox.extract(content(entry)))

    assert not re.search(r"<script|function\s*\(\)\s*\{|\{\s*display\s*:|&nbsp;|&amp;", text)


def test_tables_of_a_word_document_keep_their_rows(sandbox: Sandbox):
    extracted = sandbox.extract(content({"file": "docx/word_tables.docx"}))

    assert "| Cell 1.0 | Cell 1.1 | Cell 1.2 |" in joined(extracted)
    assert joined(extracted).startswith("# ")


def test_headings_of_a_page_are_kept(sandbox: Sandbox):
    extracted = sandbox.extract(content({"file": "html/wiki_duck.html"}))

    chunks = chunk_page(joined(extracted), extracted.shape)
    found = {heading for chunk in chunks for heading in chunk.headings}
    assert {"Duck", "Etymology", "Behaviour"} <= found


PYTHON_NAMES = {"CP932": "cp932", "SHIFT_JIS": "cp932", "MacCyrillic": "mac_cyrillic"}


@of("encoding")
def test_an_encoding_is_told_from_the_bytes(entry: Entry):
    folder = entry["file"].split("/")[1]
    data = (CORPUS / entry["file"]).read_bytes()
    plain = re.sub(r"-(czech|hungarian|slovak|bulgarian|russian|greek|turkish|hebrew)$", "", folder)
    expected = data.decode(PYTHON_NAMES.get(plain, plain))

    for label in (None, markup_label, text_label):
        decoded = decode(data, label)

        same = sum(one == other for one, other in zip(expected, decoded.text, strict=False))
        assert same >= 0.99 * max(len(expected), len(decoded.text))
        assert "\ufffd" not in decoded.text


@of("encoding")
def test_a_text_in_any_encoding_is_read_without_loss_or_with_a_mark(entry: Entry, sandbox: Sandbox):
    extracted = sandbox.extract(content(entry))

    assert words(joined(extracted))
    assert 0 == extracted.properties.replaced
    assert "\ufffd" not in joined(extracted)
