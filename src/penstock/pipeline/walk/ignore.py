"""Rules of a walk: what may skip a path, and why: names, globs, ignore files, places and sizes.

``Rule`` has the reasons. ``PathRules`` decides about one path; ``walker`` asks it for each path of a folder.
Globs are matched as git does, without backtracking, in time of at most glob times path.
"""

from __future__ import annotations

import enum
import logging
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from penstock.pipeline.extract import file_types
from penstock.pipeline.walk.no_links import open_folder
from penstock.pipeline.walk.repository import find_repository


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


MAX_NAME = 1_024
"""No file system has longer names. A glob that needs a longer name matches nothing."""

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
_BRACKET = r"(?s)\[([!^]?)(\]?(?:\\.|\[:[a-z]*:\]|[^\]\\])*+)\]"
_MEMBER = r"(?s)\[:([a-z]*):\]|(\\.|[^\\])(?:-(\\.|[^\\\]]))?"


class _InvalidGlob(ValueError):
    """A glob with an unclosed bracket or escape; matches nothing."""


class _Segment:
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


PathGlob: TypeAlias = "list[_Segment | None]"
"""A glob of a path: one segment per name. None stands for ``**``, any number of names."""

_ANY_NAME = _Segment(("", ""), 0, plain=True)


def _path_glob(written: str) -> PathGlob:
    """Parse a glob; raises InvalidGlob."""
    if not re.search(r"[*?\[\\]", written):
        return [_Segment((name,), len(name), plain=True) for name in written.split("/")]
    segments: PathGlob = []
    for pieces in _segments(written):
        if len(pieces) > 1 and all(piece == "*" for piece in pieces):
            if not segments or segments[-1] is not None:
                segments.append(None)
        else:
            segments.append(_segment(pieces))
    return segments


def _matches_path(glob: PathGlob, names: Sequence[str]) -> bool:
    """Check whether the whole path matches. A final ``**`` needs at least one name."""
    at = place = 0
    wild = tried = -1
    while place < len(names):
        segment = glob[at] if at < len(glob) else _ANY_NAME
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
            bracket = re.compile(_BRACKET).match(written, place)
            if bracket is None:
                raise _InvalidGlob(written)
            one = bracket[0]
        elif one == "\\":
            one = written[place : place + 2]
            if len(one) == 1:
                raise _InvalidGlob(written)
        place += len(one)
        if one in ("/", "\\/"):
            yield pieces
            pieces = []
        else:
            pieces.append(one)
    yield pieces


def _segment(pieces: list[str]) -> _Segment:
    plain = not any(piece == "?" or piece[0] == "[" for piece in pieces)
    parts: list[list[str]] = [[]]
    for piece in pieces:
        if piece != "*":
            parts[-1].append(piece[-1] if plain else _expression(piece))
        elif len(parts) == 1 or parts[-1]:
            parts.append([])
    shortest = sum(map(len, parts))
    return _Segment(tuple(map("".join, parts)), shortest, plain=plain)


def _expression(piece: str) -> str:
    if piece == "?":
        return "."
    return _class_of(piece) if piece[0] == "[" else re.escape(piece[-1])


def _class_of(bracket: str) -> str:
    parsed = re.fullmatch(_BRACKET, bracket)
    if parsed is None:
        raise _InvalidGlob(bracket)
    members = []
    for named, low, high in re.findall(_MEMBER, parsed[2]):
        if named or not low:
            if named not in _POSIX:
                raise _InvalidGlob(bracket)
            members.append(_POSIX[named])
        elif high and low[-1] <= high[-1]:
            members.append(f"{re.escape(low[-1])}-{re.escape(high[-1])}")
        else:
            # For git, a descending range is its first character.
            members.append(re.escape(low[-1]))
    if not members:
        return "." if parsed[1] else r"[^\s\S]"
    return f"[{'^' if parsed[1] else ''}{''.join(members)}]"


_NONE = -1
_MAX_CACHED = 1_000
"""Folders with a cached result."""


class Pattern(msgspec.Struct, frozen=True):
    """One pattern. With ``anywhere``, names in any folder match, not only paths from the list's folder."""

    written: str
    negated: bool
    folders_only: bool
    anywhere: bool
    glob: PathGlob


