"""Pictures as documents."""

from contextlib import suppress

import numpy as np
import pytest
from PIL import Image

from penstock.errors import DocumentDamaged, DocumentTooLarge, UnsupportedType
from penstock.pipeline.extract import file_types
from penstock.pipeline.extract.factory import extract
from penstock.pipeline.extract.image import ImageExtractor
from penstock.pipeline.extract.protocol import Content, ExtractLimits
from penstock.pipeline.extract.sandbox.sandbox import Sandbox
from tests.pipeline.pictures import drawn, encoded

FORMATS = {
    "png": "PNG",
    "jpg": "JPEG",
    "jpeg": "JPEG",
    "tif": "TIFF",
    "webp": "WEBP",
    "bmp": "BMP",
    "gif": "GIF",
}


def opened(data, name="x.png", **limits):
    return ImageExtractor().open(Content(name, data), ExtractLimits(**limits))


@pytest.mark.parametrize("suffix", FORMATS)
def test_each_format_is_one_page_for_ocr(suffix):
    data = encoded(drawn(width=300, height=200), FORMATS[suffix])
    found = extract(Content(f"scan.{suffix}", data))
    assert found.file_type.media_type.startswith("image/")
    assert (found.page_count, found.needs_ocr, found.blank) == (1, True, False)
    shown = opened(data, f"scan.{suffix}").image(1, 300)
    assert shown.pixels.shape[:2] == (200, 300)
    assert shown.pixels.min() < 60
    assert shown.pixels.max() > 240


def test_pictures_are_read_in_the_sandbox():
    with Sandbox(ExtractLimits()) as sandbox:
        found = sandbox.extract(Content("scan.png", encoded(drawn(width=300, height=200))))
    assert found.needs_ocr


def test_a_tiff_has_as_many_pages_as_frames():
    frames = [drawn(f"Page {number}", width=300, height=100 * number) for number in (1, 2, 3)]
    data = encoded(frames[0], "TIFF", save_all=True, append_images=frames[1:])
    document = opened(data, "fax.tif")
    assert document.page_count == 3
    assert [document.image(number, 300).pixels.shape[0] for number in (3, 1, 2)] == [300, 100, 200]
    assert [page.number for page in extract(Content("fax.tif", data), pages=range(2, 4)).pages] == [2, 3]
    with pytest.raises(DocumentTooLarge, match="3 pages; the limit is 2"):
        opened(data, pages=2)


def test_of_an_animation_the_first_frame_counts():
    data = encoded(drawn("one"), "GIF", save_all=True, append_images=[drawn("two")])
    assert opened(data).page_count == 1


@pytest.mark.parametrize("size", [(16, 16), (63, 300), (1000, 4), (32, 100)])
def test_icons_and_rules_are_blank(size):
    width, height = size
    found = extract(Content("icon.png", encoded(Image.new("RGB", size, "red"))))
    assert found.blank is not (max(width, height) >= 64 and min(size) >= 16 and width * height >= 5_000)


def test_the_orientation_of_a_camera_is_applied():
    exif = Image.Exif()
    exif[0x0112] = 6
    data = encoded(Image.new("RGB", (300, 200), "white"), "JPEG", exif=exif)
    assert opened(data).image(1, 300).pixels.shape[:2] == (300, 200)


def test_date_and_author_come_from_the_metadata():
    exif = Image.Exif()
    exif[0x013B] = "Ada Miller"
    exif.get_ifd(0x8769)[0x9003] = "2024:02:29 10:11:12"
    found = opened(encoded(drawn(), "JPEG", exif=exif)).properties
    assert (found.author, found.created) == ("Ada Miller", "2024-02-29T10:11:12")


@pytest.mark.parametrize("date", ["0000:00:00 00:00:00", "yesterday", "2024:99:01 00:00:00"])
def test_an_odd_date_is_left_out(date):
    exif = Image.Exif()
    exif[0x0132] = date
    assert opened(encoded(drawn(), "JPEG", exif=exif)).properties.created == ""


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "CMYK", "I;16"])
def test_every_kind_of_pixel_becomes_gray_or_color(mode):
    picture = drawn(width=200, height=100)
    if mode == "I;16":
        picture = Image.fromarray(np.asarray(picture, np.uint16) * 257)
    elif mode == "LA":
        picture = Image.merge("LA", (picture, picture.point(lambda shade: 255 - shade)))
    elif mode == "RGBA":
        black = Image.new("L", picture.size, 0)
        picture = Image.merge("RGBA", (black, black, black, picture.point(lambda shade: 255 - shade)))
    else:
        picture = (picture.convert("RGB") if mode == "CMYK" else picture).convert(mode)
    pixels = opened(encoded(picture, "TIFF" if mode == "CMYK" else "PNG")).image(1, 300).pixels
    assert pixels.dtype == np.uint8
    assert pixels.ndim in (2, 3)
    # Transparent parts show white paper.
    assert pixels.max() > 240
    assert pixels.min() < 60


@pytest.mark.parametrize(
    ("size", "stated", "shape", "dpi"),
    [
        ((1200, 1000), (600, 600), (500, 600), 300),
        ((1200, 1000), (300, 300), (1000, 1200), 300),
        ((800, 600), None, (600, 800), 96),
        ((800, 600), (72, 72), (600, 800), 72),
        ((408, 196), (204, 98), (408, 408), 204),
        ((4000, 4000), None, (3000, 3000), 300),
        ((4000, 4000), (72, 72), (3000, 3000), 54),
    ],
)
def test_pixels_that_ocr_does_not_need_are_left_out(size, stated, shape, dpi):
    data = encoded(Image.new("L", size, 255), "TIFF", **({"dpi": stated} if stated else {}))
    shown = opened(data).image(1, 300)
    assert (shown.pixels.shape, shown.dpi) == (shape, dpi)


def test_a_picture_with_too_many_pixels_is_refused_before_it_is_unpacked(monkeypatch):
    data = encoded(Image.new("1", (20_000, 12_000), 1))
    assert len(data) < 100_000
    with pytest.raises(DocumentTooLarge, match=r"20,000 × 12,000 pixels|too many pixels") as refused:
        opened(data)
    assert "fewer pixels" in refused.value.remedy
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1_000)
    with pytest.raises(DocumentTooLarge, match="too many pixels"):
        opened(encoded(Image.new("1", (100, 100), 1)))


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_damaged_picture_is_a_typed_error(suffix):
    data = encoded(drawn(), FORMATS[suffix])
    for part in (data[:40], data[: len(data) // 2], data[:60] + b"\xff" * 200 + data[260:]):
        # No other error comes out; a format without checksums may show half a picture.
        with suppress(DocumentDamaged, DocumentTooLarge):
            opened(part, f"x.{suffix}").image(1, 300)
    with pytest.raises(DocumentDamaged):
        opened(data[:12])


def test_the_content_decides_between_formats_of_pictures():
    png = encoded(drawn())
    assert file_types.detect("photo.jpg", png).media_type == "image/png"
    with pytest.raises(UnsupportedType):
        file_types.detect("photo.png", b"\x00\x01\x02\x03" * 20)
