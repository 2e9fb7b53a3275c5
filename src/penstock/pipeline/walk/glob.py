"""Globs of paths as git reads them, matched without backtracking, in time of at most glob times path."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from penstock.lazy_pattern import lazy_pattern

MAX_NAME = 1_024
"""No file system has longer names. A glob that needs a longer name matches nothing."""

_SPECIAL = lazy_pattern(r"[*?\[\\]")
_POSIX = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "blank": r" \t",
    "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": r"!-/:-@\[-`{-~",
    "space": r" \t\n\v\f\r",
    "upper": "A-Z",
    "xdigit": "0-9A-Fa-f",
}
_BRACKET = lazy_pattern(r"\[([!^]?)(\]?(?:\\.|\[:[a-z]*:\]|[^\]\\])*+)\]", re.DOTALL)
_MEMBER = lazy_pattern(r"\[:([a-z]*):\]|(\\.|[^\\])(?:-(\\.|[^\\\]]))?", re.DOTALL)


class InvalidGlob(ValueError):
    """A glob with an unclosed bracket or escape; matches nothing."""


class Segment:
    """A glob of one name, as the parts between stars: text, or regular expressions of fixed length."""

    __slots__ = ("_compiled", "_parts", "_shortest", "plain")

    def __init__(self, parts: Sequence[str], shortest: int, *, plain: bool) -> None:
        self._parts = parts
        self._shortest = shortest
        self.plain = plain
        """Check whether the glob has only text and stars."""
        self._compiled: re.Pattern[str] | None = None

    @property
    def text(self) -> str | None:
        """The only matching name; None if several names match."""
        return self._parts[0] if self.plain and len(self._parts) == 1 else None

    @property
    def suffix(self) -> str | None:
        """The suffix, if the glob is a star and a suffix."""
        return self._parts[1] if self.plain and len(self._parts) == 2 and not self._parts[0] else None

    def matches(self, name: str) -> bool:
        if len(name) < self._shortest or self._shortest > MAX_NAME:
            return False
        return self._matches_plain(name) if self.plain else self._expression().match(name) is not None

    def _matches_plain(self, name: str) -> bool:
        first, *between, last = self._parts if len(self._parts) > 1 else (*self._parts, "")
        if len(self._parts) == 1:
            return name == first
        start, stop = len(first), len(name) - len(last)
        if start > stop or not name.startswith(first) or not name.endswith(last):
            return False
        for part in between:
            place = name.find(part, start, stop)
            if place < 0:
                return False
            start = place + len(part)
        return True

    def _expression(self) -> re.Pattern[str]:
        if self._compiled is None:
            first, *others = self._parts
            # The first match of each part leaves the most for the rest, so backtracking is never needed.
            between = "".join(f"(?>.*?{part})" for part in others[:-1])
            end = f".*{others[-1]}" if others else ""
            self._compiled = re.compile(rf"{first}{between}{end}\Z", re.DOTALL)
        return self._compiled


Path: TypeAlias = "list[Segment | None]"
"""A glob of a path: one segment per name. None stands for ``**``, any number of names."""

ANY_NAME = Segment(("", ""), 0, plain=True)


def path_glob(written: str) -> Path:
    """Parse a glob; raises InvalidGlob."""
    if not _SPECIAL.search(written):
        return [Segment((name,), len(name), plain=True) for name in written.split("/")]
    segments: Path = []
    for pieces in _segments(written):
        if len(pieces) > 1 and all(piece == "*" for piece in pieces):
            if not segments or segments[-1] is not None:
                segments.append(None)
        else:
            segments.append(_segment(pieces))
    return segments


def matches_path(glob: Path, names: Sequence[str]) -> bool:
    """Check whether the whole path matches. A final ``**`` needs at least one name."""
    at = place = 0
    wild = tried = -1
    while place < len(names):
        segment = glob[at] if at < len(glob) else ANY_NAME
        if segment is None:
            if at == len(glob) - 1:
                return True
            wild, tried, at = at, place, at + 1
        elif at < len(glob) and segment.matches(names[place]):
            at, place = at + 1, place + 1
        elif wild >= 0:
            tried += 1
            at, place = wild + 1, tried
        else:
            return False
    return at == len(glob)


def _segments(written: str) -> Iterator[list[str]]:
    """Split at slashes; each segment is a list of characters, brackets and escapes."""
    pieces: list[str] = []
    place = 0
    while place < len(written):
        one = written[place]
        if one == "[":
            bracket = _BRACKET.match(written, place)
            if bracket is None:
                raise InvalidGlob(written)
            one = bracket[0]
        elif one == "\\":
            one = written[place : place + 2]
            if len(one) == 1:
                raise InvalidGlob(written)
        place += len(one)
        if one in ("/", "\\/"):
            yield pieces
            pieces = []
        else:
            pieces.append(one)
    yield pieces


def _segment(pieces: list[str]) -> Segment:
    plain = not any(piece == "?" or piece[0] == "[" for piece in pieces)
    parts: list[list[str]] = [[]]
    for piece in pieces:
        if piece != "*":
            parts[-1].append(piece[-1] if plain else _expression(piece))
        elif len(parts) == 1 or parts[-1]:
            parts.append([])
    shortest = sum(map(len, parts))
    return Segment(tuple(map("".join, parts)), shortest, plain=plain)


def _expression(piece: str) -> str:
    if piece == "?":
        return "."
    return _class_of(piece) if piece[0] == "[" else re.escape(piece[-1])


def _class_of(bracket: str) -> str:
    parsed = _BRACKET.fullmatch(bracket)
    if parsed is None:
        raise InvalidGlob(bracket)
    members = []
    for named, low, high in _MEMBER.findall(parsed[2]):
        if named or not low:
            if named not in _POSIX:
                raise InvalidGlob(bracket)
            members.append(_POSIX[named])
        elif high and low[-1] <= high[-1]:
            members.append(f"{re.escape(low[-1])}-{re.escape(high[-1])}")
        else:
            # For git, a descending range is its first character.
            members.append(re.escape(low[-1]))
    if not members:
        return "." if parsed[1] else r"[^\s\S]"
    return f"[{'^' if parsed[1] else ''}{''.join(members)}]"
