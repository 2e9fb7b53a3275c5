"""How jobs, and what became of them, are told in the log."""

from __future__ import annotations

from contextlib import suppress

import msgspec

from penstock.job import Settlement, Status
from penstock.lifecycle import Holder, printable


def named(job: Holder) -> str:
    """Such as ``job_01… (function send_mail)``."""
    kind = f"{job.item_type}/{job.op}"
    if job.item_type == "function":
        with suppress(msgspec.DecodeError, AttributeError):  # a payload may be anything
            kind = f"function {job.payload.get('function_name')}"
    return f"job {job.queue_id} ({printable(kind)[:300]})"


class _NamedPayload(msgspec.Struct):
    function_name: str = ""


_decode_name = msgspec.json.Decoder(_NamedPayload).decode


def function_of(claim: Holder) -> str:
    """The function a job calls; for other jobs their kind."""
    if claim.item_type == "function":
        with suppress(msgspec.DecodeError):
            return _decode_name(claim.payload_json).function_name
    return f"{claim.item_type}/{claim.op}"


def outcome(settlement: Settlement) -> str:
    if settlement.status is not Status.PENDING:
        return f"ends as {settlement.status.value}"
    seconds = settlement.delay.total_seconds()
    return f"is tried again in {seconds:g} s" if seconds else "is tried again at once"
