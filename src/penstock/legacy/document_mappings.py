"""Mapping of tables of documents, pages and chunks, with a status for each phase.

A document becomes one job for its file, to which its pages and chunks belong. If all its pages were read,
their text is taken over, and the file is not read again. Vectors and entities are in other stores of that
system, and are made here.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from penstock.catalog.rules.phases import PHASES
from penstock.legacy.queue_mappings import ERROR_UNKNOWN
from penstock.legacy.rows import (
    Columns,
    FinishedPage,
    FinishedReading,
    LegacyRow,
    PartOf,
    Planned,
    PlannedJob,
    TableSource,
    Unmappable,
    plain,
    read_status,
    read_time,
)
from penstock.queue.job import Status

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
DOCUMENTS, PAGES, CHUNKS = TABLES
OWNER = "document_id"
PAGES_OF, FAULTS_OF = "penstock_pages", "penstock_faults"
"""Columns added to a document: the rows of its pages, and those of its chunks that failed."""
AT_ONCE = 200
"""Documents whose pages are read together."""
READ_THERE = "was read there"
READ_AGAIN = "was read there; is read again here"
STARTS_AGAIN = "was half done; starts again"
_PAGE_FILE = ("page_file_path", "markdown_path", "output_path", "md_path", "file_path", "path")
_PAGE_TEXT = ("markdown", "page_text", "text", "content")
_NUMBER = ("page_number", "page", "page_no", "number")
_HASH = ("sha256", "file_sha256", "file_hash", "content_hash", "checksum")
SHOWN_FAULTS = 10


def with_parts(source: TableSource) -> Iterator[LegacyRow]:
    """Read the rows of the tables, each document with its pages and with its chunks that failed."""
    rows = source.rows()
    while some := list(islice(rows, AT_ONCE)):
        owners = [row.values["id"] for row in some if row.table == DOCUMENTS and row.values.get("id")]
        pages = _by_owner(source.parts(PAGES, OWNER, owners)) if owners else {}
        failed = [row.values["id"] for row in some if row.table == DOCUMENTS and _has_failed(row.values)]
        chunks = _by_owner(filter(_has_failed, source.parts(CHUNKS, OWNER, failed))) if failed else {}
        for row in some:
            if row.table == DOCUMENTS:
                owner = str(row.values.get("id"))
                more = {PAGES_OF: pages.get(owner, []), FAULTS_OF: chunks.get(owner, [])}
                row = row._replace(values={**row.values, **more})
            yield row


def _by_owner(parts: Iterable[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    found: dict[str, list[Mapping[str, Any]]] = {}
    for part in parts:
        found.setdefault(str(part[OWNER]), []).append(part)
    return found


def _has_failed(values: Mapping[str, Any]) -> bool:
    return any(
        str(value).lower() in ("failed", "error") for name, value in values.items() if "status" in name
    )


def task_tables(row: LegacyRow) -> Planned:
    """Map a document, or a page or chunk of one."""
    if row.table == DOCUMENTS:
        return _document(Columns(row.values))
    columns = Columns(row.values)
    owner = columns.required("document", OWNER)
    for name in _phase_columns("{}_status"):
        read_status(columns.text(name), **_WORDS)
    part = "page" if row.table == PAGES else "chunk"
    errors = "; ".join(_phase_errors(columns))
    return PartOf(
        DOCUMENTS, owner, f"a {part} of its document" + (f"; it failed there: {errors}" if errors else "")
    )


def _phase_columns(pattern: str) -> list[str]:
    return [pattern.format(phase) for phase in PHASES]


def _document(columns: Columns) -> PlannedJob:
    path = _path(columns)
    statuses = _statuses(columns)
    errors = _phase_errors(columns)
    errors += [text for name in ("error_message", "error") if (text := columns.text(name)) is not None]
    pages = [Columns(page) for page in columns.value(PAGES_OF) or ()]
    faults = _faults(pages, [Columns(chunk) for chunk in columns.value(FAULTS_OF) or ()])
    details = columns.json("ocr_details") if not pages else None
    status, note, reading = Status.PENDING, None, None
    if Status.FAILED in statuses:
        status = Status.FAILED
        errors += faults
    elif statuses[0] is Status.DONE:
        note = READ_AGAIN
        reading = _reading(columns, pages, details, statuses)
    elif set(statuses) != {Status.PENDING}:
        note = STARTS_AGAIN
    created_at = columns.time("created_at", "uploaded_at", "upload_time")
    payload: dict[str, Any] = {"file_path": path}
    columns.ignore("current_worker_id", "last_heartbeat", "updated_at", "id")
    for pattern in ("{}_started_at", "{}_completed_at"):
        columns.ignore(*_phase_columns(pattern))
    extra = columns.extra()
    if faults:
        extra["failed_parts"] = [plain(fault) for fault in faults]
    return PlannedJob(
        item_type="file",
        op="ingest",
        payload=payload,
        status=status,
        reading=reading,
        collection=columns.text("collection", "collection_name"),
        tenant_id=columns.text("tenant_id"),
        priority=columns.number("priority"),
        created_at=created_at,
        error_message=_message(errors) if status is Status.FAILED else None,
        path=path,
        extra=extra,
        note=note,
    )


def _phase_errors(columns: Columns) -> list[str]:
    return [text for name in _phase_columns("{}_error") if (text := columns.text(name)) is not None]


def _faults(pages: list[Columns], chunks: list[Columns]) -> list[str]:
    """The errors of pages and chunks, the first ones in words."""
    found = []
    for page in pages:
        errors = _phase_errors(page)
        if errors:
            found.append(f"page {page.text(*_NUMBER) or '?'}: {'; '.join(errors)}")
    for chunk in chunks:
        found.append(
            f"chunk {chunk.text('chunk_index') or '?'}: {'; '.join(_phase_errors(chunk)) or 'failed'}"
        )
    more = len(found) - SHOWN_FAULTS
    return found[:SHOWN_FAULTS] + ([f"and {more:,} more"] if more > 0 else [])


def _reading(columns: Columns, pages: list[Columns], details: Any, statuses: list[Status]) -> FinishedReading:
    """The text of the pages: of their rows, or of the details from before there were rows."""
    found = pages or [Columns(page) for page in _detailed(details)]
    read = [page for page in found if read_status(page.text("ocr_status", "status"), **_WORDS) is Status.DONE]
    times = [columns.value("ocr_completed_at"), *(page.value("ocr_completed_at") for page in read)]
    moments = [moment for value in times if value is not None and (moment := read_time(value)) is not None]
    return FinishedReading(
        # A page that was not read leaves a gap in the numbers, or a page without text.
        pages=tuple(_page_text(page) for page in found),
        read_at=max(moments, default=None),
        sha256=_sha256(columns),
        embedded=statuses[1:2] == [Status.DONE],
        extracted=statuses[2:3] == [Status.DONE],
    )


def _detailed(details: Any) -> list[dict[str, Any]]:
    """Pages in the details of a document, as a list or by number. Details without texts have none."""
    pages = details.get("pages") if isinstance(details, dict) else details
    if isinstance(pages, dict):
        pages = [
            {"page_number": number} | (page if isinstance(page, dict) else {"text": page})
            for number, page in pages.items()
        ]
    if not isinstance(pages, list):
        return []
    done = {"ocr_status": "completed"}
    return [
        done | {"page_number": number} | (page if isinstance(page, dict) else {"text": page})
        for number, page in enumerate(pages, 1)
        if isinstance(page, dict | str)
    ]


def _page_text(page: Columns) -> FinishedPage:
    done = read_status(page.text("ocr_status", "status"), **_WORDS) is Status.DONE
    path, text = page.text(*_PAGE_FILE), page.text(*_PAGE_TEXT)
    number = page.number(*_NUMBER) or 0
    return FinishedPage(number, path, text) if done else FinishedPage(number)


def _sha256(columns: Columns) -> str | None:
    found = (columns.text(*_HASH) or "").lower().removeprefix("sha256:")
    return found if re.fullmatch(r"[0-9a-f]{64}", found) else None


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
