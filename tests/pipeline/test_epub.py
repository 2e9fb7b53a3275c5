"""EPUB books."""

from __future__ import annotations

import pytest

from penstock.errors import DocumentDamaged, DocumentEncrypted, NoText
from penstock.pipeline.extract.factory import extract
from penstock.pipeline.extract.protocol import Content, ExtractedText, ExtractLimits, Properties
from tests.pipeline.office_samples import archive, epub

ABOUT = (
    "<dc:title>The mill</dc:title><dc:creator>Ada</dc:creator><dc:creator>Bob</dc:creator>"
    "<dc:date>2011-09-01</dc:date><dc:language>en</dc:language>"
    '<meta property="dcterms:modified">2012-01-18T12:47:00Z</meta>'
)


def read(data: bytes, pages: range | None = None) -> ExtractedText:
    return extract(Content("a.epub", data), ExtractLimits(), pages=pages)


def test_a_page_for_each_chapter_in_the_order_of_the_spine():
    data = epub(
        "<h1>Mill</h1><p>turns<br/>slowly</p>",
        "<script src='a'/><h2>Wheel</h2><a id='x'/>words",
        metadata=ABOUT,
    )

    extracted = read(data)

    assert ["# Mill\n\nturns\nslowly", "## Wheel\n\nwords"] == [page.text for page in extracted.pages]
    assert (1, 2, 2, 2) == extracted.pages[0].positions
    assert ("chapter", "The mill") == (extracted.file_type.page_unit, extracted.title)
    assert (
        Properties(author="Ada, Bob", created="2011-09-01", modified="2012-01-18T12:47:00Z", language="en")
        == extracted.properties
    )
    assert [2] == [page.number for page in read(data, range(2, 3)).pages]


def encryption(algorithm: str, part: str) -> dict[str, str]:
    space = 'xmlns:e="http://www.w3.org/2001/04/xmlenc#"'
    method = f'<e:EncryptionMethod Algorithm="{algorithm}"/>'
    return {
        "META-INF/encryption.xml": f"<encryption {space}><e:EncryptedData>{method}<e:CipherData>"
        f'<e:CipherReference URI="{part}"/></e:CipherData></e:EncryptedData></encryption>'
    }


def test_protected_chapters_are_encrypted_and_hidden_fonts_are_not():
    aes = "http://www.w3.org/2001/04/xmlenc#aes128-cbc"

    with pytest.raises(DocumentEncrypted):
        read(epub("words", parts=encryption(aes, "OPS/c%201.xhtml")))
    assert "words" == read(epub("words", parts=encryption(aes, "OPS/cover.jpg"))).pages[0].text
    fonts = encryption("http://www.idpf.org/2008/embedding", "OPS/c%201.xhtml")
    assert "words" == read(epub("words", parts=fonts)).pages[0].text


def test_a_missing_chapter_fails_alone():
    data = epub("words", "gone").replace(b"OPS/c 2.xhtml", b"OPS/c 3.xhtml")

    extracted = read(data)

    assert ("words", True) == (extracted.pages[0].text, bool(extracted.pages[1].failure))
    assert ("chapters that cannot be read: 2",) == extracted.warnings


def test_an_old_document_type_is_not_followed():
    package = "<!DOCTYPE package SYSTEM 'file:///etc/passwd'><package xmlns='http://www.idpf.org/2007/opf'>{}</package>"
    item = "<manifest><item id='a' href='c 1.xhtml'/></manifest><spine><itemref idref='a'/></spine>"
    inner = package.replace("'file:///etc/passwd'", "'a' [<!ENTITY b 'c'>]")

    assert "words" == read(epub("words", parts={"OPS/book.opf": package.format(item)})).pages[0].text
    with pytest.raises(DocumentDamaged, match="document type"):
        read(epub("words", parts={"OPS/book.opf": inner.format(item)}))


def test_refusals():
    with pytest.raises(DocumentDamaged, match="package file"):
        read(archive({"mimetype": "application/epub+zip"}))
    with pytest.raises(DocumentDamaged, match="no chapters"):
        read(epub())
    assert read(epub("<p/>")).blank
    with pytest.raises(NoText):
        read(epub("<img/>", parts={"OPS/book.opf": PICTURES}))


PICTURES = (
    '<package xmlns="http://www.idpf.org/2007/opf"><manifest><item id="a" href="c 1.xhtml"/>'
    '<item id="b" href="a.png" media-type="image/png"/></manifest>'
    '<spine><itemref idref="a"/></spine></package>'
)
