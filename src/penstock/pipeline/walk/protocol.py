"""Rules and reports of a walk."""

from __future__ import annotations

import enum
from typing import TypeAlias

import msgspec


class Rule(enum.StrEnum):
    """Reasons to skip a path. The values are shown by `penstock why` and stored in the ledger."""

    GITIGNORE = "gitignore"
    PENSTOCKIGNORE = "penstockignore"
    HIDDEN = "hidden"
    BINARY = "binary"
    ARCHIVE = "archive"
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
    # Of web pages.
    ROBOTS = "robots"
    NOINDEX = "noindex"
    OTHER_HOST = "other_host"
    OTHER_FOLDER = "other_folder"
    PAGE_LIMIT = "page_limit"
    QUERY = "query"
    REDIRECT = "redirect"
    CANONICAL = "canonical"
    GONE = "gone"
    MEDIA_TYPE = "media_type"

    @property
    def meaning(self) -> str:
        return _MEANINGS[self]


_MEANINGS = {
    Rule.GITIGNORE: "a .gitignore excludes it",
    Rule.PENSTOCKIGNORE: "a .penstockignore excludes it",
    Rule.HIDDEN: "its name begins with a dot",
    Rule.BINARY: "files of its type hold no text",
    Rule.ARCHIVE: "it is an archive, opened only with `penstock index --archives`",
    Rule.UNSUPPORTED: "its type cannot be read yet",
    Rule.CODE: "it is source code, and the request is without code",
    Rule.GENERATED: "a tool made or installed it",
    Rule.SECRET: "its name is typical of a key or password file",
    Rule.TOO_LARGE: "it is larger than the limit",
    Rule.TOO_DEEP: "it is deeper than the depth limit",
    Rule.EXCLUDED: "an exclude pattern matches it",
    Rule.NOT_INCLUDED: "no include pattern matches it",
    Rule.LINK_OUTSIDE: "it is a link to a place outside the folder",
    Rule.LINK_BROKEN: "it is a broken link",
    Rule.LINK_REPEATED: "it is a link to something inside the folder",
    Rule.SPECIAL: "it is a pipe, socket or device",
    Rule.NAME: "its name is not valid UTF-8",
    Rule.STATE: "it is Penstock's own state",
    Rule.REPOSITORY: "it belongs to a version control system",
    Rule.ROBOTS: "the robots.txt of its host forbids it",
    Rule.NOINDEX: "the page asks not to be indexed",
    Rule.OTHER_HOST: "it is on a host that the request does not name",
    Rule.OTHER_FOLDER: "it lies outside the folder of the documentation",
    Rule.PAGE_LIMIT: "the crawl reached its limit of pages",
    Rule.QUERY: "its query is too long, or one of too many for the same page",
    Rule.REDIRECT: "it redirects to another page",
    Rule.CANONICAL: "it is a copy of another page",
    Rule.GONE: "the server does not have it",
    Rule.MEDIA_TYPE: "pages of its type hold no text that can be read",
}


BINDING = frozenset(
    {Rule.GITIGNORE, Rule.PENSTOCKIGNORE, Rule.LINK_OUTSIDE, Rule.LINK_BROKEN, Rule.LINK_REPEATED}
)
"""Rules that no request can turn off. A known source that they exclude is removed."""


class FoundFile(msgspec.Struct, frozen=True, gc=False):
    """A file to index. ``path`` is ``/``-separated and relative to the root."""

    path: str
    size: int
    mtime_ns: int


class Skipped(msgspec.Struct, frozen=True, gc=False):
    """A file or directory skipped by a rule. Nothing below a skipped directory is reported.

    Bytes of a name that are not UTF-8 are shown as ``\\xNN``.
    """

    path: str
    rule: Rule
    directory: bool = False
    detail: str = ""
    """The pattern, limit or link that applies."""


class Unreadable(msgspec.Struct, frozen=True, gc=False):
    """A path unreadable for the system. Known sources below must be kept."""

    path: str
    reason: str
    code: str
    """Error code from ``retry.classify``."""


class Repository(msgspec.Struct, frozen=True, gc=False):
    """A git repository inside the root: a submodule or a clone. Walked like any directory."""

    path: str


Report: TypeAlias = FoundFile | Skipped | Unreadable | Repository


class WalkRules(msgspec.Struct, frozen=True, kw_only=True):
    """Rules of a walk. Patterns are globs as in ``.gitignore``, relative to the root."""

    include: tuple[str, ...] = ()
    """If given, only files that match one of these patterns."""
    exclude: tuple[str, ...] = ()
    include_code: bool = True
    archives: bool = False
    """Include archives; their members become documents."""
    hidden: bool = False
    """Include names that begin with a dot."""
    max_bytes: int = 64 * 1024 * 1024
    """Limit for files that cannot be read in part."""
    max_depth: int | None = None
    """1: only the files directly in the root. None: no limit."""
    use_gitignore: bool = True
    state_dirs: tuple[str, ...] = ()
    """Absolute paths of Penstock's own state, besides every ``.penstock``."""
