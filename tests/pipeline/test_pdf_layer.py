"""Text layers of PDFs: which pages need OCR, and which text is on the page."""

from __future__ import annotations

import pytest

from penstock.pipeline.extract.pdf.text import LayerMeasures, Shown, incomplete, measure, unusable
from penstock.pipeline.extract.protocol import OcrReason, Page
from tests.pipeline.pdf_files import GRAY, PdfWriter, shown
from tests.pipeline.test_pdf import read

PROSE = (
    "The miller opens the sluice before sunrise, so that the wheel turns when the first carts arrive. "
    "Nobody in the village remembers a winter in which the water stood still."
)
GERMAN = (
    "Der Müller öffnet die Schleuse früh, damit das Rad läuft, wenn die ersten Wagen kommen. Größe zählt."
)
POLISH = "Młynarz otwiera śluzę przed świtem, żeby koło kręciło się, gdy nadjeżdżają pierwsze wozy ze zbożem."
RUSSIAN = "Мельник открывает шлюз до рассвета, чтобы колесо вращалось, когда приедут первые телеги с зерном."
JAPANESE = "粉屋は夜明け前に水門を開ける。PDFファイルの水車は最初の荷車が着くころには回っている。" * 4
GREEK = "Ο μυλωνάς ανοίγει το φράγμα πριν την αυγή, ώστε ο τροχός να γυρίζει όταν φτάνουν τα πρώτα κάρα."
FORMULAS = (
    "Für alle ε > 0 gibt es ein δ > 0 mit |f(x) − f(y)| < ε, falls |x − y| < δ gilt, also ist f stetig."
)


def shifted(text: str, by: int) -> str:
    return "".join(chr(ord(char) + by) if char.isalpha() else char for char in text)


@pytest.mark.parametrize("text", [PROSE, PROSE.upper(), GERMAN, POLISH, RUSSIAN, JAPANESE, GREEK, FORMULAS])
def test_text_of_any_language_is_usable(text: str):
    assert unusable(measure(text)) is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (shifted(PROSE, 3), OcrReason.SHIFTED),
        ("\x13\x14\x15 \x16\x17 " * 10 + "word", OcrReason.UNDECODABLE),
        ("\ue012\ue013\ue014 " * 10, OcrReason.UNDECODABLE),
        ("\ufffd" * 30, OcrReason.UNDECODABLE),
        ("aжeδ нcвtπ " * 20, OcrReason.NOISE),
        ("xkcdf rtrsn 8 on 9 to " * 20, OcrReason.NOISE),
    ],
)
def test_garbage_is_told_by_its_measure(text: str, reason: OcrReason):
    assert reason is unusable(measure(text))


def test_hyphens_at_line_ends_are_not_odd():
    assert 0.0 == measure("wa\x02\nter wheel\ufffe\n" * 10).odd


def test_a_short_text_is_not_judged():
    assert unusable(measure("\x13\x14\x15")) is None
    assert LayerMeasures(0) == measure(" \n")


def test_the_objects_of_a_page_decide_where_its_text_is_no_garbage():
    prose = measure(PROSE)
    scan = Shown(True, pictures=0.9)

    assert incomplete(prose, scan, has_text=True) is None
    assert OcrReason.NO_TEXT is incomplete(LayerMeasures(0), scan, has_text=False)
    assert incomplete(LayerMeasures(0), Shown(False), has_text=False) is None
    assert OcrReason.SPARSE is incomplete(LayerMeasures(6), scan, has_text=True)
    assert incomplete(LayerMeasures(6), Shown(True, pictures=0.4), has_text=True) is None
    assert OcrReason.HIDDEN_LAYER is incomplete(prose, Shown(True, 0.9, hidden=1.0), has_text=True)
    assert incomplete(prose, Shown(True, 0.3, hidden=1.0), has_text=True) is None
    assert OcrReason.VERTICAL is incomplete(measure(JAPANESE), Shown(True, narrow=0.8), has_text=True)
    assert OcrReason.VERTICAL is incomplete(LayerMeasures(2), Shown(True, narrow=0.8), has_text=True)
    assert incomplete(prose, Shown(True, narrow=0.8), has_text=True) is None


def page_of(content: bytes, **options: bytes) -> Page:
    writer = PdfWriter()
    writer.page(content, **options)
    return read(writer.bytes()).pages[0]


def test_an_earlier_ocr_is_kept_and_read_again():
    page = page_of(GRAY % (612, 792) + shown(PROSE, mode=3))

    assert (True, OcrReason.HIDDEN_LAYER) == (page.needs_ocr, page.ocr_reason)
    assert page.text.startswith("The miller")


