"""Text for PostgreSQL's parser: words and nothing else.

Left to itself it takes ``config.py`` for a host, ``a/b`` for a file and keeps accents; SQLite's splits at
whatever is no letter or digit and folds them. So that both find the same, that is done here.
"""

from __future__ import annotations

import re

from penstock.catalog.rules.query_terms import phrases
from penstock.normal_form import normalized

_ASCII = {code: " " for code in range(128) if not chr(code).isalnum()}
_ACCENTS = re.compile("[\u0300-\u036f]+")
_BETWEEN = re.compile(r"[\W_]+")


def searchable(text: str) -> str:
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
