"""The walk: every file below a root that the rules let through, and every path they do not.

Lazy and in the order of the paths as texts, as a catalog keeps them: ``a-b`` comes before ``a/b``. Only the
directories on the way down are held in memory. Nothing is opened but directories and ignore files.
"""

from __future__ import annotations

import errno
import fnmatch
import os
import stat
from collections.abc import Iterator
from typing import NamedTuple

from pathspec import GitIgnoreSpec

from penstock import retry
from penstock.pipeline.extract import kinds
from penstock.pipeline.walk import ignoring
from penstock.pipeline.walk.ignoring import Ignores
from penstock.pipeline.walk.protocol import (
    Found,
    Report,
    Repository,
    Rule,
    Skipped,
    Unreadable,
    WalkRules,
)
from penstock.pipeline.walk.repository import find_repository

STATE_DIR = ".penstock"
_INSIDES = frozenset([".git", ".hg", ".svn", ".jj", "CVS"])
_GENERATED = frozenset(["node_modules", "bower_components", "__pycache__", "site-packages"])
_SECRETS = (
    "id_rsa",
    "id_dsa",
    "id_ecdsa",
    "id_ed25519",
    "*.pem",
    "*.key",
    "*.kdbx",
    ".env",
    ".env.*",
    ".netrc",
)


class _Directory(NamedTuple):
    """One level of the way down: what is still to be looked at, last first."""

    path: str
    """Relative to the root, with a ``/`` at the end; the root is ``""``."""
    names: list[str]
    ignores: Ignores
    depth: int


def walk(root: str, rules: WalkRules | None = None, *, after: str | None = None) -> Iterator[Report]:
    """Reports in order. ``after`` is a path once reported: what comes up to it is passed over.

    Raises OSError when the root itself is not a directory that can be listed.
    """
    return _Walk(os.path.realpath(root), rules or WalkRules()).reports(after)


