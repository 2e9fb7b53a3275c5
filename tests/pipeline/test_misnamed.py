"""Names that lie: the type of a file by its name and its content together."""

from __future__ import annotations

import gzip
import io
import struct
import zipfile
from contextlib import closing

import pytest

from penstock.errors import UnsupportedType
from penstock.pipeline.chunk.text import ChunkSizes
from penstock.pipeline.embed.static import HashingEmbedder
from penstock.pipeline.extract import file_types
from penstock.pipeline.extract.file_types import signature, text_suffix
from penstock.pipeline.extract.protocol import Content, FileType
from penstock.pipeline.pipeline import Pipeline
from tests.pipeline.sample_documents import docx, paragraph, pdf

DOCX = file_types.DOCX.extractor


def archive(*names: str, mimetype: str = "") -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as members:
        if mimetype:
            members.writestr("mimetype", mimetype)
        for name in names:
            members.writestr(name, "x", compress_type=zipfile.ZIP_DEFLATED)
    return made.getvalue()


def ole(*names: str, nested: tuple[str, ...] = ()) -> bytes:
    """An OLE file with these streams below the root, and others one level deeper."""
    entries = [("Root Entry", 0xFFFFFFFF, 1)]
    entries += [(name, number + 1, 0xFFFFFFFF) for number, name in enumerate((*names, "Pool"), 1)]
    entries[-1] = ("Pool", 0xFFFFFFFF, len(entries))
    entries += [(name, number, 0xFFFFFFFF) for number, name in enumerate(nested, len(entries) + 1)]
    directory = b"".join(
        (name.encode("utf-16-le")).ljust(64, b"\0")
        + struct.pack("<HBBIII", 2 * len(name) + 2, 1, 1, 0xFFFFFFFF, right, child).ljust(64, b"\0")
        for name, right, child in entries
    )
    sectors = -(-len(directory) // 512)
    header = bytearray(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1".ljust(512, b"\0"))
    struct.pack_into("<H", header, 30, 9)
    struct.pack_into("<I", header, 48, 1)
    struct.pack_into("<109I", header, 76, 0, *[0xFFFFFFFF] * 108)
    chain = [0xFFFFFFFD, *range(2, sectors + 1), 0xFFFFFFFE]
    table = struct.pack("<128I", *chain, *[0xFFFFFFFF] * (128 - len(chain)))
    return bytes(header) + table + directory.ljust(512 * sectors, b"\0")


@pytest.mark.parametrize(
    ("data", "suffix"),
    [
        (archive("[Content_Types].xml", "_rels/.rels", "word/document.xml"), "docx"),
        (archive("[Content_Types].xml", "xl/workbook.xml"), "xlsx"),
        (archive("[Content_Types].xml", "ppt/presentation.xml"), "pptx"),
        (archive("content.xml", mimetype="application/vnd.oasis.opendocument.text"), "odt"),
        (archive("content.xml", mimetype="application/vnd.oasis.opendocument.spreadsheet"), "ods"),
        (archive("content.xml", mimetype="application/vnd.oasis.opendocument.presentation"), "odp"),
        (archive("META-INF/container.xml", mimetype="application/epub+zip"), "epub"),
        (archive("word/notes.txt", "xl/numbers.txt"), "zip"),
        (archive("inner.docx", mimetype="something/else"), "zip"),
        (ole("WordDocument", "1Table"), "doc"),
        (ole("Workbook"), "xls"),
        (ole("PowerPoint Document"), "ppt"),
        (ole("__properties_version1.0"), "msg"),
        (ole("a", "b", "c", "d", "e", "WordDocument", nested=("Workbook",)), "doc"),
        (ole("PowerPoint Document", nested=("Workbook", "WordDocument")), "ppt"),
        (b"II*\x00" + bytes(20), "tiff"),
        (b"RIFF\x00\x00\x00\x00WEBPVP8 ", "webp"),
        (b"BM" + struct.pack("<IHHII", 100, 0, 0, 54, 40) + bytes(40), "bmp"),
        (b"{\\rtf1\\ansi words}", "rtf"),
        (bytes(257) + b"ustar" + bytes(250), "tar"),
    ],
)
def test_the_bytes_tell_the_kind(data: bytes, suffix: str):
    found = signature(data)

    assert found is not None
    assert suffix == found.suffix


@pytest.mark.parametrize(
    "text",
    [
        b"BMW builds cars.",
        b"ID3 tags are part of MP3 files.",
        b"The header %PDF- begins a file.",
        b"GIF8 is not a picture",
        b"PK",
        b"",
        b"Rar! is what a frog says",
    ],
)
def test_words_that_begin_like_a_signature_are_text(text: bytes):
    assert signature(text) is None
    assert file_types.TEXT == file_types.detect("a.txt", text)


@pytest.mark.parametrize("cut", range(0, 3000, 97))
def test_a_cut_container_is_no_error(cut: int):
    for data in (ole("WordDocument", nested=("x",)), archive("[Content_Types].xml", "word/a"), docx()):
        signature(data[:cut])
    assert signature(ole()[:512] + b"\x01" * cut) is not None


def test_a_directory_that_points_to_itself_ends():
    looped = bytearray(ole("WordDocument"))
    struct.pack_into("<I", looped, 512 + 4, 1)
    struct.pack_into("<III", looped, 1024 + 128 + 68, 1, 1, 1)

    assert signature(bytes(looped)) is not None


@pytest.mark.parametrize(
    ("name", "data", "extractor", "warning"),
    [
        ("report.txt", pdf("words"), "pdf", "named .txt, but is a PDF"),
        ("letter.pdf", docx(paragraph("words")), DOCX, "named .pdf, but is a Word document"),
        ("page.pdf", b"<!DOCTYPE html><p>not found", "html", "named .pdf, but is HTML"),
        ("page.docx", b"\n <html><p>words", "html", "named .docx, but is HTML"),
        ("list.xls", b"<table><tr><td>1</table>", "html", "named .xls, but is HTML"),
        ("list.xls", b"name,year\nmill,1900\n", "table", "named .xls, but is a table"),
        ("list.xls", b"name\tyear\nmill\t1900\n", "table", "named .xls, but is a table"),
        ("letter.doc", b"Dear reader, this is text.\n", "text", "named .doc, but is plain text"),
        ("letter.doc", docx(paragraph("words")), DOCX, "named .doc, but is a Word document"),
        ("feed.pdf", b"<?xml version='1.0'?><a/>", "xml", "named .pdf, but is XML"),
        ("photo.jpg", b"\x89PNG\r\n\x1a\n" + bytes(40), "image", "named .jpg, but is a PNG image"),
        ("report.pdf", b"\r\n\r\n" + pdf("words"), "pdf", None),
        ("page.txt", b"<html><p>kept as text", "text", None),
        ("README", pdf("words"), "pdf", None),
        ("notes.unknown", b"words", "text", None),
    ],
)
def test_the_content_wins_and_the_lie_is_noticed(name: str, data: bytes, extractor: str, warning: str | None):
    found = file_types.detect(name, data)

    assert (extractor, warning) == (found.extractor, file_types.misnaming(name, found))


@pytest.mark.parametrize(
    ("name", "data", "named"),
    [
        ("a.txt", archive("a.bin"), "a ZIP archive"),
        ("a.md", b"\x7fELF" + bytes(40), "an ELF program"),
        ("a.pdf", bytes(range(256)), "not a PDF, in spite of its name"),
        ("a.pdf", b"", "'a.pdf' is empty"),
        ("a.py", ole("Unknown"), "an OLE document"),
    ],
)
def test_what_cannot_be_read_is_named(name: str, data: bytes, named: str):
    with pytest.raises(UnsupportedType, match=named):
        file_types.detect(name, data)


def test_text_under_another_name_is_told_apart():
    assert ("html", "txt") == (text_suffix(b"\xef\xbb\xbf<HTML>"), text_suffix(b"one line, with a comma"))


def test_the_draft_of_a_misnamed_file_says_so():
    pipeline = Pipeline(HashingEmbedder())
    draft = pipeline.draft(Content("report.txt", pdf("words of the mill")), ChunkSizes())
    honest = pipeline.draft(Content("report.pdf", pdf("words of the mill")), ChunkSizes())
    pipeline.close()

    assert ("named .txt, but is a PDF",) == draft.stored_properties.warnings
    assert "application/pdf" == draft.stored_properties.media_type
    assert ("", ()) == (honest.stored_properties.media_type, honest.stored_properties.warnings)


def test_a_compressed_file_is_not_misnamed():
    pipeline = Pipeline(HashingEmbedder())
    text = gzip.compress(b"words of the mill")
    drafts = [pipeline.draft(Content(name, text), ChunkSizes()) for name in ("a.txt.gz", "a.gz", "a.pdf.gz")]
    pipeline.close()

    # The type of the file inside gives the units of positions.
    assert ["text/plain"] * 3 == [draft.stored_properties.media_type for draft in drafts]
    warnings = [draft.stored_properties.warnings for draft in drafts]
    assert [(), (), ("named .pdf, but is plain text",)] == warnings
    assert ["gz"] * 3 == [draft.suffix("a.txt.gz") for draft in drafts]


def test_the_type_of_a_file_is_found_once(monkeypatch: pytest.MonkeyPatch):
    asked: list[str] = []
    detect = file_types._detect

    def counted(name: str, data: bytes) -> FileType:
        asked.append(name)
        return detect(name, data)

    monkeypatch.setattr(file_types, "_detect", counted)
    data = b"<html><pre>The gate of the mill.</pre></html>"

    with closing(Pipeline(HashingEmbedder())) as pipeline:
        pipeline.draft(Content("mill.html", data), ChunkSizes())

    assert ["mill.html"] == asked


def test_the_remembered_type_is_of_the_same_name_and_the_same_bytes():
    text, page = b"The gate of the mill.", b"%PDF-1.7 gate"

    assert [file_types.TEXT, file_types.MARKDOWN, file_types.PDF, file_types.MARKDOWN] == [
        file_types.detect("gate.txt", text),
        file_types.detect("gate.md", text),
        file_types.detect("gate.md", page),
        file_types.detect("gate.md", text),
    ]


def test_a_large_file_is_not_kept_in_memory_for_its_type():
    large = b"gate " * file_types._REMEMBERED_BYTES

    assert file_types.TEXT == file_types.detect("gate.txt", large)
    assert all(large is not kept for kept in file_types._last_detected)


def test_names_with_the_same_key_have_the_same_type():
    names = (
        "a.md md .md x.md a.MD Makefile x.Makefile .Makefile CMakeLists.txt a.txt txt a.txt.gz a.md.gz "
        "a.tar.gz gz .gz a. a Dockerfile x.dockerfile a.py py"
    ).split()
    types: dict[str, set[object]] = {}
    for name in names:
        types.setdefault(file_types.type_key(name), set()).add(file_types.by_name(name))

    assert [] == [key for key, some in types.items() if len(some) > 1]
    assert file_types.type_key("a.md") == file_types.type_key("x.md") != file_types.type_key("md")
