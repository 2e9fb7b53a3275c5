"""Sentences of a text as tokens with offsets: words, numbers and marks."""

from __future__ import annotations

import re

from penstock.named_tuple import NamedTuple
from penstock.pipeline.graph.words import ABBREVIATIONS

_TOKEN = re.compile(
    r"(?:[^\W\d_]\.){2,}"  # U.S.
    r"|\$?\d++(?:[.,:]\d++){0,20}+(?:st|nd|rd|th|s)?(?![^\W_])"  # 1,200 and 1950s
    r"|[^\W_]++(?:['’\-&./][^\W_]++)*+"  # O'Neill, Knight-Ridder, AT&T
    r"|\n\s*\n|\S"
)
_POSSESSIVE = re.compile(r"['’]s$", re.IGNORECASE)
_ENDS = frozenset(".!?")
_INITIAL = re.compile(r"[^\W\d_]$")
_MORE = re.compile(r"\s*+\S")


class Token(NamedTuple):
    start: int
    end: int
    text: str
    lower: str
    possessive: bool = False
    """An ``'s`` stands right after it."""

    @property
    def is_capitalised(self) -> bool:
        return self.text[0].isupper()

    @property
    def is_word(self) -> bool:
        return self.text[0].isalnum()


def sentences(text: str) -> list[list[Token]]:
    """The tokens of each sentence. A blank line ends a sentence, a stop after an abbreviation does not."""
    found: list[list[Token]] = []
    current: list[Token] = []
    for token in _tokens(text):
        blank = token.text.isspace()
        if not blank:
            current.append(token)
        if current and (blank or token.text in _ENDS):
            found.append(current)
            current = []
    if current:
        found.append(current)
    return found


def _tokens(text: str) -> list[Token]:
    tokens: list[Token] = []
    taken = 0
    for match in _TOKEN.finditer(text):
        start, end = match.span()
        if start < taken:
            continue
        word = match[0]
        # Nearly no word has one, and a look at a letter is cheaper than a search.
        possessive = _POSSESSIVE.search(word) if word[-1] in "sS" else None
        if possessive and len(word) > 2:
            word = word[: possessive.start()]
            tokens.append(Token(start, start + len(word), word, word.lower(), True))
            continue
        if text[end : end + 1] == "." and word[0].isalpha() and _keeps_stop(word, text, end):
            end = taken = end + 1
            word += "."
        tokens.append(Token(start, end, word, word.lower()))
    return tokens


def _keeps_stop(word: str, text: str, end: int) -> bool:
    """Check whether the stop after a word is part of the word: an abbreviation, or the initial of a name."""
    if f"{word.lower()}." in ABBREVIATIONS:
        return True
    return bool(_INITIAL.match(word)) and word.isupper() and bool(_MORE.match(text, end + 1))
