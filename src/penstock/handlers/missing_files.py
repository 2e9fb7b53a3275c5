"""Missing files: deleted, moved, or only on an unmounted disk."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime

import msgspec

from penstock.catalog.protocol import Catalog, known_below
from penstock.catalog.values import KnownSource, Move, Place, Source
from penstock.errors import PenstockError
from penstock.handlers.members import container_of, may_hold_members, read_file
from penstock.pipeline.extract.file_types import suffix_of
from penstock.pipeline.extract.protocol import ExtractLimits
from penstock.queue.payloads import is_off_disk, normal_path

CAREFUL = "careful"
"""In a job's metadata: the file was not reported as deleted. Remove it only if it is certainly gone."""
_NOT_FOUND = (errno.ENOENT, errno.ENOTDIR)


def maybe_unmounted(path: str, roots: Iterable[str]) -> str | None:
    """Reason why a missing file may be on an unmounted disk; None: the file is gone.

    ``roots``: the walked folders that contain the file.
    """
    folders = sorted(set(roots))
    for root in folders:
        try:
            with os.scandir(root) as entries:
                if not any(True for _ in entries):
                    return f"{root} is empty and may be the mount point of an unmounted disk"
        except (FileNotFoundError, NotADirectoryError):
            return f"{root} does not exist and may be on an unmounted disk"
        except OSError as error:
            return f"{root} cannot be read: {error.strerror}"
    if folders or gone_for_sure(path):
        return None
    return f"the folder of {path} is empty, unmounted or not readable"


def missing(path: str) -> bool:
    """Check whether the path does not exist. False if a folder above cannot be read.

    A file inside another is missing only if the other one is.
    """
    try:
        os.lstat(path)
    except OSError as error:
        return error.errno in _NOT_FOUND and container_of(path) is None
    return False


def unchanged_at(path: str, size: int, mtime_ns: int) -> bool:
    """Check whether the file at a path has this size and time; a file inside another has the other's time."""
    container = container_of(path, any_name=True)
    if container is not None:
        return container.mtime_ns == mtime_ns
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return (found.st_size, found.st_mtime_ns) == (size, mtime_ns)


def gone_for_sure(path: str) -> bool:
    """Check whether the path is missing and the first existing folder above is not empty.

    An empty folder may be the mount point of an unmounted disk.
    """
    if not missing(path):
        return False
    folder = path
    while folder not in ("", "/"):
        folder = folder.rpartition("/")[0] or "/"
        try:
            with os.scandir(folder) as entries:
                return any(True for _ in entries)
        except OSError as error:
            if error.errno not in _NOT_FOUND:
                return False
    return False


def awaits_move(catalog: Catalog, known: Source) -> bool:
    """Check whether a delivered file is still at the path of delivery, waiting to be moved."""
    with catalog.snapshot() as snapshot:
        read_from = snapshot.expected(known.place, known.path)
    return read_from is not None and unchanged_at(read_from, known.size, known.mtime_ns)


def unmounted_reason(catalog: Catalog, known: Source) -> str | None:
    """Reason why the missing file of a source may be on an unmounted disk; None: the file is gone."""
    with catalog.snapshot() as snapshot:
        return maybe_unmounted(known.path, [walk.root for walk in snapshot.walks(known.place, known.path)])


_MAX_SAME_SIZE = 10_000
"""Sources compared because of their size alone, for a batch of files."""


class UnknownFile(msgspec.Struct, frozen=True):
    """A file at a path without a source."""

    path: str
    size: int
    mtime_ns: int


def unknown_at(path: str) -> list[UnknownFile]:
    """The regular file at a path, if any."""
    if is_off_disk(path):
        return []
    try:
        found = os.lstat(path)
    except OSError:
        return []
    regular = stat.S_ISREG(found.st_mode)
    return [UnknownFile(normal_path(path), found.st_size, found.st_mtime_ns)] if regular else []


