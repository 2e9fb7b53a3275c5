"""Word pieces: a word split by byte pair encoding, as the library ``tokenizers`` does with the same file.

Own code, because that library requires a client of a model hub, and takes longer to load than a command runs.
The file is a ``tokenizer.json`` of the Llama family. Its pieces are numbered in the order in which they were
learned, and any two pieces that make a third may be joined. So the numbers say which pair is joined first,
and the list of pairs, most of the file, is not read.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import msgspec

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
