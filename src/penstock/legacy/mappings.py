"""Mappings: rows of other queues, the jobs that they become, and the values of their columns."""

from __future__ import annotations

import base64
import math
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import islice
from typing import Any, Protocol, TypeAlias

import msgspec

from penstock.catalog.rules.phases import PHASES
from penstock.errors import InvalidRequest, UnknownStatus
from penstock.queue.job import Status
from penstock.queue.payloads import ITEM_TYPES
from penstock.redis_contract import messages
from penstock.redis_contract.lists import DEAD_LETTER, NORMAL, PRIORITIES, QUEUE
from penstock.service.adoption import AdoptedPage
from penstock.vocabulary import understand

_LONGEST_EXTRA = 2_000
"""Characters of a column without a meaning here that are kept in the metadata of the job."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
RETIRED = "_retired"
"""Suffix of tables, keys and files that an import has set aside."""


_ERROR_UNKNOWN = "failed in the queue that it was imported from, which kept no message"
_STARTS_AGAIN = "was in progress; starts again"
_FLAGS = {
    "1": True,
    "0": False,
    "true": True,
    "false": False,
    "t": True,
    "f": False,
    "yes": True,
    "no": False,
}


class LegacyRow(msgspec.Struct, frozen=True):
    """A row of another queue. ``fault``: why its values could not be read."""

    table: str
    row_id: str
    values: Mapping[str, Any] = {}
    fault: str | None = None


class FinishedReading(msgspec.Struct, frozen=True, kw_only=True):
    """A document that was read completely. ``read_at`` None: unknown; ``sha256``: of the file, if known.

    ``embedded`` and ``extracted``: vectors and entities were made there. They are in other stores.
    """

    pages: tuple[AdoptedPage, ...]
    read_at: datetime | None = None
    sha256: str | None = None
    embedded: bool = False
    extracted: bool = False


class PlannedJob(msgspec.Struct, frozen=True, kw_only=True):
    """The job planned for a row. None: the default of a new job.

    ``job_id``: the id of the row, kept if it can be one. ``extra``: columns without a meaning here.
    ``note``: what changed on the way, for the report.
    """

    item_type: str
    op: str
    payload: Mapping[str, Any]
    status: Status
    tenant_id: str | None = None
    collection: str | None = None
    branch: str | None = None
    priority: int | None = None
    max_retries: int | None = None
    retry_count: int = 0
    timeout_s: int | None = None
    run_at: datetime | None = None
    created_at: datetime | None = None
    started_at: datetime | None = None
    error_message: str | None = None
    error_code: str | None = None
    job_id: str | None = None
    dedupe: bool = True
    rebuild: bool = False
    path: str | None = None
    """A file that the job needs; a job whose file is gone fails at once, with this reason."""
    total_chunks: int = 0
    extra: Mapping[str, Any] = {}
    note: str | None = None
    reading: FinishedReading | None = None
    """Text of the file, which need not be read again. None: it was not read, or not completely."""


class PartOf(msgspec.Struct, frozen=True):
    """A row merged into the job of another one."""

    table: str
    row_id: str
    note: str


Planned: TypeAlias = PlannedJob | PartOf


class Unmappable(Exception):
    """A row without an equivalent job; the message is the reason."""


class LegacySource(Protocol):
    """A store of another queue, opened for reading. ``identity``: its address without user and password."""

    identity: str
    shown: str
    """The address as people gave it, without its password."""

    def count(self) -> int:
        """Count the rows, for the time left."""

    def rows(self) -> Iterator[LegacyRow]:
        """Read all rows, oldest first as far as their times tell, in bounded memory."""

    def retire(self) -> list[str]:
        """Set the tables, keys or files aside, reversibly. Returns their new names."""

    def drop(self) -> list[str]:
        """Delete the tables, keys or files, also those set aside. Returns their names."""

    def close(self) -> None: ...


class TableSource(LegacySource, Protocol):
    """Tables of a database."""

    def parts(self, table: str, column: str, values: Sequence[Any]) -> Iterator[Mapping[str, Any]]:
        """Read the rows of another table with one of these values in a column; none without the table."""


class _Columns:
    """The columns of a row by name, in any case; ``extra`` has the unread ones."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = {str(name).lower(): value for name, value in values.items()}
        self._used: set[str] = set()

    def value(self, *names: str) -> Any:
        """The first value among these columns."""
        self._used.update(names)
        return next((found for name in names if (found := self._values.get(name)) not in (None, "")), None)

    def text(self, *names: str) -> str | None:
        value = self.value(*names)
        if isinstance(value, bytes):
            value = value.decode("utf-8", "surrogateescape")
        return None if value is None else str(value)

    def required(self, what: str, *names: str) -> str:
        found = self.text(*names)
        if found is None:
            raise Unmappable(f"it has no {what} (column {' or '.join(names)})")
        return found

    def number(self, *names: str) -> int | None:
        value = self.value(*names)
        if value is None or isinstance(value, bool):
            return None if value is None else int(value)
        try:
            return int(str(value).strip())
        except ValueError:
            raise Unmappable(f"{names[0]}: {str(value)[:80]!r} is not a whole number") from None

    def flag(self, *names: str) -> bool | None:
        value = self.value(*names)
        if value is None or isinstance(value, bool):
            return value
        word = str(value).strip().lower()
        if word not in _FLAGS:
            raise Unmappable(f"{names[0]}: {str(value)[:80]!r} is neither true nor false")
        return _FLAGS[word]

    def time(self, *names: str) -> datetime | None:
        """A time; None without a value. Times without a zone are UTC."""
        for name in names:
            if (found := self.value(name)) is not None and (moment := _read_time(found)) is not None:
                return moment
        return None

    def json(self, *names: str) -> Any:
        """JSON, decoded; a database may have decoded it already."""
        value = self.value(*names)
        if not isinstance(value, str | bytes | memoryview):
            return value
        try:
            return msgspec.json.decode(bytes(value) if isinstance(value, memoryview) else value)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise Unmappable(f"{names[0]} is not JSON: {error}") from None

    def object(self, *names: str) -> dict[str, Any]:
        found = self.json(*names)
        if found is None:
            return {}
        if not isinstance(found, dict):
            raise Unmappable(f"{names[0]}: expected a JSON object, got {type(found).__name__}")
        return found

    def ignore(self, *names: str) -> None:
        """Leave columns out of the extra ones: they have a meaning only in their own store."""
        self._used.update(names)

    def extra(self) -> dict[str, Any]:
        """Columns that were not read, as JSON values."""
        rest = {name: value for name, value in self._values.items() if name not in self._used}
        return {name: _plain(value) for name, value in rest.items() if value not in (None, "", [], {})}


