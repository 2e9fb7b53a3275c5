"""Requests for folders: their options and payload, whether code is included, and a preview of the walk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, TypedDict

import msgspec

from penstock.catalog.protocol import Catalog
from penstock.catalog.values import Place
from penstock.catalog.views import Source
from penstock.config import Settings
from penstock.payloads import Operation
from penstock.pipeline.walk.protocol import FoundFile, Skipped, Unreadable, WalkRules
from penstock.pipeline.walk.repository import code_reason
from penstock.service.requests import Submission


class IndexOptions(TypedDict, total=False):
    """Options of ``Documents.index``; all have defaults."""

    tenant_id: str | None
    collection: str | None
    branch: str | None
    priority: int | None
    include: Sequence[str]
    exclude: Sequence[str]
    include_code: bool | None
    archives: bool | None
    recursive: bool
    depth: int | None
    chunk_size: int | None
    chunk_overlap: int | None
    graph: bool | None
    ocr: bool | None
    gate: Literal["page", "document"] | None
    force: bool
    checksum: bool
    retry_failed: bool
    allow_empty: bool
    project: bool
    operation: Operation
    run_at: datetime | str | None
    delay: float | None
    timeout_s: int | None
    serial: bool | None


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


def walked(root: str, item_type: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The payload for a folder or project, from the options of ``index``."""
    payload: dict[str, Any] = {"project_root" if item_type == "project" else "folder_path": root}
    if options.get("include"):
        payload["patterns"] = list(options["include"])
    if options.get("exclude"):
        payload["ignore_patterns"] = list(options["exclude"])
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
