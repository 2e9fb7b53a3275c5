"""Requests for folders: their payload, a preview of the walk, and the jobs for changed paths below one."""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec

from penstock.catalog.protocol import Catalog
from penstock.catalog.values import Place, Source
from penstock.config import Settings
from penstock.errors import InvalidRequest, InvalidUrl, PathNotFound
from penstock.pipeline.walk.repository import code_reason, find_repository, is_switching
from penstock.pipeline.web import urls
from penstock.service import paths
from penstock.service.paths import real_path
from penstock.service.projects import Placement
from penstock.service.requests import IndexOptions, Submission, submission_at, texts

if TYPE_CHECKING:
    from penstock.catalog.protocol import CatalogSnapshot
    from penstock.catalog.values import KnownSource
    from penstock.pipeline.walk.ignore import FoundFile, WalkRules
    from penstock.service.documents import Documents

_NO_PREVIEW = "Use --depth 0 for the page alone, or --max-pages N, instead of --dry-run."
_OF_THE_JOB = frozenset(
    "collection priority run_at delay timeout_s serial after on_dependency_failure limit webhook".split()
)
"""The options of ``index`` that belong to the job, and not to its payload or its place."""
_PATH_FIELDS = {"file": "file_path", "folder": "folder_path", "project": "project_root"}
_MOST_FILES = 100
"""Changed files with jobs of their own; more become one job for the root."""
_SAMPLED = 3
"""Files of a folder that are compared to tell that it was moved."""
_IGNORE_FILES = frozenset([".gitignore", ".penstockignore"])
_FILE_OPTIONS = ("chunk_size", "chunk_overlap", "graph", "ocr", "gate", "archives")


class Preview(msgspec.Struct, kw_only=True):
    """File counts that a walk would find."""

    files: int = 0
    bytes: int = 0
    new: int = 0
    changed: int = 0
    unchanged: int = 0
    failed_before: int = 0
    """Failed in an earlier run, and of the same size and time since."""
    skipped: dict[str, int] = {}
    include_code: bool = False


def index_submission(
    path: str, options: IndexOptions, settings: Settings, placement: Placement
) -> Submission:
    """The submission for a file, a folder or a web page. Raises ``PathNotFound`` for a missing path."""
    paths.refuse_unusable(path)
    payload: dict[str, Any] = {
        name: options[name]
        for name in ("chunk_size", "chunk_overlap", "graph", "ocr", "gate", "operation")
        if options.get(name) is not None
    }
    submission: Submission = {"item_type": "file", "op": "ingest", "payload": payload}
    opens_archives = settings.archives if options.get("archives") is None else options.get("archives")
    if urls.is_web_url(path):
        submission["item_type"] = "folder"
        payload |= {"folder_path": urls.canonical(path)} | crawl_fields(options)
    else:
        absolute = real_path(path)
        mode = _mode(path, absolute)
        if stat.S_ISDIR(mode):
            # The top folder of a project is the same request at every door, also as an item.
            root = placement.project.root if placement.project is not None else None
            is_project = options.get("project") or root == absolute
            submission["item_type"] = "project" if is_project else "folder"
            payload |= _walked(absolute, submission["item_type"], {**options, "archives": opens_archives})
        elif stat.S_ISREG(mode):
            payload |= {"file_path": absolute} | ({"archives": True} if opens_archives else {})
        else:
            raise PathNotFound(f"{path} is neither a file nor a folder")
    return with_job_options(submission, options, placement)


def placed_payload(submission: Submission) -> str | None:
    """The path that decides the place of a submission; None for one without a path of the disk."""
    payload = submission["payload"] if isinstance(submission.get("payload"), Mapping) else {}
    path = payload.get(_PATH_FIELDS.get(submission["item_type"], ""))
    if submission["item_type"] == "rename":
        path = payload.get("old_path")
    if submission["item_type"] == "delete_document":
        path = payload.get("document_id")
    return path if isinstance(path, str) and path.startswith("/") else None


def with_job_options(submission: Submission, options: Mapping[str, Any], placement: Placement) -> Submission:
    """Add the options of a job, such as its place and priority, to a submission."""
    given = {name: value for name, value in options.items() if name in _OF_THE_JOB and value is not None}
    submission |= cast("Submission", given | placement.names)
    asked = {name: True for name in ("checksum", "retry_failed", "allow_empty") if options.get(name)}
    if metadata := placement.metadata | asked:
        submission["metadata"] = metadata
    submission["force"] = bool(options.get("force"))
    return submission


def _mode(path: str, absolute: str) -> int:
    try:
        return Path(absolute).stat().st_mode
    except OSError as error:
        raise PathNotFound(f"{path}: {error.strerror}") from None


