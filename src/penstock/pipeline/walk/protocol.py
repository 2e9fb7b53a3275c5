"""What a walk is told and what it reports."""

from __future__ import annotations

import enum
from typing import TypeAlias

import msgspec


class Rule(enum.StrEnum):
    """Why a path is not indexed. The words are shown by `penstock why` and kept in the ledger."""

    GITIGNORE = "gitignore"
    PENSTOCKIGNORE = "penstockignore"
    HIDDEN = "hidden"
    BINARY = "binary"
    UNSUPPORTED = "unsupported"
    CODE = "code"
    GENERATED = "generated"
    SECRET = "secret"
    TOO_LARGE = "too_large"
    TOO_DEEP = "too_deep"
    EXCLUDED = "excluded"
    NOT_INCLUDED = "not_included"
    LINK_OUTSIDE = "link_outside"
    LINK_BROKEN = "link_broken"
    LINK_REPEATED = "link_repeated"
    SPECIAL = "special"
    NAME = "name"
    STATE = "state"
    REPOSITORY = "repository"

    @property
    def meaning(self) -> str:
        return _MEANINGS[self]


_MEANINGS = {
    Rule.GITIGNORE: "a .gitignore leaves it out",
    Rule.PENSTOCKIGNORE: "a .penstockignore leaves it out",
    Rule.HIDDEN: "its name begins with a dot",
    Rule.BINARY: "its type is one that holds no text",
    Rule.UNSUPPORTED: "its type cannot be read yet",
    Rule.CODE: "it is source code, and code was not asked for",
    Rule.GENERATED: "a tool made or installed it",
    Rule.SECRET: "its name is that of a key or password file",
    Rule.TOO_LARGE: "it is larger than the limit",
    Rule.TOO_DEEP: "it lies deeper than the walk may go",
    Rule.EXCLUDED: "an exclude pattern matches it",
    Rule.NOT_INCLUDED: "no include pattern matches it",
    Rule.LINK_OUTSIDE: "it is a link that leads out of the folder",
    Rule.LINK_BROKEN: "it is a link that leads nowhere",
    Rule.LINK_REPEATED: "it is a link to something the walk meets anyway",
    Rule.SPECIAL: "it is a pipe, socket or device",
    Rule.NAME: "its name is not valid UTF-8",
    Rule.STATE: "it is Penstock's own state",
    Rule.REPOSITORY: "it is the inside of a version control system",
}


BINDING = frozenset(
    {Rule.GITIGNORE, Rule.PENSTOCKIGNORE, Rule.LINK_OUTSIDE, Rule.LINK_BROKEN, Rule.LINK_REPEATED}
)
"""Rules that no request can turn off: what they leave out is not the folder's any more."""


class FoundFile(msgspec.Struct, frozen=True, gc=False):
    """A file worth reading. ``path`` is ``/``-separated and relative to the root."""

    path: str
    size: int
    mtime_ns: int


class Skipped(msgspec.Struct, frozen=True, gc=False):
    """A file or directory left out by a rule; nothing below a skipped directory is reported.

    Bytes of a name that are not UTF-8 are shown as ``\\xNN``.
    """

    path: str
    rule: Rule
    directory: bool = False
    detail: str = ""
    """Which pattern, limit or link, where the rule alone does not say."""


class Unreadable(msgspec.Struct, frozen=True, gc=False):
    """The system would not say what is here: whatever was known below ``path`` must be kept."""

    path: str
    reason: str
    code: str
    """As ``retry.classify`` gives it."""


class Repository(msgspec.Struct, frozen=True, gc=False):
    """A git repository inside the root: a submodule or a clone. It is walked like any directory."""

    path: str


Report: TypeAlias = FoundFile | Skipped | Unreadable | Repository


class WalkRules(msgspec.Struct, frozen=True, kw_only=True):
    """What to leave out. Patterns are globs as in .gitignore, relative to the root."""

    include: tuple[str, ...] = ()
    """When given, only files that match one of them."""
    exclude: tuple[str, ...] = ()
    include_code: bool = True
    hidden: bool = False
    """Also names that begin with a dot."""
    max_bytes: int = 64 * 1024 * 1024
    max_depth: int | None = None
    """1: only the files directly in the root. None: no limit."""
    use_gitignore: bool = True
    state_dirs: tuple[str, ...] = ()
    """Absolute paths of Penstock's own state, besides every ``.penstock``."""
