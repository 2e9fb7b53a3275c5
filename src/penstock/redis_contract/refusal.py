"""Refused messages: the readable fields, the dead letter, and the error record beside the file."""

from __future__ import annotations

import json
import traceback
from typing import Any

import msgspec

from penstock import clock
from penstock.errors import InvalidRequest, PenstockError
from penstock.named_tuple import NamedTuple
from penstock.redis_contract import fields
from penstock.redis_contract.error_report import ErrorReport, describe_error
from penstock.redis_contract.message import Message, decode, read

UNREADABLE = "\N{REPLACEMENT CHARACTER}"
"""Stands for bytes that are no character. An id or a path with one in it cannot be used."""


class RefusedMessage(NamedTuple):
    """A refused message: the readable fields, with placeholders for the others."""

    message: Message
    report: ErrorReport
    shown: dict[str, str]
    """The fields of its hash."""
    record: dict[str, Any]
    """The error record that is written beside its file."""
    has_id: bool
    names_file: bool


def describe_refusal(raw: bytes, decoded: dict[str, Any], refusal: PenstockError) -> RefusedMessage:
    valid = _valid_fields(decoded or salvage(raw))
    has_id, names_file = "job_id" in valid, "source_path" in valid
    message = read(_PLACEHOLDERS | {"submitted_at": clock.format_time(clock.now())} | valid)
    report = describe_error(
        refusal.code,
        refusal.message,
        source_type=message.source_type,
        filename=message.filename,
        path=message.source_path,
    )
    shown = fields.refused_fields(message, report, clock.now())
    record = fields.error_record(shown, report, _traceback(refusal))
    given = {name: record[name] if name in valid else None for name in ("job_id", "rag_id", "filename")}
    return RefusedMessage(message, report, shown, record | given, has_id, names_file)


def _traceback(refusal: PenstockError) -> str:
    """Format the traceback of a refusal; the current stack for an error never raised."""
    if refusal.__traceback__ is not None:
        return "".join(traceback.format_exception(refusal))
    head = "Traceback (most recent call last):\n"
    return "".join([head, *traceback.format_stack(), *traceback.format_exception_only(refusal)])


_PLACEHOLDERS = {"job_id": "x", "rag_id": "-", "source_path": "/", "source_type": "txt", "filename": "-"}


def _valid_fields(decoded: dict[str, Any]) -> dict[str, Any]:
    """Select the valid fields, each checked alone."""
    valid = {}
    probe = _PLACEHOLDERS | {"submitted_at": clock.format_time(clock.now())}
    for name, value in decoded.items():
        try:
            read(probe | {name: value})
        except InvalidRequest:
            continue
        if not (name in ("job_id", "source_path", "rag_id") and UNREADABLE in value):
            valid[name] = value
    return valid


def salvage(raw: bytes) -> dict[str, Any]:
    """Decode a message with invalid UTF-8 or lone surrogates; empty if there is no JSON object."""
    text = raw.decode("utf-8", "replace")
    try:
        found = json.loads(text)
        whole = json.dumps(found, ensure_ascii=False).encode("utf-16", "surrogatepass")
        return decode(whole.decode("utf-16", "replace").encode())
    except (ValueError, RecursionError, InvalidRequest, msgspec.MsgspecError):
        return {}


def dead_letter(raw: bytes, refusal: PenstockError, decoded: dict[str, Any]) -> dict[str, Any]:
    """Build a dead letter: the reason and the original message, as text if not JSON."""
    return {
        "code": refusal.code,
        "reason": refusal.message,
        "remedy": refusal.remedy,
        "at": clock.format_time(clock.now()),
        "message": decoded or raw.decode("utf-8", "backslashreplace"),
    }
