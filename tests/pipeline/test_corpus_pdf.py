"""Real PDFs of every class, compared with their manifest and with another reader where it is installed."""

from __future__ import annotations

import shutil
import subprocess
import unicodedata
from collections import Counter
from collections.abc import Iterator
from functools import cache

import pytest

from penstock.errors import UnreadableDocument
from penstock.pipeline.extract.protocol import ExtractedText, OcrReason
from penstock.pipeline.extract.sandbox.sandbox import Sandbox
from tests.pipeline.conftest import CORPUS
from tests.pipeline.test_corpus import Entry, chunks_cover, content, joined, manifest, of, words

POPPLER = shutil.which("pdftotext", path="/usr/local/bin:/usr/bin:/bin")
READABLE = ("text", "columns", "table", "form", "mixed", "ownerpw", "nonlatin")


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox() as made:
        yield made


_EXTRACTED: dict[str, ExtractedText] = {}


def extracted_from(entry: Entry, sandbox: Sandbox) -> ExtractedText:
    """Extract a file, once for all tests."""
    file = entry["file"]
    if file not in _EXTRACTED:
        _EXTRACTED[file] = sandbox.extract(content(entry))
    return _EXTRACTED[file]


@cache
def reference(file: str) -> Counter[str]:
    """Words of a PDF as poppler reads them."""
    assert POPPLER is not None
    read = subprocess.run(
        [POPPLER, "-enc", "UTF-8", str(CORPUS / file), "-"], stdout=subprocess.PIPE, check=True
    )
    return counted(read.stdout.decode("utf-8", "replace"))


def counted(text: str) -> Counter[str]:
    return Counter(words(unicodedata.normalize("NFKC", text)))


def recall(expected: Counter[str], found: Counter[str]) -> float:
    return (expected & found).total() / max(1, expected.total())


@of(*READABLE)
def test_a_text_layer_is_read_page_by_page(entry: Entry, sandbox: Sandbox):
    extracted = extracted_from(entry, sandbox)

    expected = entry["ref"]
    assert expected["pages"] == len(extracted.pages) == extracted.page_count
    assert all(page.text for page in extracted.pages)
    # The reference also counts direction marks, which are no characters of the text.
    least = 0.9 if entry["class"] == "nonlatin" else 0.95
    assert len("".join(joined(extracted).split())) >= least * expected["chars"]
    assert "(cid:" not in joined(extracted)
    assert "\ufffd" not in joined(extracted)
    assert unicodedata.is_normalized("NFC", joined(extracted))
    assert chunks_cover(extracted)
    reasons = {page.ocr_reason for page in extracted.pages}
    assert reasons <= ({None, OcrReason.HIDDEN_LAYER} if entry["class"] == "mixed" else {None})


@pytest.mark.skipif(POPPLER is None, reason="pdftotext is not installed")
@pytest.mark.parametrize(
    ("kind", "least"), [("text", 0.96), ("columns", 0.96), ("ownerpw", 0.96), ("table", 0.99), ("form", 1.0)]
)
def test_the_words_of_a_class_are_found(kind: str, least: float, sandbox: Sandbox):
    entries = [entry for entry in manifest() if entry["class"] == kind]

    found = [
        recall(reference(entry["file"]), counted(joined(extracted_from(entry, sandbox)))) for entry in entries
    ]

    assert sum(found) / len(found) >= least
    assert min(found) >= 0.96


def read(file: str, sandbox: Sandbox) -> ExtractedText:
    return extracted_from({"file": f"pdf/{file}"}, sandbox)


@pytest.mark.parametrize(
    ("file", "sentence"),
    [
        ("multicolumn.pdf", "Phasellus eu tellus sit amet tortor gravida placerat."),
        ("multi-column.pdf", "In this work, we show that retrieval can be practically implemented"),
    ],
)
def test_columns_are_read_one_after_the_other(file: str, sentence: str, sandbox: Sandbox):
    assert sentence in " ".join(joined(read(f"columns/{file}", sandbox)).split())


def test_cells_of_a_row_stay_in_one_line(sandbox: Sandbox):
    text = joined(read("table/layout-parser-paper-with-table.pdf", sandbox))

    assert "PRImA [3] M - Layouts of scanned modern magazines and scientific reports\n" in text


def test_values_of_form_fields_are_found(sandbox: Sandbox):
    assert {"Alice", "Bob"} <= set(joined(read("form/libreoffice-form.pdf", sandbox)).split())


def test_notes_are_found(sandbox: Sandbox):
    text = joined(read("text/annotated_pdf.pdf", sandbox))

    assert all(note in text for note in ("This is a text annotation.", "Highlight comment", "Hello world!"))


def test_text_stays_in_its_script(sandbox: Sandbox):
    assert "あいうえお" in joined(read("nonlatin/noembed-identity.pdf", sandbox))
    arabic = joined(read("nonlatin/right_to_left_01.pdf", sandbox))
    assert "البرمجة" in arabic
    assert not set(arabic) & set("?\u202a\u202b\u202c")


def test_attached_files_and_properties_are_found(sandbox: Sandbox):
    (attached,) = read("text/with-attachment.pdf", sandbox).attachments
    paper = read("text/GeoTopo-komprimiert.pdf", sandbox)

    assert ("image.png", b"\x89PNG") == (attached.name, attached.data[:4])
    assert ("Geometrie und Topologie", "Martin Thoma") == (paper.title, paper.properties.author)
    assert "2016-12-31T18:43:23+01:00" == paper.properties.created


@of("scan")
def test_a_scan_says_that_it_needs_ocr(entry: Entry, sandbox: Sandbox):
    extracted = extracted_from(entry, sandbox)

    assert [OcrReason.NO_TEXT] == [page.ocr_reason for page in extracted.pages]
    assert not extracted.blank


@of("encrypted")
def test_a_password_is_a_terminal_failure(entry: Entry, sandbox: Sandbox):
    with pytest.raises(UnreadableDocument) as refusal:
        extracted_from(entry, sandbox)

    assert "ERR_ENCRYPTED" == refusal.value.error_code


REPAIRED = {"bad-xref.pdf", "bad16.pdf", "bad4.pdf", "issue15150.pdf"}


@of("malformed")
def test_damage_gives_text_a_mark_or_a_reason(entry: Entry, sandbox: Sandbox):
    try:
        extracted = extracted_from(entry, sandbox)
    except UnreadableDocument as error:
        assert error.error_code in ("ERR_PARSE", "ERR_PARSER_FAILED", "ERR_TOO_LARGE")  # noqa: PT017
    else:
        assert words(joined(extracted)) or extracted.needs_ocr
        assert bool(extracted.warnings) is (entry["file"].rpartition("/")[2] in REPAIRED)