class _Last(msgspec.Struct, frozen=True):
    """Index of the last equal pattern, and of the last one for files as well."""

    of_any: int = _NONE
    of_files: int = _NONE

    def then(self, index: int, pattern: Pattern) -> _Last:
        return _Last(index, self.of_files if pattern.folders_only else index)

    def at(self, folder: bool) -> int:
        return self.of_any if folder else self.of_files


class PatternList:
    """Patterns as in ``.gitignore``: the last matching one decides.

    Names, paths and suffixes are looked up in tables: 100,000 of them cost no more per path than ten.
    """

    def __init__(self, lines: Iterable[str]) -> None:
        self.patterns = _with_folders_of_contents([found for line in lines for found in _parsed(line)])
        self._names: dict[str, _Last] = {}
        self._paths: dict[str, _Last] = {}
        self._endings: dict[str, _Last] = {}
        self._name_globs: list[tuple[int, Pattern, _Segment]] = []
        self._path_globs: list[tuple[int, Pattern]] = []
        self._of_folders: dict[str, int] = {"": _NONE}
        for index, pattern in enumerate(self.patterns):
            self._index(index, pattern)
        self._name_globs.reverse()
        self._path_globs.reverse()
        self._lengths = sorted({len(ending) for ending in self._endings})

    def __bool__(self) -> bool:
        return bool(self.patterns)

    def last(self, path: str) -> Pattern | None:
        """The last pattern for ``path``, otherwise the last one for a folder above.

        The path of a folder ends in ``/``.
        """
        folder = path.endswith("/")
        path = path.rstrip("/")
        index = self._last_of(path, folder)
        if index < 0:
            index = self._last_above(path)
        return self.patterns[index] if index >= 0 else None

    def matches(self, path: str) -> bool:
        found = self.last(path)
        return found is not None and not found.negated

    def _index(self, index: int, pattern: Pattern) -> None:
        only = pattern.glob[0] if pattern.anywhere else None
        if only is not None:
            if only.text is not None:
                self._names[only.text] = self._names.get(only.text, _Last()).then(index, pattern)
            elif only.suffix is not None:
                self._endings[only.suffix] = self._endings.get(only.suffix, _Last()).then(index, pattern)
            else:
                self._name_globs.append((index, pattern, only))
            return
        texts = [segment.text if segment is not None else None for segment in pattern.glob]
        if None in texts:
            self._path_globs.append((index, pattern))
            return
        path = "/".join(text or "" for text in texts)
        self._paths[path] = self._paths.get(path, _Last()).then(index, pattern)

    def _last_above(self, path: str) -> int:
        """Index of the last pattern for a folder above the path."""
        above = path.rpartition("/")[0]
        cached = self._of_folders.get(above)
        if cached is None:
            cached = max(self._last_of(above, True), self._last_above(above))
            if len(self._of_folders) > _MAX_CACHED:
                self._of_folders = {"": _NONE}
            self._of_folders[above] = cached
        return cached

    def _last_of(self, path: str, folder: bool) -> int:
        name = path.rpartition("/")[2]
        found = [
            self._names.get(name, _Last()).at(folder),
            self._paths.get(path, _Last()).at(folder) if self._paths else _NONE,
        ]
        for length in self._lengths:
            if length > len(name):
                break
            ending = self._endings.get(name[len(name) - length :])
            if ending is not None:
                found.append(ending.at(folder))
        return self._last_glob(path, name, folder, max(found))

    def _last_glob(self, path: str, name: str, folder: bool, found: int) -> int:
        for index, pattern, segment in self._name_globs:
            if index < found:
                break
            if (folder or not pattern.folders_only) and segment.matches(name):
                found = index
        names = path.split("/") if self._path_globs else []
        for index, pattern in self._path_globs:
            if index < found:
                break
            if (folder or not pattern.folders_only) and _matches_path(pattern.glob, names):
                return index
        return found


def _parsed(line: str) -> list[Pattern]:
    """Parse a line: one pattern, or none for a blank, comment or invalid line, as git does."""
    line = _without_spaces(line.removesuffix("\r"))
    if not line or line.startswith("#"):
        return []
    body = line.removeprefix("!")
    folders_only = body.endswith("/")
    body = body.removesuffix("/")
    anywhere = "/" not in body
    try:
        glob = _path_glob(body.removeprefix("/"))
    except _InvalidGlob:
        return []
    if not body or not glob:
        return []
    if anywhere and glob[0] is None:
        glob = [_ANY_NAME]
    return [Pattern(line, line.startswith("!"), folders_only, anywhere, glob)]


