"""The OCR engine for given options, and what it loads."""

from __future__ import annotations

import sys
from functools import lru_cache

from penstock.pipeline.ocr import models, rapid, tesseract
from penstock.pipeline.ocr.endpoint import VisionEndpoint
from penstock.pipeline.ocr.local import LocalEngine
from penstock.pipeline.ocr.protocol import EndpointOptions, OcrEngine, OcrOptions


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
    """Folders that the local engine reads while it runs, for a process confined to them."""
    return (sys.prefix, *models.folders(options.tessdata_dir))


def engine_versions() -> dict[str, str]:
    """Versions of the installed engines, by name: another one may recognize another text."""
    found = {tesseract.NAME: tesseract.version(), rapid.NAME: rapid.version()}
    return {name: version for name, version in found.items() if version}
