"""Fields of a job's status hash in Redis. Unknown values are empty text: a hash has no null."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from penstock import vocabulary
from penstock.queue.job import Job, Status
from penstock.redis_contract.error_report import ErrorReport, describe_error
from penstock.redis_contract.message import Message

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
"""The contract's fourteen fields, then those that Penstock adds."""
SUBMITTED = "submitted"
"""Status that producers may write before a gateway has taken the message."""
QUEUED = vocabulary.speak(Status.PENDING, "redis")
PROCESSING = vocabulary.speak(Status.IN_PROGRESS, "redis")
DONE = vocabulary.speak(Status.DONE, "redis")
FAILED = vocabulary.speak(Status.FAILED, "redis")
NUMBERS = frozenset(
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
    if name not in NUMBERS:
        return text
    try:
        return int(text) if text.lstrip("-").isdecimal() else float(text)
    except ValueError:
        return text  # written by another program


def _time(moment: datetime | None) -> str:
    return "" if moment is None else moment.isoformat(timespec="microseconds")[:26] + "Z"


def _seconds(span: timedelta) -> str:
    return f"{max(span.total_seconds(), 0.0):.3f}".rstrip("0").rstrip(".")
