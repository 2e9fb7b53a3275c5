"""The OCR engine for given options, and the files for a sandbox."""

from __future__ import annotations

import sys
from functools import lru_cache

from penstock.pipeline.endpoint import EndpointOptions
from penstock.pipeline.ocr import models, rapid, tesseract
from penstock.pipeline.ocr.endpoint import VisionEndpoint
from penstock.pipeline.ocr.local import LocalEngine
from penstock.pipeline.ocr.protocol import OcrEngine, OcrOptions

FIRST_ENGINE_BYTES = 192 << 20
"""Measured in the sandbox: a page of A4 in color, turned, needs 144 MiB."""
DRAWING_BYTES = 128 << 20
"""Memory to draw a page for an endpoint."""
_BOTH_ENGINES_BYTES = 560 << 20
"""Measured in the sandbox: a poor page needs 500 MiB. Not more than file_memory_mb leaves by default."""


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
    """Folders and files read by the running local engine, for a confined process."""
    second = rapid.READS if rapid.usable(options.languages) else ()
    return (sys.prefix, *models.folders(options.tessdata_dir), *second)


def memory_bytes(options: OcrOptions) -> int:
    """Memory to recognize a page of A4 at 300 dpi, models included."""
    return _BOTH_ENGINES_BYTES if rapid.usable(options.languages) else FIRST_ENGINE_BYTES


def engine_versions() -> dict[str, str]:
    """Versions of the installed engines, by name: another one may recognize another text."""
    found = {tesseract.NAME: tesseract.version(), rapid.NAME: rapid.version()}
    return {name: version for name, version in found.items() if version}
