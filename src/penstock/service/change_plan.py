"""Plan for changed paths below a watched root: the jobs for updating the index from the disk.

Jobs look at the disk when they run, so a plan only has to name each path that may differ. What a plan cannot
name cheaply becomes one job for the whole root, which compares sizes and times.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.pipeline.walk.repository import find_repository, is_switching
from penstock.pipeline.walk.walker import SinglePathRules
from penstock.service.folder_requests import walk_rules
from penstock.service.real_path import real_path
from penstock.service.requests import Submission

if TYPE_CHECKING:
    from penstock.catalog.protocol import CatalogSnapshot
    from penstock.catalog.values import KnownSource, Place, Source
    from penstock.config import Settings
    from penstock.service.documents import Documents

MOST_FILES = 100
"""Changed files with jobs of their own; more become one job for the root."""
SAMPLED = 3
"""Files of a folder that are compared to tell that it was moved."""
IGNORE_FILES = frozenset([".gitignore", ".penstockignore"])
_FILE_OPTIONS = ("chunk_size", "chunk_overlap", "graph", "ocr", "gate", "archives")


class ChangePlan:
    """Plans for one root. ``options`` are those of ``Documents.index``."""

    def __init__(self, documents: Documents, root: str, settings: Settings, options: dict[str, Any]) -> None:
        self.root = real_path(root)
        self._documents = documents
        self._options = options
        self._settings = settings
        self._repository = find_repository(self.root)
        self._placement = documents.projects.record(documents.placement(self.root, **options))

    @property
    def branch(self) -> str | None:
        """The branch of the last plan, in a project."""
        return self._placement.branch

    @property
    def _place(self) -> Place:
        found = self._placement
        return self._documents.place(
            tenant_id=found.tenant_id, collection=self._options.get("collection"), branch=found.branch
        )

    def switched(self) -> bool:
        """Check for a checkout of another branch since the last call; later plans are for the new branch."""
        before = self._placement
        if before.project is None or self._options.get("branch") is not None:
            return False
        self._placement = self._documents.placement(self.root, **self._options)
        return self._placement.branch != before.branch

    def is_changing(self) -> bool:
        """Check whether a git command is changing files now."""
        return self._repository is not None and is_switching(self._repository)

    def head_state(self) -> tuple[int, int, int] | None:
        """Inode, size and time of git's HEAD file: they change with every checkout."""
        if self._repository is None:
            return None
        try:
            found = Path(self._repository.git_dir, "HEAD").stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino

    def whole(self) -> Submission:
        """The job for the root: every file is compared."""
        return self._documents.submission(self.root, allow_empty=True, **self._options)

    def submissions(self, changed: Iterable[str]) -> list[Submission]:
        """Jobs for changed paths; for none where no rule and no document concerns them."""
        below = sorted({path for path in changed if self._is_below(path)})
        if any(Path(path).name in IGNORE_FILES for path in below):
            return [self.whole()]
        with self._documents.catalog.snapshot() as snapshot:
            gone, there, unclear = self._sorted(snapshot, below)
            moved, gone, there = self._moves(snapshot, gone, there)
            unclear = unclear or any(self._is_folder(snapshot, path) for path in gone)
        files = [path for path, found in there if not stat.S_ISDIR(found.st_mode)]
        if unclear or len(files) < len(there) or len(files) + len(gone) > MOST_FILES:
            return [*moved, self.whole()]
        return [*moved, *map(self._file, sorted([*files, *gone]))]

    def _sorted(
        self, snapshot: CatalogSnapshot, paths: Sequence[str]
    ) -> tuple[list[str], list[tuple[str, os.stat_result]], bool]:
        """Missing known paths, and paths within a walk. True: only a walk can decide about the rest."""
        rules = SinglePathRules(self.root, walk_rules(self.whole(), self._settings))
        gone: list[str] = []
        there: list[tuple[str, os.stat_result]] = []
        unclear = False
        for path in paths:
            found = _lstat(path)
            if found is None:
                if snapshot.known(self._place, path, limit=1):
                    gone.append(path)
                continue
            is_folder = stat.S_ISDIR(found.st_mode)
            if rules.skipped(os.path.relpath(path, self.root), found.st_size, folder=is_folder) is None:
                there.append((path, found))
            elif snapshot.known(self._place, path, limit=1):
                # A document that a rule excludes by now, such as a file that has grown beyond the limit.
                unclear = True
        return gone, there, unclear

    def _is_below(self, path: str) -> bool:
        return path.startswith(self.root.rstrip("/") + "/")

    def _is_folder(self, snapshot: CatalogSnapshot, path: str) -> bool:
        found = snapshot.find(self._place, path)
        return found is None or not found.live

    # Moves.

    def _moves(
        self, snapshot: CatalogSnapshot, gone: Sequence[str], there: Sequence[tuple[str, os.stat_result]]
    ) -> tuple[list[Submission], list[str], list[tuple[str, os.stat_result]]]:
        """Pair missing paths with new ones; returns the renames and the unpaired paths of both."""
        renames: list[Submission] = []
        left = dict(there)
        rest: list[str] = []
        for old in gone:
            candidates = [new for new, found in left.items() if self._is_move(snapshot, old, new, found)]
            if len(candidates) != 1:
                # Several files alike: each job for a file finds out by content where it came from.
                rest.append(old)
                continue
            (new,) = candidates
            is_folder = stat.S_ISDIR(left.pop(new).st_mode)
            renames.append(self._rename(old, new, is_folder=is_folder))
        return renames, rest, list(left.items())

    def _is_move(self, snapshot: CatalogSnapshot, old: str, new: str, found: os.stat_result) -> bool:
        if snapshot.find(self._place, new) is not None:
            return False
        if not stat.S_ISDIR(found.st_mode):
            source = snapshot.find(self._place, old)
            return source is not None and _same_file(source, found)
        known = snapshot.known(self._place, old, limit=SAMPLED)
        if not known or any(each.path == old for each in known):
            return False
        pairs = [
            (snapshot.find(self._place, each.path), _lstat(new + each.path.removeprefix(old)))
            for each in known
        ]
        return all(source is not None and found and _same_file(source, found) for source, found in pairs)

    # Submissions.

    def _rename(self, old: str, new: str, *, is_folder: bool) -> Submission:
        return self._submission(
            "rename", "update", {"old_path": old, "new_path": new, "is_folder": is_folder}
        )

    def _file(self, path: str) -> Submission:
        options = {name: self._options[name] for name in _FILE_OPTIONS if self._options.get(name) is not None}
        return self._submission("file", "ingest", {"file_path": path, **options})

    def _submission(self, item_type: str, op: str, payload: dict[str, Any]) -> Submission:
        place = self._place
        return {
            "item_type": item_type,
            "op": op,
            "payload": payload,
            "tenant_id": place.tenant_id,
            "collection": place.collection,
            "branch": place.branch,
            "metadata": self._placement.metadata or None,
        }


def _lstat(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except OSError:
        return None


def _same_file(source: Source | KnownSource, found: os.stat_result) -> bool:
    return (source.size, source.mtime_ns) == (found.st_size, found.st_mtime_ns)


def is_in_repository(path: str) -> bool:
    """Check whether a path is in a git work tree."""
    return find_repository(path) is not None
