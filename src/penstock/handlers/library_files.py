"""Files of a library: in a folder, in an archive, or as a distribution is installed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import TypeAlias

from penstock.errors import PermanentFailure, UnsupportedType
from penstock.handlers.file_reader import behind_link, read_file
from penstock.handlers.members import Container
from penstock.handlers.origin_files import OriginFile
from penstock.items import ContentOrigin
from penstock.pipeline.extract import file_types
from penstock.pipeline.extract.protocol import Content
from penstock.pipeline.pipeline import Pipeline
from penstock.pipeline.walk.ignore import (
    Directory,
    FoundFile,
    PathRules,
    Report,
    Rule,
    Skipped,
    Unreadable,
    WalkRules,
)
from penstock.pipeline.walk.no_links import BehindLink
from penstock.pipeline.walk.walker import walk
from penstock.pipeline.web import robots

FoundOrSkipped: TypeAlias = OriginFile | Skipped | Unreadable

NOT_INSTALLED = "ERR_LIBRARY_NOT_INSTALLED"
FAILURE_CODES = {
    NOT_INSTALLED: "Install this version beside Penstock, or name a folder, an archive or a URL with --from."
}
INVENTORY = "objects.inv"
_RECORDS = frozenset(
    "RECORD INSTALLER WHEEL REQUESTED top_level.txt entry_points.txt direct_url.json".split()
)
"""Files of a distribution about its installation."""


class LibraryFiles:
    """Finds the files of one version. ``root``: path of the version's documents."""

    def __init__(
        self, pipeline: Pipeline, rules: WalkRules, root: str, source: str, *, pictures: bool = False
    ) -> None:
        """``pictures``: text in pictures is wanted; most of those in a documentation are logos."""
        self._pipeline = pipeline
        self._rules = rules
        self._root = root
        self._source = source
        self._pictures = pictures

    def found_at(self, path: str) -> Iterator[FoundOrSkipped]:
        """Files of a folder, members of an archive, or one file. Raises OSError if there is nothing.

        The path has no links in it, as no stored one has.
        """
        if os.path.isdir(path):  # noqa: PTH112 - it never raises
            return self._in_folder(path)
        status = Path(path).stat()
        if file_types.is_archive_name(path):
            return self._in_archive(path)
        name = path.rpartition("/")[2]
        return iter([self._file(name, path, status.st_size, status.st_mtime_ns)])

    def _file(self, inside: str, read_from: str, size: int, mtime_ns: int) -> OriginFile | Skipped:
        if inside.rpartition("/")[2] == INVENTORY:
            return Skipped(inside, Rule.BINARY, False, "the inventory of a documentation")
        if file_types.is_picture_name(inside) and not self._pictures:
            return Skipped(inside, Rule.BINARY, False, "a picture; text in pictures was not asked for")
        origin = ContentOrigin(read_from=read_from, name=inside.rpartition("/")[2], source=self._source)
        return OriginFile(f"{self._root}/{inside}", origin, size, mtime_ns)

    def _in_folder(self, folder: str) -> Iterator[FoundOrSkipped]:
        sphinx = Path(folder, INVENTORY).is_file()
        for report in self._walk(folder):
            if isinstance(report, FoundFile):
                if sphinx and robots.is_generated(report.path):
                    yield Skipped(report.path, Rule.GENERATED, False, "a list of pages, or a source")
                    continue
                yield self._file(report.path, f"{folder}/{report.path}", report.size, report.mtime_ns)
            elif isinstance(report, Skipped | Unreadable):
                yield report

    def _walk(self, folder: str) -> Iterator[Report]:
        try:
            yield from walk(folder, self._rules)
        except BehindLink:
            raise behind_link(folder) from None

    def _in_archive(self, archive: str) -> Iterator[FoundOrSkipped]:
        """Members of an archive, without a common top folder."""
        limits = self._pipeline.limits
        read = read_file(archive, limits, lambda _: False)
        if read is None:
            return
        container = Container(self._pipeline, Content(archive, read.data))
        members = sorted((member.name, len(member.data), member.error) for member in container.each())
        if not members:
            raise UnsupportedType(f"{archive} has no file inside")
        top = _common_folder([name for name, _, _ in members])
        rules = _MemberRules(self._rules)
        sphinx = any(name == f"{top}{INVENTORY}" for name, _, _ in members)
        for name, size, error in members:
            inside = name[len(top) :]
            skipped = rules.skipped(inside, size)
            if skipped is None and sphinx and robots.is_generated(inside):
                skipped = Skipped(inside, Rule.GENERATED, False, "a list of pages, or a source")
            if skipped is None and error == "DocumentTooLarge":
                skipped = Skipped(inside, Rule.TOO_LARGE)
            yield skipped or self._file(inside, f"{archive}/{name}", size, read.mtime_ns)

    def installed(self, name: str, version: str) -> Iterator[FoundOrSkipped]:
        """Files of an installed distribution. Raises ``PermanentFailure`` for another version."""
        distribution = find_distribution(name)
        if distribution is None or distribution.version != version:
            there = f"version {distribution.version}" if distribution is not None else "no version"
            raise PermanentFailure(
                f"{name} {version} is not installed beside Penstock, which has {there} of it",
                code=NOT_INSTALLED,
                remedy=FAILURE_CODES[NOT_INSTALLED],
            )
        rules = _MemberRules(self._rules)
        for file in sorted(map(str, distribution.files or ())):
            path = os.path.realpath(str(distribution.locate_file(file)))
            inside = os.path.normpath(file)
            last = inside.rpartition("/")[2]
            if inside.startswith("..") or (".dist-info/" in inside and last in _RECORDS):
                continue
            try:
                status = Path(path).stat()
            except OSError:
                continue
            skipped = rules.skipped(inside, status.st_size)
            yield skipped or self._file(inside, path, status.st_size, status.st_mtime_ns)


def find_distribution(name: str) -> metadata.Distribution | None:
    """The installed distribution of this name."""
    try:
        return metadata.distribution(name)
    except (metadata.PackageNotFoundError, ValueError):
        return None


class _MemberRules:
    """Rules of a walk for members of an archive: by names, patterns and sizes."""

    def __init__(self, rules: WalkRules) -> None:
        self._rules = PathRules("/nonexistent", rules)
        self._top = self._rules.top([], opened=None)
        self._folders: dict[str, Directory | Skipped] = {"": self._top}

    def skipped(self, path: str, size: int) -> Skipped | None:
        above, _, name = path.rpartition("/")
        folder = self._folder(above)
        if isinstance(folder, Skipped):
            return Skipped(path, folder.rule, False, folder.detail)
        return self._rules.skipped_file(folder, name, path, size)

    def _folder(self, path: str) -> Directory | Skipped:
        found = self._folders.get(path)
        if found is None:
            above = self._folder(path.rpartition("/")[0])
            if isinstance(above, Directory):
                skipped = self._rules.skipped_directory(above, path)
                found = skipped or self._rules.enter(
                    path + "/", [], above.ignores, above.depth + 1, opened=None
                )
            else:
                found = above
            self._folders[path] = found
        return found


def _common_folder(names: list[str]) -> str:
    """The common top folder of all members, with a slash; empty without one."""
    top, slash, _ = names[0].partition("/")
    return top + "/" if slash and all(name.startswith(top + "/") for name in names) else ""
