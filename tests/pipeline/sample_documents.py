"""Documents generated for tests; no foreign file is stored here."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Sequence

PIXEL = b"q 100 0 0 100 50 50 cm BI /W 1 /H 1 /CS /G /BPC 8 ID \x80 EI Q"


def pdf(*pages: str | bytes, title: str = "", encrypt: bytes = b"") -> bytes:
    """One page for each text, or for each content stream given as bytes."""
    objects = [b"<< /Type /Catalog /Pages 2 0 R >>"]
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(len(pages)))
    objects.append(f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>".encode())
    objects.append(b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>")
    for number, page in enumerate(pages):
        stream = page if isinstance(page, bytes) else _shown(page)
        objects.append(
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents %d 0 R "
            b"/Resources << /Font << /F1 3 0 R >> >> >>" % (5 + 2 * number)
        )
        objects.append(b"<< /Length %d >>\nstream\n%s\nendstream" % (len(stream), stream))
    objects.append(f"<< /Title ({title}) >>".encode("latin-1"))
    return _file(objects, encrypt)


def pdf_of_equal_pages(pages: int, stream: bytes) -> bytes:
    """Many pages with one shared content stream: a small file with much work."""
    objects = [b"<< /Type /Catalog /Pages 2 0 R >>"]
    kids = b" ".join(b"%d 0 R" % (5 + number) for number in range(pages))
    objects.append(b"<< /Type /Pages /Kids [%s] /Count %d >>" % (kids, pages))
    objects.append(b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>")
    objects.append(b"<< /Length %d >>\nstream\n%s\nendstream" % (len(stream), stream))
    page = b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R "
    objects += [page + b"/Resources << /Font << /F1 3 0 R >> >> >>"] * pages
    objects.append(b"<< /Title () >>")
    return _file(objects, b"")


def _shown(text: str) -> bytes:
    lines = [line.replace("\\", r"\\").replace("(", r"\(").replace(")", r"\)") for line in text.split("\n")]
    return (
        b"BT /F1 12 Tf 50 720 Td 14 TL "
        + b" T* ".join(b"(%s) Tj" % line.encode("cp1252") for line in lines)
        + b" ET"
    )


def _file(objects: Sequence[bytes], encrypt: bytes) -> bytes:
    out = bytearray(b"%PDF-1.4\n")
    places = []
    for number, body in enumerate(objects, 1):
        places.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    out += b"".join(b"%010d 00000 n \n" % place for place in places)
    out += b"trailer\n<< /Size %d /Root 1 0 R /Info %d 0 R %s >>\n" % (
        len(objects) + 1,
        len(objects),
        encrypt,
    )
    return bytes(out + b"startxref\n%d\n%%%%EOF\n" % table)


LOCKED = (
    b"/Encrypt << /Filter /Standard /V 1 /R 2 /P -4 /O <" + b"00" * 32 + b"> /U <" + b"11" * 32 + b"> >> "
    b"/ID [<00112233445566778899aabbccddeeff> <00112233445566778899aabbccddeeff>]"
)
"""Encryption with an unknown user password."""

_WORD = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
_TYPES = (
    '<?xml version="1.0"?><Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
    '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
    '<Default Extension="xml" ContentType="application/xml"/><Override PartName="/word/document.xml" '
    'ContentType="application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"/></Types>'
)
_RELATIONS = (
    '<?xml version="1.0"?><Relationships '
    'xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="r1" '
    'Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument" '
    'Target="word/document.xml"/></Relationships>'
)


def paragraph(text: str, style: str = "") -> str:
    about = f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>' if style else ""
    return f"<w:p>{about}<w:r><w:t>{text}</w:t></w:r></w:p>"


def table(*rows: Sequence[str]) -> str:
    cells = ("".join(f"<w:tc>{paragraph(cell)}</w:tc>" for cell in row) for row in rows)
    return "<w:tbl>" + "".join(f"<w:tr>{row}</w:tr>" for row in cells) + "</w:tbl>"


def docx(*body: str, parts: dict[str, bytes] | None = None) -> bytes:
    document = f'<?xml version="1.0"?><w:document {_WORD}><w:body>{"".join(body)}</w:body></w:document>'
    named: dict[str, str | bytes] = {
        "[Content_Types].xml": _TYPES,
        "_rels/.rels": _RELATIONS,
        "word/document.xml": document,
        **(parts or {}),
    }
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in named.items():
            archive.writestr(name, data)
    return out.getvalue()
