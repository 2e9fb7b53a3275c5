"""``python -m bench.ocr``: OCR against a bare loop of tesserocr, and how well known text is read.

The loop reads the same page with the same model and settings. Both take turns in one process with one
thread; the figure is CPU time, which other work on the machine disturbs least.
"""

from __future__ import annotations

import argparse
import os
import re
import time
import unicodedata
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from penstock.pipeline.extract.image import ImageExtractor
from penstock.pipeline.extract.protocol import Content, ExtractLimits, PageImage
from penstock.pipeline.ocr import engines
from penstock.pipeline.ocr.engines import open_engine
from penstock.pipeline.ocr.protocol import OcrEngine, OcrOptions, find_models

CORPUS = Path(__file__).resolve().parents[2] / "shared" / "corpus" / "image-ocr"
LINE = "The miller opens the sluice at dawn and lets the water of the river turn the heavy wheel"
LINES = 45
GOAL = 0.95


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.ocr", description=__doc__)
    parser.add_argument("--corpus", type=Path, default=CORPUS, help="folder with pictures and their text")
    parser.add_argument("--pages", type=int, default=5, help="pages read by each of both")
    options = parser.parse_args()
    os.environ.setdefault("OMP_THREAD_LIMIT", "1")
    _print_speed(options.pages)
    if options.corpus.is_dir():
        _print_quality(options.corpus)
    else:
        print(f"{options.corpus} is not there: quality is not measured")


def page() -> PageImage:
    """A page of A4 at 300 dpi, full of text."""
    picture = Image.new("L", (2480, 3508), 255)
    text = "\n".join(f"{number} {LINE}" for number in range(1, LINES + 1))
    font = ImageFont.load_default(48)
    ImageDraw.Draw(picture).multiline_text((200, 200), text, fill=0, font=font, spacing=22)
    return PageImage(np.asarray(picture), 300)


def bare_loop() -> Callable[[PageImage], str]:
    """What a program would write without Penstock."""
    import tesserocr

    models = find_models(["eng"])
    api = tesserocr.PyTessBaseAPI(path=models.folder, lang=models.languages, psm=3)

    def read(image: PageImage) -> str:
        height, width = image.pixels.shape
        api.SetImageBytes(image.pixels.tobytes(), width, height, 1, width)
        api.SetSourceResolution(image.dpi)
        text: str = api.GetUTF8Text()
        api.AllWordConfidences()
        return text

    return read


def _print_speed(pages: int) -> None:
    image, bare, engine = page(), bare_loop(), open_engine(OcrOptions(min_confidence=0))
    bare(image), engine.recognize(image)
    ours, floor = [], []
    for _ in range(pages):
        floor.append(_cpu_seconds(bare, image))
        ours.append(_cpu_seconds(engine.recognize, image))
    ratio = median(floor) / median(ours)
    print(f"CPU s/page of A4: penstock {median(ours):.3f}, bare loop {median(floor):.3f}")
    print(f"speed {ratio:.3f} x the bare loop (goal {GOAL}): {'met' if ratio >= GOAL else 'NOT MET'}")


def _cpu_seconds(read: Callable[[PageImage], Any], image: PageImage) -> float:
    start = time.process_time()
    read(image)
    return time.process_time() - start


def _print_quality(corpus: Path) -> None:
    engine = open_engine(OcrOptions(min_confidence=0))
    for name, truth, goal in (
        ("phototest.tif", "phototest.gold.txt", 0.0),
        ("eurotext.tif", "eurotext.txt", 0.03),
    ):
        text = engine.recognize(_picture(corpus / name)).text
        rate = error_rate((corpus / truth).read_text("utf-8"), text)
        print(f"{name}: character error rate {rate:.4f} (goal {goal})")
    print(f"receipts, tesseract: word recall {recall_of_receipts(corpus, engine):.3f} (goal 0.79)")
    if engines.rapidocr_version() is None:
        print("receipts, rapidocr: not installed")
        return
    both = recall_of_receipts(corpus, open_engine(OcrOptions()))
    print(f"receipts, rapidocr: word recall {both:.3f} (goal 0.92)")


def _picture(path: Path) -> PageImage:
    return ImageExtractor().open(Content(path.name, path.read_bytes()), ExtractLimits()).image(1, 300)


def error_rate(truth: str, text: str) -> float:
    """Edits per character of the truth; white space counts once."""
    truth, text = (" ".join(unicodedata.normalize("NFKC", each).split()) for each in (truth, text))
    row = list(range(len(text) + 1))
    for number, wanted in enumerate(truth, 1):
        above, row[0] = row[0], number
        for place, found in enumerate(text, 1):
            above, row[place] = row[place], min(row[place] + 1, row[place - 1] + 1, above + (wanted != found))
    return row[-1] / len(truth)


def recall_of_receipts(corpus: Path, engine: OcrEngine) -> float:
    """Share of the words of all receipts together that are read."""
    right = total = 0
    for truth in sorted(corpus.glob("receipts/*.csv")):
        lines = truth.read_text("utf-8", "replace").splitlines()
        wanted = _words(" ".join(line.split(",", 8)[8] for line in lines if line.count(",") >= 8))
        found = _words(engine.recognize(_picture(truth.with_suffix(".jpg"))).text)
        right, total = right + (wanted & found).total(), total + wanted.total()
    return right / total


def _words(text: str) -> Counter[str]:
    return Counter(re.findall(r"\w+", unicodedata.normalize("NFKC", text).lower()))


if __name__ == "__main__":
    main()
