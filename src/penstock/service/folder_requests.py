"""Requests for folders: their options and payload, whether code is included, and a preview of the walk."""

from __future__ import annotations

import stat
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

import msgspec

from penstock.catalog.protocol import Catalog
from penstock.catalog.values import Place, Source
from penstock.config import Settings
from penstock.errors import InvalidRequest, InvalidUrl, PathNotFound
from penstock.pipeline.walk.ignore import FoundFile, Skipped, Unreadable, WalkRules
from penstock.pipeline.walk.repository import code_reason
from penstock.pipeline.web import urls
from penstock.service import paths
from penstock.service.options import IndexOptions, texts
from penstock.service.projects import Placement
from penstock.service.real_path import real_path
from penstock.service.requests import Submission

NO_PREVIEW = "Use --depth 0 for the page alone, or --max-pages N, instead of --dry-run."


def job_options(options: Mapping[str, Any]) -> Submission:
    """The options of ``index`` that belong to the job, and not to its payload or its place."""
    given = {name: value for name, value in options.items() if name in _OF_THE_JOB and value is not None}
    return cast("Submission", given)


_OF_THE_JOB = frozenset(
    "collection priority run_at delay timeout_s serial after on_dependency_failure limit webhook".split()
)


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
            is_project = options.get("project") or _is_root(placement, absolute)
            submission["item_type"] = "project" if is_project else "folder"
            payload |= walked(absolute, submission["item_type"], {**options, "archives": opens_archives})
        elif stat.S_ISREG(mode):
            payload |= {"file_path": absolute} | ({"archives": True} if opens_archives else {})
        else:
            raise PathNotFound(f"{path} is neither a file nor a folder")
    return with_job_options(submission, options, placement)


def _is_root(placement: Placement, path: str) -> bool:
    return placement.project is not None and placement.project.root == path


_PATH_FIELDS = {"file": "file_path", "folder": "folder_path", "project": "project_root"}


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
    submission |= job_options(options)
    submission |= cast("Submission", placement.names)
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


def walked(root: str, item_type: str, options: Mapping[str, Any]) -> dict[str, Any]:
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


def walk_rules(submission: Submission, settings: Settings) -> WalkRules:
    """The rules by which the job of a submission walks its folder."""
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
    payload = submission["payload"]
    root = payload.get("folder_path") or payload.get("project_root")
    if root is not None and urls.is_web_url(root):
        raise InvalidUrl("the pages of a site are not counted before they are fetched", remedy=NO_PREVIEW)
    skipped = Counter[str]()
    preview = Preview(include_code=payload.get("include_code", submission["item_type"] == "project"))
    if root is None:
        info = Path(payload["file_path"]).stat()
        reports: Iterable[Any] = [FoundFile(payload["file_path"], info.st_size, info.st_mtime_ns)]
    else:
        from penstock.pipeline.walk.walker import walk

        reports = walk(root, walk_rules(submission, settings))
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