def test_visible_text_on_a_picture_needs_no_ocr():
    page = page_of(GRAY % (612, 792) + shown(PROSE))

    assert (False, None) == (page.needs_ocr, page.ocr_reason)


def test_few_characters_beside_a_large_picture_are_kept():
    page = page_of(GRAY % (612, 500) + shown("Page 12"))

    assert (True, OcrReason.SPARSE, "Page 12") == (page.needs_ocr, page.ocr_reason, page.text)
    assert page_of(GRAY % (100, 100) + shown("Page 12")).ocr_reason is None


def test_a_picture_in_a_form_object_counts():
    writer = PdfWriter()
    about = b"/Type /XObject /Subtype /Form /BBox [0 0 1 1] /Matrix [612 0 0 792 0 0]"
    inner = writer.stream(GRAY % (1, 1), about)
    writer.page(shown("Page 12") + b"/X1 Do", fonts=b">> /XObject << /X1 %d 0 R" % inner)

    assert OcrReason.SPARSE is read(writer.bytes()).pages[0].ocr_reason


def test_an_unusable_layer_is_dropped():
    page = page_of(shown(shifted(PROSE, 3)))

    assert ("", True, OcrReason.SHIFTED) == (page.text, page.needs_ocr, page.ocr_reason)


def test_text_outside_the_page_is_left_out():
    spread = shown("left page") + shown("right page", x=700)

    assert "left page" == page_of(spread).text


@pytest.mark.parametrize("box", [b"/CropBox [600 0 1200 792]", b"/MediaBox [600 0 1200 792]"])
def test_the_box_of_a_page_decides(box: bytes):
    writer = PdfWriter(pages=b"/MediaBox [0 0 1200 792]")
    writer.page(shown("left page") + shown("right page", x=700), about=box)

    assert "right page" == read(writer.bytes()).pages[0].text


def test_an_inherited_box_counts():
    writer = PdfWriter(pages=b"/MediaBox [0 0 1200 792]")
    writer.page(shown("left page") + shown("right page", x=700))

    assert "left page right page" == read(writer.bytes()).pages[0].text


def test_a_line_at_the_edge_is_kept_whole_or_not_at_all():
    texts = [page_of(shown("some Typical line", y=y) + shown("inside", y=100)).text for y in range(780, 800)]

    assert {"some Typical line\ninside", "inside"} == set(texts)


def test_cells_of_a_row_stay_in_one_line_beside_text_off_the_page():
    row = shown("Flour", x=50) + shown("12", x=200) + shown("sacks", x=300)

    assert "Flour 12 sacks" == page_of(row + shown("printer's mark", y=-40)).text


def vertical(footer: str) -> bytes:
    """A page of vertical writing in a font that is not embedded, with a line of Latin letters."""
    writer = PdfWriter()
    about = b"/CIDSystemInfo << /Registry (Adobe) /Ordering (Japan1) /Supplement 2 >>"
    name = b"/Type /Font /BaseFont /HeiseiMin-W3"
    wide = writer.add(b"<< %s /Subtype /CIDFontType0 %s >>" % (name, about))
    font = writer.add(
        b"<< %s /Subtype /Type0 /Encoding /UniJIS-UCS2-V /DescendantFonts [%d 0 R] >>" % (name, wide)
    )
    column = "水車は夜明け前に回る".encode("utf-16-be").hex().encode()
    columns = [b"BT /F2 12 Tf %d 700 Td <%s> Tj ET " % (x, column) for x in (500, 480, 460)]
    writer.page(b"".join(columns) + shown(footer, y=40), fonts=b"/F2 %d 0 R" % font)
    return writer.bytes()


def test_vertical_writing_that_pdfium_misses_needs_ocr():
    page = read(vertical("12")).pages[0]

    assert ("12", OcrReason.VERTICAL) == (page.text, page.ocr_reason)
    assert read(vertical(PROSE)).pages[0].ocr_reason is None


def test_characters_beyond_16_bits_are_whole():
    writer = PdfWriter()
    mapping = (
        b"/CIDInit /ProcSet findresource begin begincmap 1 begincodespacerange <00> <FF> endcodespacerange "
        b"2 beginbfchar <61> <D835DC65> <62> <D83CDF3E> endbfchar endcmap end"
    )
    unicode_map = writer.stream(mapping)
    font = writer.add(
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /ToUnicode %d 0 R >>" % unicode_map
    )
    writer.page(b"BT /F2 12 Tf 50 700 Td (ab) Tj ET", fonts=b"/F2 %d 0 R" % font)

    assert "\N{MATHEMATICAL ITALIC SMALL X}\N{EAR OF RICE}" == read(writer.bytes()).pages[0].text
