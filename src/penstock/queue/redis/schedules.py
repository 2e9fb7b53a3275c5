"""Schedules on a Redis server: a hash of them, and a sorted set of the next times."""

from __future__ import annotations

from datetime import datetime

from penstock.queue.redis import codec
from penstock.queue.redis.server import Server
from penstock.queue.schedule_rows import decode, encode, key_of
from penstock.schedule import Schedule


class RedisSchedules:
    """The part of the queue for schedules; see ``ScheduleStore``."""

    _server: Server

    def schedules(self, *, tenant_id: str | None = None) -> list[Schedule]:
        found = [decode(body) for body in self._server.call("HVALS", self._server.key("schedules"))]
        return sorted((one for one in found if tenant_id in (None, one.tenant_id)), key=key_of)

    def due_schedules(self, *, now: datetime | None = None, limit: int = 100) -> list[Schedule]:
        bodies = self._server.run("due_schedules", codec.encode(limit), codec.micros(now))
        return [decode(body) for body in bodies]

    def put_schedule(self, schedule: Schedule, *, replaces: int | None = None) -> bool:
        due = codec.micros(schedule.next_at) if schedule.next_at else ""
        request = [_field(*key_of(schedule)), encode(schedule).decode(), due, replaces or 0]
        return bool(self._server.run("put_schedule", codec.encode(request)))

    def drop_schedule(self, tenant_id: str, name: str) -> bool:
        return bool(self._server.run("drop_schedule", codec.encode(_field(tenant_id, name))))


def _field(tenant_id: str, name: str) -> str:
    # Neither holds a line break.
    return f"{tenant_id}\n{name}"
