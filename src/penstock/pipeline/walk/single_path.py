"""Rules for single paths: the same decisions as a walk, without walking."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from penstock.pipeline.walk.no_links import open_folder
from penstock.pipeline.walk.protocol import Skipped, WalkRules
from penstock.pipeline.walk.rules import Directory, PathRules, list_names


class SinglePathRules:
    """Decides by names, ignore files and links from the root down. The path itself need not exist."""

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
