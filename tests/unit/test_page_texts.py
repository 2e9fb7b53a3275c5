"""Texts of pages put together from chunks, names in an export, and the choice between layer and OCR."""

from __future__ import annotations

import pytest

from penstock.pipeline.chunk.text import ChunkSizes
from penstock.pipeline.draft import build_draft
from penstock.pipeline.extract.protocol import ExtractedText, FileType, OcrReason, Page, Recognition, Shape
from penstock.pipeline.ocr.pages import NOTHING_FOUND, combined
from penstock.pipeline.ocr.protocol import RecognizedText
from penstock.service.pages import _safe_parts, joined

LAYER = "The old water mill stands by the river and its wheel turns."
WORDS = " ".join(f"word{number}" for number in range(400))


def found(text: str, confidence: float | None = 95.0) -> RecognizedText:
    return RecognizedText(text=text, engine="tesseract", confidence=confidence, warnings=("turned",))


def layered(text: str, reason: OcrReason | None = None) -> Page:
    return Page(1, text, needs_ocr=True, ocr_reason=reason)


OTHER = "Quite another text than the layer has"
HIDDEN, VERTICAL, SPARSE = OcrReason.HIDDEN_LAYER, OcrReason.VERTICAL, OcrReason.SPARSE
BOTH = f"{LAYER}\n\n{OTHER}"


@pytest.mark.parametrize(
    ("reason", "layer", "recognized", "confidence", "text", "by_ocr"),
    [
        pytest.param(OcrReason.NO_TEXT, "", "The mill", 50.0, "The mill", True, id="no layer"),
        pytest.param(HIDDEN, LAYER, LAYER, 99.0, LAYER, False, id="same"),
        pytest.param(HIDDEN, LAYER, OTHER, 95.0, OTHER, True, id="poor layer"),
        pytest.param(VERTICAL, LAYER, OTHER, 95.0, OTHER, True, id="vertical"),
        pytest.param(HIDDEN, LAYER, OTHER, 79.0, LAYER, False, id="unsure"),
        pytest.param(HIDDEN, LAYER, OTHER, None, LAYER, False, id="unknown"),
        pytest.param(HIDDEN, LAYER, "", None, LAYER, False, id="nothing found"),
        # Field values, notes and few words beside a picture are no layer: OCR may not see them.
        pytest.param(SPARSE, LAYER, OTHER, 95.0, BOTH, True, id="sparse"),
        pytest.param(SPARSE, LAYER, OTHER, 40.0, BOTH, True, id="sparse, unsure"),
        pytest.param(OcrReason.UNDECODABLE, LAYER, OTHER, 95.0, BOTH, True, id="notes kept"),
        pytest.param(None, LAYER, OTHER, 95.0, BOTH, True, id="no reason"),
        pytest.param(SPARSE, "Page 7", "Page 7\nThe mill", 90.0, "Page 7\nThe mill", True, id="found again"),
    ],
)
def test_the_text_of_a_page_with_layer_and_picture(
    reason: OcrReason | None, layer: str, recognized: str, confidence: float | None, text: str, by_ocr: bool
):
    page = combined(layered(layer, reason), found(recognized, confidence))

    assert (text, False) == (page.text, page.needs_ocr)
    assert (Recognition("tesseract", confidence) if by_ocr else None) == page.recognition


def test_a_picture_in_which_nothing_is_found_says_so():
    page = combined(layered(""), found("", None))

    assert ("", ("turned", NOTHING_FOUND)) == (page.text, page.warnings)


@pytest.mark.parametrize("numbered", [False, True])
def test_chunks_put_together_repeat_and_lose_nothing(numbered: bool):
    text = f"# Mill\n\n{WORDS}\n\n\n## Weir\n\n{WORDS}"
    extracted = ExtractedText(
        pages=(Page(1, text),),
        file_type=FileType("text/markdown", "markdown"),
        shape=Shape.MARKDOWN,
        page_count=1,
        line_numbers=numbered,
    )
    (page,) = build_draft(extracted, ChunkSizes(400, 80), complete=True).pages
    assert page.chunks is not None
    assert len(page.chunks) > 4

    assert text.split() == joined(page.chunks).split()
    if numbered:
        assert text == joined(page.chunks)


def test_names_in_an_export_lead_nowhere_else():
    assert ["a", "b.pdf"] == _safe_parts("/docs/a/b.pdf", "/docs")
    assert ["etc", "passwd"] == _safe_parts("mail.eml/../../etc/passwd".removeprefix("mail.eml/"), "/docs")
    assert ["x" * 200] == _safe_parts("/docs/" + "x" * 300, "/docs")
    assert ["note:1"] == _safe_parts("note:1", "/docs")
