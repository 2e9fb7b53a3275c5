"""Files at paths nobody knows that are known sources all the same: moved on the disk, and nobody said so.

Such a source is renamed: it keeps its id, its chunks and vectors, and is not removed and made again.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

from penstock.catalog.protocol import Catalog
from penstock.catalog.values import Move, Place
from penstock.catalog.views import KnownSource
from penstock.errors import PenstockError
from penstock.handlers.file_reader import read_file
from penstock.payloads import normal_path
from penstock.pipeline.extract.file_types import suffix_of

MOST_OF_A_SIZE = 10_000
"""Sources looked at because of their size alone, for a batch of files."""
_GONE = (errno.ENOENT, errno.ENOTDIR)


class UnknownFile(NamedTuple):
    """A file at a path no source has."""

    path: str
    size: int
    mtime_ns: int


def unknown_at(path: str) -> list[UnknownFile]:
    """The file at a path, if there is one."""
    try:
        found = os.lstat(path)
    except OSError:
        return []
    regular = stat.S_ISREG(found.st_mode)
    return [UnknownFile(normal_path(path), found.st_size, found.st_mtime_ns)] if regular else []


class MoveDetection:
    """Of one place. ``gone`` says whether nothing is at a path any more."""

    def __init__(
        self,
        catalog: Catalog,
        place: Place,
        *,
        most_bytes: int,
        gone: Callable[[str], bool] | None = None,
        other_times: bool = True,
    ) -> None:
        """``other_times``: also files whose time is not the source's, as a copy's is not."""
        self._catalog = catalog
        self._place = place
        self._most_bytes = most_bytes
        self._gone = gone or gone_for_sure
        self._by_size = MOST_OF_A_SIZE if other_times else 0

    def move(self, files: Sequence[UnknownFile], asked_at: datetime) -> dict[str, KnownSource]:
        """Rename the sources that these files are, in one transaction: what each was, by its path now."""
        chosen = dict(self._chosen(files)) if files else {}
        if not chosen:
            return {}
        at = {file.path: file for file in files}
        moves = [
            Move(
                source_id=twin.source_id,
                published_id=twin.published_id or 0,
                old=twin.path,
                new=path,
                size=at[path].size,
                mtime_ns=at[path].mtime_ns,
            )
            for path, twin in chosen.items()
        ]
        done = self._catalog.move(self._place, moves, asked_at)
        return {move.new: chosen[move.new] for move, moved in zip(moves, done, strict=True) if moved}

    def _chosen(self, files: Sequence[UnknownFile]) -> Iterator[tuple[str, KnownSource]]:
        """Among files of equal content the name decides, then the time."""
        with self._catalog.snapshot() as snapshot:
            seen = {(file.size, file.mtime_ns) for file in files}
            twins = snapshot.twins(self._place, seen, limit=self._by_size)
        # Notes have no file that could be gone.
        of_files = sorted((twin for twin in twins if twin.path.startswith("/")), key=lambda twin: twin.path)
        gone = [twin for twin in of_files if self._gone(twin.path)]
        sizes = {twin.size for twin in gone}
        left: dict[tuple[str | None, str], list[KnownSource]] = defaultdict(list)
        for twin in gone:
            # Another suffix may be another type, read in another way.
            left[twin.content_hash, suffix_of(twin.path)].append(twin)
        for file in files:
            content_hash = self._hash(file) if file.size in sizes else None
            same = left.get((content_hash, suffix_of(file.path)))
            if same:
                best = min(same, key=lambda twin: _unlike(twin, file))
                same.remove(best)
                yield file.path, best

    def _hash(self, file: UnknownFile) -> str | None:
        try:
            read = read_file(file.path, self._most_bytes, lambda _: False)
        except (OSError, PenstockError):
            # Whoever indexes it will say what is wrong with it.
            return None
        same = read is not None and (read.size, read.mtime_ns) == (file.size, file.mtime_ns)
        return hashlib.sha256(read.data).hexdigest() if read is not None and same else None


def _unlike(twin: KnownSource, file: UnknownFile) -> tuple[bool, bool]:
    name = file.path.rpartition("/")[2]
    return twin.path.rpartition("/")[2] != name, twin.mtime_ns != file.mtime_ns


def missing(path: str) -> bool:
    """Nothing is there. A folder that may not be looked into says nothing of what is in it."""
    try:
        os.lstat(path)
    except OSError as error:
        return error.errno in _GONE
    return False


def gone_for_sure(path: str) -> bool:
    """As before, and the first folder above it that is there holds something: an empty one may be the place
    of a disk that is not mounted."""
    if not missing(path):
        return False
    folder = path
    while folder not in ("", "/"):
        folder = folder.rpartition("/")[0] or "/"
        try:
            with os.scandir(folder) as entries:
                return any(True for _ in entries)
        except OSError as error:
            if error.errno not in _GONE:
                return False
    return False
