"""Recognition of real pictures, against their known text. Skipped where the shared corpus is absent."""

import re
import unicodedata
from collections import Counter
from pathlib import Path

import pytest

from penstock.pipeline.extract.factory import extractor
from penstock.pipeline.extract.protocol import Content, ExtractLimits, PageImage
from penstock.pipeline.ocr import geometry, rapid
from penstock.pipeline.ocr.factory import open_engine
from penstock.pipeline.ocr.protocol import OcrOptions

FOLDER = Path(__file__).resolve().parents[3] / "shared" / "corpus" / "image-ocr"
pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="the shared corpus is not here")


def picture(name):
    content = Content(name, (FOLDER / name).read_bytes())
    return extractor("image").open(content, ExtractLimits()).image(1, 300)


def normal(text):
    return " ".join(unicodedata.normalize("NFKC", text).split())


def error_rate(truth, text):
    """Edits per character of the truth."""
    truth, text = normal(truth), normal(text)
    row = list(range(len(text) + 1))
    for number, wanted in enumerate(truth, 1):
        above, row[0] = row[0], number
        for place, found in enumerate(text, 1):
            above, row[place] = row[place], min(row[place] + 1, row[place - 1] + 1, above + (wanted != found))
    return row[-1] / len(truth)


def words(text):
    return Counter(re.findall(r"\w+", unicodedata.normalize("NFKC", text).lower()))


def recall_of_receipts(options):
    engine = open_engine(options)
    right = total = 0
    for truth in sorted(FOLDER.glob("receipts/*.csv")):
        lines = truth.read_text("utf-8", "replace").splitlines()
        wanted = words(" ".join(line.split(",", 8)[8] for line in lines if line.count(",") >= 8))
        found = words(engine.recognize(picture(f"receipts/{truth.stem}.jpg")).text)
        right, total = right + (wanted & found).total(), total + wanted.total()
    return right / total


PRINTS = [("phototest.tif", "phototest.gold.txt", 0.0), ("eurotext.tif", "eurotext.txt", 0.03)]


@pytest.mark.parametrize("rotation", [0, 90, 180, 270])
@pytest.mark.parametrize(("name", "truth", "most"), PRINTS)
def test_clean_print_is_read_in_every_orientation(name, truth, most, rotation):
    image = picture(name)
    turned = PageImage(geometry.turned(image.pixels, rotation), image.dpi)
    found = open_engine(OcrOptions()).recognize(turned)
    assert error_rate((FOLDER / truth).read_text("utf-8"), found.text) <= most


@pytest.mark.parametrize("skew", [3.0, -5.0])
@pytest.mark.parametrize(("name", "truth", "most"), PRINTS)
def test_clean_print_is_read_on_a_skewed_page(name, truth, most, skew):
    image = picture(name)
    found = open_engine(OcrOptions()).recognize(PageImage(geometry.level(image.pixels, skew), image.dpi))
    assert error_rate((FOLDER / truth).read_text("utf-8"), found.text) <= most


def test_receipts_are_read_by_the_plain_install():
    assert recall_of_receipts(OcrOptions(min_confidence=0)) >= 0.85


@pytest.mark.skipif(rapid.version() is None, reason="the extra rapidocr is not installed: make rapidocr")
def test_receipts_are_read_better_by_rapidocr():
    assert recall_of_receipts(OcrOptions()) >= 0.94