class MoveDetection:
    """Finds moved files in one place: a new path with the content of a source at a missing path.

    Such a source is renamed. It keeps its id, chunks and vectors, instead of being removed and indexed again.
    ``gone`` decides whether a path is gone.
    """

    def __init__(
        self,
        catalog: Catalog,
        place: Place,
        *,
        limits: ExtractLimits,
        gone: Callable[[str], bool] | None = None,
        other_times: bool = True,
    ) -> None:
        """``other_times``: also match files with another modification time, like a copy."""
        self._catalog = catalog
        self._place = place
        self._limits = limits
        self._gone = gone or gone_for_sure
        self._by_size = _MAX_SAME_SIZE if other_times else 0

    def move(self, files: Sequence[UnknownFile], asked_at: datetime) -> dict[str, KnownSource]:
        """Rename the sources of these files in one transaction; returns the old sources by new path."""
        chosen = dict(self._chosen(files)) if files else {}
        members = {source.path: self._members(source) for source in chosen.values()}
        # With a member that failed or is being read, the container is read again at its new path.
        chosen = {
            path: source
            for path, source in chosen.items()
            if all(member.published_id and not member.building_id for member in members[source.path])
        }
        if not chosen:
            return {}
        at = {file.path: file for file in files}
        moves = [
            Move(
                source_id=source.source_id,
                published_id=source.published_id or 0,
                old=source.path,
                new=path,
                size=at[path].size,
                mtime_ns=at[path].mtime_ns,
            )
            for path, source in chosen.items()
        ]
        moves += [
            Move(
                source_id=member.source_id,
                published_id=member.published_id or 0,
                old=member.path,
                new=path + member.path[len(source.path) :],
                size=member.size,
                mtime_ns=at[path].mtime_ns,
            )
            for path, source in chosen.items()
            for member in members.get(source.path, ())
        ]
        done = self._catalog.move(self._place, moves, asked_at)
        return {
            move.new: chosen[move.new]
            for move, moved in zip(moves, done, strict=True)
            if moved and move.new in chosen
        }

    def _members(self, source: KnownSource) -> list[KnownSource]:
        """Sources inside the file of a source."""
        if not may_hold_members(source.path):
            return []
        inside = known_below(self._catalog, self._place, source.path, after=source.path)
        return [one for one in inside if one.published_id is not None or one.building_id is not None]

    def _chosen(self, files: Sequence[UnknownFile]) -> Iterator[tuple[str, KnownSource]]:
        """Pairs of new path and source. Among equal contents the name decides, then the time."""
        with self._catalog.snapshot() as snapshot:
            seen = {(file.size, file.mtime_ns) for file in files}
            candidates = snapshot.twins(self._place, seen, limit=self._by_size)
        # Notes have no file.
        file_sources = sorted(
            (source for source in candidates if source.path.startswith("/")), key=lambda source: source.path
        )
        gone = [source for source in file_sources if self._gone(source.path)]
        sizes = {source.size for source in gone}
        unclaimed: dict[tuple[str | None, str], list[KnownSource]] = defaultdict(list)
        for source in gone:
            # Another suffix may mean another type and extractor.
            unclaimed[source.content_hash, suffix_of(source.path)].append(source)
        for file in files:
            content_hash = self._hash(file) if file.size in sizes else None
            same = unclaimed.get((content_hash, suffix_of(file.path)))
            if same:
                best = min(same, key=lambda source: _distance(source, file))
                same.remove(best)
                yield file.path, best

    def _hash(self, file: UnknownFile) -> str | None:
        try:
            read = read_file(file.path, self._limits, lambda _: False)
        except (OSError, PenstockError):
            # The job that indexes this file reports the error.
            return None
        same = read is not None and (read.size, read.mtime_ns) == (file.size, file.mtime_ns)
        return hashlib.sha256(read.data).hexdigest() if read is not None and same else None


def _distance(source: KnownSource, file: UnknownFile) -> tuple[bool, bool]:
    name = file.path.rpartition("/")[2]
    return source.path.rpartition("/")[2] != name, source.mtime_ns != file.mtime_ns
