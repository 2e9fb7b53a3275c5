"""Interface of an embedder: texts in, vectors out."""

from __future__ import annotations

import hashlib
import importlib.util
import re
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import msgspec

from penstock.errors import InvalidSetting
from penstock.pipeline.endpoint import TokenMeter

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


class Embedder(Protocol):
    """Turns texts into vectors of one space.

    Deterministic: the same text gives the same vector, alone or in a batch. A vector has length 1. It is all
    zeros if the model knows nothing in the text (empty, white space); such a vector is near nothing. Of a
    text that is too long for the model, the beginning is embedded. A lone surrogate counts as U+FFFD.
    """

    @property
    def name(self) -> str:
        """Name of the embedder in the settings."""
        ...

    @property
    def dimension(self) -> int: ...

    @property
    def fingerprint(self) -> str:
        """Fingerprint of weights, pooling and dimension. Vectors compare only within one fingerprint."""
        ...

    def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Embed texts: an array of shape (len(texts), dimension), one row per text, in order."""
        ...


@runtime_checkable
class MeteredEmbedder(TokenMeter, Protocol):
    """An embedder billed by the token."""

    batch: int
    """Texts of one call."""


def space_of(embedder: Embedder) -> str:
    """Vector space of an embedder: name, dimension and fingerprint."""
    return f"{embedder.name}-{embedder.dimension}-{embedder.fingerprint[:8]}"


# Word pieces: a word split by byte pair encoding, as the library ``tokenizers`` does with the same file.
#
# Own code, because that library requires a client of a model hub, and takes longer to load than a command
# runs. The file is a ``tokenizer.json`` of the Llama family. Its pieces are numbered in the order in which
# they were learned, and any two pieces that make a third may be joined. So the numbers say which pair is
# joined first, and the list of pairs, most of the file, is not read.


_WORD_START = "▁"
_BYTE = "<0x{:02X}>"


class _Model(msgspec.Struct):
    vocab: dict[str, int]


class _File(msgspec.Struct):
    model: _Model


class WordPieces:
    """Splits words of letters and digits. Texts with spaces or signs are not supported."""

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


# Files of the default embedder: the vectors of the word pieces, and the pieces.
#
# A wheel of Penstock contains them; ``hatch_build.py`` takes them from the package ``wordllama``. In a
# checkout without them, an installed ``wordllama`` serves as well. The code of that package is not used, and
# neither are its many dependencies.


DIMENSION = 256

OWN_WEIGHTS, OWN_PIECES = "weights.safetensors", "pieces.json"
SHA256 = {
    OWN_WEIGHTS: "64b47a2dc493cb8e85944076601189739852d7b64e0e1eedcb1937a251cd9fd5",
    OWN_PIECES: "93248f2a9ec36c7b35f700a033d5f36228aae48db61aee31007fa49062cdeb68",
}
"""Checksums of the files in the wheel, compared when the wheel is built."""

_OWN = Path(__file__).parent / "table"


class TableFiles(msgspec.Struct, frozen=True):
    """Paths of both files, and checksums of their contents."""

    weights: Path
    pieces: Path
    weights_sha256: str
    pieces_sha256: str


@cache
def find_table_files() -> TableFiles:
    """Find the files of this package, or else those of an installed ``wordllama``."""
    weights, pieces = _OWN / OWN_WEIGHTS, _OWN / OWN_PIECES
    if weights.is_file() and pieces.is_file():
        # 16 MB are not read to learn what is known since the build.
        return TableFiles(weights, pieces, SHA256[OWN_WEIGHTS], SHA256[OWN_PIECES])
    for weights, pieces in _installed_files():
        return TableFiles(weights, pieces, _digest(weights), _digest(pieces))
    raise InvalidSetting(
        "embedder = 'static': the table of vectors is not installed",
        remedy="Install Penstock again, or `pip install --no-deps wordllama`; or use the embedder 'hashing'.",
    )


def _installed_files() -> Iterator[tuple[Path, Path]]:
    # find_spec finds the package without running it.
    spec = importlib.util.find_spec("wordllama")
    for place in (spec and spec.submodule_search_locations) or ():
        weights = Path(place, "weights", f"l2_supercat_{DIMENSION}.safetensors")
        pieces = Path(place, "tokenizers", "l2_supercat_tokenizer_config.json")
        if weights.is_file() and pieces.is_file():
            yield weights, pieces


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# Count of the tokens of a text, for the budget of a language model.
#
# Counted are the pieces of the default embedder's vocabulary, those of the Llama family. It has 32,000
# pieces. Most later models know more and need fewer, so that a text that fits here fits there.


_PART = re.compile(r"[^\W\d_]+|\S|\n| {2,}|\t+")
"""A word, a single digit or sign, a new line, or an indentation. A single space belongs to the next word."""


def count_tokens(text: str) -> int:
    """Count the tokens of a text."""
    return sum(_pieces(part) if part[0].isalpha() else _signs(part) for part in _PART.findall(text))


@lru_cache(50_000)
def _pieces(word: str) -> int:
    return len(_vocabulary().split(word))


@cache
def _vocabulary() -> WordPieces:
    return WordPieces(find_table_files().pieces)


def _signs(part: str) -> int:
    """Tokens of a sign, at most: one in ASCII, else one for each UTF-8 byte."""
    return 1 if part.isascii() else len(part.encode("utf-8", "replace"))
