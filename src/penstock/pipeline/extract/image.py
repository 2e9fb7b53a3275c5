"""Pictures as documents: each frame is a page, read by OCR."""

from __future__ import annotations

import io
import re
import struct
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.errors import DocumentDamaged, DocumentTooLarge
from penstock.pipeline.extract.charset import clean
from penstock.pipeline.extract.protocol import (
    Attachment,
    Content,
    ExtractedText,
    ExtractLimits,
    FileType,
    Page,
    PageImage,
    PlacedWord,
    Properties,
    Shape,
)
from penstock.pipeline.extract.text import extract_pages
from penstock.vocabulary import how_many

if TYPE_CHECKING:
    from PIL.Image import Exif, Image

_FORMATS = ("PNG", "JPEG", "TIFF", "WEBP", "BMP", "GIF")
_MAX_BYTES = 192 << 20
"""Memory of one unpacked frame."""
MIN_SIDES = (64, 16)
"""Longer and shorter side of the smallest picture that may have text; smaller ones are icons or rules."""
MIN_PIXELS = 5_000
_USUAL_DPI = range(60, 2401)
_SMALL = 1_700
"""Pixels along the shorter side below which a picture of unknown resolution is taken for a screen's."""
_SCREEN_DPI = 96
_MAX_PIXELS = 9_000_000
"""Pixels of a page of A4 at 300 dpi: more are no gain where the resolution is unknown."""
_DAMAGE = (
    OSError,
    SyntaxError,
    ValueError,
    EOFError,
    LookupError,
    TypeError,
    AttributeError,
    OverflowError,
    RuntimeError,
    struct.error,
    zlib.error,
)
"""Errors by which Pillow reports damaged files."""
_ORIGINAL_DATE, _DATE, _ARTIST = 0x9003, 0x0132, 0x013B
_EXIF_PART = 0x8769
_EXIF_DATE = re.compile(r"(\d{4}):(\d\d):(\d\d) (\d\d:\d\d:\d\d)")


class ImageExtractor:
    """Extractor for pictures. TIFF files may have several pages; of an animation the first frame counts."""

    name = "image"
    version = "1"
    shape = Shape.PROSE

    def __init__(self) -> None:
        from PIL import Image

        # Loads every decoder: a confined process cannot do so later.
        Image.init()

    def extract(
        self, content: Content, file_type: FileType, limits: ExtractLimits, pages: range | None = None
    ) -> ExtractedText:
        return extract_pages(self, content, file_type, limits, pages)

    def open(self, content: Content, limits: ExtractLimits) -> ImagePages:
        return ImagePages(content.data, limits)


class ImagePages:
    """An open picture file."""

    title: str | None = None
    warnings: tuple[str, ...] = ()
    attachments: tuple[Attachment, ...] = ()

    def __init__(self, data: bytes, limits: ExtractLimits) -> None:
        self._picture = _open(data)
        try:
            with _without_warnings():
                self.page_count = _frames(self._picture)
                self.properties = _properties(self._picture)
        except _DAMAGE as error:
            raise _damaged(error) from None
        if self.page_count > limits.pages:
            raise DocumentTooLarge(
                f"the picture has {how_many(self.page_count, 'page')}; the limit is {limits.pages:,}"
            )

    def page(self, number: int) -> Page:
        try:
            self._seek(number)
        except DocumentDamaged as error:
            return Page(number, "", failure=error.message)
        longer, shorter = max(self._picture.size), min(self._picture.size)
        may_have_text = longer >= MIN_SIDES[0] and shorter >= MIN_SIDES[1] and longer * shorter >= MIN_PIXELS
        return Page(number, "", needs_ocr=may_have_text)

    def image(self, number: int, dpi: int) -> PageImage:
        import numpy as np
        from PIL import ImageOps

        self._seek(number)
        picture = self._picture
        _refuse_large(picture)
        try:
            found = _resolution(picture)
            if picture.format == "JPEG":
                # Reduces by a power of two while it decodes.
                picture.draft(None, _reduced(picture.size, found, dpi))
            with _without_warnings():
                flat = ImageOps.exif_transpose(_flat(picture))
        except _DAMAGE as error:
            raise _damaged(error) from None
        size = _reduced(_square(flat.size, found), found, dpi)
        if size != flat.size:
            flat = flat.resize(size)
        scale = max(1.0, max(picture.size) / max(size))
        shown = round(max(found) / scale) if found else _guessed(size)
        return PageImage(np.asarray(flat), min(shown, dpi))

    def words(self, number: int) -> tuple[PlacedWord, ...]:
        self._seek(number)
        return ()

    def close(self) -> None:
        self._picture.close()

    def _seek(self, number: int) -> None:
        try:
            with _without_warnings():
                self._picture.seek(number - 1)
        except _DAMAGE as error:
            raise _damaged(error) from None


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Silence Pillow, which warns of many pixels and odd metadata: limits and errors are checked here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _open(data: bytes) -> Image:
    from PIL import Image, UnidentifiedImageError

    try:
        with _without_warnings():
            picture = Image.open(io.BytesIO(data), formats=_FORMATS)
    except Image.DecompressionBombError:
        raise DocumentTooLarge("the picture has too many pixels", remedy=_TOO_LARGE) from None
    except UnidentifiedImageError:
        raise DocumentDamaged("the picture is damaged: no decoder knows its content") from None
    except _DAMAGE as error:
        raise _damaged(error) from None
    _refuse_large(picture)
    return picture


