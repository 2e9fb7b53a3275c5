"""OpenDocument texts, spreadsheets and presentations."""

from __future__ import annotations

import pytest

from penstock.errors import DocumentDamaged, DocumentEncrypted, NoText
from penstock.pipeline.extract.factory import extract
from penstock.pipeline.extract.protocol import Content, ExtractedText, Properties
from tests.pipeline.office_samples import archive, odf_part, opendocument

KINDS = {"text": "a.odt", "spreadsheet": "a.ods", "presentation": "a.odp"}


def read(kind: str, body: str, **parts: str) -> ExtractedText:
    return extract(Content(KINDS[kind], opendocument(kind, body, **parts)))


def text_of(body: str, **parts: str) -> str:
    return read("text", body, **parts).pages[0].text


def p(text: str, style: str = "") -> str:
    return f'<text:p text:style-name="{style}">{text}</text:p>'


def test_headings_paragraphs_lists_and_tables():
    derived = '<style:style style:family="paragraph" style:name="{}" style:parent-style-name="{}"/>'
    automatic = (
        derived.format("P1", "Title")
        + derived.format("P2", "Preformatted_20_Text")
        + '<text:list-style style:name="L1">'
        + '<text:list-level-style-number text:level="2" style:num-format="1"/>'
        "</text:list-style>"
    )
    body = (
        p("Mill", "P1")
        + '<text:h text:outline-level="2">Wheel</text:h>'
        + p("It<text:s text:c='9999'/>turns<text:line-break/>slowly")
        + p("x<text:s text:c='3'/>= 1", "P2")
        + f"<text:list text:style-name='L1'><text:list-item>{p('rim')}{p('of wood')}<text:list>"
        + f"<text:list-item>{p('one')}</text:list-item><text:list-item>{p('two')}</text:list-item>"
        + "</text:list></text:list-item></text:list>"
        + "<table:table><table:table-row><table:table-cell table:number-columns-spanned='2'>"
        + f"{p('a')}</table:table-cell><table:covered-table-cell/></table:table-row><table:table-row>"
        + f"<table:table-cell>{p('b')}{p('c')}</table:table-cell><table:table-cell>{p('d')}"
        + "</table:table-cell></table:table-row></table:table>"
    )

    extracted = read("text", body, automatic=automatic)

    assert (
        "# Mill\n\n## Wheel\n\nIt turns\nslowly\n\n```\nx   = 1\n```\n\n- rim\n\nof wood\n\n"
        "  1. one\n  2. two\n\n| a |  |\n|---|---|\n| b c | d |" == extracted.pages[0].text
    )
    assert extracted.pages[0].positions is not None
    assert 1 + extracted.pages[0].text.count("\n") == len(extracted.pages[0].positions)
    assert "paragraph" == extracted.file_type.position_unit


def test_cells_below_a_cell_keep_their_columns():
    covered = "<table:covered-table-cell table:number-columns-repeated='2'/>"
    first = f"<table:table-row><table:table-cell>{p('a')}</table:table-cell>{covered}</table:table-row>"
    second = f"<table:table-row>{covered}<table:table-cell>{p('b')}</table:table-cell></table:table-row>"

    assert "| a |  |  |\n|---|---|---|\n|  |  | b |" == text_of(f"<table:table>{first}{second}</table:table>")


def test_notes_comments_frames_and_deleted_text():
    note = "<text:note><text:note-citation>1</text:note-citation><text:note-body>" + p("By the river.")
    comment = "<office:annotation><dc:creator>Ada</dc:creator><dc:date>2024</dc:date>" + p("Which one?")
    frame = f"<draw:frame><draw:text-box>{p('boxed')}</draw:text-box></draw:frame>"
    deleted = (
        f"<text:tracked-changes><text:changed-region>{p('gone')}</text:changed-region></text:tracked-changes>"
    )
    asides = f"{note}</text:note-body></text:note>{comment}</office:annotation>"
    body = f"{deleted}<text:p>Mill{asides}{frame} turns</text:p>"

    assert "Mill[^1] turns\n\nboxed\n\n[^1]: By the river.\n\n> Ada: Which one?\n\nEnd." == text_of(
        body + p("End.")
    )


