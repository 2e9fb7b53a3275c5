"""PDF files written for tests: forms, notes, boxes, hidden layers, attached files."""

from __future__ import annotations

from collections.abc import Sequence

from tests.pipeline.sample_documents import _file

FONT = b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>"
BOX = b"/MediaBox [0 0 612 792]"
GRAY = b"q %d 0 0 %d 0 0 cm BI /W 1 /H 1 /CS /G /BPC 8 ID \x80 EI Q "
"""A picture in the lower left corner, with this width and height."""


class PdfWriter:
    """Collects objects. The first two are the catalog and the pages, the third is the font F1."""

    def __init__(self, *, catalog: bytes = b"", info: bytes = b"", pages: bytes = BOX) -> None:
        self._objects: list[bytes] = [b"", b"", FONT]
        self._kids: list[int] = []
        self._catalog, self._info, self._pages = catalog, info, pages

    def add(self, body: bytes) -> int:
        self._objects.append(body)
        return len(self._objects)

    def stream(self, data: bytes, about: bytes = b"") -> int:
        return self.add(b"<< /Length %d %s >>\nstream\n%s\nendstream" % (len(data), about, data))

    def page(
        self, content: bytes, *, about: bytes = b"", annotations: Sequence[int] = (), fonts: bytes = b""
    ) -> int:
        """Add a page, and return its number as an object."""
        stream = self.stream(content)
        listed = b" ".join(b"%d 0 R" % number for number in annotations)
        page = self.add(
            b"<< /Type /Page /Parent 2 0 R /Contents %d 0 R /Annots [%s] %s "
            b"/Resources << /Font << /F1 3 0 R %s >> >> >>" % (stream, listed, about, fonts)
        )
        self._kids.append(page)
        return page

    def bytes(self) -> bytes:
        kids = b" ".join(b"%d 0 R" % number for number in self._kids)
        self._objects[0] = b"<< /Type /Catalog /Pages 2 0 R %s >>" % self._catalog
        self._objects[1] = b"<< /Type /Pages /Kids [%s] /Count %d %s >>" % (
            kids,
            len(self._kids),
            self._pages,
        )
        return _file([*self._objects, b"<< %s >>" % self._info], b"")


def shown(text: str, x: float = 50, y: float = 700, mode: int = 0) -> bytes:
    """Content that draws one line of text."""
    escaped = text.replace("\\", r"\\").replace("(", r"\(").replace(")", r"\)").encode("cp1252")
    return b"BT /F1 12 Tf %d Tr %g %g Td (%s) Tj ET " % (mode, x, y, escaped)


def form(*fields: bytes, content: bytes, appearance: bytes | None = None) -> bytes:
    """A page with form fields, each given by its entries. ``appearance`` draws all of them."""
    writer = PdfWriter()
    drawn = b""
    if appearance is not None:
        about = b"/Type /XObject /Subtype /Form /BBox [0 0 200 20] /Resources << /Font << /F1 3 0 R >> >>"
        drawn = b"/AP << /N %d 0 R >>" % writer.stream(appearance, about)
    annotations = [
        writer.add(
            b"<< /Type /Annot /Subtype /Widget /F 4 /Rect [150 %d 350 %d] /DA (/F1 12 Tf 0 g) %s %s >>"
            % (690 - 30 * at, 710 - 30 * at, entries, drawn)
        )
        for at, entries in enumerate(fields)
    ]
    writer.page(content, annotations=annotations)
    listed = b" ".join(b"%d 0 R" % number for number in annotations)
    writer._catalog = b"/AcroForm << /Fields [%s] /DR << /Font << /F1 3 0 R >> >> >>" % listed
    return writer.bytes()


def with_annotation(entries: bytes, content: bytes) -> bytes:
    writer = PdfWriter()
    note = writer.add(b"<< /Type /Annot /Rect [300 300 320 320] %s >>" % entries)
    writer.page(content, annotations=[note])
    return writer.bytes()
