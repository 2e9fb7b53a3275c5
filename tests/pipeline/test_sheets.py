"""Excel workbooks."""

from __future__ import annotations

from contextlib import suppress

import pytest

from penstock.errors import DocumentDamaged, DocumentEncrypted, DocumentTooLarge, NoText
from penstock.pipeline.extract.factory import extract
from penstock.pipeline.extract.office.sheets import spanned_cells
from penstock.pipeline.extract.protocol import Content, ExtractedText, ExtractLimits
from tests.pipeline.office_samples import cell, excel, part, relations

OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600)


def read(data: bytes, pages: range | None = None, **limits: int) -> ExtractedText:
    return extract(Content("a.xlsx", data), ExtractLimits(**limits), pages=pages)


def row(number: int, *cells: str) -> str:
    return f'<row r="{number}">{"".join(cells)}</row>'


def test_a_page_for_each_sheet_with_its_rows():
    wheels = row(2, cell("A2", "name"), cell("B2", "turns")) + row(3, cell("A3", "a|b"), cell("B3", "7"))
    data = excel({"Wheels": wheels, "Dates": row(1, cell("A1", "45322", 1), cell("B1", "0.5"))})

    extracted = read(data)

    assert "# Wheels\n\n| name | turns |\n|---|---|\n| a\\|b | 7 |" == extracted.pages[0].text
    assert "# Dates\n\n| 2024-01-31 | 0.5 |\n|---|---|" == extracted.pages[1].text
    assert (2, 2, 2, 2, 3) == extracted.pages[0].positions
    assert ("sheet", "row", "The mill") == (
        extracted.file_type.page_unit,
        extracted.file_type.position_unit,
        extracted.title,
    )
    assert [2] == [page.number for page in read(data, range(2, 3)).pages]


def test_blank_rows_part_tables_and_an_empty_sheet_is_blank():
    rows = row(1, cell("A1", "a")) + row(3, cell("B3", "b"))

    assert "# S\n\n| a |\n|---|\n\n|  | b |\n|---|---|" == read(excel({"S": rows})).pages[0].text
    assert read(excel({"S": ""})).blank


def test_a_caption_is_no_part_of_its_table():
    rows = row(1, cell("A1", "Wheels")) + row(2, cell("A2", "a"), cell("B2", "b")) + row(3, cell("A3", "c"))
    lists = row(1, cell("A1", "a")) + row(2, cell("A2", "b"))

    assert "# S\n\nWheels\n\n| a | b |\n|---|---|\n| c |" == read(excel({"S": rows})).pages[0].text
    assert "# S\n\n| a |\n|---|\n| b |" == read(excel({"S": lists})).pages[0].text


def test_text_boxes_charts_and_comments():
    box = part("wsDr", "<a:p><a:r><a:t>boxed</a:t></a:r></a:p>")
    chart = part("c:chartSpace", "<a:p><a:r><a:t>Flow</a:t></a:r></a:p>")
    comment = "<x:text><x:r><x:t>Which </x:t></x:r><x:r><x:t>mill?</x:t></x:r></x:text>"
    parts = {
        "xl/worksheets/_rels/sheet1.xml.rels": relations("drawing ../d.xml", "comments ../k.xml"),
        "xl/d.xml": box,
        "xl/_rels/d.xml.rels": relations("chart c.xml"),
        "xl/c.xml": chart,
        "xl/k.xml": part(
            "x:comments", f'<x:commentList><x:comment ref="B7">{comment}</x:comment></x:commentList>'
        ),
    }

    assert "# S\n\nboxed\n\nFlow\n\n> B7: Which mill?" == read(excel({"S": ""}, parts)).pages[0].text


def test_cells_far_apart_are_refused_before_room_is_made_for_them():
    far = row(1, cell("A1", "a")) + row(1_048_576, cell("XFD1048576", "b"))

    with pytest.raises(DocumentTooLarge, match="17,179,869,184 cells"):
        read(excel({"S": far}))


def test_cells_with_a_style_only_span_nothing():
    styled = row(1, cell("A1", "a")) + row(1_048_576, '<c r="XFD1048576" s="1"/>')

    assert "# S\n\n| a |\n|---|" == read(excel({"S": styled})).pages[0].text


def test_the_area_of_a_sheet():
    assert 26_000 == spanned_cells(b'<row r="7"><c r="A7">', 1 << 20)
    assert 9 == spanned_cells(b'<c r="B2"><v/></c><c\n r = \'D4\'><c r="ZZZ99999"/>', 10)


@pytest.mark.parametrize(
    "rows", ['<row r="2"><c r="A2"><v>1</v></c></row><row r="1"><c r="A1"><v>1</v></c></row>', "<row"]
)
def test_contradictions_are_damage_or_text(rows: str):
    with suppress(DocumentDamaged):
        assert read(excel({"S": rows})).pages


def test_names_of_parts_are_compared_without_case():
    data = excel({"S": row(1, cell("A1", "a"))})

    assert (
        "# S\n\n| a |\n|---|"
        == read(data.replace(b"worksheets/sheet1.xml", b"Worksheets/Sheet1.xml")).pages[0].text
    )


def test_refusals():
    with pytest.raises(NoText):
        read(excel({"S": ""}, {"xl/media/image1.png": b"PNG"}))
    with pytest.raises(DocumentEncrypted):
        read(OLE + "EncryptedPackage".encode("utf-16-le"))
    with pytest.raises(DocumentDamaged):
        read(OLE)
    with pytest.raises(DocumentTooLarge):
        read(excel({"S": row(1, cell("A1", "x" * 5_000_000))}), file_bytes=1_000_000)
