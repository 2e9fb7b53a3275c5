"""The OCR engine for given options, and what it loads."""

from __future__ import annotations

import sys
from functools import lru_cache

from penstock.pipeline.ocr import models, rapid, tesseract
from penstock.pipeline.ocr.endpoint import VisionEndpoint
from penstock.pipeline.ocr.local import LocalEngine
from penstock.pipeline.ocr.protocol import EndpointOptions, OcrEngine, OcrOptions

_MEMORY = 192 << 20
"""Measured: 116 MB for a page that is turned and read twice."""
_MEMORY_OF_SECOND = 576 << 20
"""Measured: 480 MB more at the peak."""


@lru_cache(1)
def open_engine(options: OcrOptions) -> OcrEngine:
    """The engine of this machine, with its models loaded. The same options give the same engine.

    Raises ComponentMissing if the library or the model of a language is not installed.
    """
    return LocalEngine(options)


def open_endpoint(options: EndpointOptions) -> OcrEngine:
    """The engine behind a vision endpoint. Nothing is sent before the first page."""
    return VisionEndpoint(options)


def readable_paths(options: OcrOptions) -> tuple[str, ...]:
    """Folders and files that the local engine reads while it runs, for a process confined to them."""
    second = rapid.READS if rapid.usable(options.languages) else ()
    return (sys.prefix, *models.folders(options.tessdata_dir), *second)


def memory_bytes(options: OcrOptions) -> int:
    """Memory to recognize a page of A4 at 300 dpi, models included."""
    return _MEMORY + (_MEMORY_OF_SECOND if rapid.usable(options.languages) else 0)


def engine_versions() -> dict[str, str]:
    """Versions of the installed engines, by name: another one may recognize another text."""
    found = {tesseract.NAME: tesseract.version(), rapid.NAME: rapid.version()}
    return {name: version for name, version in found.items() if version}
