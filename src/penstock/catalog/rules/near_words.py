"""Corrections of misspelt words, by edit distance. Pure.

The index itself is asked which of them it has. So the cost does not grow with the collection, and no list of
its words is needed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from penstock.catalog.rules.query_terms import HUMP

LEAST_LETTERS = 4
"""Shorter words have too many neighbours to know which was meant."""
MOST_LETTERS = 32
WORD_PIECES = 2
"""Pieces of most words that people use."""
_ALPHABETS = (
    "abcdefghijklmnopqrstuvwxyz",
    "αβγδεζηθικλμνξοπρστυφχψω",
    "абвгдеёжзийклмнопрстуфхцчшщъыьэюяіїєґ",
)
_LETTERS = re.compile(r"[^\W\d_]+")


def is_correctable(word: str) -> bool:
    """Decide whether a word may be misspelt: letters only, and neither a compound nor an abbreviation."""
    return (
        LEAST_LETTERS <= len(word) <= MOST_LETTERS
        and word.isalpha()
        and not word.isupper()
        and len(HUMP.split(word)) == 1
        and any(letter in alphabet for alphabet in _ALPHABETS for letter in word.lower())
    )


def is_likelier(instead: str, word: str, count_pieces: Callable[[str], int]) -> bool:
    """Decide whether a word is a misspelling of another one, and not merely missing from the documents.

    ``count_pieces``: pieces of a word in the vocabulary of a language model. Words that people use are of one
    or two, and a wrong letter breaks them into more: see decision 0049.
    """
    pieces, fewer = count_pieces(word.lower()), count_pieces(instead)
    return fewer < pieces or (fewer == pieces > WORD_PIECES)


def may_be_misspelt(word: str, count_pieces: Callable[[str], int]) -> bool:
    """Decide whether a word can be a misspelling. A word of one piece is never one."""
    return count_pieces(word.lower()) > 1


def neighbours(word: str) -> list[str]:
    """All strings one edit away: two letters swapped, or a letter left out, replaced or added; sorted."""
    word = word.lower()
    alphabet = next(letters for letters in _ALPHABETS if any(letter in letters for letter in word))
    return sorted(set(_edits(word, alphabet)) - {word})


def _edits(word: str, alphabet: str) -> Iterator[str]:
    for at in range(len(word) + 1):
        before, after = word[:at], word[at:]
        if after:
            yield before + after[1:]
        if len(after) > 1:
            yield before + after[1] + after[0] + after[2:]
        for letter in alphabet:
            yield before + letter + after
            if after:
                yield before + letter + after[1:]


def closest_word(word: str, texts: Iterable[str], otherwise: str) -> str:
    """Find the word of some texts with the smallest difference from a misspelt one.

    An index of stems says that a text has a word in some form; this is the form. ``otherwise`` is returned if
    no word is within two edits. Of equally close words the most frequent is taken, then the first by letters.
    """
    word = word.lower()
    counts = Counter(
        part.lower()
        for text in texts
        for found in _LETTERS.findall(text)
        for part in HUMP.split(found)
        if abs(len(part) - len(word)) <= 2
    )
    near = ((edit_distance(word, found), -count, found) for found, count in counts.items())
    edits, _, closest = min(near, default=(3, 0, otherwise))
    return closest if edits <= 2 else otherwise


def edit_distance(one: str, other: str) -> int:
    """Count the letters to leave out, add, replace or swap with a neighbour."""
    before: list[int] = []
    costs = list(range(len(other) + 1))
    for at, letter in enumerate(one, 1):
        before, last, costs = costs, before, [at]
        for to, wanted in enumerate(other, 1):
            cost = min(before[to] + 1, costs[to - 1] + 1, before[to - 1] + (letter != wanted))
            if at > 1 and to > 1 and one[at - 2 : at] == other[to - 2 : to][::-1]:
                cost = min(cost, last[to - 2] + 1)
            costs.append(cost)
    return costs[-1]
