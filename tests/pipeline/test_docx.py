"""Word documents since 2007."""

from __future__ import annotations

import io
import zipfile

import pytest

from penstock.errors import DocumentDamaged, DocumentEncrypted, DocumentTooLarge, NoText, UnreadableDocument
from penstock.pipeline.chunk.text import ChunkSizes
from penstock.pipeline.draft import build_draft
from penstock.pipeline.extract.factory import extract
from penstock.pipeline.extract.protocol import Content, ExtractedText, ExtractLimits, Properties, Shape
from tests.pipeline.office_samples import archive, item, part, style, word
from tests.pipeline.sample_documents import docx, paragraph, table

OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600)


def read(data: bytes, **limits: int) -> ExtractedText:
    return extract(Content("a.docx", data), ExtractLimits(**limits))


def text_of(data: bytes) -> str:
    return read(data).pages[0].text


def test_headings_paragraphs_and_tables_in_order():
    body = [paragraph("Mill", "Heading1"), paragraph("It grinds ü."), table(["n", "t|u"], ["mill", "wheel"])]

    extracted = read(docx(*body, paragraph("End.")))

    assert (
        "# Mill\n\nIt grinds ü.\n\n| n | t\\|u |\n|---|---|\n| mill | wheel |\n\nEnd."
        == extracted.pages[0].text
    )
    assert Shape.MARKDOWN is extracted.shape


@pytest.mark.parametrize(
    ("styles", "style_id", "expected"),
    [
        (style("a1", "heading 2"), "a1", "## Mill"),
        (style("berschrift3", "Überschrift 3"), "berschrift3", "### Mill"),
        ("", "Titre2", "## Mill"),
        (style("own", "Chapter", '<w:outlineLvl w:val="1"/>'), "own", "## Mill"),
        (style("base", "heading 1") + style("own", "Mine", based_on="base"), "own", "# Mill"),
        (style("a", "A", based_on="b") + style("b", "B", based_on="a"), "a", "Mill"),
        (style("body", "Body", '<w:outlineLvl w:val="9"/>'), "body", "Mill"),
    ],
)
def test_headings_are_known_by_name_and_by_outline_level(styles: str, style_id: str, expected: str):
    assert expected == text_of(word(paragraph("Mill", style_id), styles=styles))


NUMBERING = (
    '<w:abstractNum w:abstractNumId="0"><w:lvl w:ilvl="0"><w:numFmt w:val="bullet"/></w:lvl>'
    '<w:lvl w:ilvl="1"><w:start w:val="4"/><w:numFmt w:val="decimal"/></w:lvl></w:abstractNum>'
    '<w:num w:numId="7"><w:abstractNumId w:val="0"/></w:num>'
)


def test_lists_keep_their_levels_and_numbers():
    body = item("wheel", 7) + item("rim", 7, 1) + item("hub", 7, 1) + item("stone", 7) + item("bed", 7, 1)

    assert "- wheel\n  4. rim\n  5. hub\n- stone\n  4. bed" == text_of(word(body, numbering=NUMBERING))


def test_a_style_makes_list_items_and_code():
    styles = style("li", "List", '<w:numPr><w:numId w:val="7"/></w:numPr>') + style("src", "Source Code")
    body = paragraph("wheel", "li") + paragraph("x = 1", "src") + paragraph("  ```", "src")

    assert "- wheel\n\n````\nx = 1\n  ```\n````" == text_of(word(body, styles=styles, numbering=NUMBERING))


def test_notes_and_comments_follow_their_paragraph():
    refer = "<w:p><w:r><w:t>Mill</w:t><w:{0}Reference w:id='2'/></w:r></w:p>"
    body = refer.format("footnote") + refer.format("comment") + refer.format("footnote") + paragraph("End.")
    note = f"<w:footnote w:id='2'>{paragraph('By the river.')}</w:footnote>"
    rule = f"<w:footnote w:id='0' w:type='separator'>{paragraph('line')}</w:footnote>"
    comment = f"<w:comment w:id='2' w:author='Ada'>{paragraph('Which one?')}</w:comment>"

    assert "Mill[^1]\n\n[^1]: By the river.\n\nMill\n\n> Ada: Which one?\n\nMill[^1]\n\nEnd." == text_of(
        word(body, footnotes=rule + note, comments=comment)
    )


def test_headers_and_footers_are_read_once():
    made = word(
        paragraph("Mill"),
        header1=paragraph("Secret"),
        header2=paragraph("Secret"),
        footer1=paragraph("Page"),
    )

    assert "Secret\n\nMill\n\nPage" == text_of(made)


def test_text_boxes_are_read_once_after_their_paragraph():
    box = f"<w:txbxContent>{paragraph('boxed')}{table(['a', 'b'])}</w:txbxContent>"
    forms = f"<mc:Choice>{box}</mc:Choice><mc:Fallback>{box}</mc:Fallback>"
    choice = f"<mc:AlternateContent>{forms}</mc:AlternateContent>"

    assert "Mill stands.\n\nboxed\n\n| a | b |\n|---|---|" == text_of(
        word(f"<w:p><w:r><w:t>Mill </w:t>{choice}<w:t>stands.</w:t></w:r></w:p>")
    )


def test_deleted_text_and_field_commands_are_left_out():
    body = (
        "<w:p><w:r><w:t>A</w:t><w:instrText>PAGE</w:instrText></w:r><w:del><w:r><w:delText>B</w:delText>"
        "<w:t>C</w:t></w:r></w:del><w:moveFrom><w:r><w:t>D</w:t></w:r></w:moveFrom><w:ins><w:r><w:t>E</w:t>"
        "</w:r></w:ins><w:hyperlink><w:r><w:t> link</w:t></w:r></w:hyperlink></w:p>"
    )
    gone = table(["gone"]).replace("<w:tr>", "<w:tr><w:trPr><w:del/></w:trPr>")

    assert "AE link\n\n| a | b |\n|---|---|" == text_of(
        word(body + gone.replace("</w:tbl>", table(["a", "b"])[7:]))
    )


