"""Words of queries and texts: search terms, what a keyword index is given, and misspelt words. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, lru_cache

import msgspec

from penstock.strict_json import normalized

MOST_TERMS = 64
_MOST_REPEATS = 3
_MOST_WORDS_BESIDE = 8
"""Words beside quoted phrases up to which the phrases are required."""
_ASCII = {code: " " for code in range(128) if not chr(code).isalnum()}
_ACCENTS = "[\u0300-\u036f]+"
_BETWEEN = r"[\W_]+"
_AFTER_HUMP = r"[A-Z](?:(?<=[a-z0-9][A-Z])|(?<=[A-Z][A-Z])(?=[a-z]))"
"""The letters after the places of ``humps``. A pattern that begins with letters is found much faster."""
_ASCII_WORD = r"[A-Za-z0-9]+"
_WITHOUT_SPACES = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\uff66-\uff9f\U00020000-\U0003ffff"
)
"""Characters of scripts written without spaces: Thai, Lao, Myanmar, Khmer, kana and Han."""
_UNSPACED = f"[{_WITHOUT_SPACES}]+"
# Vowel signs of Thai are no word characters to Python.
_PART = rf'"([^"]*)"|([\w{_WITHOUT_SPACES}]+)|(\S)'

STOP_WORDS = frozenset(
    "a about above after again against all am an and any are as at be been before being below between "
    "both but by can could did do does down during each few for from further had has have he her here "
    "his how i if in into is it its just may me might more most must my no not now of off on only or "
    "other our out over own same shall she should so some such than that the their then there these "
    "they this through to too under up very was we were what when where which who whom why will with "
    "would you your".split()
)
"""Words of a question that say nothing of what is asked for. Inside quotes they count."""


@cache
def humps() -> re.Pattern[str]:
    """The places where a name such as ``parseHTTPHeader`` is split into words."""
    return re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def keyword_text(text: str) -> str:
    """Text for a keyword index: the text, then the parts of compound words.

    The indexes know words between spaces and signs. So ``maxHeaderSize`` adds its three words, and a run of a
    script without spaces adds its overlapping pairs of characters. Nothing else is added.
    """
    added = _humped_parts(text) if re.search(_AFTER_HUMP, text) else []
    if not text.isascii():
        added += [pair for run in re.findall(_UNSPACED, text) for pair in _pairs(run)]
    return f"{text}\n{' '.join(added)}" if added else text


def is_indexed_as_it_is(text: str) -> bool:
    """Check whether ``keyword_text`` would add nothing to a text, without calling the function."""
    return not re.search(_AFTER_HUMP, text) and (text.isascii() or not re.search(_UNSPACED, text))


def _humped_parts(text: str) -> list[str]:
    # Each word is looked at once: a pattern of words with humps in them would try every part of a long word.
    words = [word for word in re.findall(_ASCII_WORD, text) if not word[1:].islower()]
    return [part for word in words if len(parts := humps().split(word)) > 1 for part in parts]


def _pairs(run: str) -> list[str]:
    return [run[at : at + 2] for at in range(len(run) - 1)] or [run]


def _index_terms(word: str) -> list[str]:
    """Words and phrases that a text with this word has in a keyword index; see ``keyword_text``."""
    if word.isascii():
        return humps().split(word)
    runs = [" ".join(_pairs(run)) for run in re.findall(_UNSPACED, word)]
    return [*runs, *(rest for rest in re.split(_UNSPACED, word) if len(rest) > 1)] if runs else [word]


def phrases(query: str) -> list[str]:
    """Single words and phrases, any of which may match, in the order of the query.

    Words asked for more than once count more than once. Words of one letter or digit, and stop words, are
    left out as long as anything else is there.
    """
    asked = _asked(query)
    found = [term for word in asked.words for term in dict.fromkeys([*_whole(word), *_index_terms(word)])]
    return list(_bounded([*asked.quoted, *found]))


def quoted_phrases(query: str) -> list[str]:
    """The quoted phrases required in every hit of a query.

    None in a query of many other words: in a pasted sentence quotation marks are not meant for the search.
    """
    asked = _asked(query)
    return asked.quoted[:MOST_TERMS] if asked.required else []


def query_words(query: str) -> dict[str, list[str]]:
    """Distinct words and quoted phrases of a query, in lower case, each with the terms in a keyword index.

    A text has the word or the phrase if it has all of the terms.
    """
    asked = _asked(query)
    found = {phrase.lower(): [phrase] for phrase in asked.quoted}
    for word in asked.words:
        found.setdefault(word.lower(), _index_terms(word))
    return dict(list(found.items())[:MOST_TERMS])


def words_outside_quotes(query: str) -> list[str]:
    """Distinct unquoted words of a query, as written; without stop words."""
    written = (word for _, word, _ in re.findall(_PART, query) if word)
    return list(dict.fromkeys(filter(_tells, written)))


def with_words(query: str, instead: Mapping[str, str]) -> str:
    """Replace unquoted words of a query."""
    return re.sub(_PART, lambda part: instead.get(part[2], part[0]), query)


class _Asked(msgspec.Struct, frozen=True):
    """Quoted phrases of a query, its words, and whether a hit must have the phrases."""

    quoted: list[str]
    words: list[str]
    required: bool


@lru_cache(16)
def _asked(query: str) -> _Asked:
    """Split a query. Where quoted phrases are not required, their words count beside them."""
    plain: list[str] = []
    every: list[str] = []
    quoted: list[str] = []
    for phrase, word, _ in re.findall(_PART, query.replace("\0", " ")):
        words = re.findall(r"\w+", phrase)[:MOST_TERMS]
        if words:
            quoted.append(" ".join(words))
        elif word:
            plain.append(word)
        every += words or ([word] if word else [])
    telling = list(filter(_tells, plain))
    if len(telling) > _MOST_WORDS_BESIDE:
        return _Asked(quoted, list(filter(_tells, every)), False)
    return _Asked(quoted, telling if quoted or telling else plain, True)


def _whole(word: str) -> list[str]:
    """The word itself, which a compound word is ranked by as well."""
    return [word] if word.isascii() else []


def _tells(word: str) -> bool:
    return len(word) > 1 and word.lower() not in STOP_WORDS


def _bounded(found: list[str]) -> Iterator[str]:
    """Limit a pasted page to the first terms."""
    seen: Counter[str] = Counter()
    for phrase in found[:MOST_TERMS]:
        seen[phrase.lower()] += 1
        if seen[phrase.lower()] <= _MOST_REPEATS:
            yield phrase


def searchable(text: str) -> str:
    """Text for PostgreSQL's parser: words and nothing else.

    By default the parser takes ``config.py`` for a host and ``a/b`` for a file, and keeps accents. SQLite's
    splits at every character other than a letter or digit, and removes accents. Doing the same here makes
    both engines find the same texts.
    """
    if text.isascii():
        return text.translate(_ASCII)
    folded = re.sub(_ACCENTS, "", normalized("NFKD", text)).lower()
    return re.sub(_BETWEEN, " ", normalized("NFKC", folded))


def as_terms(words: Iterable[str]) -> list[str]:
    """Words and phrases as queries of PostgreSQL; operators in them are not interpreted.

    Terms without a word for PostgreSQL's parser are left out.
    """
    return [term for word in words if (term := as_term(word))]


def as_term(phrase: str) -> str:
    """A word or phrase as a query of PostgreSQL; empty if its parser sees no word in it."""
    return " <-> ".join(f"'{word}'" for word in searchable(phrase).split())


_LEAST_LETTERS = 4
"""Shorter words have too many neighbours to know which was meant."""
_MOST_LETTERS = 32
WORD_PIECES = 2
"""Pieces of most words that people use."""
_ALPHABETS = (
    "abcdefghijklmnopqrstuvwxyz",
    "αβγδεζηθικλμνξοπρστυφχψω",
    "абвгдеёжзийклмнопрстуфхцчшщъыьэюяіїєґ",
)
_LETTERS = r"[^\W\d_]+"


def is_correctable(word: str) -> bool:
    """Decide whether a word may be misspelt: letters only, and neither a compound nor an abbreviation."""
    return (
        _LEAST_LETTERS <= len(word) <= _MOST_LETTERS
        and word.isalpha()
        and not word.isupper()
        and len(humps().split(word)) == 1
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
    """All strings one edit away: two letters swapped, or a letter left out, replaced or added; sorted.

    The index itself is asked which of them it has. So the cost does not grow with the collection, and no list
    of its words is needed.
    """
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
        for found in re.findall(_LETTERS, text)
        for part in humps().split(found)
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
