"""What PostgreSQL's parser is given to read: words and nothing else.

Left to itself it takes ``config.py`` for a host, ``a/b`` for a file and keeps accents; SQLite's splits at
whatever is no letter or digit and folds them. So that both find the same, that is done here.
"""

from __future__ import annotations

import re
import unicodedata

from penstock.catalog.wording import phrases

_ASCII = {code: " " for code in range(128) if not chr(code).isalnum()}
_ACCENTS = re.compile("[\u0300-\u036f]+")
_BETWEEN = re.compile(r"[\W_]+")


def searchable(text: str) -> str:
    if text.isascii():
        return text.translate(_ASCII)
    folded = _ACCENTS.sub("", unicodedata.normalize("NFKD", text)).lower()
    return _BETWEEN.sub(" ", unicodedata.normalize("NFKC", folded))


def terms(query: str) -> list[str]:
    """A person's words as queries of PostgreSQL, each a word or a phrase; nothing in them is an operator."""
    found = (searchable(phrase).split() for phrase in phrases(query))
    return [" <-> ".join(f"'{word}'" for word in words) for words in found if words]


def expression(glob: str) -> str:
    """A regular expression of PostgreSQL that matches the same paths."""
    made, rest = "", glob
    while rest:
        one, rest = rest[0], rest[1:]
        if one == "*":
            made += ".*"
        elif one == "?":
            made += "."
        elif one == "[" and "]" in rest[1:]:
            some, rest = _some(rest)
            made += some
        else:
            made += _literal(one)
    return f"^{made}$"


def _some(rest: str) -> tuple[str, str]:
    """One of the characters between brackets, the first of which may be a bracket; and what follows."""
    not_these = rest[0] in "^!"
    rest = rest[1:] if not_these else rest
    inside, _, after = rest[1:].partition("]")
    inside = rest[0] + inside
    allowed = ""
    while inside:
        if len(inside) > 2 and inside[1] == "-":
            if inside[0] <= inside[2]:
                allowed += f"{_literal(inside[0])}-{_literal(inside[2])}"
            inside = inside[3:]
        else:
            allowed += _literal(inside[0])
            inside = inside[1:]
    if not allowed:
        return "." if not_these else "$x", after
    return f"[{'^' if not_these else ''}{allowed}]", after


def _literal(one: str) -> str:
    return one if one.isalnum() or not one.isascii() else "\\" + one
