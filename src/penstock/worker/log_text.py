"""Jobs and errors as text for rows and logs.

A handler may raise an error of any length. Formatting, escaping and logging 50 MB takes minutes, so texts are
cut before anything else touches them.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import suppress

import msgspec

from penstock import lifecycle, retry
from penstock.errors import StateDamaged
from penstock.job import Settlement, Status
from penstock.lifecycle import Holder, printable

MESSAGE_LIMIT = 4_000
TRACEBACK_LIMIT = 2_000
_CUT = "Traceback (most recent call last):\n  ...\n"
NAME_LIMIT = 200
QUOTED_LIMIT = 500
LOGGED_LIMIT = 64_000
"""Characters of an error and its causes that are logged unchanged."""
BEHIND_LIMIT = 50
"""Most causes and group members of an error that are logged."""


def job_text(job: Holder) -> str:
    """Name a job for the log, such as ``job_01… (function send_mail)``."""
    kind = f"{job.item_type}/{job.op}"
    if job.item_type == "function":
        with suppress(StateDamaged):  # a payload may be anything
            kind = f"function {job.payload.get('function_name')}"
    return f"job {job.queue_id} ({printable(kind)[:300]})"


class _NamedPayload(msgspec.Struct):
    function_name: str = ""


_decode_name = msgspec.json.Decoder(_NamedPayload).decode


def function_name(claim: Holder) -> str:
    """Return the function a job calls; for other jobs their type and operation."""
    if claim.item_type == "function":
        with suppress(msgspec.DecodeError):
            return _decode_name(claim.payload_json).function_name
    return f"{claim.item_type}/{claim.op}"


def outcome_text(settlement: Settlement) -> str:
    if settlement.status is not Status.PENDING:
        return f"ends as {settlement.status.value}"
    seconds = settlement.delay.total_seconds()
    return f"is tried again in {seconds:g} s" if seconds else "is tried again at once"


def error_text(error: BaseException) -> str:
    """Format an error as text for any store."""
    try:
        text = retry.error_summary(error)[: NAME_LIMIT + MESSAGE_LIMIT]
    except Exception:  # noqa: BLE001 - an error without a text is still an error
        text = f"{type(error).__name__[:NAME_LIMIT]}: (its text cannot be shown)"
    return lifecycle.printable(text)[:MESSAGE_LIMIT]


def traceback_text(error: BaseException) -> str:
    """Format the traceback, which the row keeps until the last retry has failed, too.

    Of a long one, the first line and the last frames are kept.
    """
    try:
        text = "".join(traceback.format_exception(loggable_error(error, TRACEBACK_LIMIT // 2)))
    except Exception:  # noqa: BLE001 - formatting may run code of the error
        return "(it cannot be shown)"
    shown = lifecycle.printable(text[-TRACEBACK_LIMIT:])
    if len(text) <= TRACEBACK_LIMIT >= len(shown):
        return shown
    last = shown[len(_CUT) - TRACEBACK_LIMIT :]
    return _CUT + (last.partition("\n")[2] or last)


def loggable_error(error: BaseException, limit: int = LOGGED_LIMIT) -> BaseException:
    """Return the error or, if too long for the log, a short one with the same name and traceback."""
    length = 0
    for number, each in enumerate(_with_causes(error)):
        length += len(_message(each)) + len(type(each).__name__)
        length += sum(len(note) for note in getattr(each, "__notes__", ()) if isinstance(note, str))
        if length > limit or number >= BEHIND_LIMIT:
            name = type(error).__name__[:NAME_LIMIT]
            short: type[Exception] = type(name, (Exception,), {"__module__": "builtins"})
            return short(_message(error)[:QUOTED_LIMIT]).with_traceback(error.__traceback__)
    return error


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - an error without a text is still an error
        return "(its text cannot be shown)"


def _with_causes(error: BaseException) -> Iterator[BaseException]:
    left, seen = [error], set[int]()
    while left:
        each = left.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        left += [cause for cause in (each.__cause__, each.__context__) if cause is not None]
        if isinstance(each, BaseExceptionGroup):
            left += each.exceptions