def crawl_fields(options: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a payload for a crawl, from the options of ``index``."""
    names = {"hosts": "hosts", "include": "patterns", "exclude": "ignore_patterns"}
    payload: dict[str, Any] = {
        field: texts(name, options[name]) for name, field in names.items() if options.get(name)
    }
    if options.get("recursive") is False:
        payload["recursive"] = False
    for name, field in (("depth", "recursive_depth"), ("max_pages", "max_pages")):
        if options.get(name) is not None:
            payload[field] = options[name]
    return payload


def _walked(root: str, item_type: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The payload for a folder or project, from the options of ``index``."""
    payload: dict[str, Any] = {"project_root" if item_type == "project" else "folder_path": root}
    if options.get("include"):
        payload["patterns"] = texts("include", options["include"])
    if options.get("exclude"):
        payload["ignore_patterns"] = texts("exclude", options["exclude"])
    include_code = options.get("include_code")
    if include_code is None:
        include_code = item_type == "project" or code_reason(root) is not None
    if include_code != (item_type == "project"):
        payload["include_code"] = include_code
    if options.get("archives"):
        payload["archives"] = True
    if options.get("recursive") is False:
        payload["recursive"] = False
    if options.get("depth") is not None:
        if not options["depth"]:
            raise InvalidRequest("depth: of a folder it is 1 or more; only a web page can have 0")
        payload["recursive_depth"] = options["depth"]
    return payload


def _walk_rules(submission: Submission, settings: Settings) -> WalkRules:
    """The rules by which the job of a submission walks its folder."""
    from penstock.pipeline.walk.ignore import WalkRules

    payload = submission["payload"]
    return WalkRules(
        include=tuple(payload.get("patterns", ())),
        exclude=tuple(payload.get("ignore_patterns", ())),
        include_code=payload.get("include_code", submission["item_type"] == "project"),
        archives=payload.get("archives", False),
        max_bytes=settings.max_file_mb << 20,
        max_depth=payload.get("recursive_depth") if payload.get("recursive", True) else 1,
        state_dirs=(str(settings.state_dir),),
    )


def preview_of(catalog: Catalog, place: Place, submission: Submission, settings: Settings) -> Preview:
    """Count the files that a submission would compare, by size and time alone."""
    from penstock.pipeline.walk.ignore import FoundFile, Skipped, Unreadable
    from penstock.pipeline.walk.walker import walk

    payload = submission["payload"]
    root = payload.get("folder_path") or payload.get("project_root")
    if root is not None and urls.is_web_url(root):
        raise InvalidUrl("the pages of a site are not counted before they are fetched", remedy=_NO_PREVIEW)
    skipped = Counter[str]()
    preview = Preview(include_code=payload.get("include_code", submission["item_type"] == "project"))
    if root is None:
        info = Path(payload["file_path"]).stat()
        reports: Iterable[Any] = [FoundFile(payload["file_path"], info.st_size, info.st_mtime_ns)]
    else:
        reports = walk(root, _walk_rules(submission, settings))
    with catalog.snapshot() as snapshot:
        for report in reports:
            if isinstance(report, Skipped):
                skipped[str(report.rule)] += 1
            elif isinstance(report, Unreadable):
                skipped[report.code] += 1
            elif isinstance(report, FoundFile):
                known = snapshot.find(place, report.path if root is None else f"{root}/{report.path}")
                _count(preview, report, known)
    preview.skipped = dict(skipped)
    return preview


def _count(preview: Preview, found: FoundFile, known: Source | None) -> None:
    preview.files += 1
    preview.bytes += found.size
    state = (found.size, found.mtime_ns)
    if known is not None and known.failed and (known.failure.size, known.failure.mtime_ns) == state:
        preview.failed_before += 1
    elif known is None or known.published_id is None:
        preview.new += 1
    elif (known.size, known.mtime_ns) == state:
        preview.unchanged += 1
    else:
        preview.changed += 1


class ChangePlan:
    """Plans the jobs for changed paths below a watched root. ``options`` are those of ``Documents.index``.

    Jobs look at the disk when they run, so a plan only has to name each path that may differ. What a plan
    cannot name cheaply becomes one job for the whole root, which compares sizes and times.
    """

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
        if any(Path(path).name in _IGNORE_FILES for path in below):
            return [self.whole()]
        with self._documents.catalog.snapshot() as snapshot:
            gone, there, unclear = self._sorted(snapshot, below)
            moved, gone, there = self._moves(snapshot, gone, there)
            unclear = unclear or any(self._is_folder(snapshot, path) for path in gone)
        files = [path for path, found in there if not stat.S_ISDIR(found.st_mode)]
        if unclear or len(files) < len(there) or len(files) + len(gone) > _MOST_FILES:
            return [*moved, self.whole()]
        return [*moved, *map(self._file, sorted([*files, *gone]))]

    def _sorted(
        self, snapshot: CatalogSnapshot, paths: Sequence[str]
    ) -> tuple[list[str], list[tuple[str, os.stat_result]], bool]:
        """Missing known paths, and paths within a walk. True: only a walk can decide about the rest."""
        from penstock.pipeline.walk.walker import SinglePathRules

        rules = SinglePathRules(self.root, _walk_rules(self.whole(), self._settings))
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
        known = snapshot.known(self._place, old, limit=_SAMPLED)
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
        return {
            **submission_at(self._place, item_type, op, payload),
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
