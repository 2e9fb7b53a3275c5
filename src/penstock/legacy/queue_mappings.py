"""Mappings of queues in tables: the unified queue, its five predecessors, and tasks of functions. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from penstock.legacy.rows import Columns, LegacyRow, PlannedJob, Unmappable, read_status
from penstock.queue.job import Status
from penstock.queue.payloads import ITEM_TYPES

UNIFIED_TABLES = ("unified_queue",)
FUNCTION_TABLES = ("task_queue",)

ERROR_UNKNOWN = "failed in the queue that it was imported from, which kept no message"
STARTS_AGAIN = "was in progress; starts again"
_ID = ("queue_id", "id")
_PATH = ("file_absolute_path", "file_path", "absolute_path", "path", "source_path")
_COLLECTION = ("collection", "collection_name", "target_collection")
_TENANT = ("tenant_id", "tenant", "project_id")
_CREATED = (
    *("created_at", "queued_timestamp", "queued_at", "marked_for_deletion_at", "enqueued_at", "timestamp"),
    *("detected_at", "added_at"),
)
_ERROR = ("error_message", "last_error", "error", "last_error_message")
_RETRIES = ("retry_count", "attempts", "retries")
_CLAIM = ("lease_until", "worker_id", "updated_at", "idempotency_key")
_WORDS = {"queued": Status.PENDING, "error": Status.FAILED, "deleted": Status.DONE, "dead": Status.FAILED}


def unified_queue(row: LegacyRow) -> PlannedJob:
    """Map a row of ``unified_queue``, whose columns are those of our own queue."""
    columns = Columns(row.values)
    item_type = columns.required("item type", "item_type")
    if item_type not in ITEM_TYPES:
        raise Unmappable(f"unknown item type {item_type[:80]!r}; known are {', '.join(ITEM_TYPES)}")
    payload = columns.json("payload_json", "payload")
    if not isinstance(payload, dict):
        raise Unmappable("it has no payload" if payload is None else "payload_json: expected a JSON object")
    return _job(
        columns,
        item_type=item_type,
        op=columns.required("operation", "op", "operation"),
        payload=payload,
        # Written by programs, not by people: a broken one costs nothing but itself.
        extra={"metadata": _tolerant(columns)},
    )


def _tolerant(columns: Columns) -> Any:
    try:
        return columns.json("metadata") or {}
    except Unmappable:
        return columns.text("metadata")


def ingestion_queue(row: LegacyRow) -> PlannedJob:
    """Map a file that waits to be indexed, or to be removed from the index."""
    columns = Columns(row.values)
    op = _file_operation(columns)
    return _file_job(columns, op)


def missing_metadata_queue(row: LegacyRow) -> PlannedJob:
    """Map a file whose tools were missing: Penstock reads it without them."""
    columns = Columns(row.values)
    op = _file_operation(columns)
    return _file_job(columns, "update" if op == "ingest" else op)


def cumulative_deletions_queue(row: LegacyRow) -> PlannedJob:
    """Map a deletion that was to be done later, with others."""
    columns = Columns(row.values)
    columns.ignore("operation", "op")
    done = columns.time("deleted_at") is not None
    return _file_job(columns, "delete", done=done)


def content_ingestion_queue(row: LegacyRow) -> PlannedJob:
    """Map a text that waits to be indexed."""
    columns = Columns(row.values)
    text = columns.required("content", "content", "text", "body")
    known = {"scratchbook", "mcp", "clipboard", "api"}
    source_type = (columns.text("source_type", "source") or "scratchbook").lower()
    payload: dict[str, Any] = {"content": text}
    payload["source_type"] = source_type if source_type in known else "api"
    for name in ("main_tag", "full_tag"):
        if (tag := columns.text(name)) is not None:
            payload[name] = tag
    # The same text is one note, so that an update of it is its ingestion.
    op = "delete" if _file_operation(columns) == "delete" else "ingest"
    extra = {} if source_type in known else {"source_type": source_type}
    return _job(columns, item_type="content", op=op, payload=payload, extra=extra)


def task_queue(row: LegacyRow) -> PlannedJob:
    """Map a task of a function, which never runs beside another one of its entity."""
    columns = Columns(row.values)
    arguments = columns.json("payload")
    if arguments is not None and not isinstance(arguments, dict):
        raise Unmappable(f"payload: expected a JSON object, got {type(arguments).__name__}")
    payload: dict[str, Any] = {"function_name": columns.required("function", "function_name")}
    if arguments is not None:
        payload["payload"] = arguments
    entity_type, entity_id = columns.text("entity_type"), columns.text("entity_id")
    if entity_type is not None and entity_id is not None:
        payload |= {"entity_type": entity_type, "entity_id": entity_id}
    elif entity_type is not None or entity_id is not None:
        raise Unmappable("entity_type and entity_id: expected both or neither")
    run_at = columns.time("retry_after")
    job = _job(columns, item_type="function", op="run", payload=payload, ids=("task_id", "id"))
    return msgspec.structs.replace(job, run_at=run_at if job.status is Status.PENDING else None)


PREDECESSORS: dict[str, Callable[[LegacyRow], PlannedJob]] = {
    "ingestion_queue": ingestion_queue,
    "content_ingestion_queue": content_ingestion_queue,
    "processing_queue": ingestion_queue,
    "missing_metadata_queue": missing_metadata_queue,
    "cumulative_deletions_queue": cumulative_deletions_queue,
}
"""The five queues that the unified one replaced, with their mappings."""


def predecessor(row: LegacyRow) -> PlannedJob:
    """Map a row of one of the five queues before the unified one."""
    return PREDECESSORS[row.table](row)


def _file_operation(columns: Columns) -> str:
    word = (columns.text("operation", "op") or "ingest").strip().lower()
    op = {"add": "ingest", "create": "ingest", "index": "ingest", "modify": "update", "remove": "delete"}
    word = op.get(word, word)
    if word not in ("ingest", "update", "delete"):
        raise Unmappable(f"unknown operation {word[:80]!r}; known are ingest, update and delete")
    return word


def _file_job(columns: Columns, op: str, *, done: bool = False) -> PlannedJob:
    payload: dict[str, Any] = {"file_path": columns.required("path", *_PATH)}
    for name in ("file_type", "file_hash", "size_bytes"):
        if (value := columns.value(name)) is not None:
            payload[name] = value
    if not _is_hash(payload.get("file_hash")):
        # Only a hint: a file is read to find out whether it changed.
        payload.pop("file_hash", None)
    return _job(columns, item_type="file", op=op, payload=payload, done=done)


def _is_hash(value: Any) -> bool:
    text = str(value).removeprefix("sha256:")
    return str(value).startswith("sha256:") and len(text) == 64 and set(text) <= set("0123456789abcdef")


def _job(
    columns: Columns,
    *,
    item_type: str,
    op: str,
    payload: dict[str, Any],
    done: bool = False,
    extra: dict[str, Any] | None = None,
    ids: tuple[str, ...] = _ID,
) -> PlannedJob:
    """Read the columns that all queues in tables have under some name."""
    status = read_status(columns.text("status"), Status.DONE if done else Status.PENDING, **_WORDS)
    was_running = status is Status.IN_PROGRESS
    error = columns.text(*_ERROR)
    if status is Status.FAILED and error is None:
        error = ERROR_UNKNOWN
    columns.ignore(*_CLAIM)
    return PlannedJob(
        item_type=item_type,
        op=op,
        payload=payload,
        status=Status.PENDING if was_running else status,
        note=STARTS_AGAIN if was_running else None,
        tenant_id=columns.text(*_TENANT),
        collection=columns.text(*_COLLECTION),
        branch=columns.text("branch"),
        priority=columns.number("priority"),
        max_retries=columns.number("max_retries"),
        retry_count=columns.number(*_RETRIES) or 0,
        created_at=columns.time(*_CREATED),
        started_at=columns.time("started_at"),
        error_message=error if status in (Status.PENDING, Status.FAILED, Status.IN_PROGRESS) else None,
        error_code=columns.text("error_code"),
        job_id=columns.text(*ids),
        extra={name: value for name, value in (extra or {}).items() if value} | columns.extra(),
    )
