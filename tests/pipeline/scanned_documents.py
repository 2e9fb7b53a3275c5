"""Scans made for tests: text drawn into pictures, without a text layer."""

from __future__ import annotations

import io
from collections.abc import Sequence

from PIL import Image, ImageDraw, ImageFont

DPI = 100


def picture(text: str, *, turned: int = 0, size: tuple[int, int] = (640, 200)) -> Image.Image:
    """A page with large black letters, turned clockwise by some degrees."""
    page = Image.new("L", size, 255)
    ImageDraw.Draw(page).multiline_text((30, 30), text, fill=0, font=ImageFont.load_default(32), spacing=12)
    return page.rotate(-turned, expand=True) if turned else page


def scan(*pages: str | Image.Image) -> bytes:
    """A PDF with one picture a page."""
    drawn = [picture(page) if isinstance(page, str) else page for page in pages]
    out = io.BytesIO()
    drawn[0].save(out, "PDF", resolution=DPI, save_all=True, append_images=drawn[1:])
    return out.getvalue()


def mixed(pages: Sequence[str | Image.Image]) -> bytes:
    """A PDF with a text layer on pages given as text, and a picture on the others."""
    import pypdfium2

    from tests.pipeline.sample_documents import pdf

    whole = pypdfium2.PdfDocument.new()
    for page in pages:
        one = pypdfium2.PdfDocument(pdf(page) if isinstance(page, str) else scan(page))
        whole.import_pages(one)
        one.close()
    out = io.BytesIO()
    whole.save(out)
    whole.close()
    return out.getvalue()
