"""Routes of limits: list, show, set, remove."""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import APIRouter, Path
from pydantic import ConfigDict, Field
from starlette.responses import Response

from penstock.http.problems import described, respond
from penstock.http.request_bodies import RequestBody, Text, Whole
from penstock.http.request_context import Reader, Sender, Writer, reads, writes
from penstock.queue.limits import KEY_LENGTH, MOST_AT_ONCE
from penstock.service.limits import LimitRecord

router = APIRouter(prefix="/limits", tags=["limits"])

_LimitKey = Annotated[str, Path(description="Key of a limit.", max_length=KEY_LENGTH)]
_EXAMPLE = {
    "key": "embeddings",
    "concurrent": 4,
    "rate": "60/min",
    "slots": 4,
    "waiting": 210,
    "next_at": "2026-11-18T02:00:01Z",
}


class LimitList(msgspec.Struct, frozen=True):
    """Limits by key."""

    limits: list[LimitRecord]


class RemovedLimit(msgspec.Struct, frozen=True):
    """The key of the limit that was removed."""

    removed: str


class LimitBody(RequestBody):
    """Limit of a key: `concurrent` jobs, a `rate`, or both."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        json_schema_extra={"examples": [{"rate": "60/min"}, {"concurrent": 4}]},
    )

    concurrent: Whole | None = Field(None, ge=1, le=MOST_AT_ONCE, description="Jobs that may run at once.")
    rate: Text | None = Field(
        None, min_length=1, max_length=50, description="Starts in a period: `60/min`, `5/s`, `1000/hour`."
    )


_SHOWN_ONE = described(LimitRecord, refused=(404,), example=_EXAMPLE)


@router.get("", operation_id="limits_list", responses=described(LimitList), summary="List limits")
@reads
def limits(sender: Reader) -> Response:
    """List limits by key, with their jobs that have a slot or wait. Needs a key without tenants."""
    sender.principal.require_unbound()
    return respond(LimitList(sender.shared.limits.list()))


@router.get("/{key}", operation_id="limits_get", responses=_SHOWN_ONE, summary="Show a limit")
@reads
def limit(sender: Reader, key: _LimitKey) -> Response:
    """Show the limit of a key. Needs a key without tenants."""
    sender.principal.require_unbound()
    return respond(sender.shared.limits.show(key))


@router.put(
    "/{key}",
    operation_id="limits_set",
    responses=described(LimitRecord, example=_EXAMPLE),
    summary="Set a limit",
)
@writes
def put(sender: Writer, key: _LimitKey, body: LimitBody) -> Response:
    """Set the limit of a key, for jobs of all tenants on all hosts. Needs the scope admin."""
    _check(sender)
    made = sender.shared.limits.set(key, concurrent=body.concurrent, rate=body.rate)
    sender.shared.audit.record(sender.principal.name, "set limit", name=key)
    return respond(made)


@router.delete(
    "/{key}",
    operation_id="limits_remove",
    responses=described(RemovedLimit, refused=(404,)),
    summary="Remove a limit",
)
@writes
def remove(sender: Writer, key: _LimitKey) -> Response:
    """Remove a limit; jobs that wait for it can start. Needs the scope admin."""
    _check(sender)
    sender.shared.limits.remove(key)
    sender.shared.audit.record(sender.principal.name, "remove limit", name=key)
    return respond(RemovedLimit(key))


def _check(sender: Sender) -> None:
    sender.principal.require("admin")
    sender.principal.require_unbound()
