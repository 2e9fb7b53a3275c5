"""Calls of one function over many payloads: the payload of the parent job, its progress and its results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from penstock.errors import InvalidRequest
from penstock.handlers.functions import MAP, MAP_INDEX, Function
from penstock.job import Job, JobQuery, Status
from penstock.queue.protocol import Queue
from penstock.service.job_reports import cancelled_children
from penstock.service.limits import checked_key

PAGE = 1_000


class MapProgress(msgspec.Struct, frozen=True, kw_only=True):
    """Progress of a ``map``: all calls, and those done, failed, cancelled and open."""

    total: int
    done: int
    failed: int
    open: int
    cancelled: int = 0

    @property
    def percent(self) -> float:
        return 100.0 if not self.total else round((self.total - self.open) / self.total * 100, 1)


class MappedCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a ``map``: its position, its job and the result or the error."""

    index: int
    job_id: str
    status: Status
    result: Any = None
    error: str | None = None


def map_payload(
    function: Function,
    payloads: Iterable[Any],
    *,
    max_retries: int,
    timeout_s: int,
    limit: str | None = None,
    result_ttl_s: int | None = None,
) -> dict[str, Any]:
    """Check all payloads and build the payload of the parent job."""
    stored = []
    if not isinstance(payloads, Iterable):
        raise InvalidRequest(
            f"map: expected payloads, got {type(payloads).__name__}", remedy="Give one payload for each call."
        )
    for number, given in enumerate(payloads, 1):
        payload = function.stored(given)
        payload = {} if payload is None else payload
        try:
            function.check(payload)
        except InvalidRequest as refusal:
            raise type(refusal)(f"payload {number}: {refusal.message}", remedy=refusal.remedy) from None
        stored.append(dict(payload))
    if not stored:
        raise InvalidRequest("map: there are no payloads", remedy="Give one payload for each call.")
    request: dict[str, Any] = {
        "function": function.name,
        "payloads": stored,
        "max_retries": max_retries,
        "timeout_s": timeout_s,
    }
    if limit is not None:
        request["limit"] = checked_key(limit)
    if result_ttl_s is not None:
        request["result_ttl_s"] = result_ttl_s
    return {"function_name": MAP, "payload": request}


def map_progress(queue: Queue, job: Job) -> MapProgress:
    """Count the calls of a map by the columns of its parent job, which lack the cancelled ones."""
    _refuse_other(job)
    total = len(job.payload["payload"]["payloads"])
    added = (job.progress or {}).get("cursor", 0)
    if job.waiting or job.result_json is not None:
        added = total
    ended = max(added - job.children_open - job.children_failed, 0)
    cancelled = min(cancelled_children(queue, job), ended) if ended else 0
    # A cancelled parent adds no more calls.
    never_added = total - added if job.status is Status.CANCELLED else 0
    return MapProgress(
        total=total,
        done=ended - cancelled,
        failed=job.children_failed,
        open=total - added + job.children_open - never_added,
        cancelled=cancelled + never_added,
    )


def _all(queue: Queue, query: JobQuery) -> Iterator[Job]:
    query = msgspec.structs.replace(query, limit=PAGE)
    while page := queue.find(query):
        yield from page
        query = msgspec.structs.replace(query, after=page[-1].queue_id)


def map_results(queue: Queue, job: Job) -> list[MappedCall]:
    """Read the calls of a map, in the order of their payloads."""
    _refuse_other(job)
    calls = [
        MappedCall(
            index=msgspec.json.decode(child.metadata)[MAP_INDEX],
            job_id=child.queue_id,
            status=child.status,
            result=child.result if child.status is Status.DONE else None,
            error=child.error_message,
        )
        for child in _all(queue, JobQuery(parent_id=job.queue_id))
        if child.parent_run == job.run
    ]
    return sorted(calls, key=lambda call: call.index)


def _refuse_other(job: Job) -> None:
    if job.payload.get("function_name") != MAP:
        raise InvalidRequest(
            f"job {job.queue_id} was not added by map", remedy="Use the id that map returned."
        )
