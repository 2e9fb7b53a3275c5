"""The OCR engine for poor pictures: rapidocr, an extra."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.named_tuple import NamedTuple
from penstock.pipeline.extract.charset import clean
from penstock.pipeline.ocr.protocol import RecognizedText

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.pipeline.ocr.geometry import Pixels

NAME = "rapidocr"
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


READS = ("/proc/cpuinfo", "/sys/devices/system/cpu")
"""Places outside the packages where the library looks for the abilities of the processor."""


class _Box(NamedTuple):
    """Text at a place of the picture."""

    text: str
    score: float
    left: float
    top: float
    bottom: float


def usable(languages: str) -> bool:
    """Check whether the engine is installed and knows all these languages."""
    return _LANGUAGES.issuperset(languages.split("+")) and version() is not None


def version() -> str | None:
    """Version of the engine; None unless installed with all dependencies."""
    if find_spec("rapidocr") is None or find_spec("onnxruntime") is None:
        return None
    import importlib.metadata  # most processes recognize no picture

    return importlib.metadata.version("rapidocr")


class RapidEngine:
    """The engine, with models loaded at the first page. Use in one thread at a time."""

    name = NAME

    def __init__(self) -> None:
        self._engine: Any = None

    def recognize(self, pixels: Pixels) -> RecognizedText:
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
            return RecognizedText(text="", engine=NAME)
        confidence = 100 * sum(box.score * len(box.text) for box in boxes) / chars
        return RecognizedText(text=clean(_in_lines(boxes)), engine=NAME, confidence=round(confidence, 1))


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
