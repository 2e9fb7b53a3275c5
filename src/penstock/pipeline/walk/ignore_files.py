"""Ignore files: which files apply in a directory, and whether a path is ignored."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from penstock.named_tuple import NamedTuple
from penstock.pipeline.walk.no_links import open_folder
from penstock.pipeline.walk.patterns import PatternList
from penstock.pipeline.walk.protocol import Rule

FILES = ((".penstockignore", Rule.PENSTOCKIGNORE), (".gitignore", Rule.GITIGNORE))
"""A ``.penstockignore`` at any level takes precedence over all ``.gitignore`` files."""

_MAX_BYTES = 16 * 1024 * 1024
"""Bytes of an ignore file that are read."""

_MAX_SHOWN = 200
"""Characters of a pattern in the report of a path: a long one would be repeated for every path."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC

log = logging.getLogger("penstock.walk")


class Ignored(NamedTuple):
    rule: Rule
    pattern: str


class Patterns(NamedTuple):
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


class Ignores(NamedTuple):
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
    ) -> Ignores:
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
        return Ignores((*found, *self.files)) if found else self


def ignores_above(top: str, root: str, *, use_gitignore: bool) -> Ignores:
    """Ignore files of the directories from ``top`` down to ``root``, without ``root`` itself."""
    ignores = Ignores()
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
