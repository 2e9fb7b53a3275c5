"""Routes of the queue: statistics, pause and resume."""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import APIRouter, Query
from starlette.responses import Response

from penstock.http.job_routes import FailuresQuery, HistoryQuery, parse_duration
from penstock.http.problems import described, respond, respond_values
from penstock.http.request_bodies import PauseBody
from penstock.http.request_context import Reader, Writer, reads, writes
from penstock.queue.job import Scope
from penstock.service.bulk_actions import FailurePage
from penstock.service.job_views import own_stats
from penstock.service.live_changes import History
from penstock.service.server import QueueConnection, QueueStats

router = APIRouter(prefix="/queue", tags=["queue"])


class Resumed(msgspec.Struct, frozen=True):
    """The scope that was resumed, and the jobs released at once; workers release the others."""

    tenant_id: str
    collection: str
    released: int


@router.get(
    "/stats",
    operation_id="queue_get_stats",
    responses=described(QueueStats, value=True),
    summary="Count jobs and tasks",
)
@reads
def stats(sender: Reader) -> Response:
    """Count jobs by status and type, and tasks by type and status. Bound keys see their tenants only."""
    if sender.wants_values:
        return respond_values(own_stats(sender.shared.jobs, sender.principal))
    return respond(sender.shared.status.stats(sender.principal))


@router.get(
    "/status",
    operation_id="queue_get_status",
    responses=described(QueueConnection),
    summary="Show the queue in short",
)
@reads
def status(sender: Reader) -> Response:
    """Show the length of the queue, and whether a worker serves it. Needs a key without tenants."""
    sender.principal.require_unbound()
    return respond(sender.shared.status.connection())


@router.get(
    "/history",
    operation_id="queue_get_history",
    responses=described(History),
    summary="Show a day of throughput",
)
@reads
def history(sender: Reader, query: Annotated[HistoryQuery, Query()]) -> Response:
    """Show waiting, done and failed by lane and step. Not kept by tenant: keys with tenants get no lanes."""
    found = sender.shared.throughput.history(parse_duration(query.window), parse_duration(query.step))
    if sender.principal.bound or query.tenant_id is not None:
        sender.principal.tenants_for(query.tenant_id)
        found = msgspec.structs.replace(found, lanes=[])
    return respond(found)


@router.get(
    "/failures",
    operation_id="failures_list",
    responses=described(FailurePage),
    summary="Group failed jobs by reason",
)
@reads
def failures(sender: Reader, query: Annotated[FailuresQuery, Query()]) -> Response:
    """Group failed jobs by code and message, the most frequent reason first. Child jobs count."""
    tenants = sender.principal.tenants_for(query.tenant_id)
    return respond(sender.shared.bulk.failures(tenants, {**query.given(), "top_level": None, "status": None}))


@router.post(
    "/pause", operation_id="queue_pause", responses=described(Scope), summary="Pause a tenant or collection"
)
@writes
def pause(sender: Writer, body: PauseBody) -> Response:
    """Stop claiming jobs of a scope; running ones go on. Needs admin, or write for the key's tenant."""
    tenant, collection = sender.principal.require_pause(body.tenant_id, body.collection)
    scope = sender.shared.jobs.pause(tenant_id=tenant, collection=collection)
    sender.shared.audit.record(
        sender.principal.name, "pause", tenant_id=scope.tenant_id, collection=scope.collection
    )
    return respond(scope)


@router.post(
    "/resume",
    operation_id="queue_resume",
    responses=described(Resumed),
    summary="Resume a tenant or collection",
)
@writes
def resume(sender: Writer, body: PauseBody) -> Response:
    """Resume exactly a scope that was paused. Needs the scope admin, or write for the key's tenant."""
    tenant, collection = sender.principal.require_pause(body.tenant_id, body.collection)
    released = sender.shared.jobs.resume(tenant_id=tenant, collection=collection)
    resumed = Resumed(tenant or "*", collection or "*", released)
    sender.shared.audit.record(
        sender.principal.name, "resume", tenant_id=resumed.tenant_id, collection=resumed.collection
    )
    return respond(resumed)
