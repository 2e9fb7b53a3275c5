"""Values of the contract: messages, error reports, the fields of status hashes, and health. Pure."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

from penstock import vocabulary
from penstock.errors import InvalidMessage, InvalidRequest, PayloadTooLarge, UnsupportedSource
from penstock.queue import payloads
from penstock.queue.job import Job, Status

SourceType: TypeAlias = Literal["pdf", "txt", "md", "docx"]
SOURCE_TYPES = ("pdf", "txt", "md", "docx")
_SUBMITTERS = ("cli", "api", "scheduled")
MAX_BYTES = 1 << 20
"""Limit of a message. A path and some options take a few hundred bytes."""
_MAX_RETRIES = 1000
_MAX_DEPTH = 100
_MAX_PATH = 4095
_MAX_PART = 255
"""Limits of a path and of one name in it, in bytes. Resolving longer paths can take minutes."""

_Text: TypeAlias = Annotated[str, Meta(min_length=1)]
_Retries: TypeAlias = Annotated[int, Meta(ge=0, le=_MAX_RETRIES)]
_OPTIONAL = ("submitted_by", "options", "retry_count", "max_retries", "tags", "metadata")


class MessageOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a message.

    ``reindex``: index again even if nothing changed, then remove the documents of the collection that were
    asked for before. ``skip_validation``: detect the content type and ignore ``source_type``.
    ``preserve_metadata``: keep the existing tags and metadata of the document.
    """

    reindex: bool = False
    skip_validation: bool = False
    preserve_metadata: bool = True


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """Request to index one file. ``tags`` and ``metadata`` are Penstock's additions to the contract.

    A message may have other fields as well, which are kept.
    """

    job_id: _Text
    rag_id: _Text
    source_path: _Text
    source_type: SourceType
    filename: _Text
    submitted_at: _Text
    submitted_by: Literal["cli", "api", "scheduled"] = "cli"
    options: MessageOptions = MessageOptions()
    retry_count: _Retries = 0
    max_retries: _Retries = 3
    tags: tuple[_Text, ...] = ()
    metadata: dict[str, Any] = {}

    @property
    def retries_left(self) -> int:
        return max(self.max_retries - self.retry_count, 0)


