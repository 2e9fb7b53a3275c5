"""The walk: the files below a root and the paths skipped by a rule, or the same decision about one path.

Lazy, and ordered by path as text, like the catalog: ``a-b`` comes before ``a/b``. Only the open directories
are held in memory. Only directories and ignore files are opened, each by its name in the directory above: a
link put in the place of one leads nowhere, at any moment.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from penstock.pipeline.walk.ignore import (
    Directory,
    FoundFile,
    PathRules,
    Report,
    Repository,
    Rule,
    Skipped,
    Unreadable,
    WalkRules,
    list_names,
)
from penstock.pipeline.walk.no_links import BehindLink, open_folder, open_inner
from penstock.queue import retry

MOST_OPEN = 64
"""Directories on the way to the current one that are kept open."""
PATH_MAX = 4096
"""Bytes of a path that the system takes, with the byte at its end."""


def walk(root: str, rules: WalkRules | None = None, *, after: str | None = None) -> Iterator[Report]:
    """Walk a root and report in order. ``after``: continue behind a path reported earlier.

    The root has no links in it: paths are stored that way. Raises OSError if it cannot be listed, as
    ``BehindLink`` if a link has taken the place of a folder since.
    """
    return _Walker(os.path.abspath(root), rules or WalkRules()).reports(after)


class _OpenFolders:
    """Descriptors of the directories on the stack, of a deep tree those of the root and of the deepest."""

    def __init__(self, root: str) -> None:
        self.deepest = self._root = open_folder(root)
        self._opened: list[int | None] = [self._root]

    def enter(self, opened: int) -> None:
        self._opened.append(opened)
        self.deepest = opened
        above = len(self._opened) - MOST_OPEN
        if above > 0 and (spare := self._opened[above]) is not None:
            os.close(spare)
            self._opened[above] = None

    def leave(self, back_to: str) -> bool:
        """Close the deepest one; False if the one above had been closed, and is no longer there."""
        os.close(self.deepest)
        self._opened.pop()
        opened, there = self._opened[-1], True
        if opened is None:
            opened, there = self._again(back_to)
            self._opened[-1] = opened
        self.deepest = opened
        return there

    def _again(self, path: str) -> tuple[int, bool]:
        opened = os.dup(self._root)
        try:
            for name in filter(None, path.split("/")):
                inner = open_inner(name, opened)
                os.close(opened)
                opened = inner
        except OSError:
            return opened, False
        return opened, True

    def close(self) -> None:
        for opened in self._opened:
            if opened is not None:
                os.close(opened)


class _Walker(PathRules):
    def reports(self, after: str | None) -> Iterator[Report]:
        self._folders = _OpenFolders(self.root)
        try:
            yield from self._reports(after.split("/") if after else [])
        finally:
            self._folders.close()

    def _reports(self, cursor: list[str]) -> Iterator[Report]:
        top = self._folders.deepest
        stack = [self.top(list_names(top), cursor, opened=top)]
        while stack:
            directory = stack[-1]
            if not directory.names:
                stack.pop()
                if stack and not self._folders.leave(stack[-1].path):
                    stack[-1].names.clear()
                continue
            entry = directory.names.pop()
            if not cursor and not entry.endswith("/"):
                # The most frequent case: a file.
                report = self._not_a_directory(directory, entry, stack)
                if report is not None:
                    yield report
                continue
            name = entry.rstrip("/")
            on_the_way = len(cursor) > directory.depth and cursor[directory.depth - 1] == name
            if not on_the_way:
                cursor = []
            for report in self._entry(directory, name, stack, cursor):
                if not on_the_way:
                    yield report

    def _entry(
        self, directory: Directory, name: str, stack: list[Directory], cursor: list[str]
    ) -> Iterator[Report]:
        path = directory.path + name
        if not _is_utf8(name):
            yield Skipped(os.fsencode(path).decode("utf-8", "backslashreplace"), Rule.NAME)
            return
        try:
            found = os.stat(name, dir_fd=self._folders.deepest, follow_symlinks=False)
        except OSError as error:
            if error.errno != errno.ENOENT:  # ENOENT: deleted since its directory was listed
                yield _unreadable(path, error)
            return
        if stat.S_ISDIR(found.st_mode):
            yield from self._directory(directory, path, stack, cursor)
        else:
            yield self._file(directory, name, path, found)

    def _not_a_directory(self, directory: Directory, name: str, stack: list[Directory]) -> Report | None:
        """Like ``_entry``, for an entry listed as something else than a directory."""
        path = directory.path + name
        try:
            found = os.stat(name, dir_fd=self._folders.deepest, follow_symlinks=False)
        except OSError:
            found = None
        if found is not None and stat.S_ISREG(found.st_mode) and name.isascii():
            size = found.st_size
            return self.skipped_file(directory, name, path, size) or FoundFile(path, size, found.st_mtime_ns)
        return next(self._entry(directory, name, stack, []), None)

    def _file(self, directory: Directory, name: str, path: str, found: os.stat_result) -> Report:
        if stat.S_ISREG(found.st_mode):
            return self.skipped_file(directory, name, path, found.st_size) or FoundFile(
                path, found.st_size, found.st_mtime_ns
            )
        if stat.S_ISLNK(found.st_mode):
            return self.link(path, f"{self.root}/{path}")
        return Skipped(path, Rule.SPECIAL)

    def _directory(
        self, parent: Directory, path: str, stack: list[Directory], cursor: list[str]
    ) -> Iterator[Report]:
        skipped = self.skipped_directory(parent, path)
        if skipped is not None:
            yield skipped
            return
        opened: int | None = None
        try:
            opened = self._opened(path)
            names = list_names(opened)
        except OSError as error:
            if opened is not None:
                os.close(opened)
            if isinstance(error, BehindLink):
                yield self.link(path, f"{self.root}/{path}")
            elif error.errno != errno.ENOENT:
                yield _unreadable(path, error)
            return
        environment = self.skipped_environment(path, names)
        if environment is not None:
            os.close(opened)
            yield environment
            return
        entered = self.enter(path + "/", names, parent.ignores, parent.depth + 1, cursor, opened=opened)
        self._folders.enter(opened)
        stack.append(entered)
        if ".git" in names or ".git/" in names:
            yield Repository(path)

    def _opened(self, path: str) -> int:
        if len(os.fsencode(path)) + len(self.root) >= PATH_MAX:
            # Files below could be read by nobody who knows their path.
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
        return open_inner(path.rpartition("/")[2], self._folders.deepest)


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


class SinglePathRules:
    """The decisions of a walk about single paths, without walking.

    By names, ignore files and links from the root down. The path itself need not exist.
    """

    def __init__(self, root: str, rules: WalkRules) -> None:
        self._rules = PathRules(os.path.abspath(root), rules)
        with self._listed("") as (names, opened):
            self._top_directory = self._rules.top(names, opened=opened)
        self._visited: dict[str, Directory | Skipped] = {}

    def skipped(self, path: str, size: int = 0, *, folder: bool = False) -> Skipped | None:
        """The rule against a path (relative to the root); None: the file is indexed, or the folder walked."""
        *folders, name = path.split("/")
        if folder:
            folders.append(name)
        directory = self._top_directory
        for part in folders:
            found = self._below(directory, part)
            if isinstance(found, Skipped):
                return found
            directory = found
        return None if folder else self._link(path) or self._rules.skipped_file(directory, name, path, size)

    def _below(self, parent: Directory, name: str) -> Directory | Skipped:
        path = parent.path + name
        found = self._visited.get(path)
        if found is None:
            found = self._visited[path] = self._enter(parent, path)
        return found

    def _enter(self, parent: Directory, path: str) -> Directory | Skipped:
        skipped = self._link(path) or self._rules.skipped_directory(parent, path)
        if skipped is not None:
            return skipped
        with self._listed(path) as (names, opened):
            environment = self._rules.skipped_environment(path, names)
            return environment or self._rules.enter(
                path + "/", names, parent.ignores, parent.depth + 1, opened=opened
            )

    @contextmanager
    def _listed(self, path: str) -> Iterator[tuple[list[str], int | None]]:
        """The names in a directory and a descriptor; no names if it cannot be listed, or is behind a link."""
        opened: int | None = None
        names: list[str] = []
        try:
            with suppress(OSError):
                opened = open_folder(f"{self._rules.root}/{path}")
                names = list_names(opened)
            yield names, opened
        finally:
            if opened is not None:
                os.close(opened)

    def _link(self, path: str) -> Skipped | None:
        full = f"{self._rules.root}/{path}"
        with suppress(OSError):
            if stat.S_ISLNK(os.lstat(full).st_mode):
                return self._rules.link(path, full)
        return None
