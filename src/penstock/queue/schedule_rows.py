"""Schedules in the store of a queue: the contract, and code shared by the engines."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, Protocol, TypeAlias

import msgspec

from penstock.schedule import Schedule

Key: TypeAlias = tuple[str, str]
"""Tenant and name of a schedule."""


class ScheduleStore(Protocol):
    """Schedules by tenant and name. Every write is atomic and durable before the call returns."""

    def schedules(self, *, tenant_id: str | None = None) -> list[Schedule]:
        """List the schedules of a tenant, or all, by tenant and name."""

    def due_schedules(self, *, now: datetime | None = None, limit: int = 100) -> list[Schedule]:
        """List due schedules, the earliest first."""

    def put_schedule(self, schedule: Schedule, *, replaces: int | None = None) -> bool:
        """Store a schedule: a new one, or (``replaces``) in place of exactly that version.

        False if the name is taken, or the stored version is another one; then nothing was written.
        """

    def drop_schedule(self, tenant_id: str, name: str) -> bool:
        """Remove a schedule. False for an unknown name."""


def key_of(schedule: Schedule) -> Key:
    return schedule.tenant_id, schedule.name


encode = msgspec.json.Encoder().encode


def decode(body: bytes | str) -> Schedule:
    # A decoder made here would evaluate the annotations in each command.
    return msgspec.json.decode(body, type=Schedule)


class MappedSchedules(ABC):
    """Schedules in a dictionary, for the memory and JSONL engines."""

    _schedules: dict[Key, Schedule]

    @abstractmethod
    def _reading(self) -> AbstractContextManager[Any]: ...

    @abstractmethod
    def _writing(self, what: str) -> AbstractContextManager[Any]: ...

    @abstractmethod
    def now(self) -> datetime: ...

    def _set_schedule(self, key: Key, schedule: Schedule | None) -> None:
        """Write a schedule, or (None) remove it."""
        if schedule is None:
            del self._schedules[key]
        else:
            self._schedules[key] = schedule

    def schedules(self, *, tenant_id: str | None = None) -> list[Schedule]:
        with self._reading():
            found = [one for one in self._schedules.values() if tenant_id in (None, one.tenant_id)]
        return sorted(found, key=key_of)

    def due_schedules(self, *, now: datetime | None = None, limit: int = 100) -> list[Schedule]:
        moment = now or self.now()
        with self._reading():
            due = [(one.next_at, *key_of(one)) for one in self._schedules.values() if one.next_at]
            first = sorted(entry for entry in due if entry[0] <= moment)[:limit]
            return [self._schedules[tenant_id, name] for _, tenant_id, name in first]

    def put_schedule(self, schedule: Schedule, *, replaces: int | None = None) -> bool:
        with self._writing("schedule"):
            stored = self._schedules.get(key_of(schedule))
            if (stored.version if stored else None) != replaces:
                return False
            self._set_schedule(key_of(schedule), schedule)
            return True

    def drop_schedule(self, tenant_id: str, name: str) -> bool:
        with self._writing("schedule"):
            if (tenant_id, name) not in self._schedules:
                return False
            self._set_schedule((tenant_id, name), None)
            return True


class SqlSchedules(ABC):
    """Schedules in the table ``queue_schedule``, for the SQL engines."""

    @abstractmethod
    def _write(self, what: str, work: Callable[[Any], Any]) -> Any: ...

    def _fetch_schedules(self, statement: str, values: dict[str, Any]) -> list[Any]:
        """Run a statement in a separate transaction and return the rows."""
        found: list[Any] = self._write("schedule", lambda rows: rows.fetch(statement, **values))
        return found

    @abstractmethod
    def now(self) -> datetime: ...

    def schedules(self, *, tenant_id: str | None = None) -> list[Schedule]:
        found = self._fetch_schedules("schedules", {"tenant_id": tenant_id})
        # Sorted here: a database may sort by its own locale.
        return sorted((decode(body) for (body,) in found), key=key_of)

    def due_schedules(self, *, now: datetime | None = None, limit: int = 100) -> list[Schedule]:
        values = {"now": now or self.now(), "limit": limit}
        return [decode(body) for (body,) in self._fetch_schedules("due_schedules", values)]

    def put_schedule(self, schedule: Schedule, *, replaces: int | None = None) -> bool:
        # In the order of their appearance in the statements: SQLite numbers them so.
        key = {"tenant_id": schedule.tenant_id, "called": schedule.name}
        row = {
            "version": schedule.version,
            "next_at": schedule.next_at,
            "body": encode(schedule).decode(),
        }
        if replaces is None:
            return bool(self._fetch_schedules("insert_schedule", key | row))
        return bool(self._fetch_schedules("replace_schedule", row | key | {"replaces": replaces}))

    def drop_schedule(self, tenant_id: str, name: str) -> bool:
        values = {"tenant_id": tenant_id, "called": name}
        return bool(self._fetch_schedules("drop_schedule", values))
