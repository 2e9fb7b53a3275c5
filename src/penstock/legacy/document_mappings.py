"""Mapping of tables of documents, pages and chunks, with a status for each phase. Pure.

A document becomes one job for its file. Its pages and chunks belong to that job: vectors of another model, in
another store, cannot be used here, so that the file is read, cut and embedded again.
"""

from __future__ import annotations

import posixpath
from typing import Any

from penstock.catalog.rules.phases import PHASES
from penstock.job import Status
from penstock.legacy.queue_mappings import ERROR_UNKNOWN
from penstock.legacy.rows import Columns, LegacyRow, PartOf, Planned, PlannedJob, Unmappable, read_status

TABLES = ("documents", "task_queue_page", "task_queue_chunk")
"""Owners before their parts."""
_PATH = ("file_path", "path", "source_path", "storage_path", "absolute_path", "original_path", "filepath")
_WORDS = {
    "converted": Status.DONE,
    "indexed": Status.DONE,
    "success": Status.DONE,
    "converting": Status.IN_PROGRESS,
    "indexing": Status.IN_PROGRESS,
    "partial": Status.IN_PROGRESS,
    "uploaded": Status.PENDING,
    "not_started": Status.PENDING,
    "error": Status.FAILED,
    "skipped": Status.DONE,
}
INDEXED_AGAIN = "was indexed there; is indexed again here"
STARTS_AGAIN = "was half done; starts again"


def task_tables(row: LegacyRow) -> Planned:
    """Map a document, or a page or chunk of one."""
    if row.table == "documents":
        return _document(Columns(row.values))
    columns = Columns(row.values)
    owner = columns.required("document", "document_id")
    for name in _phase_columns("{}_status"):
        read_status(columns.text(name), **_WORDS)
    part = "page" if row.table == "task_queue_page" else "chunk"
    return PartOf("documents", owner, f"a {part} of its document, which is read again")


def _phase_columns(pattern: str) -> list[str]:
    return [pattern.format(phase) for phase in PHASES]


def _document(columns: Columns) -> PlannedJob:
    path = _path(columns)
    statuses = _statuses(columns)
    errors = [text for name in _phase_columns("{}_error") if (text := columns.text(name)) is not None]
    errors += [text for name in ("error_message", "error") if (text := columns.text(name)) is not None]
    status, note = Status.PENDING, None
    if Status.FAILED in statuses:
        status = Status.FAILED
    elif all(each is Status.DONE for each in statuses):
        note = INDEXED_AGAIN
    elif set(statuses) != {Status.PENDING}:
        note = STARTS_AGAIN
    created_at = columns.time("created_at", "uploaded_at", "upload_time")
    payload: dict[str, Any] = {"file_path": path}
    columns.ignore("current_worker_id", "last_heartbeat", "updated_at", "id")
    for pattern in ("{}_started_at", "{}_completed_at"):
        columns.ignore(*_phase_columns(pattern))
    return PlannedJob(
        item_type="file",
        op="ingest",
        payload=payload,
        status=status,
        collection=columns.text("collection", "collection_name"),
        tenant_id=columns.text("tenant_id"),
        priority=columns.number("priority"),
        created_at=created_at,
        error_message=_message(errors) if status is Status.FAILED else None,
        path=path,
        extra=columns.extra(),
        note=note,
    )


def _message(errors: list[str]) -> str:
    return "; ".join(dict.fromkeys(errors)) or ERROR_UNKNOWN


def _path(columns: Columns) -> str:
    found = columns.text(*_PATH)
    if found is None:
        name = columns.text("filename", "file_name", "original_filename")
        if name is None:
            raise Unmappable(f"it names no file (column {' or '.join((*_PATH, 'filename'))})")
        found = name
    if not posixpath.isabs(found):
        raise Unmappable(f"{found[:200]!r} is not an absolute path: the file cannot be found")
    return found


def _statuses(columns: Columns) -> list[Status]:
    """Statuses of the phases: of a column for each, or of the two columns from before there were phases."""
    words = [columns.text(name) for name in (rule.document_status for rule in PHASES.values())]
    former = [columns.text("convert_status"), columns.text("index_status")]
    if not any(words):
        words = former
    elif any(former):
        # Both were kept for a while. A phase that was never started may have been done before the change.
        pairs = zip(words, _spread(former), strict=True)
        words = [old if word in (None, "pending") else word for word, old in pairs]
    if not any(words):
        return [Status.PENDING]
    return [read_status(word, **_WORDS) for word in words]


def _spread(former: list[str | None]) -> list[str | None]:
    convert, index = former
    return [convert, *[index] * (len(PHASES) - 1)]
