"""Mappings of messages and status hashes of the Redis contract, and of job records of a journal. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from penstock.errors import InvalidRequest
from penstock.legacy.queue_mappings import ERROR_UNKNOWN, STARTS_AGAIN
from penstock.legacy.rows import Columns, LegacyRow, PartOf, Planned, PlannedJob, Unmappable, read_status
from penstock.named_tuple import NamedTuple
from penstock.queue.job import Status
from penstock.redis_contract import message as messages
from penstock.redis_contract.keys import DEAD_LETTER, NORMAL, PRIORITIES, QUEUE

ONE_FILE = "its reindex indexes this file again and removes no others: penstock collection clear does"
HASHES = "rag:ingest:job"
"""Name of the status hashes in reports."""
JOURNAL = "index_queue"
_STATUS_FIELDS = ("status", "submitted_at", "rag_id", "filename")


class RagPlace(NamedTuple):
    """Collection and tenant of a configured RAG."""

    collection: str
    tenant_id: str | None


def redis_contract(row: LegacyRow, *, rags: Mapping[str, RagPlace] | None = None) -> Planned:
    """Map a message in a list, or the status hash of a job. ``rags`` None: there is no configuration."""
    planned = _status_hash(row) if row.table == HASHES else _message(row)
    return planned if isinstance(planned, PartOf) else _in_rag(planned, rags)


def _in_rag(planned: PlannedJob, rags: Mapping[str, RagPlace] | None) -> PlannedJob:
    """The job in the collection and tenant of its RAG. One that is still to run needs a configured RAG."""
    rag_id, waits = planned.collection or "", planned.status is Status.PENDING
    found = None if rags is None else rags.get(rag_id)
    if found is not None:
        return msgspec.structs.replace(planned, collection=found.collection, tenant_id=found.tenant_id)
    if rags is not None and waits:
        known = ", ".join(sorted(rags)) or "none"
        raise Unmappable(f"there is no RAG {rag_id[:80]!a} in the configuration; known are {known}")
    if not waits:
        return planned
    unchecked = f"RAG {rag_id} is not checked, as no configuration is set; its collection is {rag_id}"
    return msgspec.structs.replace(planned, note="; ".join(filter(None, (planned.note, unchecked))))


def _message(row: LegacyRow) -> PlannedJob:
    columns = Columns(row.values)
    dead = row.table == DEAD_LETTER
    try:
        message = messages.read({name: row.values[name] for name in row.values if name in _FIELDS})
    except InvalidRequest as error:
        raise Unmappable(error.message) from None
    columns.ignore(*_FIELDS)
    columns.ignore("status", "failed_at", "completed_at", "traceback", "suggestions", "duration_seconds")
    error_message = columns.text("error", "error_message")
    list_name = row.table.removeprefix(f"{QUEUE}:")
    return PlannedJob(
        item_type="file",
        op="ingest",
        payload={"file_path": message.source_path},
        status=Status.FAILED if dead else Status.PENDING,
        collection=message.rag_id,
        priority=PRIORITIES.get(list_name, NORMAL),
        max_retries=message.max_retries,
        retry_count=message.retry_count,
        created_at=messages.parse_time(message.submitted_at),
        error_message=(error_message or ERROR_UNKNOWN) if dead else None,
        error_code=columns.text("error_code") if dead else None,
        job_id=message.job_id,
        # Each message is a job of its own, as the contract says; only the id tells two of them apart.
        dedupe=False,
        rebuild=message.options.reindex,
        note=ONE_FILE if message.options.reindex and not dead else None,
        extra={"filename": message.filename, "submitted_by": message.submitted_by} | columns.extra(),
    )


_FIELDS = tuple(messages.Message.__struct_fields__)


def _status_hash(row: LegacyRow) -> Planned:
    columns = Columns(row.values)
    status = read_status(columns.required("status", "status"))
    job_id = columns.text("job_id") or row.row_id
    in_list = columns.text(IN_LIST)
    if in_list is not None:
        return PartOf(in_list, job_id, "the status of a message in a list")
    path = columns.text("source_path")
    if status in (Status.PENDING, Status.IN_PROGRESS) and path is None:
        raise Unmappable(
            f"its status is {columns.text('status')}, but its message is in no list: a worker took it and "
            "did not finish; submit the file again"
        )
    rag_id, filename = columns.required("RAG", "rag_id"), columns.required("file name", "filename")
    failed = status is Status.FAILED
    running = status is Status.IN_PROGRESS
    error = columns.text("error")
    code = columns.text("error_code")
    columns.ignore("retry_count", "max_retries", "traceback", "suggestions", "error_type")
    return PlannedJob(
        item_type="file",
        op="ingest",
        # A hash does not say where the file was. The job has ended, so that the path is for people only.
        payload={"file_path": path or f"/{rag_id}/{filename}"},
        status=Status.PENDING if running else status,
        collection=rag_id,
        created_at=columns.time("submitted_at"),
        started_at=columns.time("started_at"),
        error_message=(error or ERROR_UNKNOWN) if failed else None,
        error_code=code if failed else None,
        job_id=job_id,
        dedupe=False,
        total_chunks=columns.number("chunks_created") or 0,
        extra=columns.extra(),
        note=STARTS_AGAIN if running else None,
    )


IN_LIST = "penstock_in_list"
"""Column that a source adds to a status hash: the list that has the message of the job."""


def job_record(row: LegacyRow) -> PlannedJob:
    """Map the last record of a job in a journal: a folder to be indexed."""
    columns = Columns(row.values)
    status = read_status(columns.text("status"))
    cancel = columns.flag("cancel_requested") is True
    if cancel and status in (Status.PENDING, Status.IN_PROGRESS):
        status = Status.CANCELLED
    running = status is Status.IN_PROGRESS
    operation = (columns.text("operation") or "index").lower()
    if operation not in ("index", "add"):
        raise Unmappable(f"unknown operation {operation[:80]!r}; known are index and add")
    payload: dict[str, Any] = {"folder_path": columns.required("folder", "folder_path")}
    if operation == "add":
        payload["operation"] = operation
    for name in ("include_code", "recursive"):
        if (flag := columns.flag(name)) is not None:
            payload[name] = flag
    for name in ("chunk_size", "chunk_overlap"):
        if (number := columns.number(name)) is not None:
            payload[name] = number
    for name, theirs in (("patterns", "include_patterns"), ("ignore_patterns", "exclude_patterns")):
        if found := columns.json(name, theirs):
            payload[name] = found
    error = columns.text("error")
    columns.ignore("dedupe_key", "progress", "execution_time_ms", "finished_at", "updated_at", "status")
    return PlannedJob(
        item_type="folder",
        op="ingest",
        payload=payload,
        status=Status.PENDING if running else status,
        retry_count=columns.number("retry_count") or 0,
        created_at=columns.time("enqueued_at", "created_at"),
        started_at=columns.time("started_at"),
        error_message=(error or ERROR_UNKNOWN) if status is Status.FAILED else None,
        job_id=columns.text("id", "job_id"),
        timeout_s=columns.number("timeout_s"),
        total_chunks=columns.number("total_chunks") or 0,
        extra=columns.extra(),
        note=STARTS_AGAIN if running else None,
    )