class _Walk:
    def __init__(self, root: str, rules: WalkRules) -> None:
        self._root = root
        self._rules = rules
        self._include = _patterns(rules.include)
        self._exclude = _patterns(rules.exclude)
        self._by_suffix: dict[str, Rule | None] = {}
        self._states = frozenset(os.path.realpath(path) for path in rules.state_dirs)
        top = find_repository(root) if rules.use_gitignore else None
        self._top = top.root if top else root
        # Ignore files count from the repository's top, reports from the root.
        self._above = "" if root == self._top else os.path.relpath(root, self._top) + "/"

    def reports(self, after: str | None) -> Iterator[Report]:
        above = ignoring.from_above(self._top, self._root, use_gitignore=self._rules.use_gitignore)
        names = _names(self._root)
        way = [self._entered("", names, above, 1, after.split("/") if after else [])]
        cursor = after.split("/") if after else []
        while way:
            directory = way[-1]
            if not directory.names:
                way.pop()
                continue
            entry = directory.names.pop()
            if not cursor and not entry.endswith("/"):
                # Nearly all there is to do: a file more.
                report = self._not_a_directory(directory, entry, way)
                if report is not None:
                    yield report
                continue
            name = entry.rstrip("/")
            on_the_way = len(cursor) > directory.depth and cursor[directory.depth - 1] == name
            if not on_the_way:
                cursor = []
            for report in self._entry(directory, name, way, cursor):
                if not on_the_way:
                    yield report

    def _entered(
        self, path: str, names: list[str], ignores: Ignores, depth: int, cursor: list[str]
    ) -> _Directory:
        full = os.path.join(self._root, path) if path else self._root
        ignores = ignores.entering(full, self._above + path, names, use_gitignore=self._rules.use_gitignore)
        if len(cursor) > depth:
            names = [name for name in names if name >= cursor[depth - 1] + "/"]
        elif len(cursor) == depth:
            names = [
                name for name in names if name.rstrip("/") != cursor[depth - 1] and name > cursor[depth - 1]
            ]
        names.sort(reverse=True)
        return _Directory(path, names, ignores, depth)

    def _entry(
        self, directory: _Directory, name: str, way: list[_Directory], cursor: list[str]
    ) -> Iterator[Report]:
        path = directory.path + name
        if not _is_utf8(name):
            yield Skipped(os.fsencode(path).decode("utf-8", "backslashreplace"), Rule.NAME)
            return
        try:
            found = os.lstat(f"{self._root}/{path}")
        except OSError as error:
            if error.errno != errno.ENOENT:  # it vanished since its directory was listed
                yield _unreadable(path, error)
            return
        if stat.S_ISDIR(found.st_mode):
            yield from self._directory(directory, path, way, cursor)
        else:
            yield self._file(directory, name, path, found)

    def _not_a_directory(self, directory: _Directory, name: str, way: list[_Directory]) -> Report | None:
        """As ``_entry`` does, for what was none when it was listed."""
        path = directory.path + name
        try:
            found = os.lstat(f"{self._root}/{path}")
        except OSError:
            found = None
        if found is not None and stat.S_ISREG(found.st_mode) and name.isascii():
            size = found.st_size
            return self._skipped_file(directory, name, path, size) or Found(path, size, found.st_mtime_ns)
        return next(self._entry(directory, name, way, []), None)

    def _file(self, directory: _Directory, name: str, path: str, found: os.stat_result) -> Report:
        if stat.S_ISREG(found.st_mode):
            return self._skipped_file(directory, name, path, found.st_size) or Found(
                path, found.st_size, found.st_mtime_ns
            )
        if stat.S_ISLNK(found.st_mode):
            return self._link(path, f"{self._root}/{path}")
        return Skipped(path, Rule.SPECIAL)

    def _directory(
        self, parent: _Directory, path: str, way: list[_Directory], cursor: list[str]
    ) -> Iterator[Report]:
        skipped = self._skipped_directory(parent, path)
        if skipped is not None:
            yield skipped
            return
        try:
            names = _names(f"{self._root}/{path}")
        except OSError as error:
            if error.errno != errno.ENOENT:
                yield _unreadable(path, error)
            return
        if "pyvenv.cfg" in names:
            yield Skipped(path, Rule.GENERATED, True, "a Python environment")
            return
        if ".git" in names or ".git/" in names:
            yield Repository(path)
        way.append(self._entered(path + "/", names, parent.ignores, parent.depth + 1, cursor))

    def _skipped_directory(self, parent: _Directory, path: str) -> Skipped | None:
        name = path.rpartition("/")[2]
        if name == STATE_DIR or f"{self._root}/{path}" in self._states:
            return Skipped(path, Rule.STATE, True)
        if name in _INSIDES:
            return Skipped(path, Rule.REPOSITORY, True)
        if name.startswith(".") and not self._rules.hidden:
            return Skipped(path, Rule.HIDDEN, True)
        if name in _GENERATED:
            return Skipped(path, Rule.GENERATED, True)
        ignored = self._ignored(parent.ignores, path + "/")
        if ignored is not None:
            return ignored
        if self._rules.max_depth is not None and parent.depth >= self._rules.max_depth:
            return Skipped(path, Rule.TOO_DEEP, True, f"more than {self._rules.max_depth} levels")
        return None

    def _skipped_file(self, parent: _Directory, name: str, path: str, size: int) -> Skipped | None:
        by_name = self._rule_of_name(name)
        if by_name is not None:
            return Skipped(path, by_name)
        if parent.ignores.files or self._exclude is not None:
            ignored = self._ignored(parent.ignores, path)
            if ignored is not None:
                return ignored
        if self._include is not None and not self._include.match_file(path):
            return Skipped(path, Rule.NOT_INCLUDED)
        if size > self._rules.max_bytes:
            return Skipped(
                path, Rule.TOO_LARGE, False, f"{size:,} bytes; the limit is {self._rules.max_bytes:,}"
            )
        return None

    def _rule_of_name(self, name: str) -> Rule | None:
        head, _, suffix = name.rpartition(".")
        if not head or name[0] == "." or kinds.known_by_whole_name(name):
            return self._rule_of_whole_name(name)
        try:
            return self._by_suffix[suffix]
        except KeyError:
            # The same for all files of a suffix: worked out once.
            rule = self._by_suffix[suffix] = self._rule_of_whole_name(f"x.{suffix}")
            return rule

    def _rule_of_whole_name(self, name: str) -> Rule | None:
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in _SECRETS):
            return Rule.SECRET
        if name.startswith(".") and not self._rules.hidden:
            return Rule.HIDDEN
        if kinds.is_binary_name(name):
            return Rule.BINARY
        if kinds.is_unreadable_name(name):
            return Rule.UNSUPPORTED
        if not self._rules.include_code and kinds.is_code_name(name):
            return Rule.CODE
        return None

    def _ignored(self, ignores: Ignores, path: str) -> Skipped | None:
        shown, directory = path.rstrip("/"), path.endswith("/")
        ignored = ignores.verdict(self._above + path)
        if ignored is not None:
            return Skipped(shown, ignored.rule, directory, ignored.pattern)
        if self._exclude is not None and self._exclude.match_file(path):
            return Skipped(shown, Rule.EXCLUDED, directory)
        return None

    def _link(self, path: str, full: str) -> Skipped:
        """No link is followed: what it leads to inside the root is met anyway, and once."""
        try:
            os.stat(full)
        except OSError as error:
            return Skipped(path, Rule.LINK_BROKEN, False, error.strerror or "")
        target = os.path.realpath(full)
        inside = target == self._root or target.startswith(self._root.rstrip("/") + "/")
        shown = os.fsencode(os.path.relpath(target, self._root) if inside else target)
        rule = Rule.LINK_REPEATED if inside else Rule.LINK_OUTSIDE
        return Skipped(path, rule, False, shown.decode("utf-8", "backslashreplace"))


def _patterns(globs: tuple[str, ...]) -> GitIgnoreSpec | None:
    return ignoring.compiled(globs) if globs else None


def _is_utf8(name: str) -> bool:
    if name.isascii():
        return True
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _unreadable(path: str, error: OSError) -> Unreadable:
    return Unreadable(path, error.strerror or str(error), retry.classify(error).code)


def _names(directory: str) -> list[str]:
    """What is in it. A directory's name ends in ``/``, so that names sort as the paths below them do."""
    with os.scandir(directory) as entries:
        return [entry.name + "/" if entry.is_dir(follow_symlinks=False) else entry.name for entry in entries]
