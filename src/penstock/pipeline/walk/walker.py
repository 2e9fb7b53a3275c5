"""The walk: reports the files below a root, and the paths skipped by a rule.

Lazy, and ordered by path as text, like the catalog: ``a-b`` comes before ``a/b``. Only the open directories
are held in memory. Only directories and ignore files are opened.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator

from penstock import retry
from penstock.pipeline.walk.protocol import (
    FoundFile,
    Report,
    Repository,
    Rule,
    Skipped,
    Unreadable,
    WalkRules,
)
from penstock.pipeline.walk.rules import Directory, PathRules, list_names


def walk(root: str, rules: WalkRules | None = None, *, after: str | None = None) -> Iterator[Report]:
    """Walk a root and report in order. ``after``: continue behind a path reported earlier.

    Raises OSError if the root itself cannot be listed.
    """
    return _Walker(os.path.realpath(root), rules or WalkRules()).reports(after)


class _Walker(PathRules):
    def reports(self, after: str | None) -> Iterator[Report]:
        cursor = after.split("/") if after else []
        stack = [self.top(list_names(self.root), cursor)]
        while stack:
            directory = stack[-1]
            if not directory.names:
                stack.pop()
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
            found = os.lstat(f"{self.root}/{path}")
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
            found = os.lstat(f"{self.root}/{path}")
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
        try:
            names = list_names(f"{self.root}/{path}")
        except OSError as error:
            if error.errno != errno.ENOENT:
                yield _unreadable(path, error)
            return
        environment = self.skipped_environment(path, names)
        if environment is not None:
            yield environment
            return
        if ".git" in names or ".git/" in names:
            yield Repository(path)
        stack.append(self.enter(path + "/", names, parent.ignores, parent.depth + 1, cursor))


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
