"""Calls about limits, pure like ``calls``, and ``ClientLimits`` for programs with threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from penstock.client.calls import ApiCall, _get, _id, _json, _same

if TYPE_CHECKING:
    from penstock.client.schedule_calls import Performer
    from penstock.service.limits import LimitRecord


def every() -> ApiCall[list[LimitRecord]]:
    """List the limits by key."""
    from penstock.service.limits import LimitRecord

    def pick(value: Any) -> list[LimitRecord]:
        return msgspec.convert(value["limits"], list[LimitRecord])

    return ApiCall("GET", "/limits", dict[str, Any], pick)


def show(key: str) -> ApiCall[LimitRecord]:
    """Show one limit."""
    from penstock.service.limits import LimitRecord

    return _get(f"/limits/{_id(key)}", LimitRecord)


def put(key: str, concurrent: int | None, rate: str | None) -> ApiCall[LimitRecord]:
    """Set the limit of a key."""
    from penstock.service.limits import LimitRecord

    body = _json({"concurrent": concurrent, "rate": rate})
    return ApiCall("PUT", f"/limits/{_id(key)}", LimitRecord, _same, body)


def remove(key: str) -> ApiCall[None]:
    """Remove a limit."""
    # Not repeated: after the first one there is no such limit.
    return ApiCall("DELETE", f"/limits/{_id(key)}", dict[str, Any], lambda _: None, repeatable=False)


class ClientLimits:
    """The limits of a server, with the methods of ``app.limits``."""

    def __init__(self, client: Performer) -> None:
        self._client = client

    def set(self, key: str, *, concurrent: int | None = None, rate: str | None = None) -> LimitRecord:
        """Set the limit of a key."""
        return self._client._call(put(key, concurrent, rate))

    def list(self) -> list[LimitRecord]:
        """List the limits by key."""
        return self._client._call(every())

    def show(self, key: str) -> LimitRecord:
        """Show the limit of a key, with the number of its jobs that have a slot or wait."""
        return self._client._call(show(key))

    def remove(self, key: str) -> None:
        """Remove a limit. Jobs that wait for it can start."""
        self._client._call(remove(key))
