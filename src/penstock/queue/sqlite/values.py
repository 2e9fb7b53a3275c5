"""Encoding of jobs for SQLite, and back."""

from __future__ import annotations

from collections.abc import Collection
from operator import attrgetter
from typing import Any

import msgspec

from penstock.clock import format_time, read_time
from penstock.job import Held, Job, Status
from penstock.queue.sql.statements import INSERTED_COLUMNS, JOB_COLUMNS

SPILL_OVER = 2_048
"""Longer payloads are in their own table, because SQLite rewrites a whole row at each change."""

SPILLED = "null"
"""Stands for such a payload in its row: JSON that every program can read, but never a payload."""

AT_ONCE = 4
"""Rows from which on one statement for all is cheaper than one for each: it decodes a list."""

_TIMES = "created_at updated_at run_at lease_until started_at finished_at last_error_at limit_at".split()
_TIME_AT = tuple(JOB_COLUMNS.index(name) for name in _TIMES)
_FLAG_AT = tuple(JOB_COLUMNS.index(name) for name in ("dedupe", "lock_held", "cancel_requested", "awaited"))
_STATUS_AT = JOB_COLUMNS.index("status")
_HELD_AT = JOB_COLUMNS.index("held")
_PAYLOAD_AT = JOB_COLUMNS.index("payload_json")
STATUSES = {status.value: status for status in Status}
_HELD = {held.value: held for held in Held}
ENCODED = {True: 1, False: 0}
_inserted = attrgetter(*INSERTED_COLUMNS)
_CREATED_IN, _UPDATED_IN, _RUN_IN, _HELD_IN, _DEDUPE_IN, _PAYLOAD_IN = map(
    INSERTED_COLUMNS.index, ("created_at", "updated_at", "run_at", "held", "dedupe", "payload_json")
)


def column_value(name: str, value: Any) -> Any:
    """Decode the text of a column to a value of a job."""
    if value is None:
        return None
    return STATUSES[value] if name == "status" else _HELD[value] if name == "held" else value


def as_list(values: Collection[str] | Collection[int]) -> str:
    return msgspec.json.encode(list(values)).decode()


def as_new(job: Job) -> list[Any]:
    """Encode the columns of a new row; the others start with their defaults."""
    values = list(_inserted(job))
    values[_CREATED_IN] = values[_UPDATED_IN] = format_time(job.created_at)
    values[_DEDUPE_IN] = ENCODED[job.dedupe]
    if job.held is not None:
        values[_HELD_IN] = job.held.value
        values[_RUN_IN] = None if job.run_at is None else format_time(job.run_at)
    if len(job.payload_json) > SPILL_OVER:
        values[_PAYLOAD_IN] = SPILLED
    return values


def encoded(job: Job) -> tuple[Any, ...]:
    """Encode a job in column order."""
    values = list(msgspec.structs.astuple(job))
    created, text = job.created_at, format_time(job.created_at)
    for at in _TIME_AT:
        moment = values[at]
        if moment is not None:
            values[at] = text if moment is created else format_time(moment)
    values[_STATUS_AT] = job.status.value
    if job.held is not None:
        values[_HELD_AT] = job.held.value
    dedupe_at, lock_at, cancel_at, awaited_at = _FLAG_AT
    values[dedupe_at] = ENCODED[job.dedupe]
    values[cancel_at] = ENCODED[job.cancel_requested]
    values[awaited_at] = ENCODED[job.awaited]
    # The name of the lock, so that a unique index refuses a second holder.
    values[lock_at] = job.lock_key if job.lock_held else None
    if len(job.payload_json) > SPILL_OVER:
        values[_PAYLOAD_AT] = SPILLED
    return tuple(values)


def decoded(row: tuple[Any, ...], payload: Any) -> Job:
    """Decode a job. ``payload`` reads a long payload from the other table."""
    values = list(row)
    for at in _TIME_AT:
        text = values[at]
        if text is not None:
            values[at] = read_time(text)
    values[_STATUS_AT] = STATUSES[values[_STATUS_AT]]
    held = values[_HELD_AT]
    values[_HELD_AT] = None if held is None else _HELD[held]
    dedupe_at, lock_at, cancel_at, awaited_at = _FLAG_AT
    values[dedupe_at] = values[dedupe_at] == 1
    values[lock_at] = values[lock_at] is not None
    values[cancel_at] = values[cancel_at] == 1
    values[awaited_at] = values[awaited_at] == 1
    if values[_PAYLOAD_AT] == SPILLED:
        values[_PAYLOAD_AT] = payload(row[0])
    return Job(**dict(zip(JOB_COLUMNS, values, strict=True)))
