"""Refused messages: what can still be read of one, its dead letter, and the record beside its file."""

from __future__ import annotations

import json
import traceback
from typing import Any, NamedTuple

import msgspec

from penstock import clock
from penstock.errors import InvalidRequest, PenstockError
from penstock.redis_contract import fields
from penstock.redis_contract.error_report import ErrorReport, trouble
from penstock.redis_contract.message import Message, decode, read

UNREADABLE = "\N{REPLACEMENT CHARACTER}"
"""In place of what is no character: in an id or a path it makes the whole unusable."""


class RefusedMessage(NamedTuple):
    """A message that was refused, as far as it can be read."""

    message: Message
    told: ErrorReport
    shown: dict[str, str]
    """The fields of its hash."""
    record: dict[str, Any]
    """The error record for beside its file."""
    has_id: bool
    names_file: bool


def refused(raw: bytes, decoded: dict[str, Any], refusal: PenstockError) -> RefusedMessage:
    usable = _usable(decoded or salvaged(raw))
    has_id, names_file = "job_id" in usable, "source_path" in usable
    message = read(_PLACEHOLDERS | {"submitted_at": clock.format_time(clock.now())} | usable)
    told = trouble(
        refusal.code,
        refusal.message,
        source_type=message.source_type,
        filename=message.filename,
        path=message.source_path,
    )
    shown = fields.refused(message, told, clock.now())
    record = fields.error_record(shown, told, _traceback(refusal))
    given = {name: record[name] if name in usable else None for name in ("job_id", "rag_id", "filename")}
    return RefusedMessage(message, told, shown, record | given, has_id, names_file)


def _traceback(refusal: PenstockError) -> str:
    """Where the message was refused, also by an error that was not raised."""
    if refusal.__traceback__ is not None:
        return "".join(traceback.format_exception(refusal))
    head = "Traceback (most recent call last):\n"
    return "".join([head, *traceback.format_stack(), *traceback.format_exception_only(refusal)])


_PLACEHOLDERS = {"job_id": "x", "rag_id": "-", "source_path": "/", "source_type": "txt", "filename": "-"}


def _usable(decoded: dict[str, Any]) -> dict[str, Any]:
    """The fields that are right by themselves."""
    usable = {}
    probe = _PLACEHOLDERS | {"submitted_at": clock.format_time(clock.now())}
    for name, value in decoded.items():
        try:
            read(probe | {name: value})
        except InvalidRequest:
            continue
        if not (name in ("job_id", "source_path", "rag_id") and UNREADABLE in value):
            usable[name] = value
    return usable


def salvaged(raw: bytes) -> dict[str, Any]:
    """The object in a message that is no UTF-8 or holds half characters; empty when there is none."""
    text = raw.decode("utf-8", "replace")
    try:
        found = json.loads(text)
        whole = json.dumps(found, ensure_ascii=False).encode("utf-16", "surrogatepass")
        return decode(whole.decode("utf-16", "replace").encode())
    except (ValueError, RecursionError, InvalidRequest, msgspec.MsgspecError):
        return {}


def letter_of(raw: bytes, refusal: PenstockError, decoded: dict[str, Any]) -> dict[str, Any]:
    """A dead letter: why, and the message as it was; what is no JSON as text."""
    return {
        "code": refusal.code,
        "reason": refusal.message,
        "remedy": refusal.remedy,
        "at": clock.format_time(clock.now()),
        "message": decoded or raw.decode("utf-8", "backslashreplace"),
    }
