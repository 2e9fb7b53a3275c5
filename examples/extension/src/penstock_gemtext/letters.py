"""An embedder of three letters at a time. It knows no meaning, but finds similar spellings."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

DIMENSION = 256
LONGEST = 20_000
"""Characters of a text that count."""


class LetterEmbedder:
    """Counts the hashes of all runs of three letters of a text."""

    name = "letters"
    dimension = DIMENSION
    fingerprint = hashlib.sha256(b"letters 1").hexdigest()

    def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Embed texts, one row for each."""
        rows = np.zeros((len(texts), DIMENSION), np.float32)
        for row, text in zip(rows, texts, strict=True):
            np.add.at(row, [_place(run) for run in _runs(text)], 1)
            length = float(np.linalg.norm(row))
            if length:
                row /= length
        return rows


def _runs(text: str) -> list[str]:
    """Three letters or digits at a time. A lone surrogate counts as a replacement character."""
    valid = text[:LONGEST].encode("utf-16", "surrogatepass").decode("utf-16", "replace").lower()
    letters = "".join(one for one in valid if one.isalnum() or one == "\ufffd")
    return [letters[place : place + 3] for place in range(len(letters))]


def _place(run: str) -> int:
    return zlib.crc32(run.encode()) % DIMENSION


def open_embedder(models_dir: Path | None) -> LetterEmbedder:  # noqa: ARG001 - it has no files
    """Open the embedder. ``models_dir`` is where an embedder with a model would find its files."""
    return LetterEmbedder()
