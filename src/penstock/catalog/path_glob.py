"""Path globs of a search: ``*`` crosses slashes, ``?`` is a character, ``[a-c]`` and ``[^a-c]`` one of a set.

Each store matches them in time proportional to glob times path at most.
"""

from __future__ import annotations

import re
from functools import lru_cache

from penstock.errors import InvalidRequest
from penstock.lazy_pattern import lazy_pattern

LONGEST = 4_096
"""Characters; the longest path of a Linux system call."""

_BRACKET = lazy_pattern(r"\[([!^]?+)(.[^\]]*)\]", re.DOTALL)
_MEMBER = lazy_pattern(r"(.)(?:-(.))?", re.DOTALL)
_NOTHING = "$x"
"""Matches no path."""


def check(glob: str) -> None:
    """Refuse a glob longer than any path."""
    if len(glob) > LONGEST:
        raise InvalidRequest(
            f"the path filter has {len(glob):,} characters; the limit is {LONGEST:,}",
            remedy="Use a shorter glob, such as '*/guides/*'.",
        )


def posix_expression(glob: str) -> str:
    """The glob as a PostgreSQL regular expression; the matcher there does not backtrack."""
    return f"^{''.join('.*' if piece == '*' else piece for piece in _pieces(glob))}$"


@lru_cache(maxsize=64)
def compiled(glob: str) -> re.Pattern[str]:
    """A regular expression of Python for ``match``. No part between two stars is tried again once found."""
    parts = [""]
    for piece in _pieces(glob):
        if piece == "*":
            parts.append("")
        else:
            parts[-1] += piece
    first, *others = parts
    # Parts have a fixed length, so the first place of each leaves the most for the rest.
    between = "".join(f"(?>.*?{part})" for part in others[:-1])
    end = f".*{others[-1]}" if others else ""
    return re.compile(rf"{first}{between}{end}\Z", re.DOTALL)


def matches(glob: str | None, path: str | None) -> bool:
    """Check whether a path matches a glob. SQLite calls this function for ``path GLOB glob``."""
    return glob is not None and path is not None and compiled(glob).match(path) is not None


def _pieces(glob: str) -> list[str]:
    """Regular expressions of one character each, and ``*`` for one star or several in a row."""
    pieces: list[str] = []
    place = 0
    closed = glob.rfind("]")
    while place < len(glob):
        one = glob[place]
        if one == "[" and place + 1 < closed:
            bracket = _BRACKET.match(glob, place)
            if bracket is None:  # the only bracket after it is one of its characters
                return [_NOTHING]
            pieces.append(_some(bracket[1], bracket[2]))
            place = bracket.end()
            continue
        if one != "*":
            pieces.append("." if one == "?" else _literal(one))
        elif pieces[-1:] != ["*"]:
            pieces.append("*")
        place += 1
    return pieces


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