_TOO_LARGE = "Save the picture with fewer pixels, or leave it out with --exclude."


def _refuse_large(picture: Image) -> None:
    width, height = picture.size
    # A bit per pixel becomes a byte.
    if width * height * len(picture.getbands()) > _MAX_BYTES:
        raise DocumentTooLarge(f"the picture has {width:,} × {height:,} pixels", remedy=_TOO_LARGE)


def _frames(picture: Image) -> int:
    return getattr(picture, "n_frames", 1) if picture.format == "TIFF" else 1


def _flat(picture: Image) -> Image:
    """The picture in gray or color, with transparency on white."""
    from PIL import Image

    picture.load()
    if picture.mode in ("1", "L"):
        return picture.convert("L")
    if picture.mode.startswith(("I", "F")):
        return _eight_bits(picture)
    if picture.has_transparency_data:
        layer = picture.convert("RGBA")
        paper = Image.new("RGBA", layer.size, "white")
        paper.alpha_composite(layer)
        return paper.convert("RGB")
    return picture.convert("RGB")


def _eight_bits(picture: Image) -> Image:
    """A picture of 16 or 32 bits per pixel, scaled from the used range of brightness."""
    import numpy as np
    from PIL import Image

    values = np.asarray(picture, dtype=np.float32)
    low, high = float(values.min()), float(values.max())
    return Image.fromarray(((values - low) * (255 / max(high - low, 1e-9))).astype(np.uint8))


def _resolution(picture: Image) -> tuple[int, int] | None:
    """Dots per inch across and down, if the file states usual ones."""
    stated = picture.info.get("dpi")
    if not isinstance(stated, tuple) or len(stated) != 2:
        return None
    across, down = (round(float(number)) for number in stated)
    return (across, down) if across in _USUAL_DPI and down in _USUAL_DPI else None


def _square(size: tuple[int, int], dpi: tuple[int, int] | None) -> tuple[int, int]:
    """Size with square pixels: those of a fax are twice as high as wide."""
    if dpi is None or max(dpi) < 1.2 * min(dpi) or max(dpi) > 4 * min(dpi):
        return size
    finest = max(dpi)
    return round(size[0] * finest / dpi[0]), round(size[1] * finest / dpi[1])


def _reduced(size: tuple[int, int], stated: tuple[int, int] | None, dpi: int) -> tuple[int, int]:
    """Size after reduction to the resolution needed by OCR."""
    scanned = stated is not None and max(stated) >= 150
    if scanned and stated is not None:
        factor = min(1.0, dpi / max(stated))
    else:
        factor = min(1.0, (_MAX_PIXELS / max(1, size[0] * size[1])) ** 0.5)
    return max(1, round(size[0] * factor)), max(1, round(size[1] * factor))


def _guessed(size: tuple[int, int]) -> int:
    return _SCREEN_DPI if min(size) < _SMALL else 300


def _properties(picture: Image) -> Properties:
    exif = picture.getexif()
    texts = {name.lower(): value for name, value in picture.info.items() if isinstance(name, str)}
    author = _text(exif.get(_ARTIST)) or _text(texts.get("author"))
    return Properties(author=author, created=_created(exif))


def _created(exif: Exif) -> str:
    """Time at which the picture was taken, in ISO 8601."""
    stated = _text(exif.get_ifd(_EXIF_PART).get(_ORIGINAL_DATE)) or _text(exif.get(_DATE))
    found = _EXIF_DATE.fullmatch(stated)
    if found is None:
        return ""
    year, month, day, hours = found.groups()
    known = int(year) >= 1800 and 1 <= int(month) <= 12 and 1 <= int(day) <= 31
    return f"{year}-{month}-{day}T{hours}" if known else ""


def _text(value: object) -> str:
    return clean(value).strip("\0 \t\n") if isinstance(value, str) else ""


def _damaged(error: Exception) -> DocumentDamaged:
    return DocumentDamaged(f"the picture is damaged: {str(error)[:200] or type(error).__name__}")
