"""Recognition of real pictures, against their known text. Skipped where the shared corpus is absent."""

import pytest

from bench import ocr
from bench.ocr import CORPUS as FOLDER
from penstock.pipeline.extract.image import ImageExtractor
from penstock.pipeline.extract.protocol import Content, ExtractLimits, PageImage
from penstock.pipeline.ocr import engines
from penstock.pipeline.ocr.engines import open_engine
from penstock.pipeline.ocr.protocol import OcrOptions

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not FOLDER.is_dir(), reason="the shared corpus is not here"),
]


def picture(name):
    content = Content(name, (FOLDER / name).read_bytes())
    return ImageExtractor().open(content, ExtractLimits()).image(1, 300)


PRINTS = [("phototest.tif", "phototest.gold.txt", 0.0), ("eurotext.tif", "eurotext.txt", 0.03)]


@pytest.mark.parametrize("rotation", [0, 90, 180, 270])
@pytest.mark.parametrize(("name", "truth", "most"), PRINTS)
def test_clean_print_is_read_in_every_orientation(name, truth, most, rotation):
    image = picture(name)
    turned = PageImage(engines.turned(image.pixels, rotation), image.dpi)
    found = open_engine(OcrOptions()).recognize(turned)
    assert ocr.error_rate((FOLDER / truth).read_text("utf-8"), found.text) <= most


@pytest.mark.parametrize("skew", [3.0, -5.0])
@pytest.mark.parametrize(("name", "truth", "most"), PRINTS)
def test_clean_print_is_read_on_a_skewed_page(name, truth, most, skew):
    image = picture(name)
    found = open_engine(OcrOptions()).recognize(PageImage(engines.level(image.pixels, skew), image.dpi))
    assert ocr.error_rate((FOLDER / truth).read_text("utf-8"), found.text) <= most


def test_receipts_are_read_by_the_plain_install():
    assert ocr.recall_of_receipts(FOLDER, open_engine(OcrOptions(min_confidence=0))) >= 0.85


@pytest.mark.skipif(
    engines.rapidocr_version() is None, reason="the extra rapidocr is not installed: make rapidocr"
)
def test_receipts_are_read_better_by_rapidocr():
    assert ocr.recall_of_receipts(FOLDER, open_engine(OcrOptions())) >= 0.94
