"""PowerPoint presentations since 2007."""

from __future__ import annotations

import pytest

from penstock.errors import DocumentDamaged, DocumentEncrypted, DocumentTooLarge, NoText
from penstock.pipeline.extract.factory import extract
from penstock.pipeline.extract.protocol import Content, ExtractedText, ExtractLimits
from tests.pipeline.office_samples import part, powerpoint, relations, shape

OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600)


def read(data: bytes, pages: range | None = None, **limits: int) -> ExtractedText:
    return extract(Content("a.pptx", data), ExtractLimits(**limits), pages=pages)


def test_a_page_for_each_slide_in_the_order_of_the_presentation():
    data = powerpoint(
        shape("second line", kind="body") + shape("Mill", kind="title"), shape("Wheel", kind="ctrTitle")
    )

    extracted = read(data)

    assert ["# Mill\n\n- second line", "# Wheel"] == [page.text for page in extracted.pages]
    assert ("slide", "The mill", "Ada") == (
        extracted.file_type.page_unit,
        extracted.title,
        extracted.properties.author,
    )
    assert [2] == [page.number for page in read(data, range(2, 9)).pages]


def test_bullets_numbers_and_text_boxes():
    about = '<a:p><a:pPr lvl="1"><a:{0}/></a:pPr><a:r><a:t>{1}</a:t></a:r></a:p>'
    body = shape("wheel", about.format("buNone", "hub"), kind="") + shape(
        about.format("buAutoNum", "one"), about.format("buAutoNum", "two"), "boxed"
    )

    assert "- wheel\n\nhub\n\n  1. one\n  2. two\n\nboxed" == read(powerpoint(body)).pages[0].text


def test_tables_diagrams_charts_notes_and_comments():
    row = "<a:tr>" + "".join(f"<a:tc><a:p><a:r><a:t>{t}</a:t></a:r></a:p></a:tc>" for t in "ab") + "</a:tr>"
    slide = f"<p:graphicFrame><a:tbl>{row}</a:tbl></p:graphicFrame>"
    diagram = part("dgm:dataModel", "<dgm:pt><dgm:t><a:p><a:r><a:t>turns</a:t></a:r></a:p></dgm:t></dgm:pt>")
    chart = part(
        "c:chartSpace",
        "<c:strCache><c:pt><c:v>flow</c:v></c:pt></c:strCache><c:numCache><c:v>7</c:v></c:numCache>" * 2,
    )
    notes = part("p:notes", shape("Speak up.", kind="body") + shape("12", kind="sldNum"))
    comments = part("p:cmLst", "<p:cm><p:text>Which mill?</p:text></p:cm>")
    parts = {
        "ppt/slides/_rels/slide1.xml.rels": relations(
            "diagramData ../d.xml", "chart ../c.xml", "notesSlide ../n.xml", "comments ../k.xml"
        ),
        "ppt/d.xml": diagram,
        "ppt/c.xml": chart,
        "ppt/n.xml": notes,
        "ppt/k.xml": comments,
    }

    assert (
        "| a | b |\n|---|---|\n\nturns\n\nflow\n\n> Speak up.\n\n> Which mill?"
        == read(powerpoint(slide, parts=parts)).pages[0].text
    )


def test_numbers_of_slides_and_second_forms_are_left_out():
    form = (
        "<mc:AlternateContent><mc:Choice>{0}</mc:Choice><mc:Fallback>{0}</mc:Fallback></mc:AlternateContent>"
    )
    body = form.format(shape("Mill")) + shape("7", kind="sldNum") + shape("1 May", kind="dt")

    assert "Mill\n\n1 May" == read(powerpoint(body)).pages[0].text


def test_a_damaged_slide_fails_alone():
    extracted = read(powerpoint(shape("Mill"), shape("Wheel"), parts={"ppt/slides/slide2.xml": "<p:sld"}))

    assert (True, "Wheel") == (bool(extracted.pages[0].failure), extracted.pages[1].text)
    assert ("slides that cannot be read: 1",) == extracted.warnings


def test_refusals():
    with pytest.raises(DocumentDamaged, match="no part of the document can be read"):
        read(powerpoint("<p:sp>"))
    with pytest.raises(DocumentEncrypted):
        read(OLE + "EncryptedPackage".encode("utf-16-le"))
    with pytest.raises(NoText):
        read(powerpoint("<p:pic/>", parts={"ppt/media/image1.png": b"\x89PNG"}))
    with pytest.raises(DocumentTooLarge):
        extract(Content("a.pptx", powerpoint(shape("a"), shape("b"))), ExtractLimits(pages=1))