def _plain(value: Any) -> Any:
    """A value of a database as JSON, cut if it is long."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, bool | int | float) or value is None:
        return value
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, bytes | memoryview):
        return base64.b64encode(bytes(value)[:_LONGEST_EXTRA]).decode()
    text = msgspec.json.encode(value).decode() if isinstance(value, dict | list) else str(value)
    if isinstance(value, dict | list) and len(text) <= _LONGEST_EXTRA:
        return value
    return storable_text(text[:_LONGEST_EXTRA])


def storable_text(text: str) -> str:
    """Text storable in every engine: without NUL and lone surrogates."""
    text = text.replace("\0", "\ufffd")
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _read_time(value: Any) -> datetime | None:
    """A time as databases and programs write it: ISO 8601, or seconds or milliseconds since 1970."""
    try:
        if isinstance(value, datetime):
            moment = value
        elif isinstance(value, int | float) or re.fullmatch(r"\d{9,16}(\.\d+)?", str(value).strip()):
            number = float(value)
            moment = EPOCH + timedelta(seconds=number / 1000 if number > 1e11 else number)
        else:
            moment = datetime.fromisoformat(str(value).strip())
        found = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return found if found.year >= 1971 else None


def _read_status(word: str | None, default: Status = Status.PENDING, **others: Status) -> Status:
    """The status behind a word of any queue; ``others``: words of this queue only."""
    if word is None:
        return default
    known = others.get(word.strip().lower())
    if known is not None:
        return known
    try:
        return Status(understand(word))
    except (UnknownStatus, ValueError):
        raise Unmappable(f"unknown status {word[:80]!r}") from None


UNIFIED_TABLES = ("unified_queue",)
FUNCTION_TABLES = ("task_queue",)
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
    columns = _Columns(row.values)
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


def _tolerant(columns: _Columns) -> Any:
    try:
        return columns.json("metadata") or {}
    except Unmappable:
        return columns.text("metadata")


def _ingestion_queue(row: LegacyRow) -> PlannedJob:
    """Map a file that waits to be indexed, or to be removed from the index."""
    columns = _Columns(row.values)
    op = _file_operation(columns)
    return _file_job(columns, op)


def _missing_metadata_queue(row: LegacyRow) -> PlannedJob:
    """Map a file whose tools were missing: Penstock reads it without them."""
    columns = _Columns(row.values)
    op = _file_operation(columns)
    return _file_job(columns, "update" if op == "ingest" else op)


def _cumulative_deletions_queue(row: LegacyRow) -> PlannedJob:
    """Map a deletion that was to be done later, with others."""
    columns = _Columns(row.values)
    columns.ignore("operation", "op")
    done = columns.time("deleted_at") is not None
    return _file_job(columns, "delete", done=done)


def _content_ingestion_queue(row: LegacyRow) -> PlannedJob:
    """Map a text that waits to be indexed."""
    columns = _Columns(row.values)
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
    columns = _Columns(row.values)
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
    "ingestion_queue": _ingestion_queue,
    "content_ingestion_queue": _content_ingestion_queue,
    "processing_queue": _ingestion_queue,
    "missing_metadata_queue": _missing_metadata_queue,
    "cumulative_deletions_queue": _cumulative_deletions_queue,
}
"""The five queues that the unified one replaced, with their mappings."""


def predecessor(row: LegacyRow) -> PlannedJob:
    """Map a row of one of the five queues before the unified one."""
    return PREDECESSORS[row.table](row)


def _file_operation(columns: _Columns) -> str:
    word = (columns.text("operation", "op") or "ingest").strip().lower()
    op = {"add": "ingest", "create": "ingest", "index": "ingest", "modify": "update", "remove": "delete"}
    word = op.get(word, word)
    if word not in ("ingest", "update", "delete"):
        raise Unmappable(f"unknown operation {word[:80]!r}; known are ingest, update and delete")
    return word


def _file_job(columns: _Columns, op: str, *, done: bool = False) -> PlannedJob:
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
    columns: _Columns,
    *,
    item_type: str,
    op: str,
    payload: dict[str, Any],
    done: bool = False,
    extra: dict[str, Any] | None = None,
    ids: tuple[str, ...] = _ID,
) -> PlannedJob:
    """Read the columns that all queues in tables have under some name."""
    status = _read_status(columns.text("status"), Status.DONE if done else Status.PENDING, **_WORDS)
    was_running = status is Status.IN_PROGRESS
    error = columns.text(*_ERROR)
    if status is Status.FAILED and error is None:
        error = _ERROR_UNKNOWN
    columns.ignore(*_CLAIM)
    return PlannedJob(
        item_type=item_type,
        op=op,
        payload=payload,
        status=Status.PENDING if was_running else status,
        note=_STARTS_AGAIN if was_running else None,
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


TABLES = ("documents", "task_queue_page", "task_queue_chunk")
"""Owners before their parts."""
_DOCUMENT_PATH = (
    "file_path",
    "path",
    "source_path",
    "storage_path",
    "absolute_path",
    "original_path",
    "filepath",
)
_DOCUMENT_WORDS = {
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
DOCUMENTS, _PAGES, _CHUNKS = TABLES
_OWNER = "document_id"
_PAGES_OF, _FAULTS_OF = "penstock_pages", "penstock_faults"
"""Columns added to a document: the rows of its pages, and those of its chunks that failed."""
_AT_ONCE = 200
"""Documents whose pages are read together."""
READ_AGAIN = "was read there; is read again here"
_DOCUMENT_STARTS_AGAIN = "was half done; starts again"
_PAGE_FILE = ("page_file_path", "markdown_path", "output_path", "md_path", "file_path", "path")
_PAGE_TEXT = ("markdown", "page_text", "text", "content")
_NUMBER = ("page_number", "page", "page_no", "number")
_HASH = ("sha256", "file_sha256", "file_hash", "content_hash", "checksum")
_SHOWN_FAULTS = 10


def with_parts(source: TableSource) -> Iterator[LegacyRow]:
    """Read the rows of the tables, each document with its pages and with its chunks that failed."""
    rows = source.rows()
    while some := list(islice(rows, _AT_ONCE)):
        owners = [row.values["id"] for row in some if row.table == DOCUMENTS and row.values.get("id")]
        pages = _by_owner(source.parts(_PAGES, _OWNER, owners)) if owners else {}
        failed = [row.values["id"] for row in some if row.table == DOCUMENTS and _has_failed(row.values)]
        chunks = _by_owner(filter(_has_failed, source.parts(_CHUNKS, _OWNER, failed))) if failed else {}
        for row in some:
            if row.table == DOCUMENTS:
                owner = str(row.values.get("id"))
                more = {_PAGES_OF: pages.get(owner, []), _FAULTS_OF: chunks.get(owner, [])}
                row = msgspec.structs.replace(row, values={**row.values, **more})
            yield row


def _by_owner(parts: Iterable[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    found: dict[str, list[Mapping[str, Any]]] = {}
    for part in parts:
        found.setdefault(str(part[_OWNER]), []).append(part)
    return found


def _has_failed(values: Mapping[str, Any]) -> bool:
    return any(
        str(value).lower() in ("failed", "error") for name, value in values.items() if "status" in name
    )


def task_tables(row: LegacyRow) -> Planned:
    """Map a document, or a page or chunk of one, with a status for each phase.

    A document becomes one job for its file, to which its pages and chunks belong. If all its pages were read,
    their text is taken over, and the file is not read again. Vectors and entities are in other stores of that
    system, and are made here.
    """
    if row.table == DOCUMENTS:
        return _document(_Columns(row.values))
    columns = _Columns(row.values)
    owner = columns.required("document", _OWNER)
    for name in _phase_columns("{}_status"):
        _read_status(columns.text(name), **_DOCUMENT_WORDS)
    part = "page" if row.table == _PAGES else "chunk"
    errors = "; ".join(_phase_errors(columns))
    return PartOf(
        DOCUMENTS, owner, f"a {part} of its document" + (f"; it failed there: {errors}" if errors else "")
    )


def _phase_columns(pattern: str) -> list[str]:
    return [pattern.format(phase) for phase in PHASES]


def _document(columns: _Columns) -> PlannedJob:
    path = _path(columns)
    statuses = _statuses(columns)
    errors = _phase_errors(columns)
    errors += [text for name in ("error_message", "error") if (text := columns.text(name)) is not None]
    pages = [_Columns(page) for page in columns.value(_PAGES_OF) or ()]
    faults = _faults(pages, [_Columns(chunk) for chunk in columns.value(_FAULTS_OF) or ()])
    details = columns.json("ocr_details") if not pages else None
    status, note, reading = Status.PENDING, None, None
    if Status.FAILED in statuses:
        status = Status.FAILED
        errors += faults
    elif statuses[0] is Status.DONE:
        note = READ_AGAIN
        reading = _reading(columns, pages, details, statuses)
    elif set(statuses) != {Status.PENDING}:
        note = _DOCUMENT_STARTS_AGAIN
    created_at = columns.time("created_at", "uploaded_at", "upload_time")
    payload: dict[str, Any] = {"file_path": path}
    columns.ignore("current_worker_id", "last_heartbeat", "updated_at", "id")
    for pattern in ("{}_started_at", "{}_completed_at"):
        columns.ignore(*_phase_columns(pattern))
    extra = columns.extra()
    if faults:
        extra["failed_parts"] = [_plain(fault) for fault in faults]
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
        error_message="; ".join(dict.fromkeys(errors)) or _ERROR_UNKNOWN if status is Status.FAILED else None,
        path=path,
        extra=extra,
        note=note,
    )


def _phase_errors(columns: _Columns) -> list[str]:
    return [text for name in _phase_columns("{}_error") if (text := columns.text(name)) is not None]


def _faults(pages: list[_Columns], chunks: list[_Columns]) -> list[str]:
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
    more = len(found) - _SHOWN_FAULTS
    return found[:_SHOWN_FAULTS] + ([f"and {more:,} more"] if more > 0 else [])


def _reading(
    columns: _Columns, pages: list[_Columns], details: Any, statuses: list[Status]
) -> FinishedReading:
    """The text of the pages: of their rows, or of the details from before there were rows."""
    found = pages or [_Columns(page) for page in _detailed(details)]
    read = [
        page
        for page in found
        if _read_status(page.text("ocr_status", "status"), **_DOCUMENT_WORDS) is Status.DONE
    ]
    times = [columns.value("ocr_completed_at"), *(page.value("ocr_completed_at") for page in read)]
    moments = [moment for value in times if value is not None and (moment := _read_time(value)) is not None]
    return FinishedReading(
        # A page that was not read leaves a gap in the numbers, or a page without text.
        pages=tuple(map(_page_text, found)),
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


def _page_text(page: _Columns) -> AdoptedPage:
    done = _read_status(page.text("ocr_status", "status"), **_DOCUMENT_WORDS) is Status.DONE
    path, text = page.text(*_PAGE_FILE), page.text(*_PAGE_TEXT)
    number = page.number(*_NUMBER) or 0
    return AdoptedPage(number, path, text) if done else AdoptedPage(number)


def _sha256(columns: _Columns) -> str | None:
    found = (columns.text(*_HASH) or "").lower().removeprefix("sha256:")
    return found if re.fullmatch(r"[0-9a-f]{64}", found) else None


def _path(columns: _Columns) -> str:
    found = columns.text(*_DOCUMENT_PATH)
    if found is None:
        name = columns.text("filename", "file_name", "original_filename")
        if name is None:
            raise Unmappable(f"it names no file (column {' or '.join((*_DOCUMENT_PATH, 'filename'))})")
        found = name
    if not posixpath.isabs(found):
        raise Unmappable(f"{found[:200]!r} is not an absolute path: the file cannot be found")
    return found


def _statuses(columns: _Columns) -> list[Status]:
    """Statuses of the phases: of a column for each, or of the two columns from before there were phases."""
    words = [columns.text(name) for name in (rule.document_status for rule in PHASES.values())]
    former = [columns.text("convert_status"), columns.text("index_status")]
    if not any(words):
        words = former
    elif any(former):
        # Both were kept for a while. A phase that was never started may have been done before the change.
        convert, index = former
        pairs = zip(words, [convert, *[index] * (len(PHASES) - 1)], strict=True)
        words = [old if word in (None, "pending") else word for word, old in pairs]
    if not any(words):
        return [Status.PENDING]
    return [_read_status(word, **_DOCUMENT_WORDS) for word in words]


_ONE_FILE = "its reindex indexes this file again and removes no others: penstock collection clear does"
HASHES = "rag:ingest:job"
"""Name of the status hashes in reports."""
_STATUS_FIELDS = ("status", "submitted_at", "rag_id", "filename")


class RagPlace(msgspec.Struct, frozen=True):
    """Collection and tenant of a configured RAG."""

    collection: str
    tenant_id: str | None


def redis_contract(row: LegacyRow, *, rags: Mapping[str, RagPlace] | None = None) -> Planned:
    """Map a message in a list, or the status hash of a job. ``rags`` None: there is no configuration."""
    planned = _status_hash(row) if row.table == HASHES else _job_of_message(row)
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


def _job_of_message(row: LegacyRow) -> PlannedJob:
    columns = _Columns(row.values)
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
        error_message=(error_message or _ERROR_UNKNOWN) if dead else None,
        error_code=columns.text("error_code") if dead else None,
        job_id=message.job_id,
        # Each message is a job of its own, as the contract says; only the id tells two of them apart.
        dedupe=False,
        rebuild=message.options.reindex,
        note=_ONE_FILE if message.options.reindex and not dead else None,
        extra={"filename": message.filename, "submitted_by": message.submitted_by} | columns.extra(),
    )


_FIELDS = tuple(messages.Message.__struct_fields__)


def _status_hash(row: LegacyRow) -> Planned:
    columns = _Columns(row.values)
    status = _read_status(columns.required("status", "status"))
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
        error_message=(error or _ERROR_UNKNOWN) if failed else None,
        error_code=code if failed else None,
        job_id=job_id,
        dedupe=False,
        total_chunks=columns.number("chunks_created") or 0,
        extra=columns.extra(),
        note=_STARTS_AGAIN if running else None,
    )


IN_LIST = "penstock_in_list"
"""Column that a source adds to a status hash: the list that has the message of the job."""


def job_record(row: LegacyRow) -> PlannedJob:
    """Map the last record of a job in a journal: a folder to be indexed."""
    columns = _Columns(row.values)
    status = _read_status(columns.text("status"))
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
        error_message=(error or _ERROR_UNKNOWN) if status is Status.FAILED else None,
        job_id=columns.text("id", "job_id"),
        timeout_s=columns.number("timeout_s"),
        total_chunks=columns.number("total_chunks") or 0,
        extra=columns.extra(),
        note=_STARTS_AGAIN if running else None,
    )