def test_a_table_that_arranges_the_page_is_no_table():
    long = "words " * 400
    nested = table(["a", "b"]).replace(paragraph("a"), paragraph("x") + table(["1", "2"], ["3", "4"]))

    assert "# Mill\n\nwords" == text_of(
        word(table(["?"]).replace(paragraph("?"), paragraph("Mill", "Heading1") + paragraph("words")))
    )
    assert "a\n\n" + long.strip() == text_of(word(table(["a", long])))
    assert "| x 1 2 3 4 | b |\n|---|---|" == text_of(word(nested))


def test_text_that_looks_like_markdown_stays_text():
    body = paragraph("# Mill") + paragraph("```") + paragraph("a</w:t><w:br/><w:t>---")

    assert "\\# Mill\n\n\\```\n\na\n\\---" == text_of(word(body))


def test_chunks_carry_paragraph_numbers():
    body = paragraph("Mill", "Heading1") + table(["a", "b"], ["c", "d"]) + paragraph("End.")

    extracted = read(word(body))

    assert (1, 1, 2, 2, 4, 4, 6) == extracted.pages[0].positions
    assert "paragraph" == extracted.file_type.position_unit
    draft = build_draft(extracted, ChunkSizes(), complete=True)
    assert [(1, 6)] == [(chunk.first_line, chunk.last_line) for chunk in draft.chunks]


def test_title_and_properties():
    extracted = read(word(paragraph("words")))

    assert "The mill" == extracted.title
    assert (
        Properties(
            author="Ada", created="2024-01-31T10:00:00Z", modified="2025-02-01T11:30:00Z", language="en-GB"
        )
        == extracted.properties
    )
    assert "Wheel" == read(docx(paragraph("Wheel", "Heading1"))).title


def test_a_strict_document_is_read_alike():
    data = word(paragraph("Mill", "Heading1"))
    strict = {
        name: read_part(data, name)
        .replace("schemas.openxmlformats.org/wordprocessingml/2006", "purl.oclc.org/ooxml/wordprocessingml")
        .replace("schemas.openxmlformats.org/officeDocument/2006", "purl.oclc.org/ooxml/officeDocument")
        for name in ("_rels/.rels", "word/document.xml")
    }

    assert "# Mill" == text_of(archive(strict))


def read_part(data: bytes, name: str) -> str:
    with zipfile.ZipFile(io.BytesIO(data)) as made:
        return made.read(name).decode()


def test_an_empty_document_is_blank():
    assert read(docx("<w:p/>")).blank


def test_pictures_alone_are_no_text():
    with pytest.raises(NoText) as refusal:
        read(docx("<w:p/>", parts={"word/media/image1.png": b"\x89PNG"}))

    assert "PDF" in refusal.value.remedy


def test_a_password_is_a_permanent_failure():
    with pytest.raises(DocumentEncrypted):
        read(OLE + "EncryptedPackage".encode("utf-16-le"))


@pytest.mark.parametrize("data", [OLE, b"PK\x03\x04 and no more", docx()[:200], docx(paragraph("x"))[:-30]])
def test_damage(data: bytes):
    with pytest.raises(DocumentDamaged):
        read(data)


def test_an_archive_of_something_else():
    whole = docx(paragraph("words"))

    with pytest.raises(DocumentDamaged):
        read(whole.replace(b"word/document.xml", b"w0rd/document.xml"))


BOMB = '<!DOCTYPE d [<!ENTITY a "words"><!ENTITY b "&a;&a;">]>'
OUTSIDE = '<!DOCTYPE d SYSTEM "file:///etc/passwd">'


@pytest.mark.parametrize("doctype", [BOMB, OUTSIDE, '<!DOCTYPE d [<!ENTITY b SYSTEM "file:///etc/passwd">]>'])
def test_document_types_are_refused(doctype: str):
    body = part("w:document", "<w:body><w:p><w:r><w:t>x</w:t></w:r></w:p></w:body>")

    with pytest.raises(DocumentDamaged, match="document type"):
        read(archive({"word/document.xml": body.replace("?>", f"?>{doctype}", 1)}))


def test_depth_is_limited():
    with pytest.raises(DocumentDamaged, match="500 elements inside each other"):
        read(word("<w:p>" * 200_000 + "</w:p>" * 200_000))


def test_bombs_are_not_unpacked():
    with pytest.raises(DocumentTooLarge):
        read(word(paragraph(" " * 5_000_000)), file_bytes=1_000_000)
    with pytest.raises(DocumentTooLarge):
        read(docx(parts={f"word/{number}": b"" for number in range(10_001)}))
    # Parts that hold no text are not unpacked, however large.
    assert (
        "words"
        == read(docx(paragraph("words"), parts={"word/media/zeros": bytes(5_000_000)}), file_bytes=1_000_000)
        .pages[0]
        .text
    )


def test_a_part_that_hides_its_size_is_damaged():
    data = word(paragraph("x" * 3_000_000))
    real = len(read_part(data, "word/document.xml"))
    false = data.replace(real.to_bytes(4, "little"), (1000).to_bytes(4, "little"))

    with pytest.raises(UnreadableDocument):
        read(false)


def test_a_note_that_is_referred_to_often_is_written_once():
    refer = "<w:p><w:r><w:footnoteReference w:id='2'/></w:r></w:p>"
    note = f"<w:footnote w:id='2'>{paragraph('word ' * 1000)}</w:footnote>"

    assert 1000 == text_of(word(refer * 1000, footnotes=note)).count("word")
