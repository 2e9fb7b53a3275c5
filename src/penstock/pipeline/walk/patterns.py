"""Pattern lists as in ``.gitignore``: the last matching pattern decides.

Names, paths and suffixes are looked up in tables: 100,000 of them cost no more per path than ten.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.named_tuple import NamedTuple
from penstock.pipeline.walk.glob import ANY_NAME, InvalidGlob, Path, Segment, matches_path, path_glob

_NONE = -1
_MAX_CACHED = 1_000
"""Folders with a cached result."""


class Pattern(NamedTuple):
    """One pattern. With ``anywhere``, names in any folder match, not only paths from the list's folder."""

    written: str
    negated: bool
    folders_only: bool
    anywhere: bool
    glob: Path


class _Last(NamedTuple):
    """Index of the last equal pattern, and of the last one for files as well."""

    of_any: int = _NONE
    of_files: int = _NONE

    def then(self, index: int, pattern: Pattern) -> _Last:
        return _Last(index, self.of_files if pattern.folders_only else index)

    def at(self, folder: bool) -> int:
        return self.of_any if folder else self.of_files


class PatternList:
    def __init__(self, lines: Iterable[str]) -> None:
        self.patterns = _with_folders_of_contents([found for line in lines for found in _parsed(line)])
        self._names: dict[str, _Last] = {}
        self._paths: dict[str, _Last] = {}
        self._endings: dict[str, _Last] = {}
        self._name_globs: list[tuple[int, Pattern, Segment]] = []
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
            if (folder or not pattern.folders_only) and matches_path(pattern.glob, names):
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
        glob = path_glob(body.removeprefix("/"))
    except InvalidGlob:
        return []
    if not body or not glob:
        return []
    if anywhere and glob[0] is None:
        glob = [ANY_NAME]
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
            expanded.append(pattern._replace(folders_only=True, glob=glob[:-1]))
    return expanded[::-1]
