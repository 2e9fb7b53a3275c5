"""A job as its hash in Redis tells it. What is not known is the empty text: a hash has no null."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from penstock import vocabulary
from penstock.job import Job, Status
from penstock.redis_contract.error_report import ErrorReport, trouble
from penstock.redis_contract.message import Message

MESSAGE = "message"
MANAGED = "managed"
"""In a job's metadata: the message it came by, as it was; and whether its file lies in the inbox."""

STATUS_FIELDS = (
    "job_id rag_id filename status submitted_at started_at completed_at duration_seconds chunks_created "
    "embeddings_generated tokens_used error error_type retry_count error_code max_retries outcome "
    "source_path updated_at file file_error waiting"
).split()
"""The contract's fourteen, and ours."""
NUMBERS = frozenset(
    "duration_seconds chunks_created embeddings_generated tokens_used retry_count max_retries".split()
)


class Count(msgspec.Struct, frozen=True):
    """What has been made of the document so far."""

    chunks: int = 0
    embeddings: int = 0


def fresh(message: Message, status: str = "queued") -> dict[str, str]:
    """Of a message nobody has begun with."""
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


def of_job(job: Job, message: Message, so_far: Count) -> dict[str, str]:
    """Of a job in the queue. One that was begun stays ``processing`` until its end, also between attempts."""
    if _put_back(job):
        return fresh(message)
    begun = job.claim_number > 0 and not job.ended
    status = vocabulary.speak(Status.IN_PROGRESS if begun else job.status, "redis")
    fields = fresh(message, status) | {
        "started_at": _time(job.started_at),
        "completed_at": _time(job.finished_at),
        "chunks_created": str(so_far.chunks),
        "embeddings_generated": str(so_far.embeddings),
        "retry_count": str(message.retry_count + job.retry_count),
    }
    if job.started_at is not None and job.finished_at is not None:
        fields["duration_seconds"] = _seconds(job.finished_at - job.started_at)
    if job.status is Status.DONE:
        return fields | _made(job.result)
    if job.error_message or job.error_code:
        told = trouble_of(job, message)
        fields |= {"error": told.error, "error_type": told.error_type, "error_code": told.error_code}
    return fields


def _put_back(job: Job) -> bool:
    """After its end, and not begun again yet: what the row keeps of the last run is past."""
    history = job.history if job.status is Status.PENDING else []
    return bool(history) and history[-1].what == "requeued"


def _made(result: Any) -> dict[str, str]:
    made = result if isinstance(result, dict) else {}
    return {
        "chunks_created": str(made.get("chunks", 0)),
        "embeddings_generated": str(made.get("embedded", 0)),
        "tokens_used": str(made.get("tokens", 0)),
        "outcome": str(made.get("outcome", "")),
    }


def refused(message: Message, told: ErrorReport, now: datetime) -> dict[str, str]:
    """Of a message that never became a job."""
    return fresh(message, "failed") | {
        "completed_at": _time(now),
        "error": told.error,
        "error_type": told.error_type,
        "error_code": told.error_code,
    }


def trouble_of(job: Job, message: Message) -> ErrorReport:
    return trouble(
        job.error_code,
        job.error_message,
        source_type=message.source_type,
        filename=message.filename,
        path=message.source_path,
    )


def waiting(message: Message) -> dict[str, str]:
    """Of a message whose RAG no running gateway serves."""
    return fresh(message) | {"waiting": f"for a gateway that serves RAG {message.rag_id}"}


def error_record(fields: Mapping[str, str], told: ErrorReport, traceback: str | None) -> dict[str, Any]:
    """What stands in ``failed/<filename>.error.json``. ``traceback`` None: nothing was raised."""
    shown = readable(fields)
    names = ("job_id", "rag_id", "filename", "status", "submitted_at", "started_at")
    return {name: shown[name] for name in names} | {
        "failed_at": shown["completed_at"],
        "error": told.error,
        "error_type": told.error_type,
        "error_code": told.error_code,
        "retry_count": shown["retry_count"],
        "max_retries": shown["max_retries"],
        "suggestions": list(told.suggestions),
        "traceback": traceback,
    }


def readable(fields: Mapping[str, str]) -> dict[str, Any]:
    """A hash as JSON would hold it: numbers are numbers, and what is empty is null."""
    return {name: _value(name, text) for name, text in fields.items()}


def _value(name: str, text: str) -> Any:
    if text == "":
        return None
    if name not in NUMBERS:
        return text
    try:
        return int(text) if text.lstrip("-").isdecimal() else float(text)
    except ValueError:
        return text  # somebody else wrote it


def _time(moment: datetime | None) -> str:
    return "" if moment is None else moment.isoformat(timespec="microseconds")[:26] + "Z"


def _seconds(span: timedelta) -> str:
    return f"{max(span.total_seconds(), 0.0):.3f}".rstrip("0").rstrip(".")