def _without_spaces(line: str) -> str:
    """Remove trailing spaces, except an escaped one."""
    stripped = line.rstrip(" ")
    escapes = len(stripped) - len(stripped.rstrip("\\"))
    return stripped + " " if escapes % 2 and len(stripped) < len(line) else stripped


def _with_folders_of_contents(patterns: list[Pattern]) -> list[Pattern]:
    """Add a pattern for the folder itself to ``build/**``, unless a later pattern is negated."""
    expanded: list[Pattern] = []
    negated_later = False
    for pattern in reversed(patterns):
        expanded.append(pattern)
        negated_later = negated_later or pattern.negated
        glob = pattern.glob
        if not (negated_later or pattern.folders_only) and len(glob) > 1 and glob[-1] is None:
            expanded.append(replace(pattern, folders_only=True, glob=glob[:-1]))
    return expanded[::-1]


FILES = ((".penstockignore", Rule.PENSTOCKIGNORE), (".gitignore", Rule.GITIGNORE))
"""A ``.penstockignore`` at any level takes precedence over all ``.gitignore`` files."""

_MAX_BYTES = 16 * 1024 * 1024
"""Bytes of an ignore file that are read."""

_MAX_SHOWN = 200
"""Characters of a pattern in the report of a path: a long one would be repeated for every path."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC

log = logging.getLogger("penstock.walk")


class Ignored(msgspec.Struct, frozen=True):
    rule: Rule
    pattern: str


class Patterns(msgspec.Struct, frozen=True):
    """One ignore file: the patterns, and their directory, ending in ``/`` except for the top."""

    patterns: PatternList
    below: str
    rule: Rule

    def verdict(self, path: str) -> Ignored | bool | None:
        """Decision on a path, which is relative to the top; directories end in ``/``. False: negated."""
        found = self.patterns.last(path[len(self.below) :])
        if found is None or found.negated:
            return None if found is None else False
        written = found.written
        if len(written) > _MAX_SHOWN:
            written = written[:_MAX_SHOWN] + "…"
        return Ignored(self.rule, f"{self.below}{_FILE_NAMES[self.rule]}: {written}")


_FILE_NAMES = {rule: name for name, rule in FILES}


class _Ignores(msgspec.Struct, frozen=True):
    """The ignore files for one directory, the nearest first."""

    files: tuple[Patterns, ...] = ()

    def verdict(self, path: str) -> Ignored | None:
        for rule in (Rule.PENSTOCKIGNORE, Rule.GITIGNORE):
            for patterns in self.files:
                if patterns.rule is rule:
                    verdict = patterns.verdict(path)
                    if verdict is not None:
                        # The nearest file with a matching pattern decides; a negation includes the path.
                        return verdict if isinstance(verdict, Ignored) else None
        return None

    def with_directory(
        self, directory: str, below: str, names: Iterable[str], *, use_gitignore: bool, opened: int
    ) -> _Ignores:
        """Add the ignore files among ``names`` of ``directory``, which is open with this descriptor."""
        present = {name.rstrip("/") for name in names}
        found = [
            patterns
            for name, rule in FILES
            if name in present and (use_gitignore or rule is not Rule.GITIGNORE)
            for patterns in _read((directory, name), below, rule, opened)
        ]
        if use_gitignore and ".git" in present:
            found += _read((directory, ".git", "info", "exclude"), below, Rule.GITIGNORE, opened)
        return _Ignores((*found, *self.files)) if found else self


def _ignores_above(top: str, root: str, *, use_gitignore: bool) -> _Ignores:
    """Ignore files of the directories from ``top`` down to ``root``, without ``root`` itself."""
    ignores = _Ignores()
    below = ""
    for part in Path(root).relative_to(top).parts:
        directory = os.path.join(top, below)
        with suppress(OSError):
            opened = open_folder(directory)
            try:
                names = os.listdir(opened)
                ignores = ignores.with_directory(
                    directory, below, names, use_gitignore=use_gitignore, opened=opened
                )
            finally:
                os.close(opened)
        below += part + "/"
    return ignores


def _read(place: tuple[str, ...], below: str, rule: Rule, opened: int) -> list[Patterns]:
    path = os.path.join(*place)
    try:
        with open(path, "rb", opener=lambda *_: _open(opened, *place[1:])) as file:
            read = file.read(_MAX_BYTES + 1)
    except (OSError, TypeError):  # a directory, or a pipe with nothing in it
        return []
    if len(read) > _MAX_BYTES:
        log.warning("%s: only the patterns in the first %s bytes are used", path, f"{_MAX_BYTES:,}")
        read = read[:_MAX_BYTES].rpartition(b"\n")[0]
    patterns = PatternList(read.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape").split("\n"))
    return [Patterns(patterns, below, rule)] if patterns else []


def _open(directory: int, *names: str) -> int:
    """Open a file below an open directory without following a link, which may lead to any file, as git does.

    Without blocking: an ignore file may be a pipe.
    """
    folder = os.open(".", _FOLDER, dir_fd=directory)
    try:
        for name in names[:-1]:
            inner = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
            os.close(folder)
            folder = inner
        return os.open(names[-1], os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    finally:
        os.close(folder)


STATE_DIR = ".penstock"
SETTINGS_FILE = "penstock.toml"
"""Skipped like a password file: the URL of a store in it may have a password."""
_VCS_DIRECTORIES = frozenset([".git", ".hg", ".svn", ".jj", "CVS"])
_GENERATED = frozenset(["node_modules", "bower_components", "__pycache__", "site-packages"])
_SECRET_NAMES = frozenset(["id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", ".env", ".netrc", SETTINGS_FILE])
_SECRET_SUFFIXES = (".pem", ".key", ".kdbx")
_SECRET_PREFIX = ".env."


class Directory(msgspec.Struct, frozen=True):
    """One open directory of a walk. ``names``: entries still to visit, last first."""

    path: str
    """Relative to the root, ending in ``/``; the root itself is ``""``."""
    names: list[str]
    ignores: _Ignores
    depth: int


class PathRules:
    """The rules of a walk, for paths below one root."""

    def __init__(self, root: str, rules: WalkRules) -> None:
        self.root = root
        self._rules = rules
        self._include = _patterns(rules.include)
        self._exclude = _patterns(rules.exclude)
        self._by_suffix: dict[str, Rule | None] = {}
        self._state_dirs = frozenset(os.path.realpath(path) for path in rules.state_dirs)
        top = find_repository(root) if rules.use_gitignore else None
        # A link in the place of a folder would lead to another repository.
        above = top is not None and (root + "/").startswith(top.root.rstrip("/") + "/")
        self._top_directory = top.root if top is not None and above else root
        # Ignore files are relative to the repository's top, reports to the root.
        self._prefix = "" if root == self._top_directory else os.path.relpath(root, self._top_directory) + "/"

    def top(self, names: list[str], cursor: Sequence[str] = (), *, opened: int | None) -> Directory:
        """Enter the root. ``opened``: a descriptor of the directory; None: it is not on the disk."""
        above = _ignores_above(self._top_directory, self.root, use_gitignore=self._rules.use_gitignore)
        return self.enter("", names, above, 1, cursor, opened=opened)

    def enter(
        self,
        path: str,
        names: list[str],
        ignores: _Ignores,
        depth: int,
        cursor: Sequence[str] = (),
        *,
        opened: int | None,
    ) -> Directory:
        if opened is not None:
            full = os.path.join(self.root, path) if path else self.root
            ignores = ignores.with_directory(
                full, self._prefix + path, names, use_gitignore=self._rules.use_gitignore, opened=opened
            )
        if len(cursor) > depth:
            names = [name for name in names if name >= cursor[depth - 1] + "/"]
        elif len(cursor) == depth:
            names = [
                name for name in names if name.rstrip("/") != cursor[depth - 1] and name > cursor[depth - 1]
            ]
        names.sort(reverse=True)
        return Directory(path, names, ignores, depth)

    def skipped_environment(self, path: str, names: Sequence[str]) -> Skipped | None:
        """Skip a Python environment, known by the file ``pyvenv.cfg``."""
        return Skipped(path, Rule.GENERATED, True, "a Python environment") if "pyvenv.cfg" in names else None

    def skipped_directory(self, parent: Directory, path: str) -> Skipped | None:
        if f"{self.root}/{path}" in self._state_dirs:
            return Skipped(path, Rule.STATE, True)
        by_name = rule_of_folder(path.rpartition("/")[2], self._rules)
        if by_name is not None:
            return Skipped(path, by_name, True)
        ignored = self._ignored(parent.ignores, path + "/")
        if ignored is not None:
            return ignored
        if self._rules.max_depth is not None and parent.depth >= self._rules.max_depth:
            return Skipped(path, Rule.TOO_DEEP, True, f"more than {self._rules.max_depth} levels")
        return None

    def skipped_file(self, parent: Directory, name: str, path: str, size: int) -> Skipped | None:
        by_name = self._rule_of_name(name)
        if by_name is not None:
            return Skipped(path, by_name)
        if parent.ignores.files or self._exclude is not None:
            ignored = self._ignored(parent.ignores, path)
            if ignored is not None:
                return ignored
        if self._include is not None and not self._include.matches(path):
            return Skipped(path, Rule.NOT_INCLUDED)
        if size > self._rules.max_bytes and not file_types.may_be_read_in_part(name):
            return Skipped(
                path, Rule.TOO_LARGE, False, f"{size:,} bytes; the limit is {self._rules.max_bytes:,}"
            )
        return None

    def _rule_of_name(self, name: str) -> Rule | None:
        key = file_types.type_key(name)
        if not key or key[0] == "/" or name[0] == "." or name == SETTINGS_FILE:
            return rule_of_name(name, self._rules)
        try:
            return self._by_suffix[key]
        except KeyError:
            # Computed once per suffix.
            rule = self._by_suffix[key] = rule_of_name(name, self._rules)
            return rule

    def _ignored(self, ignores: _Ignores, path: str) -> Skipped | None:
        shown, directory = path.rstrip("/"), path.endswith("/")
        ignored = ignores.verdict(self._prefix + path)
        if ignored is not None:
            return Skipped(shown, ignored.rule, directory, ignored.pattern)
        if self._exclude is not None and self._exclude.matches(path):
            return Skipped(shown, Rule.EXCLUDED, directory)
        return None

    def link(self, path: str, full: str) -> Skipped:
        """Report a link. Links are never followed: targets inside the root are visited anyway."""
        try:
            os.stat(full)
        except OSError as error:
            return Skipped(path, Rule.LINK_BROKEN, False, error.strerror or "")
        target = os.path.realpath(full)
        inside = target == self.root or target.startswith(self.root.rstrip("/") + "/")
        shown = os.fsencode(os.path.relpath(target, self.root) if inside else target)
        rule = Rule.LINK_REPEATED if inside else Rule.LINK_OUTSIDE
        return Skipped(path, rule, False, shown.decode("utf-8", "backslashreplace"))


def rule_of_name(name: str, rules: WalkRules) -> Rule | None:
    """The rule by which a name alone excludes a file, wherever the file lies."""
    if name in _SECRET_NAMES or name.endswith(_SECRET_SUFFIXES) or name.startswith(_SECRET_PREFIX):
        return Rule.SECRET
    if name.startswith(".") and not rules.hidden:
        return Rule.HIDDEN
    if file_types.is_binary_name(name):
        return Rule.BINARY
    if not rules.archives and file_types.is_archive_name(name):
        return Rule.ARCHIVE
    if file_types.is_unreadable_name(name):
        return Rule.UNSUPPORTED
    if not rules.include_code and file_types.is_code_name(name):
        return Rule.CODE
    return None


def rule_of_folder(name: str, rules: WalkRules) -> Rule | None:
    """The rule by which a name alone excludes a folder."""
    if name == STATE_DIR:
        return Rule.STATE
    if name in _VCS_DIRECTORIES:
        return Rule.REPOSITORY
    if name.startswith(".") and not rules.hidden:
        return Rule.HIDDEN
    return Rule.GENERATED if name in _GENERATED else None


def _patterns(globs: tuple[str, ...]) -> PatternList | None:
    return PatternList(globs) if globs else None


def list_names(directory: int) -> list[str]:
    """Names in an open directory. Subdirectories end in ``/``: names then sort like the paths below them."""
    with os.scandir(directory) as entries:
        return [entry.name + "/" if entry.is_dir(follow_symlinks=False) else entry.name for entry in entries]
