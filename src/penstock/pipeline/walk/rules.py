"""Rules applied to one path: by name, place, size, and the ignore files above."""

from __future__ import annotations

import os
from collections.abc import Sequence

from penstock.named_tuple import NamedTuple
from penstock.pipeline.extract import file_types
from penstock.pipeline.walk import ignore_files
from penstock.pipeline.walk.ignore_files import Ignores
from penstock.pipeline.walk.patterns import PatternList
from penstock.pipeline.walk.protocol import Rule, Skipped, WalkRules
from penstock.pipeline.walk.repository import find_repository

STATE_DIR = ".penstock"
SETTINGS_FILE = "penstock.toml"
"""Skipped like a password file: the URL of a store in it may have a password."""
_VCS_DIRECTORIES = frozenset([".git", ".hg", ".svn", ".jj", "CVS"])
_GENERATED = frozenset(["node_modules", "bower_components", "__pycache__", "site-packages"])
_SECRET_NAMES = frozenset(["id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", ".env", ".netrc", SETTINGS_FILE])
_SECRET_SUFFIXES = (".pem", ".key", ".kdbx")
_SECRET_PREFIX = ".env."


class Directory(NamedTuple):
    """One open directory of a walk. ``names``: entries still to visit, last first."""

    path: str
    """Relative to the root, ending in ``/``; the root itself is ``""``."""
    names: list[str]
    ignores: Ignores
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
        above = ignore_files.ignores_above(
            self._top_directory, self.root, use_gitignore=self._rules.use_gitignore
        )
        return self.enter("", names, above, 1, cursor, opened=opened)

    def enter(
        self,
        path: str,
        names: list[str],
        ignores: Ignores,
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

    def _ignored(self, ignores: Ignores, path: str) -> Skipped | None:
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
