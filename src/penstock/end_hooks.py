"""Hooks of a job: function calls and webhooks after the end.

A hook is a job that waits for another one (``dependencies``), so the end of that job releases it in the same
transaction, on every engine. Jobs without hooks have nothing of this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any

import msgspec

from penstock import items
from penstock.job import Job, NewJob, Status

RESERVED = "penstock."
"""Start of the names of functions that Penstock itself runs, and of its keys in the metadata of jobs."""
HOOKS = f"{RESERVED}hooks"
"""In the metadata of a job: its hooks, which a retry adds again."""
HOOK = f"{RESERVED}hook"
"""In the metadata of a hook: the end that it is for, ``success``, ``failure`` or ``any``."""
HOOK_FIELDS = frozenset({"webhook", "on_success", "on_failure"})
"""Fields of functions and calls that make hooks."""
TRACEPARENT = "traceparent"
"""In the metadata of a job: the trace that it belongs to, as in the W3C Trace Context."""

WEBHOOK = f"{RESERVED}webhook"
"""Function name of a webhook."""
BACKUP = f"{RESERVED}backup"
"""Function name of a backup. Requests cannot call it: a backup has the texts of all tenants."""
WEBHOOK_RETRIES = 20
WEBHOOK_TIMEOUT_S = 120
SMALL_RESULT = 16_384
"""Bytes of a result that a webhook carries, as JSON."""


class HookCall(msgspec.Struct, frozen=True):
    """A function to call after the end of a job."""

    function: str
    max_retries: int
    timeout_s: int


class EndHooks(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The hooks of one job, as stored in the metadata."""

    webhook: str | None = None
    on_success: HookCall | None = None
    on_failure: HookCall | None = None


class _Metadata(msgspec.Struct, frozen=True):
    hooks: EndHooks | None = msgspec.field(default=None, name=HOOKS)
    traceparent: Any = None


_encode = msgspec.json.Encoder().encode


def hook_jobs(job: NewJob | Job, new_ids: Callable[[int], list[str]]) -> list[NewJob]:
    """The hooks of a job as new, waiting jobs; none for most jobs."""
    if HOOKS not in job.metadata:
        return []
    # A decoder of the module would evaluate the annotations in each command.
    found = msgspec.json.decode(job.metadata, type=_Metadata)
    carried = {TRACEPARENT: found.traceparent} if isinstance(found.traceparent, str) else {}
    planned = list(_planned(found.hooks)) if found.hooks is not None else []
    return [
        _hook_job(job, queue_id, end, call, body, carried)
        for queue_id, (end, call, body) in zip(new_ids(len(planned)), planned, strict=True)
    ]


def _planned(hooks: EndHooks) -> Iterator[tuple[str, HookCall, Mapping[str, Any]]]:
    if hooks.on_success is not None:
        yield "success", hooks.on_success, {}
    if hooks.on_failure is not None:
        yield "failure", hooks.on_failure, {}
    if hooks.webhook is not None:
        yield "any", HookCall(WEBHOOK, WEBHOOK_RETRIES, WEBHOOK_TIMEOUT_S), {"url": hooks.webhook}


def _hook_job(
    job: NewJob | Job,
    queue_id: str,
    end: str,
    call: HookCall,
    payload: Mapping[str, Any],
    carried: Mapping[str, str],
) -> NewJob:
    body = {"function_name": call.function, "payload": payload}
    return NewJob(
        queue_id=queue_id,
        item_type="function",
        op="run",
        tenant_id=job.tenant_id,
        collection=job.collection,
        branch=job.branch,
        idempotency_key=items.function_key(job.collection, queue_id),
        payload_json=_encode(body).decode(),
        priority=job.priority,
        metadata=_encode({HOOK: end, **carried}).decode(),
        dedupe=False,
        max_retries=call.max_retries,
        timeout_s=call.timeout_s,
        submitted_by=job.submitted_by,
        # A live job with the same key takes the place of a duplicate, here too.
        after=(job.queue_id,),
        run_after_failure=end != "success",
    )


def concerns(end: str, status: Status) -> bool:
    """Tell whether a hook for ``end`` applies to a final status."""
    return end == "any" or (end == "success") == (status is Status.DONE)


class EndedJob(msgspec.Struct, frozen=True, kw_only=True):
    """An ended job as passed to hook functions and webhooks; use as the payload type of such a function."""

    job_id: str
    status: str
    item_type: str
    op: str
    function: str | None
    tenant_id: str
    collection: str
    run: int
    attempt: int
    error_code: str | None
    error_message: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    result: Any = None
    result_bytes: int | None = None
    """Size of a result that is too large for a webhook."""


def job_event(job: Job, *, largest_result: int | None = None) -> dict[str, Any]:
    """The fields of ``EndedJob`` as JSON values. A result of more bytes is left out."""
    size = len((job.result_json or "").encode())
    fits = largest_result is None or size <= largest_result
    event = EndedJob(
        job_id=job.queue_id,
        status=job.status.value,
        item_type=job.item_type,
        op=job.op,
        function=job.payload.get("function_name") if job.item_type == "function" else None,
        tenant_id=job.tenant_id,
        collection=job.collection,
        run=job.run,
        attempt=job.retry_count + 1,
        error_code=job.error_code,
        error_message=job.error_message,
        created_at=job.created_at,
        started_at=job.started_at,
        finished_at=job.finished_at,
        result=job.result if fits else None,
        result_bytes=None if fits else size,
    )
    found: dict[str, Any] = msgspec.to_builtins(event)
    return found
