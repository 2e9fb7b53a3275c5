"""One function over many payloads: a parent job with all payloads, and one child job for each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from penstock import clock, items
from penstock.handlers.context import MAX_CHILDREN, Context, ProgressReport
from penstock.handlers.registry import NotHandledHere, Wait
from penstock.job import NewJob

MAP = "penstock.map"
"""Function name of the parent job."""
MAP_INDEX = "map_index"
"""In the metadata of a child job: the position of its payload."""

_encode = msgspec.json.Encoder().encode


class MapRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Payload of a parent job: the function, the payloads, and the options of each call."""

    function: str
    payloads: list[dict[str, Any]]
    max_retries: int
    timeout_s: int
    limit: str | None = None
    result_ttl_s: int | None = None


def expand_map(context: Context, payload: dict[str, Any], find: Callable[[str], object | None]) -> Wait:
    """Add the missing child jobs, a batch at a time, and wait for all of them."""
    request = msgspec.convert(payload, MapRequest)
    if find(request.function) is None:
        raise NotHandledHere(f"no function {request.function!r} here")
    total = len(request.payloads)
    for start in range(context.cursor or 0, total, MAX_CHILDREN):
        batch = request.payloads[start : start + MAX_CHILDREN]
        ids = clock.new_ids(len(batch))
        children = [_child(context, request, queue_id, start + number) for number, queue_id in enumerate(ids)]
        context.expand(children, start + len(batch), progress=_progress(start + len(batch), total))
    return Wait(result_json=_encode({"function": request.function, "calls": total}).decode())


def _progress(added: int, total: int) -> ProgressReport:
    return ProgressReport(added, total, f"{added:,} of {total:,} calls added")


def _child(context: Context, request: MapRequest, queue_id: str, index: int) -> NewJob:
    claim = context.claim
    body = {"function_name": request.function, "payload": request.payloads[index]}
    return NewJob(
        queue_id=queue_id,
        item_type="function",
        op="run",
        tenant_id=claim.tenant_id,
        collection=claim.collection,
        branch=claim.branch,
        # The same in every attempt: a child that was added before a crash is not added twice.
        idempotency_key=items.function_key(claim.collection, f"{claim.queue_id}:{index}"),
        payload_json=_encode(body).decode(),
        priority=items.child_priority(claim.priority),
        metadata=_encode(context.metadata | {MAP_INDEX: index}).decode(),
        max_retries=request.max_retries,
        timeout_s=request.timeout_s,
        submitted_by=claim.submitted_by,
        limit_key=request.limit,
        result_ttl_s=request.result_ttl_s,
    )
