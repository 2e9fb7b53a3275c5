"""Frames of chunks: their text found among the words of a page."""

import pytest

from penstock.pipeline.extract.pdf.document import PdfPages
from penstock.pipeline.extract.protocol import ExtractLimits, PlacedWord
from penstock.service.pages import frames_of
from tests.pipeline.pdf_files import PdfWriter, shown


def words(*lines: str) -> list[PlacedWord]:
    """Lines of words of one size, a tenth of the page apart. ``|`` begins the next column."""
    placed, across, down = [], 0.0, 0
    for line in lines:
        if line == "|":
            across, down = 0.5, 0
            continue
        for number, word in enumerate(line.split()):
            left, top = across + number / 20, down / 10
            placed.append(PlacedWord(word, left, top, left + 0.04, top + 0.05))
        down += 1
    return placed


LINES = ("The wa-", "ter mill", "is closed", "|", "at night", "The mill")


@pytest.mark.parametrize(
    ("text", "boxes"),
    [
        ("The water mill", [(0.0, 0.0, 0.09, 0.15)]),
        ("**mill** is\nclosed", [(0.0, 0.1, 0.09, 0.25)]),
        ("closed at NIGHT", [(0.05, 0.2, 0.09, 0.25), (0.5, 0.0, 0.59, 0.05)]),
        ("[Form field]\nis closed\nat night", [(0.0, 0.2, 0.09, 0.25), (0.5, 0.0, 0.59, 0.05)]),
    ],
)
def test_a_chunk_has_a_box_in_each_column(text: str, boxes: list[tuple[float, ...]]):
    (frame,) = frames_of(words(*LINES), [("one", text)])

    assert boxes == frame.boxes


def test_a_repeated_text_is_framed_where_its_chunk_is():
    first, second = frames_of(words("a mill", "a mill"), [("1", "a mill a"), ("2", "mill")])

    assert ("1", [(0.0, 0.0, 0.09, 0.15)]) == (first.chunk_id, first.boxes)
    assert [] == frames_of(words("a mill"), [("1", "the river"), ("2", "--"), ("3", "")])
    assert "2" == second.chunk_id


def test_boxes_that_overlap_are_one():
    label = PlacedWord("label", 0.02, 0.01, 0.1, 0.02)
    (frame,) = frames_of([*words("the mill", "stands"), label], [("1", "The mill stands, label")])

    assert [(0.0, 0.0, 0.1, 0.15)] == frame.boxes


def test_words_are_placed_as_the_page_is_drawn():
    writer = PdfWriter()
    writer.page(shown("Turned page", 50, 700), about=b"/Rotate 90")
    writer.page(shown("Cropped", 150, 400) + shown("outside", 500, 700), about=b"/CropBox [100 300 400 500]")
    document = PdfPages(writer.bytes(), ExtractLimits())
    for number, expected in ((1, ["Turned", "page"]), (2, ["Cropped"])):
        found, drawn = document.words(number), document.image(number, 72).pixels
        rows, columns = (drawn < 128).nonzero()
        height, width = drawn.shape
        assert expected == [word.text for word in found]
        assert pytest.approx(columns.min() / width, abs=0.01) == min(word.left for word in found)
        assert pytest.approx(columns.max() / width, abs=0.01) == max(word.right for word in found)
        assert pytest.approx(rows.min() / height, abs=0.01) == min(word.top for word in found)
        assert pytest.approx(rows.max() / height, abs=0.01) == max(word.bottom for word in found)
    document.close()
