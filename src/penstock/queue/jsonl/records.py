"""Records of the journal: the changes of rows, not the requests.

A later version with other rules replays the same lines to the same rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, TypeAlias

import msgspec

from penstock.job import Changes, Job, Scope, WorkerReport
from penstock.limits import Limit, gated
from penstock.queue.memory.table import Table
from penstock.queue.rules.pauses import Pause
from penstock.queue.schedule_rows import Key
from penstock.schedule import Schedule

Group: TypeAlias = tuple[list[str], Changes]
"""Rows that changed in the same way."""

_FIELD_TYPES: dict[str, Any] = {field.name: field.type for field in msgspec.structs.fields(Job)}


class Record(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """One transaction: new rows, then changes in order, then deleted rows."""

    n: int
    at: datetime
    do: str
    new: Sequence[Job] = []
    changed: list[Group] = msgspec.field(name="set", default_factory=list)
    gone: list[str] = []
    paused: list[Pause] | None = None
    worker: WorkerReport | None = None
    forgotten: list[str] = []
    """Workers whose reports were removed."""
    schedules: list[Schedule] = []
    """Schedules that were added or replaced."""
    dropped: list[Key] = []
    """Schedules that were removed, by tenant and name."""
    limits: list[Limit] = []
    """Limits that were added or changed."""
    lifted: list[str] = []
    """Limits that were removed, by key."""


class RecordedTable(Table):
    """Table with a record of all changes since ``forget``."""

    def __init__(self) -> None:
        super().__init__()
        self.forget()

    def forget(self) -> None:
        self.new: list[Job] = []
        self.changed: list[Group] = []
        self.gone: list[str] = []
        self.changed_limits: dict[str, Limit | None] = {}
        self._pauses_before: list[Pause] | None = None
        self.limit_keys.clear()
        self.limited_locks.clear()

    def changed_pauses(self) -> list[Pause] | None:
        """Return all pauses if they have changed."""
        if self._pauses_before is None or self._pauses_before == self.pauses():
            return None
        return sorted_pauses(self.pauses())

    def set_pause(self, pause: Pause) -> None:
        self._pauses_before = self.pauses() if self._pauses_before is None else self._pauses_before
        super().set_pause(pause)

    def drop_pause(self, scope: Scope) -> None:
        self._pauses_before = self.pauses() if self._pauses_before is None else self._pauses_before
        super().drop_pause(scope)

    def set_limit(self, limit: Limit) -> None:
        super().set_limit(limit)
        self.changed_limits[limit.key] = limit

    def drop_limit(self, key: str) -> bool:
        dropped = super().drop_limit(key)
        if dropped:
            self.changed_limits[key] = None
        return dropped

    def insert(self, job: Job) -> None:
        super().insert(job)
        self.new.append(job)

    def change(self, job: Job, changes: Changes) -> Job:
        if job.limit_key is not None:
            changes = gated(job, changes)
        self._record([job.queue_id], changes)
        return super().change(job, changes)

    def change_alike(self, jobs: Sequence[Job], changes: Changes) -> list[Job]:
        self._record([job.queue_id for job in jobs], changes)
        return super().change_alike(jobs, changes)

    def _record(self, ids: list[str], changes: Changes) -> None:
        if self.changed and self.changed[-1][1] == changes:
            self.changed[-1][0].extend(ids)
        else:
            self.changed.append((ids, changes))

    def delete(self, ids: Sequence[str]) -> None:
        super().delete(ids)
        self.gone.extend(ids)

    def adopt_pauses(self, pauses: Iterable[Pause]) -> None:
        self.known_pauses = {pause.scope: pause for pause in pauses}
        self._pauses_before = None

    def restore(self, jobs: Iterable[Job]) -> None:
        """Insert rows of a snapshot or record. Raises ValueError if a row exists."""
        for job in jobs:
            if job.queue_id in self.rows:
                raise ValueError(f"job {job.queue_id} is there already")
            super().insert(job)

    def replay(self, record: Record) -> None:
        """Apply a record. Raises ValueError if a row is missing or exists already."""
        self.restore(record.new)
        for ids, plain in record.changed:
            changes = _typed(plain)
            for queue_id in ids:
                super().change(self._known(queue_id), changes)
        super().delete([self._known(queue_id).queue_id for queue_id in record.gone])
        for limit in record.limits:
            super().set_limit(limit)
        for key in record.lifted:
            super().drop_limit(key)

    def _known(self, queue_id: str) -> Job:
        job = self.rows.get(queue_id)
        if job is None:
            raise ValueError(f"there is no job {queue_id}")
        return job


def _typed(plain: Changes) -> Changes:
    unknown = plain.keys() - _FIELD_TYPES.keys()
    if unknown:
        raise ValueError(f"a job has no {', '.join(sorted(unknown))}")
    return {name: msgspec.convert(value, _FIELD_TYPES[name]) for name, value in plain.items()}


class _Row(Job, frozen=True, omit_defaults=True):
    """A job as written: without fields at their defaults."""


_encoder = msgspec.json.Encoder()
_record_decoder = msgspec.json.Decoder(Record)
_job_decoder = msgspec.json.Decoder(Job)


def encode_record(record: Record) -> bytes:
    return _encoder.encode(record) + b"\n"


def decode_record(line: bytes) -> Record:
    return _record_decoder.decode(line)


def encode_jobs(jobs: Sequence[Job]) -> bytes:
    return _encoder.encode_lines(as_written(jobs))


def decode_job(line: bytes) -> Job:
    return _job_decoder.decode(line)


def as_written(jobs: Sequence[Job]) -> Sequence[Job]:
    # payload_json stays a string: as raw JSON it is a little easier to read, but a row takes 3.1 µs to load
    # instead of 0.8, and a line break in it would break the line.
    return msgspec.convert(jobs, list[_Row], from_attributes=True) if jobs else []


def sorted_pauses(pauses: Iterable[Pause]) -> list[Pause]:
    return sorted(pauses, key=lambda pause: pause.order)
