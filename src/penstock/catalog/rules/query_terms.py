"""Search terms of a user's query, the same for every engine, and the words of a text in PostgreSQL. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from penstock.normal_form import normalized

MOST_TERMS = 64
MOST_REPEATS = 3
_ASCII = {code: " " for code in range(128) if not chr(code).isalnum()}
_ACCENTS = re.compile("[\u0300-\u036f]+")
_BETWEEN = re.compile(r"[\W_]+")
_PART = re.compile(r'"([^"]*)"|(\w+)|(\S)')

STOP_WORDS = frozenset(
    "a about above after again against all am an and any are as at be been before being below between "
    "both but by can could did do does down during each few for from further had has have he her here "
    "his how i if in into is it its just may me might more most must my no not now of off on only or "
    "other our out over own same shall she should so some such than that the their then there these "
    "they this through to too under up very was we were what when where which who whom why will with "
    "would you your".split()
)
"""Words of a question that say nothing of what is asked for. Inside quotes they count."""


def phrases(query: str) -> list[str]:
    """Single words and phrases, any of which may match, in the order of the query.

    Words asked for more than once count more than once. Neighbouring words are also asked for as a phrase:
    "time sharing" says more than the two alone. Words of one letter or digit, and stop words, are left out as
    long as anything else is there.
    """
    quoted, words = _asked(query)
    return list(_bounded([*quoted, *(word for word in words if word), *_neighbours(words)]))


def query_words(query: str) -> list[str]:
    """Distinct words and quoted phrases of a query, in lower case: each is in a text or is not."""
    quoted, words = _asked(query)
    return list(dict.fromkeys(word.lower() for word in [*quoted, *words] if word))[:MOST_TERMS]


def _asked(query: str) -> tuple[list[str], list[str | None]]:
    """Quoted phrases and single words of a query; None stands for a word left out, or a phrase."""
    plain: list[str | None] = []
    quoted: list[str] = []
    for phrase, word, _ in _PART.findall(query.replace("\0", " ")):
        if phrase:
            words = re.findall(r"\w+", phrase)
            if words:
                quoted.append(" ".join(words[:MOST_TERMS]))
            plain.append(None)
        elif word:
            plain.append(word)
    telling = [word if word and _tells(word) else None for word in plain]
    return quoted, telling if quoted or any(telling) else plain


def _tells(word: str) -> bool:
    return len(word) > 1 and word.lower() not in STOP_WORDS


def _neighbours(words: list[str | None]) -> Iterator[str]:
    return (f"{one} {other}" for one, other in pairwise(words) if one and other)


def _bounded(found: list[str]) -> Iterator[str]:
    """Limit a pasted page to the first terms."""
    seen: Counter[str] = Counter()
    for phrase in found[:MOST_TERMS]:
        seen[phrase.lower()] += 1
        if seen[phrase.lower()] <= MOST_REPEATS:
            yield phrase


def searchable(text: str) -> str:
    """Text for PostgreSQL's parser: words and nothing else.

    Left to itself it takes ``config.py`` for a host, ``a/b`` for a file and keeps accents; SQLite's splits at
    whatever is no letter or digit and folds them. So that both find the same, that is done here.
    """
    if text.isascii():
        return text.translate(_ASCII)
    folded = _ACCENTS.sub("", normalized("NFKD", text)).lower()
    return _BETWEEN.sub(" ", normalized("NFKC", folded))


def terms(query: str) -> list[str]:
    """A person's words as queries of PostgreSQL, each a word or a phrase; nothing in them is an operator."""
    return [term for phrase in phrases(query) if (term := as_term(phrase))]


def as_term(phrase: str) -> str:
    """A word or phrase as a query of PostgreSQL; empty if its parser sees no word in it."""
    return " <-> ".join(f"'{word}'" for word in searchable(phrase).split())
