"""What PostgreSQL's parser is given to read: words and nothing else.

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
    found = (searchable(phrase).split() for phrase in phrases(query))
    return [" <-> ".join(f"'{word}'" for word in words) for words in found if words]


_BRACKET = re.compile(r"\[([!^]?+)(.[^\]]*)\]", re.DOTALL)
_MEMBER = re.compile(r"(.)(?:-(.))?", re.DOTALL)
_NOTHING = "$x"
"""Matches no path."""


def expression(glob: str) -> str:
    """A regular expression of PostgreSQL that matches the same paths."""
    made = []
    place = 0
    closed = glob.rfind("]")
    while place < len(glob):
        one = glob[place]
        if one == "[" and place + 1 < closed:
            bracket = _BRACKET.match(glob, place)
            if bracket is None:  # the only bracket after it is one of its characters
                return _NOTHING
            made.append(_some(bracket[1], bracket[2]))
            place = bracket.end()
            continue
        made.append({"*": ".*", "?": "."}.get(one) or _literal(one))
        place += 1
    return f"^{''.join(made)}$"


def _some(negation: str, inside: str) -> str:
    """One of the characters between brackets, the first of which may be a bracket."""
    allowed = ""
    for low, high in _MEMBER.findall(inside):
        if not high:
            allowed += _literal(low)
        elif low <= high:
            allowed += f"{_literal(low)}-{_literal(high)}"
    if not allowed:
        return "." if negation else _NOTHING
    return f"[{'^' if negation else ''}{allowed}]"


def _literal(one: str) -> str:
    return one if one.isalnum() or not one.isascii() else "\\" + one
