"""Suggestions for an unknown name: similar short names of entities."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher

LOOKED_AT = 2_000
"""Names compared with one name, in their order."""
_LIKE = 0.7
_LONGEST = 64
"""Characters of a name that are compared. A comparison takes time that grows with their square."""
_AFTER_ALL = "\U0010ffff"


def asked_names(name: str) -> list[str]:
    """The name in comparable form, and the last part of a dotted name or a path."""
    whole = " ".join(name.split()).casefold()
    last = re.split(r"[./#]", whole)[-1]
    return [part[:_LONGEST] for part in dict.fromkeys((whole, last)) if part]


def beginnings(asked: Sequence[str]) -> list[tuple[str, str]]:
    """Ranges of names to look at: those with the first letters, and those with the first letter only."""
    starts = dict.fromkeys(name[:length] for name in asked for length in (3, 1))
    return [(start, start + _AFTER_ALL) for start in starts]


def most_alike(asked: Sequence[str], names: Iterable[str], limit: int) -> list[str]:
    """Names starting with a wanted one, the shortest first; then names with similar letters."""
    found: dict[str, tuple[float, int, str]] = {}
    for wanted in asked:
        matcher = SequenceMatcher(b=wanted, autojunk=False)
        for name in names:
            if name.startswith(wanted):
                found[name] = min((0.0, len(name), name), found.get(name, (2.0, 0, "")))
            elif abs(len(name) - len(wanted)) <= 3:
                matcher.set_seq1(name)
                if matcher.quick_ratio() >= _LIKE and (ratio := matcher.ratio()) >= _LIKE:
                    found[name] = min((1 - ratio, len(name), name), found.get(name, (2.0, 0, "")))
    return sorted(found, key=found.__getitem__)[:limit]
