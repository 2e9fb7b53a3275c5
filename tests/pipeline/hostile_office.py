"""Hostile office documents, as part of ``hostile_inputs.FILES``."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tests.pipeline.office_samples import (
    cell,
    epub,
    excel,
    item,
    opendocument,
    part,
    powerpoint,
    shape,
    style,
    word,
)
from tests.pipeline.ole_samples import powerpoint97, text_atoms, word97
from tests.pipeline.sample_documents import docx, paragraph


def _file(suffix: str, make: Callable[[int], bytes]) -> Callable[[int], tuple[str, bytes]]:
    return lambda n: (f"input.{suffix}", make(n))


def _repeated_slide(n: int) -> bytes:
    """Many slides that are the same part, which is unpacked and read for each of them."""
    count = n // 50
    ids = "".join('<p:sldId r:id="r1"/>' for _ in range(count))
    return powerpoint(
        shape("a" * 50),
        parts={"ppt/presentation.xml": part("p:presentation", f"<p:sldIdLst>{ids}</p:sldIdLst>")},
    )


def _nested_records(n: int) -> bytes:
    """Containers that all claim to reach to the end of the file."""
    inner = b"".join(b"\x0f\0\x07\x04\xff\xff\xff\x0f" for _ in range(n)) + text_atoms(1, "a")
    return powerpoint97([(b"", inner)])


OFFICE_FILES: Mapping[str, Callable[[int], tuple[str, bytes]]] = {
    "tables in tables": _file(
        "docx",
        lambda n: docx("<w:tbl><w:tr><w:tc>" * 150 + paragraph("a") * n + "</w:tc></w:tr></w:tbl>" * 150),
    ),
    "spans of cells": _file(
        "docx",
        lambda n: docx(
            "<w:tbl><w:tr>"
            + '<w:tc><w:tcPr><w:gridSpan w:val="99"/></w:tcPr></w:tc>' * (n // 10)
            + "</w:tr></w:tbl>"
        ),
    ),
    "text boxes in text boxes": _file(
        "docx", lambda n: docx(("<w:p>" * 400 + "</w:p>" * 400) * (n // 100 + 1) + paragraph("a"))
    ),
    "styles based on styles": _file(
        "docx",
        lambda n: word(
            "".join(paragraph("a", f"s{k}") for k in range(n)),
            styles="".join(style(f"s{k}", f"S {k}", based_on=f"s{k + 1}") for k in range(n)),
        ),
    ),
    "references to a note": _file(
        "docx",
        lambda n: word(
            "<w:p><w:r><w:footnoteReference w:id='2'/></w:r></w:p>" * n,
            footnotes=f"<w:footnote w:id='2'>{paragraph('word ' * n)}</w:footnote>",
        ),
    ),
    "headers": _file(
        "docx", lambda n: word("", **{f"header{k}": paragraph("a" * 99) for k in range(n // 50)})
    ),
    "one long attribute": _file("docx", lambda n: docx(f"<w:p w:a='{'x' * 100 * n}'/>", paragraph("a"))),
    "shapes": _file("pptx", lambda n: powerpoint(shape("a") * (n // 5))),
    "slides": _file("pptx", lambda n: powerpoint(*[shape("a")] * (n // 100))),
    "a slide shown again and again": _file("pptx", _repeated_slide),
    "rows of a sheet": _file(
        "xlsx",
        lambda n: excel({"S": "".join(f'<row r="{k}">{cell(f"A{k}", "a")}</row>' for k in range(1, n // 4))}),
    ),
    "sheets": _file(
        "xlsx", lambda n: excel({f"S{k}": f"<row>{cell('A1', 'a')}</row>" for k in range(n // 40)})
    ),
    "repeated cells of OpenDocument": _file(
        "ods",
        lambda n: opendocument(
            "spreadsheet",
            "<table:table><table:table-row table:number-rows-repeated='9999999'>"
            + "<table:table-cell table:number-columns-repeated='9999999'/>" * n
            + "</table:table-row></table:table>",
        ),
    ),
    "notes in notes": _file(
        "odt",
        lambda n: opendocument(
            "text", ("<text:p><text:note>" * 200 + "a" + "</text:note></text:p>" * 200) * (n // 200 + 1)
        ),
    ),
    "styles derived from styles": _file(
        "odt",
        lambda n: opendocument(
            "text",
            "".join(f"<text:p text:style-name='s{k}'>a</text:p>" for k in range(n)),
            automatic="".join(
                "<style:style style:family='paragraph' "
                f"style:name='s{k}' style:parent-style-name='s{k + 1}'/>"
                for k in range(n)
            ),
        ),
    ),
    "chapters": _file("epub", lambda n: epub(*["<p>a</p>"] * (n // 50))),
    "closed tags of a book": _file("epub", lambda n: epub("<a/>" * n)),
    "a long tag of a book": _file("epub", lambda n: epub("<" + "a" * n)),
    "fields of Word 97": _file("doc", lambda n: word97("\x13" * n + "\x14a" * n)),
    "cells of Word 97": _file("doc", lambda n: word97("a\x07" * n)),
    "paragraphs of Word 97": _file("doc", lambda n: word97("a\r" * n, wide=True)),
    "texts of PowerPoint 97": _file("ppt", lambda n: powerpoint97([(text_atoms(1, "a") * n, b"")])),
    "records in records": _file("ppt", _nested_records),
    "groups of RTF": _file("rtf", lambda n: b"{\\rtf1 " + b"{" * min(n, 9000) + b"a{b}" * n),
    "links of RTF": _file("rtf", lambda n: b"{\\rtf1 " + b'{\\field{\\*\\fldinst HYPERLINK "a"}{' * n),
    "fonts of RTF": _file("rtf", lambda n: b"{\\rtf1{\\fonttbl" + b"{\\f1\\fcharset" * n),
    "cells of RTF": _file("rtf", lambda n: b"{\\rtf1 " + b"a\\cell " * n),
    "notes of RTF": _file("rtf", lambda n: b"{\\rtf1 " + b"{\\footnote a}" * n),
    "pictures of RTF": _file("rtf", lambda n: b"{\\rtf1 {\\pict \\bin3 abc" * n),
    "numbered items": _file("docx", lambda n: word("".join(item("a", 1, k % 9) for k in range(n)))),
}
