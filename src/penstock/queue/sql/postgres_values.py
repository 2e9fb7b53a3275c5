"""Jobs as PostgreSQL gets and gives them.

A batch goes as one array literal a column: writing the literal is a fraction of what the driver's own arrays
cost, and a statement is the same whatever the size of its batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from penstock.job import Held, Job, Status
from penstock.queue.sql.statements import CHANGING_COLUMNS, COLUMN_TYPES, INSERTED_COLUMNS, JOB_COLUMNS

_STATUS_AT = JOB_COLUMNS.index("status")
_HELD_AT = JOB_COLUMNS.index("held")
_LOCK_AT = JOB_COLUMNS.index("lock_held")
_STATUSES = {status.value: status for status in Status}
_HELD = {held.value: held for held in Held}


def texts(values: Iterable[str | None]) -> str:
    quoted = [
        "NULL" if value is None else '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
        for value in values
    ]
    return "{" + ",".join(quoted) + "}"


def numbers(values: Iterable[int | None]) -> str:
    return "{" + ",".join(["NULL" if value is None else str(int(value)) for value in values]) + "}"


def times(values: Iterable[datetime | None]) -> str:
    return "{" + ",".join(["NULL" if value is None else value.isoformat() for value in values]) + "}"


def flags(values: Iterable[bool]) -> str:
    return "{" + ",".join(["t" if value else "f" for value in values]) + "}"


_WRITERS: dict[str, Any] = {"integer": numbers, "timestamptz": times, "boolean": flags}


def _arrays(jobs: Sequence[Job], columns: Sequence[str]) -> dict[str, str]:
    written = {}
    for name in columns:
        values: list[Any] = [getattr(job, name) for job in jobs]
        if name == "lock_held":
            # The lock's own name, so that a unique index can refuse a second holder.
            values = [job.lock_key if job.lock_held else None for job in jobs]
        written[name] = _WRITERS.get(COLUMN_TYPES.get(name, ""), texts)(values)
    return written


def inserted(jobs: Sequence[Job]) -> dict[str, str]:
    return _arrays(jobs, INSERTED_COLUMNS)


def changed(jobs: Sequence[Job]) -> dict[str, str]:
    return _arrays(jobs, ("queue_id", *CHANGING_COLUMNS))


def decoded(row: tuple[Any, ...]) -> Job:
    values = list(row)
    values[_STATUS_AT] = _STATUSES[values[_STATUS_AT]]
    held = values[_HELD_AT]
    values[_HELD_AT] = None if held is None else _HELD[held]
    values[_LOCK_AT] = values[_LOCK_AT] is not None
    return Job(**dict(zip(JOB_COLUMNS, values, strict=True)))


def column_value(name: str, value: Any) -> Any:
    """A column's text as the value the job has."""
    if value is None:
        return None
    return _STATUSES[value] if name == "status" else _HELD[value] if name == "held" else value
