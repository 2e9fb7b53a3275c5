"""Archives of office documents: limits, false sizes and names."""

from __future__ import annotations

import io
import struct
import zipfile

import pytest

from penstock.errors import DocumentDamaged, DocumentEncrypted, DocumentTooLarge
from penstock.pipeline.extract.factory import extract
from penstock.pipeline.extract.office.package import Archive, resolve
from penstock.pipeline.extract.protocol import Content, ExtractLimits
from tests.pipeline.office_samples import archive, relations, word
from tests.pipeline.sample_documents import paragraph

DOCUMENT = "word/document.xml"


def read(data: bytes) -> str:
    return extract(Content("a.docx", data)).pages[0].text


def with_size(data: bytes, size: int) -> bytes:
    """The same archive with another unpacked size of the main part, in both of its directories."""
    with zipfile.ZipFile(io.BytesIO(data)) as made:
        about = made.getinfo(DOCUMENT)
    sizes = struct.pack("<II", about.compress_size, about.file_size)
    assert 2 == data.count(sizes)
    return data.replace(sizes, struct.pack("<II", about.compress_size, size))


def test_a_part_of_more_than_a_gigabyte_is_not_unpacked():
    with pytest.raises(DocumentTooLarge, match="268,435,456 bytes"):
        read(with_size(word(paragraph("words")), 1_500_000_000))


def test_no_more_is_unpacked_than_is_announced():
    data = word(paragraph("words " * 20_000))

    with pytest.raises(DocumentDamaged, match="damaged"):
        read(with_size(data, 3))
    assert read(data) == read(with_size(data, 1_000_000))


def test_parts_read_again_count_again():
    parts = Archive(archive({"a": bytes(3_000)}), ExtractLimits(file_bytes=1_000))
    parts.check("a")

    with pytest.raises(DocumentTooLarge):
        parts.check("a")


def test_of_parts_with_one_name_the_last_counts():
    out = io.BytesIO(word(paragraph("first")))
    with zipfile.ZipFile(out, "a") as made, pytest.warns(UserWarning, match="Duplicate name"):
        made.writestr(DOCUMENT, made.read(DOCUMENT).replace(b"first", b"second"))

    assert "second" == read(out.getvalue())


def test_an_encrypted_part():
    data = word(paragraph("words"))
    place = data.rindex(b"PK\x01\x02", 0, data.rindex(DOCUMENT.encode()))
    locked = bytearray(data)
    locked[place + 8] |= 1

    with pytest.raises(DocumentEncrypted):
        read(bytes(locked))


@pytest.mark.parametrize(
    ("part", "target", "expected"),
    [
        ("word/document.xml", "styles.xml", "word/styles.xml"),
        ("ppt/slides/slide1.xml", "../notes/n.xml", "ppt/notes/n.xml"),
        ("xl/workbook.xml", "/xl/a.xml#b", "xl/a.xml"),
        ("word/document.xml", "../../../../etc/passwd", "../../../etc/passwd"),
        ("", "word/document.xml", "word/document.xml"),
    ],
)
def test_targets_are_names_inside_the_archive(part: str, target: str, expected: str):
    assert expected == resolve(part, target)


def test_a_target_outside_the_archive_is_a_missing_part():
    data = word(paragraph("words"))
    outside = relations("styles ../../../../etc/passwd", "footnotes file:///etc/passwd")
    with zipfile.ZipFile(io.BytesIO(data)) as made:
        parts = {name: made.read(name) for name in made.namelist()}

    assert "words" == read(archive({**parts, "word/_rels/document.xml.rels": outside}))
