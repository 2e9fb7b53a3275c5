"""Vectors from a table of word pieces: no network, no GPU, thousands of texts a second.

The table is a data file of the ``wordllama`` package, whose code is not used: its loader wants to download,
and it reads a text as one string of pieces. Here a text is a bag of words. That is faster, since a word is
taken to pieces once in a process, and it finds more: a long text does not drown in the word it repeats, and
neither page numbers nor tables of figures outweigh the prose beside them.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from penstock.errors import InvalidSetting
from penstock.pipeline.fingerprint import fingerprint

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from tokenizers import Tokenizer

DIMENSION = 256

_POOLING = 1
"""Grows with any change below that gives a text another vector."""
_REPEATED = 0.8
"""A word that stands n times in a text counts n to this power."""
_FIGURES = 0.1
"""What a word that begins with a digit counts beside another."""
_LONGEST = 64 * 1024
"""Characters read of one text; chunks are far shorter."""
_LONGEST_WORD = 64
_KEPT_WORDS = 32_768
"""Words whose vectors are kept at hand: 32 MB. Beyond, all are forgotten and it begins anew."""

_WORD = re.compile(r"[^\W_]+")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


class StaticEmbedder:
    """The default. One process shares one table; nothing is read before the first text."""

    name = "static"
    dimension = DIMENSION

    @property
    def fingerprint(self) -> str:
        return _table().fingerprint

    def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        import numpy as np

        table = _table()
        found = np.zeros((len(texts), DIMENSION), dtype=np.float32)
        for row, text in enumerate(texts):
            counts = Counter(_WORD.findall(text[:_LONGEST]))
            if counts:
                found[row] = table.pooled(counts)
        return found


class _Table:
    """The word pieces' vectors, and those of the words met so far."""

    def __init__(self, weights: Path, pieces: Path) -> None:
        import numpy as np
        from tokenizers import Tokenizer

        self._weights = _mapped(weights)
        self._tokenizer: Tokenizer = Tokenizer.from_file(str(pieces))
        self._lock = threading.Lock()
        self._rows: dict[str, int] = {}
        self._vectors = np.zeros((1024, DIMENSION), dtype=np.float32)
        self._powers = np.arange(_LONGEST + 1, dtype=np.float32) ** _REPEATED
        self.fingerprint = fingerprint(
            {
                "name": StaticEmbedder.name,
                "weights": _digest(weights),
                "pieces": _digest(pieces),
                "pooling": _POOLING,
                "dimension": DIMENSION,
            }
        )

    def pooled(self, counts: Counter[str]) -> npt.NDArray[np.float32]:
        """Of length 1, or zeros when the words cancel each other out."""
        import numpy as np

        with self._lock:
            known = self._rows.get
            rows = [known(word, -1) for word in counts]
            if -1 in rows:
                rows = self._learn(counts)
            vectors = self._vectors[rows]
        weights = self._powers[np.fromiter(counts.values(), dtype=np.intp, count=len(rows))]
        # Not a matrix product: its order of addition, and so its last bits, is the library's choice.
        total: npt.NDArray[np.float32] = np.add.reduce(vectors * weights[:, None], axis=0)
        length = float(np.sqrt(np.add.reduce(total * total)))
        return total / np.float32(length) if length > 0 else total

    def in_use(self) -> bool:
        return self._lock.locked()

    def _learn(self, counts: Counter[str]) -> list[int]:
        import numpy as np

        new = [word for word in counts if word not in self._rows]
        if len(self._rows) + len(new) > _KEPT_WORDS:
            self._rows.clear()
            new = list(counts)
        needed = len(self._rows) + len(new)
        if needed > len(self._vectors):
            grown = np.zeros((max(needed, 2 * len(self._vectors)), DIMENSION), dtype=np.float32)
            grown[: len(self._vectors)] = self._vectors
            self._vectors = grown
        for word in new:
            row = len(self._rows)
            self._vectors[row] = self._of_word(word)
            self._rows[word] = row
        return [self._rows[word] for word in counts]

    def _of_word(self, word: str) -> npt.NDArray[np.float32]:
        import numpy as np

        ids = [piece for part in _parts(word) for piece in self._encode(part)]
        vector: npt.NDArray[np.float32] = np.add.reduce(
            self._weights.take(ids, axis=0), axis=0, dtype=np.float32
        )
        return vector * np.float32(_FIGURES) if word[0].isdigit() else vector

    def _encode(self, word: str) -> list[int]:
        # One at a time: the library's batches start threads, which a later fork complains about.
        ids: list[int] = self._tokenizer.encode(word, add_special_tokens=False).ids
        return ids


def _parts(word: str) -> list[str]:
    """``parseHTTPHeader`` is three words; one without humps stays as it is written."""
    word = word[:_LONGEST_WORD]
    parts = _HUMP.split(word)
    return [word] if len(parts) == 1 else [part.lower() for part in parts]


_shared: _Table | None = None
_opening = threading.Lock()


def _table() -> _Table:
    global _shared
    with _opening:
        if _shared is None:
            _shared = _Table(*_data_files())
        return _shared


def _after_fork() -> None:
    """What a thread of the parent was in the middle of is not used in the child."""
    global _shared, _opening
    if _opening.locked() or (_shared is not None and _shared.in_use()):
        _shared = None
    _opening = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def _data_files() -> tuple[Path, Path]:
    # find_spec looks for the package without running it.
    spec = importlib.util.find_spec("wordllama")
    for place in (spec and spec.submodule_search_locations) or ():
        weights = Path(place, "weights", f"l2_supercat_{DIMENSION}.safetensors")
        pieces = Path(place, "tokenizers", "l2_supercat_tokenizer_config.json")
        if weights.is_file() and pieces.is_file():
            return weights, pieces
    raise InvalidSetting(
        "embedder = 'static': its table of vectors is not installed",
        remedy="Install it with `pip install wordllama`, or use the embedder 'hashing'.",
    )


def _mapped(path: Path) -> npt.NDArray[np.float16]:
    """The file's one array, read from the page cache, which all processes share.

    A safetensors file is the length of its head in 8 bytes, the head as JSON, then the numbers.
    """
    import numpy as np

    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        head = msgspec.json.decode(file.read(length))
    about = head["embedding.weight"]
    mapped = np.memmap(
        path,
        dtype=np.float16,
        mode="r",
        offset=8 + length + about["data_offsets"][0],
        shape=tuple(about["shape"]),
    )
    # A plain array over the same pages: each look into a memmap makes an object that is one.
    return np.asarray(mapped)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
