"""Vectors from a table of word pieces: no network, no GPU, thousands of texts a second.

The table is a data file of the ``wordllama`` package, see ``table_files``. That package reads a text as one
string of pieces. Here a text is a bag of words. This is faster, since a word is split into pieces once per
process. It also finds more: a repeated word does not dominate a long text, and page numbers or tables of
figures do not outweigh the prose beside them.
"""

from __future__ import annotations

import os
import re
import threading
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from penstock.catalog.rules.words import HUMP, STOP_WORDS
from penstock.lazy_pattern import lazy_pattern
from penstock.pipeline.embed.protocol import DIMENSION, TableFiles, WordPieces, find_table_files
from penstock.strict_json import fingerprint

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


_POOLING = 2
"""Increased with any change below that changes the vector of a text."""
_COUNT_POWER = 0.65
"""A word that occurs n times in a text counts n to this power."""
_DIGIT_WEIGHT = 0.1
"""Weight of a word that begins with a digit."""
_MAX_CHARS = 64 * 1024
"""Characters read of one text. Chunks are far shorter."""
_MAX_WORD = 64
_MAX_CACHED_WORDS = 32_768
"""Cached word vectors: 32 MB. When the cache is full, all of them are dropped."""

_WORD = re.compile(r"[^\W_]+")


class StaticEmbedder:
    """The default embedder. A process has one table, which is read at the first text."""

    name = "static"
    dimension = DIMENSION

    @property
    def fingerprint(self) -> str:
        return _fingerprint()

    def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        import numpy as np

        table = _table()
        found = np.zeros((len(texts), DIMENSION), dtype=np.float32)
        for row, text in enumerate(texts):
            counts = _counted_words(text[:_MAX_CHARS])
            if counts:
                found[row] = table.pool(counts)
        return found


@cache
def _fingerprint() -> str:
    """Fingerprint of the vectors. The table itself is not loaded: most commands only compare it."""
    files = find_table_files()
    return fingerprint(
        {
            "name": StaticEmbedder.name,
            "weights": files.weights_sha256,
            "pieces": files.pieces_sha256,
            "pooling": _POOLING,
            "dimension": DIMENSION,
        }
    )


class _Table:
    """Vectors of the word pieces, and a cache of the vectors of whole words."""

    def __init__(self, files: TableFiles) -> None:
        import numpy as np

        self._weights = _map_weights(files.weights)
        self._pieces = WordPieces(files.pieces)
        self._lock = threading.Lock()
        self._rows: dict[str, int] = {}
        self._vectors = np.zeros((1024, DIMENSION), dtype=np.float32)
        self._powers = np.arange(_MAX_CHARS + 1, dtype=np.float32) ** _COUNT_POWER

    def pool(self, counts: Mapping[str, int]) -> npt.NDArray[np.float32]:
        """Pool word vectors to one vector of length 1, or zeros if the words cancel each other out."""
        import numpy as np

        with self._lock:
            known = self._rows.get
            rows = [known(word, -1) for word in counts]
            if -1 in rows:
                rows = self._add_words(counts)
            vectors = self._vectors[rows]
        weights = self._powers[np.fromiter(counts.values(), dtype=np.intp, count=len(rows))]
        # Not a matrix product: the library chooses its order of addition, and so its last bits.
        total: npt.NDArray[np.float32] = np.add.reduce(vectors * weights[:, None], axis=0)
        length = float(np.sqrt(np.add.reduce(total * total)))
        return total / np.float32(length) if length > 0 else total

    def is_locked(self) -> bool:
        return self._lock.locked()

    def _add_words(self, counts: Mapping[str, int]) -> list[int]:
        import numpy as np

        new = [word for word in counts if word not in self._rows]
        if len(self._rows) + len(new) > _MAX_CACHED_WORDS:
            self._rows.clear()
            new = list(counts)
        needed = len(self._rows) + len(new)
        if needed > len(self._vectors):
            grown = np.zeros((max(needed, 2 * len(self._vectors)), DIMENSION), dtype=np.float32)
            grown[: len(self._vectors)] = self._vectors
            self._vectors = grown
        for word in new:
            row = len(self._rows)
            self._vectors[row] = self._word_vector(word)
            self._rows[word] = row
        return [self._rows[word] for word in counts]

    def _word_vector(self, word: str) -> npt.NDArray[np.float32]:
        import numpy as np

        ids = self._pieces.split(word)
        vector: npt.NDArray[np.float32] = np.add.reduce(
            self._weights.take(ids, axis=0), axis=0, dtype=np.float32
        )
        return vector * np.float32(_DIGIT_WEIGHT) if word[0].isdigit() else vector


@lru_cache(_MAX_CACHED_WORDS)
def _parts(word: str) -> tuple[str, ...]:
    """The words in a written word, in lower case."""
    return tuple([part.lower() for part in HUMP.split(word[:_MAX_WORD])])


def _counted_words(text: str) -> dict[str, int]:
    """Count the words of a text, in lower case and with camel case split: ``parseHTTPHeader`` is three.

    Lower case, because the table knows a word in capitals as other pieces, of another meaning. Stop words and
    words of one character are left out unless nothing else is there.
    """
    counts: dict[str, int] = {}
    for word, count in Counter(_WORD.findall(text)).items():
        for part in _parts(word):
            counts[part] = counts.get(part, 0) + count
    telling = {word: count for word, count in counts.items() if len(word) > 1 and word not in STOP_WORDS}
    return telling or counts


_shared: _Table | None = None
_opening = threading.Lock()


def _table() -> _Table:
    global _shared
    with _opening:
        if _shared is None:
            _shared = _Table(find_table_files())
        return _shared


def _after_fork() -> None:
    """In a forked child, drop a table in use by a thread of the parent."""
    global _shared, _opening
    if _opening.locked() or (_shared is not None and _shared.is_locked()):
        _shared = None
    _opening = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def _map_weights(path: Path) -> npt.NDArray[np.float16]:
    """Map the one array of a safetensors file. All processes share the pages.

    The format: the length of the header in 8 bytes, the header as JSON, then the numbers.
    """
    import numpy as np

    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = msgspec.json.decode(file.read(length))
    entry = header["embedding.weight"]
    mapped = np.memmap(
        path,
        dtype=np.float16,
        mode="r",
        offset=8 + length + entry["data_offsets"][0],
        shape=tuple(entry["shape"]),
    )
    # A plain array over the same pages: each slice of a memmap would create another memmap object.
    return np.asarray(mapped)


# Vectors without a model: words and their trigrams, hashed to dimensions.
#
# For tests, and where no weights are available. Finds texts that share words; knows nothing about meaning.


_HASHED_WORD = lazy_pattern(r"\w+")
_VERSION = 1
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
        for word, times in Counter(_HASHED_WORD.findall(text.lower())).items():
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
