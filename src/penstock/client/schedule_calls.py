"""Calls about schedules, pure like ``calls``, and ``ClientSchedules`` for programs with threads."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, Unpack

import msgspec

from penstock.client.calls import ApiCall, _get, _id, _json, _same, _submission, _target
from penstock.service.requests import ScheduleOptions, TimingChanges, refuse_unknown

if TYPE_CHECKING:
    from penstock.service.requests import Receipt
    from penstock.service.schedules import ScheduleRecord

T = TypeVar("T")
_PAGE = 1_000


class Performer(Protocol):
    """A client that carries out calls."""

    def _call(self, call: ApiCall[T]) -> T: ...


def add_index(
    timing: str, path: str | os.PathLike[str], index: Mapping[str, Any] | None, options: ScheduleOptions
) -> ApiCall[ScheduleRecord]:
    """Index a path of the server by the clock."""
    refuse_unknown("schedules.add_index", options, ScheduleOptions)
    given = dict(index or {})
    external = given.pop("allow_external", None)
    return _added(
        {"action": "index", "timing": timing, "path": os.fspath(path), **given, **options}, external
    )


def add_call(
    timing: str,
    function: str,
    payload: Mapping[str, Any] | None,
    call: Mapping[str, Any] | None,
    options: ScheduleOptions,
) -> ApiCall[ScheduleRecord]:
    """Call a function by the clock."""
    refuse_unknown("schedules.add_call", options, ScheduleOptions)
    given = {"timing": timing, "function": function, "payload": dict(payload or {})}
    return _added({"action": "call", **given, **(call or {}), **options}, None)


def add_backup(
    timing: str, directory: str | os.PathLike[str], given: Mapping[str, Any], options: ScheduleOptions
) -> ApiCall[ScheduleRecord]:
    """Back up the stores of the server by the clock."""
    refuse_unknown("schedules.add_backup", options, ScheduleOptions)
    fields = {"action": "backup", "timing": timing, "directory": os.fspath(directory), **given, **options}
    external = fields.pop("allow_external", None)
    return _added({name: value for name, value in fields.items() if value is not None}, external)


def _added(fields: Mapping[str, Any], external: bool | None) -> ApiCall[ScheduleRecord]:
    target = _target("/schedules", {"allow_external": external or None})
    return msgspec.structs.replace(
        _record("POST", target), body=_json(fields), repeatable=False, patience="index"
    )


def page(tenant_id: str | None, offset: int) -> ApiCall[tuple[list[ScheduleRecord], int | None]]:
    """List a part of the schedules, and the offset of the next part."""
    from penstock.service.schedules import ScheduleRecord

    def pick(value: Any) -> tuple[list[ScheduleRecord], int | None]:
        return msgspec.convert(value["schedules"], list[ScheduleRecord]), value["next"]

    query = {"tenant_id": tenant_id, "limit": _PAGE, "offset": offset or None}
    return ApiCall("GET", _target("/schedules", query), dict[str, Any], pick)


def show(name: str, tenant_id: str | None, count: int) -> ApiCall[ScheduleRecord]:
    """Show one schedule with its next times."""
    from penstock.service.schedules import ScheduleRecord

    return _get(f"/schedules/{_id(name)}", ScheduleRecord, {"tenant_id": tenant_id, "count": count})


def change(name: str, tenant_id: str | None, fields: TimingChanges) -> ApiCall[ScheduleRecord]:
    """Change the timing of a schedule."""
    refuse_unknown("schedules.change", fields, TimingChanges)
    return msgspec.structs.replace(_record("PATCH", _one(name, "", tenant_id)), body=_json(fields))


def pause(name: str, tenant_id: str | None) -> ApiCall[ScheduleRecord]:
    """Stop running a schedule."""
    return _record("POST", _one(name, "/pause", tenant_id))


def resume(name: str, tenant_id: str | None) -> ApiCall[ScheduleRecord]:
    """Run a paused schedule again."""
    return _record("POST", _one(name, "/resume", tenant_id))


def run_now(name: str, tenant_id: str | None) -> ApiCall[Receipt]:
    """Add the job of a schedule now."""
    return _submission(_one(name, "/run", tenant_id), {})


def remove(name: str, tenant_id: str | None) -> ApiCall[None]:
    """Remove a schedule."""
    target = _one(name, "", tenant_id)
    # Not repeated: after the first one there is no such schedule.
    return ApiCall("DELETE", target, dict[str, Any], lambda _: None, repeatable=False)


def _one(name: str, act: str, tenant_id: str | None) -> str:
    return _target(f"/schedules/{_id(name)}{act}", {"tenant_id": tenant_id})


def _record(method: str, target: str) -> ApiCall[ScheduleRecord]:
    from penstock.service.schedules import ScheduleRecord

    return ApiCall(method, target, ScheduleRecord, _same)


class ClientSchedules:
    """The schedules of a server, with the methods of ``app.schedules``."""

    def __init__(self, client: Performer) -> None:
        self._client = client

    def add_index(
        self,
        timing: str,
        path: str | os.PathLike[str],
        *,
        index: Mapping[str, Any] | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> ScheduleRecord:
        """Index a path of the server by the clock.

        ``index``: ``collection``, ``priority``, ``project``, ``branch`` and ``allow_external``.
        """
        return self._client._call(add_index(timing, path, index, options))

    def add_call(
        self,
        timing: str,
        function: str,
        payload: Mapping[str, Any] | None = None,
        *,
        call: Mapping[str, Any] | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> ScheduleRecord:
        """Call a function by the clock. ``call``: ``collection``, ``priority`` and ``key`` of each call."""
        return self._client._call(add_call(timing, function, payload, call, options))

    def add_backup(
        self,
        timing: str,
        directory: str | os.PathLike[str],
        *,
        keep: int | None = None,
        priority: int | None = None,
        allow_external: bool = False,
        **options: Unpack[ScheduleOptions],
    ) -> ScheduleRecord:
        """Back up the stores into a directory of the server by the clock. Needs an admin key."""
        given = {"keep": keep, "priority": priority, "allow_external": allow_external or None}
        return self._client._call(add_backup(timing, directory, given, options))

    def list(self, tenant_id: str | None = None) -> list[ScheduleRecord]:
        """List the schedules of a tenant, or all that the key may see, by name."""
        found, offset = self._client._call(page(tenant_id, 0))
        while offset is not None:
            more, offset = self._client._call(page(tenant_id, offset))
            found += more
        return found

    def show(self, name: str, *, tenant_id: str | None = None, count: int = 5) -> ScheduleRecord:
        """Show one schedule with its next times."""
        return self._client._call(show(name, tenant_id, count))

    def change(
        self, name: str, *, tenant_id: str | None = None, **fields: Unpack[TimingChanges]
    ) -> ScheduleRecord:
        """Change ``timing``, ``zone`` or ``missed`` of a schedule."""
        return self._client._call(change(name, tenant_id, fields))

    def pause(self, name: str, *, tenant_id: str | None = None) -> ScheduleRecord:
        """Stop running a schedule until it is resumed."""
        return self._client._call(pause(name, tenant_id))

    def resume(self, name: str, *, tenant_id: str | None = None) -> ScheduleRecord:
        """Run a paused schedule again, from its next time on."""
        return self._client._call(resume(name, tenant_id))

    def run_now(self, name: str, *, tenant_id: str | None = None) -> Receipt:
        """Add the job of a schedule now. Its next time stays."""
        return self._client._call(run_now(name, tenant_id))

    def remove(self, name: str, *, tenant_id: str | None = None) -> None:
        """Remove a schedule. Jobs that it added stay."""
        self._client._call(remove(name, tenant_id))