def test_headers_and_footers():
    styles = (
        "<office:master-styles><style:master-page>"
        f"<style:header>{p('Secret')}</style:header><style:header-left>{p('Secret')}</style:header-left>"
        f"<style:footer>{p('Page')}</style:footer></style:master-page></office:master-styles>"
    )

    assert "Secret\n\nMill\n\nPage" == text_of(p("Mill"), styles=styles)


def test_title_and_properties():
    extracted = read("text", p("words"))

    assert "The mill" == extracted.title
    assert (
        Properties(
            author="Ada", created="2024-01-31T10:00:00.12", modified="2025-02-01T11:30:00", language="en-GB"
        )
        == extracted.properties
    )


def cell(text: str, repeated: int = 1) -> str:
    about = f'table:number-columns-repeated="{repeated}"'
    return f"<table:table-cell {about}>{p(text) if text else ''}</table:table-cell>"


def row(*cells: str, repeated: int = 1) -> str:
    return f'<table:table-row table:number-rows-repeated="{repeated}">{"".join(cells)}</table:table-row>'


def test_sheets_are_pages():
    wheels = (
        f'<table:table table:name="Wheels">{row(cell("", 16384), repeated=3)}{row(cell("a"), cell("b", 2))}'
    )
    value = '<table:table-cell office:value="7"/>'
    stones = f'<table:table table:name="Stones">{row(value, cell(""), cell("c"))}</table:table>'

    extracted = read("spreadsheet", wheels + "</table:table>" + stones)

    assert "# Wheels\n\n| a | b | b |\n|---|---|---|" == extracted.pages[0].text
    assert (4, 4, 4, 4) == extracted.pages[0].positions
    assert "# Stones\n\n| 7 |  | c |\n|---|---|---|" == extracted.pages[1].text
    assert "sheet" == extracted.file_type.page_unit
    whole = Content("a.ods", opendocument("spreadsheet", wheels + "</table:table>" + stones))
    assert [2] == [page.number for page in extract(whole, pages=range(2, 3)).pages]


def test_repeated_cells_are_no_bomb():
    bomb = row(cell("word", 1_000_000), repeated=1_000_000)

    extracted = read("spreadsheet", f'<table:table table:name="S">{bomb}</table:table>')

    assert 10_000 == extracted.pages[0].text.count("word")
    assert ("cells and rows that repeat more than 100 times are written 100 times",) == extracted.warnings


def test_slides_are_pages():
    frame = "<draw:frame presentation:class='{}'><draw:text-box>{}</draw:text-box></draw:frame>"
    item = f"<text:list><text:list-item>{p('rim')}</text:list-item></text:list>"
    body = (
        f"<draw:page>{frame.format('outline', item)}{frame.format('title', p('Mill'))}"
        f"{frame.format('page-number', p('7'))}"
        f"<presentation:notes>{frame.format('notes', p('Speak up.'))}</presentation:notes></draw:page>"
        f"<draw:page><draw:custom-shape>{p('wheel')}</draw:custom-shape></draw:page>"
    )

    extracted = read("presentation", body)

    assert ["# Mill\n\n- rim\n\n> Speak up.", "wheel"] == [page.text for page in extracted.pages]
    assert "slide" == extracted.file_type.page_unit


def test_refusals():
    encrypted = "<manifest:file-entry><manifest:encryption-data/></manifest:file-entry>"
    manifest = {"META-INF/manifest.xml": odf_part("manifest", encrypted)}

    with pytest.raises(DocumentEncrypted):
        read("text", p("words"), **manifest)
    with pytest.raises(DocumentDamaged, match=r"content\.xml"):
        extract(Content("a.odt", archive({"mimetype": "application/vnd.oasis.opendocument.text"})))
    with pytest.raises(NoText):
        read("text", "", **{"Pictures/a.png": "PNG"})
    assert read("text", p("")).blank
