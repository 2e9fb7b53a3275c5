"""Vectors without a model: words and their trigrams, hashed to dimensions.

For tests, and where no weights are available. Finds texts that share words; knows nothing about meaning.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from penstock.lazy_pattern import lazy_pattern
from penstock.pipeline.fingerprints import fingerprint

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_WORD = lazy_pattern(r"\w+")
_VERSION = 1
_MAX_CHARS = 64 * 1024
"""Characters read of one text. More would add little to a sum of words."""
_KNOWN_WORDS = 4096
_USUAL_CHARS = 32


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

        sums = np.array([self._sums(text[:_MAX_CHARS]) for text in texts], dtype=np.float32)
        sums = sums.reshape(len(texts), self.dimension)
        sums = np.sign(sums) * np.sqrt(np.abs(sums))
        lengths = np.linalg.norm(sums, axis=1, keepdims=True)
        return (sums / np.where(lengths > 0, lengths, 1)).astype(np.float32)

    def _sums(self, text: str) -> list[float]:
        sums = [0.0] * self.dimension
        for word, times in Counter(_WORD.findall(text.lower())).items():
            # A text may be one word, which would stay in the cache whole.
            features = _known_features if len(word) <= _USUAL_CHARS else _features
            for digest, weight in features(word):
                sums[digest % self.dimension] += times * weight
        return sums


def _features(word: str) -> tuple[tuple[int, float], ...]:
    """Hash a word and the trigrams in it; the weight has the sign of the hash."""
    padded = f"<{word}>"
    trigrams = [(padded[start : start + 3], 0.3) for start in range(len(padded) - 2)]
    hashed = [
        (zlib.crc32(part.encode("utf-8", "replace")), weight) for part, weight in [(word, 1.0), *trigrams]
    ]
    return tuple((digest >> 1, weight if digest & 1 else -weight) for digest, weight in hashed)


_known_features = lru_cache(_KNOWN_WORDS)(_features)
