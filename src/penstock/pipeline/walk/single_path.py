"""What a walk would say of single paths, without being made."""

from __future__ import annotations

import os
import stat
from contextlib import suppress

from penstock.pipeline.walk.protocol import Skipped, WalkRules
from penstock.pipeline.walk.rules import Directory, PathRules, names_in


class SinglePathRules:
    """By names, ignore files and links on the way from the root. Nothing need be at the path itself."""

    def __init__(self, root: str, rules: WalkRules) -> None:
        self._judge = PathRules(os.path.realpath(root), rules)
        self._top = self._judge.top(self._names(""))
        self._judged: dict[str, Directory | Skipped] = {}

    def skipped(self, path: str, size: int = 0, *, folder: bool = False) -> Skipped | None:
        """``path`` is relative to the root. None: what is there is taken, or (``folder``) looked into."""
        *folders, name = path.split("/")
        if folder:
            folders.append(name)
        directory = self._top
        for part in folders:
            found = self._below(directory, part)
            if isinstance(found, Skipped):
                return found
            directory = found
        return None if folder else self._link(path) or self._judge.skipped_file(directory, name, path, size)

    def _below(self, parent: Directory, name: str) -> Directory | Skipped:
        path = parent.path + name
        found = self._judged.get(path)
        if found is None:
            found = self._judged[path] = self._entered(parent, path)
        return found

    def _entered(self, parent: Directory, path: str) -> Directory | Skipped:
        skipped = self._link(path) or self._judge.skipped_directory(parent, path)
        names = self._names(path)
        return (
            skipped
            or self._judge.skipped_environment(path, names)
            or self._judge.entered(path + "/", names, parent.ignores, parent.depth + 1)
        )

    def _names(self, path: str) -> list[str]:
        with suppress(OSError):
            return names_in(f"{self._judge.root}/{path}")
        return []

    def _link(self, path: str) -> Skipped | None:
        full = f"{self._judge.root}/{path}"
        with suppress(OSError):
            if stat.S_ISLNK(os.lstat(full).st_mode):
                return self._judge.link(path, full)
        return None
