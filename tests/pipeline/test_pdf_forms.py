"""Form fields and notes of PDFs: read, placed, and never at the cost of the page's own words."""

from __future__ import annotations

from penstock.pipeline.extract.pdf.document import keeps_words, with_additions
from tests.pipeline.pdf_files import form, shown, with_annotation
from tests.pipeline.test_pdf import read

LABEL = shown("Family name:")


def text_of(data: bytes) -> str:
    return read(data).pages[0].text


def test_the_value_of_a_text_field_is_read():
    text = text_of(form(b"/FT /Tx /T (name) /V (Rosenqvist)", content=LABEL))

    assert text.startswith("Family name:")
    assert 1 == text.count("Rosenqvist")


def test_a_value_drawn_by_the_field_is_not_repeated():
    drawn = b"/Tx BMC BT /F1 12 Tf 2 10 Td (Rosenqvist) Tj ET EMC"

    text = text_of(form(b"/FT /Tx /T (name) /V (Rosenqvist)", content=LABEL, appearance=drawn))

    assert "Family name: Rosenqvist".split() == text.split()


def test_a_checked_box_has_a_label_and_an_empty_one_has_none():
    checked = b"/FT /Btn /T (b%d) /TU (%s) /V /%s /AS /%s"
    states = (b"Yes", b"Off")
    boxes = [checked % (at, b"Vegetarian" if at else b"Wheelchair", *[states[at]] * 2) for at in (0, 1)]

    text = text_of(form(*boxes, content=LABEL))

    assert "[x] Wheelchair" in text
    assert "Vegetarian" not in text


def test_a_choice_shows_the_label_of_the_chosen_option():
    choice = b"/FT /Ch /Ff 131072 /T (land) /V (de) /Opt [[(fr) (France)] [(de) (Germany)]]"

    text = text_of(form(choice, content=LABEL))

    assert "Germany" in text
    assert "France" not in text


def test_hidden_fields_and_passwords_are_left_out():
    hidden = b"/FT /Tx /T (one) /V (invisible) /F 2"
    password = b"/FT /Tx /Ff 8192 /T (two) /V (hunter2)"

    text = text_of(form(hidden, password, content=LABEL).replace(b"/Widget /F 4", b"/Widget"))

    assert "hunter2" not in text
    assert "invisible" not in text


def test_a_note_is_appended():
    data = with_annotation(b"/Subtype /Text /Contents (Ask the miller first.)", LABEL)

    assert "Family name:\n\nAsk the miller first." == text_of(data)


def test_links_add_nothing():
    data = with_annotation(b"/Subtype /Link /Contents (not a note)", LABEL)

    assert "Family name:" == text_of(data)


def test_a_file_attached_to_a_note_is_mentioned():
    page = read(with_annotation(b"/Subtype /FileAttachment /Contents (see file)", LABEL)).pages[0]

    assert ("a file attached to a note is not read",) == page.warnings
    assert "see file" in page.text


def test_pages_are_read_alike_every_time():
    from penstock.pipeline.extract.pdf.document import PdfPages
    from penstock.pipeline.extract.protocol import ExtractLimits

    document = PdfPages(form(b"/FT /Tx /T (name) /V (Rosenqvist)", content=LABEL), ExtractLimits())

    assert document.page(1) == document.page(1)
    document.close()


def test_flattening_that_loses_words_is_undone():
    before = " ".join(f"word{number}" for number in range(100))

    assert keeps_words(before, before + " value")
    assert keeps_words("", "value")
    assert keeps_words(before, before.replace("word7 ", "", 1))
    assert not keeps_words(before, before.replace("word1", "w0rd1"))


def test_additions_are_compared_without_white_space():
    assert "a b\n\nc" == with_additions("a b", ["ab", "c"])
    assert "c" == with_additions("", ["c"])
    assert "a" == with_additions("a", [])


def test_the_fields_are_drawn_in_the_picture_of_a_page():
    from penstock.pipeline.extract.pdf.document import PdfPages
    from penstock.pipeline.extract.protocol import ExtractLimits

    def ink(field: bytes) -> int:
        document = PdfPages(form(field, content=b""), ExtractLimits())
        pixels = document.image(1, 72).pixels
        document.close()
        return int((pixels < 128).sum())

    assert ink(b"/FT /Tx /T (name) /V (Rosenqvist)") > ink(b"/FT /Tx /T (name)")
