"""Count of the tokens of a text, for the budget of a language model.

Counted are the pieces of the default embedder's vocabulary, those of the Llama family. It has 32,000 pieces.
Most later models know more and need fewer, so that a text that fits here fits there.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache

from penstock.pipeline.embed.table_files import find_table_files
from penstock.pipeline.embed.word_pieces import WordPieces

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
