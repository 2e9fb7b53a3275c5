"""Rules for single paths: the same decisions as a walk, without walking."""

from __future__ import annotations

import os
import stat
from contextlib import suppress

from penstock.pipeline.walk.protocol import Skipped, WalkRules
from penstock.pipeline.walk.rules import Directory, PathRules, list_names


class SinglePathRules:
    """Decides by names, ignore files and links from the root down. The path itself need not exist."""

    def __init__(self, root: str, rules: WalkRules) -> None:
        self._rules = PathRules(os.path.realpath(root), rules)
        self._top_directory = self._rules.top(self._names(""))
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
        names = self._names(path)
        return (
            skipped
            or self._rules.skipped_environment(path, names)
            or self._rules.enter(path + "/", names, parent.ignores, parent.depth + 1)
        )

    def _names(self, path: str) -> list[str]:
        with suppress(OSError):
            return list_names(f"{self._rules.root}/{path}")
        return []

    def _link(self, path: str) -> Skipped | None:
        full = f"{self._rules.root}/{path}"
        with suppress(OSError):
            if stat.S_ISLNK(os.lstat(full).st_mode):
                return self._rules.link(path, full)
        return None