def decode(raw: bytes) -> dict[str, Any]:
    """Decode the JSON object of a message, with any fields."""
    try:
        found = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidMessage(f"the message is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise InvalidMessage(f"the message is not a JSON object, but {_type_name(found)}")
    _refuse_deep(found)
    return found


def _refuse_deep(found: dict[str, Any]) -> None:
    """Refuse deep nesting: inside a job's metadata, or with a deeper stack, decoding would fail later."""
    level: list[Any] = [found]
    for _ in range(_MAX_DEPTH):
        inner = (one.values() if isinstance(one, dict) else one for one in level)
        level = [value for values in inner for value in values if isinstance(value, dict | list)]
        if not level:
            return
    raise InvalidMessage(f"the message is nested more than {_MAX_DEPTH} deep")


def read(given: Mapping[str, Any]) -> Message:
    """Validate a message. Raises ``InvalidMessage`` with the invalid field."""
    fields = {key: value for key, value in given.items() if value is not None or key not in _OPTIONAL}
    source_type = fields.get("source_type")
    if isinstance(source_type, str):
        fields["source_type"] = source_type = source_type.strip().lower()
        if source_type not in SOURCE_TYPES:
            known = ", ".join(SOURCE_TYPES)
            raise UnsupportedSource(f"field 'source_type': expected one of {known}, got {source_type[:80]!a}")
    try:
        message = msgspec.convert(fields, Message)
        payloads.validate_name("job_id", message.job_id)
    except msgspec.ValidationError as error:
        raise InvalidMessage(_field_first(str(error))) from None
    except InvalidRequest as error:
        raise InvalidMessage(f"field 'job_id': {error.message}", remedy=error.remedy) from None
    _refuse_bad_path(message)
    _refuse_bad_name(message.filename)
    _refuse_bad_time(message.submitted_at)
    return message


def _refuse_bad_path(message: Message) -> None:
    if not posixpath.isabs(message.source_path) or "\0" in message.source_path:
        shown = message.source_path[:200]
        raise InvalidMessage(f"field 'source_path': expected an absolute path, got {shown!a}")
    written = message.source_path.encode("utf-8", "replace")
    if len(written) > _MAX_PATH or max(map(len, written.split(b"/"))) > _MAX_PART:
        raise InvalidMessage(
            f"field 'source_path': no path is longer than {_MAX_PATH} bytes, no name in it than {_MAX_PART}"
        )


def _refuse_bad_name(filename: str) -> None:
    """Refuse names which cannot be file names in the inbox folders."""
    plain = "/" not in filename and "\0" not in filename and filename not in (".", "..")
    # Room for `.error.json` and a number within the 255 bytes that file systems allow.
    if not plain or len(filename.encode("utf-8", "replace")) > 230:
        raise InvalidMessage(f"field 'filename': expected a name without a folder, got {filename[:200]!a}")


def _refuse_bad_time(submitted_at: str) -> None:
    try:
        parse_time(submitted_at)
    except (ValueError, OverflowError):
        raise InvalidMessage(
            f"field 'submitted_at': expected ISO 8601 in UTC, got {submitted_at[:80]!a}",
            remedy="Write it as 2026-01-31T12:00:00.000000Z.",
        ) from None


def parse_time(submitted_at: str) -> datetime:
    """Parse a time of the contract. Times without a zone are UTC."""
    moment = datetime.fromisoformat(submitted_at.strip())
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _field_first(complaint: str) -> str:
    """Reword a msgspec error to begin with the field."""
    what, _, where = complaint.partition(" - at ")
    match = re.search(r"\$\.([^`]+)", where)
    if match is None:
        return what.removeprefix("Object ").replace("`", "'")
    if what.startswith("Invalid enum value") and match[1] == "submitted_by":
        what = f"expected one of {', '.join(_SUBMITTERS)}"
    return f"field '{match[1]}': {what.replace('`', '').replace('Expected', 'expected')}"


def _type_name(value: object) -> str:
    words = {list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return words.get(type(value), "a number")


FAILURE_CODES: Mapping[str, str] = MappingProxyType(
    {
        "ERR_PDF_INVALID": "Redis contract: a PDF that cannot be read; `ERR_PARSE` elsewhere.",
        "ERR_DOCX_INVALID": "Redis contract: a Word document that cannot be read; `ERR_PARSE` elsewhere.",
        "ERR_JOB_REMOVED": "Redis contract: the job was removed from the queue before its end was seen.",
    }
)
"""Error codes that occur only in the hashes and error files of the contract."""

_PARSE_CODES = {"pdf": "ERR_PDF_INVALID", "docx": "ERR_DOCX_INVALID"}
_RESEND = "Send the job again; nothing is wrong with the file"
_CHECK_PERMISSIONS = "Check file permissions (must be readable)"
_REEXPORT = "Try re-exporting the document from its original source"

_REPORTS: Mapping[str, tuple[str, tuple[str, ...]]] = MappingProxyType(
    {
        "ERR_FILE_NOT_FOUND": (
            "FileNotFound",
            ("Put the file back at {path} and send the job again", "Check that it was not processed already"),
        ),
        "ERR_UNSUPPORTED_TYPE": (
            "UnsupportedType",
            (
                "Compare source_type with what the file is: file {filename}",
                "Convert it to pdf, txt, md or docx",
                "Try with --skip-validation to have it read by its content",
            ),
        ),
        "ERR_UNSUPPORTED_SOURCE": ("UnsupportedType", ("Use source_type pdf, txt, md or docx",)),
        "ERR_PARSE": ("ParseError", (_REEXPORT, _CHECK_PERMISSIONS)),
        "ERR_PDF_INVALID": (
            "ParseError",
            (
                "Verify PDF is valid using: pdfinfo {filename}",
                "Try re-exporting the PDF from original source",
                _CHECK_PERMISSIONS,
                "Try with --skip-validation flag (use with caution)",
            ),
        ),
        "ERR_DOCX_INVALID": (
            "ParseError",
            ("Open {filename} with a word processor and save it again", _CHECK_PERMISSIONS),
        ),
        "ERR_NO_TEXT": ("NoText", ("Scanned pages need OCR: set PENSTOCK_OCR=true",)),
        "ERR_ENCRYPTED": ("Encrypted", ("Save {filename} without a password and send it again",)),
        "ERR_TOO_LARGE": ("TooLarge", ("Split the file, or raise PENSTOCK_MAX_FILE_MB",)),
        "ERR_PERMISSION": ("PermissionDenied", (_CHECK_PERMISSIONS,)),
        "ERR_PARSER_FAILED": ("ParserFailed", (_REEXPORT, "Look at the file: it is damaged or hostile")),
        "ERR_FILE_TIME": ("Timeout", ("Split the file, or raise PENSTOCK_FILE_TIME_S",)),
        "ERR_FILE_MEMORY": ("OutOfMemory", ("Split the file, or raise PENSTOCK_FILE_MEMORY_MB",)),
        "ERR_COMPONENT_MISSING": (
            "ConfigurationError",
            ("Install the component named in the message on the workers", _RESEND),
        ),
        "ERR_UNKNOWN_RAG": (
            "InvalidRagId",
            ("Use a RAG id of the configuration", "Add it there and restart the gateway"),
        ),
        "ERR_OUTSIDE_RAG": (
            "PathNotAllowed",
            ("Put the file into the RAG's incoming folder", "Name its folder in the configuration"),
        ),
        "ERR_INVALID_MESSAGE": ("InvalidMessage", ("Mend the field the error names and send it again",)),
        "ERR_DUPLICATE_ID": ("DuplicateJobId", ("Give every message a different job_id",)),
        "ERR_CANCELLED": ("Cancelled", ("Send the job again if it is still wanted",)),
        "ERR_JOB_TIMEOUT": ("Timeout", ("Split the file, or raise PENSTOCK_JOB_TIMEOUT_S",)),
        "ERR_WORKER_LOST": ("WorkerLost", ("Look at the workers' log around that time", _RESEND)),
        "ERR_DISK_FULL": ("DiskFull", ("Free some space", _RESEND)),
        "ERR_OUT_OF_MEMORY": ("OutOfMemory", ("Run fewer workers, or give them more memory", _RESEND)),
        "ERR_NETWORK": ("NetworkError", ("Check the service the error names", _RESEND)),
        "ERR_TIMEOUT": ("Timeout", ("Check the service the error names", _RESEND)),
        "ERR_SERVICE": ("ServiceUnavailable", ("Check the service the error names", _RESEND)),
        "ERR_RATE_LIMITED": ("RateLimited", ("Wait, or raise the service's limit", _RESEND)),
        "ERR_OUTAGE": ("ServiceUnavailable", ("Check the service the error names", _RESEND)),
        "ERR_JOB_REMOVED": ("Removed", ("Send the job again if it is still wanted",)),
    }
)


class ErrorReport(msgspec.Struct, frozen=True):
    """An error in the words of the contract, with suggestions."""

    error: str
    error_type: str
    error_code: str
    suggestions: tuple[str, ...]


def describe_error(
    code: str | None, message: str | None, *, source_type: str, filename: str, path: str
) -> ErrorReport:
    """Build the contract's report of an error."""
    code = code or "ERR_UNKNOWN"
    if code == "ERR_PARSE":
        code = _PARSE_CODES.get(source_type, code)
    error_class, text = _split(message or "")
    error_type, hints = _REPORTS.get(
        code, (error_class or "Error", ("Read the message of the error", _RESEND))
    )
    suggestions = tuple(hint.format(filename=filename, path=path) for hint in hints)
    return ErrorReport(text or code, error_type, code, suggestions)


def _split(message: str) -> tuple[str, str]:
    """Split an error stored as ``Class: text``."""
    match = re.match(r"([A-Z]\w+): (?=.)", message)
    return (match[1], message[match.end() :]) if match else ("", message)


MESSAGE = "message"
MANAGED = "managed"
SERIES = "reindex_since"
"""Keys in a job's metadata: the original message, whether the file is in the inbox, and the beginning of the
series that a message with ``reindex`` belongs to."""

STATUS_FIELDS = (
    "job_id rag_id filename status submitted_at started_at completed_at duration_seconds chunks_created "
    "embeddings_generated tokens_used error error_type retry_count error_code max_retries outcome "
    "source_path updated_at file file_error waiting"
).split()
"""The contract's fourteen fields, then those that Penstock adds. Unknown values are empty text: a hash has no
null."""
SUBMITTED = "submitted"
"""Status that producers may write before a gateway has taken the message."""
QUEUED = vocabulary.speak(Status.PENDING, "redis")
PROCESSING = vocabulary.speak(Status.IN_PROGRESS, "redis")
DONE = vocabulary.speak(Status.DONE, "redis")
FAILED = vocabulary.speak(Status.FAILED, "redis")
_NUMBERS = frozenset(
    "duration_seconds chunks_created embeddings_generated tokens_used retry_count max_retries".split()
)


class Count(msgspec.Struct, frozen=True):
    """Chunks and embeddings created so far."""

    chunks: int = 0
    embeddings: int = 0


def initial_fields(message: Message, status: str = QUEUED) -> dict[str, str]:
    """Build the fields of a message on which no work has started."""
    return dict.fromkeys(STATUS_FIELDS, "") | {
        "job_id": message.job_id,
        "rag_id": message.rag_id,
        "filename": message.filename,
        "status": status,
        "submitted_at": message.submitted_at,
        "chunks_created": "0",
        "embeddings_generated": "0",
        "tokens_used": "0",
        "retry_count": str(message.retry_count),
        "max_retries": str(message.max_retries),
        "source_path": message.source_path,
    }


def job_fields(job: Job, message: Message, progress: Count) -> dict[str, str]:
    """Build the fields of a job. A started job is ``processing`` until the end, also between attempts."""
    if _was_requeued(job):
        return initial_fields(message)
    begun = job.claim_number > 0 and not job.ended
    status = vocabulary.speak(Status.IN_PROGRESS if begun else job.status, "redis")
    fields = initial_fields(message, status) | {
        "started_at": _time(job.started_at),
        "completed_at": _time(job.finished_at),
        "chunks_created": str(progress.chunks),
        "embeddings_generated": str(progress.embeddings),
        "retry_count": str(message.retry_count + job.retry_count),
    }
    if job.started_at is not None and job.finished_at is not None:
        fields["duration_seconds"] = _seconds(job.finished_at - job.started_at)
    if job.status is Status.DONE:
        return fields | _result_fields(job.result)
    if job.error_message or job.error_code:
        report = job_error(job, message)
        fields |= {"error": report.error, "error_type": report.error_type, "error_code": report.error_code}
    return fields


def _was_requeued(job: Job) -> bool:
    """Check whether a requeued job has not started again: its row still holds values of the last run."""
    history = job.history if job.status is Status.PENDING else []
    return bool(history) and history[-1].what == "requeued"


def _result_fields(result: Any) -> dict[str, str]:
    made = result if isinstance(result, dict) else {}
    return {
        "chunks_created": str(made.get("chunks", 0)),
        "embeddings_generated": str(made.get("embedded", 0)),
        "tokens_used": str(made.get("tokens", 0)),
        "outcome": str(made.get("outcome", "")),
    }


def refused_fields(message: Message, report: ErrorReport, now: datetime) -> dict[str, str]:
    """Build the fields of a message refused before a job was made."""
    return initial_fields(message, FAILED) | {
        "completed_at": _time(now),
        "error": report.error,
        "error_type": report.error_type,
        "error_code": report.error_code,
    }


def job_error(job: Job, message: Message) -> ErrorReport:
    return describe_error(
        job.error_code,
        job.error_message,
        source_type=message.source_type,
        filename=message.filename,
        path=message.source_path,
    )


def waiting_fields(message: Message) -> dict[str, str]:
    """Build the fields of a message for a RAG without a running gateway."""
    return initial_fields(message) | {"waiting": f"for a gateway that serves RAG {message.rag_id}"}


def error_record(fields: Mapping[str, str], report: ErrorReport, traceback: str | None) -> dict[str, Any]:
    """Build the content of ``failed/<filename>.error.json``. ``traceback`` None: nothing was raised."""
    shown = to_json_values(fields)
    names = ("job_id", "rag_id", "filename", "status", "submitted_at", "started_at")
    return {name: shown[name] for name in names} | {
        "failed_at": shown["completed_at"],
        "error": report.error,
        "error_type": report.error_type,
        "error_code": report.error_code,
        "retry_count": shown["retry_count"],
        "max_retries": shown["max_retries"],
        "suggestions": list(report.suggestions),
        "traceback": traceback,
    }


def to_json_values(fields: Mapping[str, str]) -> dict[str, Any]:
    """Convert a hash to JSON values: numbers as numbers, empty text as null."""
    return {name: _value(name, text) for name, text in fields.items()}


def _value(name: str, text: str) -> Any:
    if text == "":
        return None
    if name not in _NUMBERS:
        return text
    try:
        return int(text) if text.lstrip("-").isdecimal() else float(text)
    except ValueError:
        return text  # written by another program


def _time(moment: datetime | None) -> str:
    return "" if moment is None else moment.isoformat(timespec="microseconds")[:26] + "Z"


def _seconds(span: timedelta) -> str:
    return f"{max(span.total_seconds(), 0.0):.3f}".rstrip("0").rstrip(".")


_CONNECTED_S = 5.0
"""By the contract, a gateway with a heartbeat younger than this is connected."""


class SubmitRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a submission. None: derived from the file, or the contract's default."""

    source_type: str | None = None
    reindex: bool = False
    skip_validation: bool = False
    preserve_metadata: bool = True
    priority: str | None = None
    max_retries: int | None = None
    submitted_by: str = "cli"
    tags: tuple[str, ...] = ()


class PreparedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A checked message and the target list."""

    message: dict[str, Any]
    key: str
    collection: str
    moves: bool
    """The file is in the inbox and will be moved."""


class GatewayHealth(msgspec.Struct, frozen=True, kw_only=True):
    """The last heartbeat of a gateway. ``beat_age_s`` None: stopped. ``workers``: living ones."""

    name: str
    host: str
    pid: int
    beat_age_s: float | None
    queued: int
    processing: int
    workers: int

    @property
    def connected(self) -> bool:
        return self.beat_age_s is not None and self.beat_age_s < _CONNECTED_S


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """Health of the lists and gateways.

    ``gateway_connected``: a gateway has a fresh heartbeat. ``worker_connected``: it also sees a living worker
    behind it. ``queued``: messages in lists. ``accepted``: messages whose jobs have not started.
    ``waiting``: messages by RAG that only a gateway which serves the RAG can take. ``misplaced``: keys of
    lists that hold another Redis type, with that type.
    """

    queue_name: str
    connection: str
    queue_length: int
    processing: int
    queued: int
    accepted: int
    dead_letters: int
    gateway_connected: bool
    worker_connected: bool
    heartbeat_age_s: float | None
    lists: dict[str, int]
    waiting: dict[str, int]
    misplaced: dict[str, str]
    gateways: list[GatewayHealth]


MARK = b"\0too-large"
"""Begins the entry that replaces such a message in a gateway's list. No JSON begins so."""
HEAD_BYTES = 64 * 1024
"""Bytes kept of a message. Its id and path are looked for in them."""
_SHOWN_CHARACTERS = 1_000

_MEMBER = re.compile(r"[\s,{]*(?=\")")
_VALUE = re.compile(r"\s*:\s*")


class OversizedMessage(msgspec.Struct, frozen=True):
    """The beginning of a message above the limit, and its list. No more of it leaves the Redis server."""

    size: int
    list_key: str
    head: bytes

    def refusal(self) -> PayloadTooLarge:
        return PayloadTooLarge(
            f"the message has {self.size} bytes, the limit is {MAX_BYTES}",
            remedy="Send the path of the file, and no content.",
        )

    def fields(self) -> dict[str, Any]:
        """Read the plain fields of the object up to the first incomplete one."""
        found: dict[str, Any] = {}
        text = self.head.decode("utf-8", "replace")
        # The text is cut somewhere, or is no JSON at all: the fields before that place count.
        with suppress(ValueError, RecursionError):
            for name, value in _members(text):
                if name in Message.__struct_fields__ and isinstance(value, str):
                    # Half a character, as an escape of JSON can have it, fits into no hash.
                    found[name] = value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return found

    def letter(self, refusal: PayloadTooLarge, at: str) -> dict[str, Any]:
        """Build the dead letter of a time, with the beginning in place of the message."""
        rag_id = self.fields().get("rag_id")
        beginning = self.head[:_SHOWN_CHARACTERS].decode("latin-1")
        return {
            "code": refusal.code,
            "reason": refusal.message,
            "remedy": refusal.remedy,
            "at": at,
            "list": self.list_key,
            "rag_id": rag_id if isinstance(rag_id, str) and rag_id.isprintable() else None,
            "message_bytes": self.size,
            "message_beginning": re.sub("[^ -~]", "?", beginning),
        }


def _members(text: str) -> Iterator[tuple[str, Any]]:
    """Members of a JSON object that may be cut off. Raises ValueError there; a number may be cut itself."""
    decoder, at = json.JSONDecoder(), 0
    if not text.lstrip().startswith("{"):
        return
    while member := _MEMBER.match(text, at):
        name, at = decoder.raw_decode(text, member.end())
        colon = _VALUE.match(text, at)
        if colon is None:
            return
        value, at = decoder.raw_decode(text, colon.end())
        yield name, value


def read_oversized(raw: bytes) -> OversizedMessage | None:
    """Read the entry of a message above the limit; None for any other message."""
    parts = raw.split(b"\n", 3) if raw.startswith(MARK) else []
    if len(parts) < 4 or not parts[1].isdigit() or len(parts[1]) > 20:
        return None
    return OversizedMessage(int(parts[1]), parts[2].decode("utf-8", "replace"), parts[3])
