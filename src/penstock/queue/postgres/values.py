"""Encoding of jobs for PostgreSQL, and back.

A batch is sent as one array literal per column: writing the literal costs a fraction of the driver's arrays,
and the statement is the same for any batch size.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any

from psycopg import DataError

from penstock.job import Held, Job, Scope, Status
from penstock.named_tuple import NamedTuple
from penstock.queue.rules.pauses import ClaimPosition, Pause, PauseState
from penstock.queue.sql.statements import (
    CHANGING_COLUMNS,
    COLUMN_TYPES,
    INSERTED_COLUMNS,
    JOB_COLUMNS,
    OWN_COLUMNS,
)

_STATUS_AT = JOB_COLUMNS.index("status")
_HELD_AT = JOB_COLUMNS.index("held")
_LOCK_AT = JOB_COLUMNS.index("lock_held")
_STATUSES = {status.value: status for status in Status}
_HELD = {held.value: held for held in Held}


def texts(values: Iterable[str | None]) -> str:
    given = list(values)
    if not given or None in given:
        return "{" + ",".join(["NULL" if value is None else f'"{_escaped(value)}"' for value in given]) + "}"
    # All at once, joined by a character that no text in PostgreSQL has.
    joined = "\0".join(given)  # type: ignore[arg-type]  # None is excluded above
    if joined.count("\0") != len(given) - 1:
        raise DataError("PostgreSQL text cannot contain NUL (0x00) bytes")
    return '{"' + _escaped(joined).replace("\0", '","') + '"}'


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"')


def numbers(values: Iterable[int | None]) -> str:
    return "{" + ",".join(["NULL" if value is None else str(int(value)) for value in values]) + "}"


def times(values: Iterable[datetime | None]) -> str:
    return "{" + ",".join(["NULL" if value is None else value.isoformat() for value in values]) + "}"


def flags(values: Iterable[bool]) -> str:
    return "{" + ",".join(["t" if value else "f" for value in values]) + "}"


_WRITERS: dict[str, Any] = {"integer": numbers, "bigint": numbers, "timestamptz": times, "boolean": flags}


def _columns(jobs: Sequence[Job], names: Sequence[str]) -> dict[str, list[Any]]:
    values: dict[str, list[Any]] = {name: list(map(attrgetter(name), jobs)) for name in names}
    if "lock_held" in values:
        # The name of the lock, so that a unique index refuses a second holder.
        values["lock_held"] = [job.lock_key if job.lock_held else None for job in jobs]
    return values


def _array(name: str, values: Iterable[Any]) -> str:
    written: str = _WRITERS.get(COLUMN_TYPES.get(name, ""), texts)(values)
    return written


def _common(name: str, value: Any) -> str | None:
    """Encode one value like an array element, without quotes."""
    if value is None or name not in COLUMN_TYPES:
        return None if value is None else str(value)
    return _array(name, [value])[1:-1]


def inserted(jobs: Sequence[Job]) -> tuple[str, dict[str, str | None]]:
    """Return the name of the insert statement, and the values."""
    columns = _columns(jobs, INSERTED_COLUMNS)
    common = {
        name: values[0]
        for name, values in columns.items()
        if name not in OWN_COLUMNS and values.count(values[0]) == len(values)
    }
    alike = len(common) == len(columns) - len(OWN_COLUMNS)
    return "insert_alike" if alike else "insert_job", {
        name: _common(name, common[name]) if alike and name in common else _array(name, values)
        for name, values in columns.items()
    }


def changed(jobs: Sequence[Job], names: Sequence[str] = ("queue_id", *CHANGING_COLUMNS)) -> dict[str, str]:
    return {name: _array(name, values) for name, values in _columns(jobs, names).items()}


def decoded(row: tuple[Any, ...]) -> Job:
    values = list(row)
    values[_STATUS_AT] = _STATUSES[values[_STATUS_AT]]
    held = values[_HELD_AT]
    values[_HELD_AT] = None if held is None else _HELD[held]
    values[_LOCK_AT] = values[_LOCK_AT] is not None
    return Job(**dict(zip(JOB_COLUMNS, values, strict=True)))


class Ended(NamedTuple):
    """Columns of the jobs ended by the plain path."""

    ids: list[str]
    lock_keys: list[str | None]
    parents: list[str | None]
    parent_runs: list[int | None]

    @property
    def freed(self) -> set[str]:
        """Locks held by the jobs."""
        return {key for key in self.lock_keys if key is not None}


def column_value(name: str, value: Any) -> Any:
    """Decode the text of a column to a value of a job."""
    if value is None:
        return None
    return _STATUSES[value] if name == "status" else _HELD[value] if name == "held" else value


def as_pause(
    tenant_id: str,
    collection: str,
    phase: str,
    priority: int | None,
    turn: int,
    created_at: datetime,
    queue_id: str,
) -> Pause:
    at = None if priority is None else ClaimPosition(priority, turn, created_at, queue_id)
    return Pause(Scope(tenant_id, collection), PauseState(phase), at)
