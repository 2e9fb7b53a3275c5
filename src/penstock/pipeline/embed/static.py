"""Vectors from a table of word pieces: no network, no GPU, thousands of texts a second.

The table and its pieces are data files of the ``wordllama`` package. That package reads a text as one
string of pieces. Here a text is a bag of words. This is faster, since a word is split into pieces once per
process. It also finds more: a repeated word does not dominate a long text, and page numbers or tables of
figures do not outweigh the prose beside them.

The pieces also count the tokens of a text. ``HashingEmbedder`` makes vectors without a table.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import threading
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from penstock.catalog.rules.words import STOP_WORDS, humps
from penstock.errors import InvalidSetting
from penstock.strict_json import fingerprint

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


_DIMENSION = 256

_WEIGHTS, _PIECES = "weights.safetensors", "pieces.json"
SHA256 = {
    _WEIGHTS: "64b47a2dc493cb8e85944076601189739852d7b64e0e1eedcb1937a251cd9fd5",
    _PIECES: "93248f2a9ec36c7b35f700a033d5f36228aae48db61aee31007fa49062cdeb68",
}
"""Checksums of the files in the wheel, compared when the wheel is built."""

_OWN = Path(__file__).parent / "table"

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
    dimension = _DIMENSION

    @property
    def fingerprint(self) -> str:
        return _fingerprint()

    def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        import numpy as np

        table = _table()
        found = np.zeros((len(texts), _DIMENSION), dtype=np.float32)
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
            "dimension": _DIMENSION,
        }
    )


class _Table:
    """Vectors of the word pieces, and a cache of the vectors of whole words."""

    def __init__(self) -> None:
        import numpy as np

        self._weights = _map_weights(find_table_files().weights)
        self._pieces = _vocabulary()
        self._lock = threading.Lock()
        self._rows: dict[str, int] = {}
        self._vectors = np.zeros((1024, _DIMENSION), dtype=np.float32)
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
            grown = np.zeros((max(needed, 2 * len(self._vectors)), _DIMENSION), dtype=np.float32)
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
    return tuple([part.lower() for part in humps().split(word[:_MAX_WORD])])


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
            _shared = _Table()
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


class _TableFiles(msgspec.Struct, frozen=True):
    """Paths of the table and of the word pieces, and checksums of their contents."""

    weights: Path
    pieces: Path
    weights_sha256: str
    pieces_sha256: str


@cache
def find_table_files() -> _TableFiles:
    """Find the files of this package, or else those of an installed ``wordllama``.

    A wheel of Penstock contains them; ``hatch_build.py`` takes them from that package. Its code is not used,
    and neither are its many dependencies.
    """
    weights, pieces = _OWN / _WEIGHTS, _OWN / _PIECES
    if weights.is_file() and pieces.is_file():
        # 16 MB are not read to learn what is known since the build.
        return _TableFiles(weights, pieces, SHA256[_WEIGHTS], SHA256[_PIECES])
    for weights, pieces in _installed_files():
        return _TableFiles(weights, pieces, _digest(weights), _digest(pieces))
    raise InvalidSetting(
        "embedder = 'static': the table of vectors is not installed",
        remedy="Install Penstock again, or `pip install --no-deps wordllama`; or use the embedder 'hashing'.",
    )


def _installed_files() -> Iterator[tuple[Path, Path]]:
    # find_spec finds the package without running it.
    spec = importlib.util.find_spec("wordllama")
    for place in (spec and spec.submodule_search_locations) or ():
        weights = Path(place, "weights", f"l2_supercat_{_DIMENSION}.safetensors")
        pieces = Path(place, "tokenizers", "l2_supercat_tokenizer_config.json")
        if weights.is_file() and pieces.is_file():
            yield weights, pieces


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


_WORD_START = "▁"
_BYTE = "<0x{:02X}>"


class _Model(msgspec.Struct):
    vocab: dict[str, int]


class _File(msgspec.Struct):
    model: _Model


class WordPieces:
    """Splits words of letters and digits by byte pair encoding, as ``tokenizers`` does with the same file.

    Own code, because that library requires a client of a model hub, and takes longer to load than a command
    runs. The file is a ``tokenizer.json`` of the Llama family. Its pieces are numbered in the order in which
    they were learned, and any two pieces that make a third may be joined. So the numbers say which pair is
    joined first, and the list of pairs, most of the file, is not read.
    """

    def __init__(self, path: Path) -> None:
        self._numbers = msgspec.json.decode(path.read_bytes(), type=_File).model.vocab
        self._none = len(self._numbers)

    def split(self, word: str) -> list[int]:
        """Numbers of the pieces of a word. An unknown character is split into UTF-8 bytes."""
        whole = self._numbers.get(_WORD_START + word)
        # A piece was learned by joining its characters in the order in which they would be joined here.
        return self.joined(word) if whole is None else [whole]

    def joined(self, word: str) -> list[int]:
        """The same numbers, found by joining characters."""
        numbers = self._numbers
        pieces = [_WORD_START]
        for character in word:
            if character in numbers:
                pieces.append(character)
            else:
                pieces += (_BYTE.format(byte) for byte in character.encode("utf-8", "replace"))
        self._join(pieces)
        return [numbers[piece] for piece in pieces]

    def _join(self, pieces: list[str]) -> None:
        """Join neighbours until no pair is a piece: the lowest number first, of equal ones the leftmost."""
        number_of, none = self._numbers.get, self._none
        pairs = [number_of(left + right, none) for left, right in pairwise(pieces)]
        while pairs and (lowest := min(pairs)) < none:
            at = pairs.index(lowest)
            joined = pieces[at] + pieces[at + 1]
            pieces[at : at + 2] = [joined]
            del pairs[at]
            if at > 0:
                pairs[at - 1] = number_of(pieces[at - 1] + joined, none)
            if at < len(pairs):
                pairs[at] = number_of(joined + pieces[at + 1], none)


_TOKEN = re.compile(r"[^\W\d_]+|\S|\n| {2,}|\t+")
"""A word, a single digit or sign, a new line, or an indentation. A single space belongs to the next word."""


def count_tokens(text: str) -> int:
    """Count the tokens of a text, for the budget of a language model.

    Counted are the pieces of the table. It has 32,000. Most later models know more and need fewer, so that a
    text that fits here fits there.
    """
    return sum(_piece_count(part) if part[0].isalpha() else _signs(part) for part in _TOKEN.findall(text))


@lru_cache(50_000)
def _piece_count(word: str) -> int:
    return len(_vocabulary().split(word))


@cache
def _vocabulary() -> WordPieces:
    return WordPieces(find_table_files().pieces)


def _signs(part: str) -> int:
    """Tokens of a sign, at most: one in ASCII, else one for each UTF-8 byte."""
    return 1 if part.isascii() else len(part.encode("utf-8", "replace"))


_VERSION = 1
_KNOWN_WORDS = 4096
_USUAL_CHARS = 32


class HashingEmbedder:
    """Vectors without a model, for tests and where no weights are available.

    Words and their trigrams are hashed to dimensions: square roots of counts, scaled to length 1. So texts
    that share words are found; nothing is known about meaning.
    """

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
        for word, times in Counter(re.findall(r"\w+", text.lower())).items():
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
