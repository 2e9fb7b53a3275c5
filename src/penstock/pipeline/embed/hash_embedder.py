"""Vectors without a model: words and their trigrams, hashed to dimensions.

For tests, and where no weights are available. Finds texts that share words; knows nothing about meaning.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from penstock.pipeline.fingerprints import fingerprint

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_WORD = re.compile(r"\w+")
_VERSION = 1
_MAX_CHARS = 64 * 1024
"""Characters read of one text. More would add little to a sum of words."""


class HashingEmbedder:
    """Feature hashing of words and their trigrams: square roots of counts, scaled to length 1."""

    name = "hashing"

    def __init__(self, dimension: int = 256) -> None:
        if dimension < 8:
            raise ValueError(f"expected at least 8 dimensions, got {dimension}")
        self.dimension = dimension
        self.fingerprint = fingerprint({"name": self.name, "version": _VERSION, "dimension": dimension})

    def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        import numpy as np

        sums = np.zeros((len(texts), self.dimension), dtype=np.float32)
        for row, text in enumerate(texts):
            for feature, weight in _features(text[:_MAX_CHARS]):
                digest = zlib.crc32(feature.encode("utf-8", "replace"))
                sums[row, (digest >> 1) % self.dimension] += weight if digest & 1 else -weight
        sums = np.sign(sums) * np.sqrt(np.abs(sums))
        lengths = np.linalg.norm(sums, axis=1, keepdims=True)
        return (sums / np.where(lengths > 0, lengths, 1)).astype(np.float32)


def _features(text: str) -> Iterator[tuple[str, float]]:
    for found in _WORD.finditer(text.lower()):
        word = found[0]
        yield word, 1.0
        padded = f"<{word}>"
        for start in range(len(padded) - 2):
            yield padded[start : start + 3], 0.3
