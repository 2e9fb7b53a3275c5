"""Routes of the server's health."""

from __future__ import annotations

import msgspec
from fastapi import APIRouter
from starlette.responses import Response

from penstock.http.answers import EVERYWHERE, described, problem, respond
from penstock.http.request_context import Reader
from penstock.http.thread_pools import reads
from penstock.service.server import MEDIA_TYPE, Readiness, ServerStatus

router = APIRouter(prefix="/health", tags=["health"])
metrics_router = APIRouter(tags=["health"])


class Alive(msgspec.Struct, frozen=True):
    """The server answers."""

    status: str = "ok"


@router.get(
    "",
    operation_id="health_get",
    responses=described(Alive, example={"status": "ok"}),
    summary="Check that the server answers",
)
async def health() -> Response:
    """Answer without a key and without a look at the stores."""
    return respond(Alive())


@router.get(
    "/status", operation_id="status_get", responses=described(ServerStatus), summary="Show running jobs"
)
@reads
def status(sender: Reader) -> Response:
    """Show running jobs, the length of the queue and the sizes of the stores. Never waits for a writer."""
    return respond(sender.shared.status.status(sender.principal))


@metrics_router.get(
    "/metrics",
    operation_id="metrics_get",
    responses={
        200: {
            "description": "Metrics in the text format of Prometheus.",
            "content": {
                "text/plain": {"schema": {"type": "string"}, "example": "penstock_claims_total 12\n"}
            },
        },
        **{status: problem(status) for status in EVERYWHERE},
    },
    response_class=Response,
    summary="Metrics for Prometheus",
)
@reads
def metrics(sender: Reader) -> Response:
    """Show metrics of the installation, for admin keys by tenant. Keys with tenants get their own figures."""
    if sender.principal.bound:
        return Response(sender.shared.metrics.own_text(sender.principal), media_type=MEDIA_TYPE)
    named = sender.principal.scope == "admin" and not sender.shared.settings.metrics_public
    return Response(sender.shared.metrics.text(by_tenant=named), media_type=MEDIA_TYPE)


@router.get(
    "/ready",
    operation_id="readiness_get",
    responses=described(Readiness, also={503: "A store cannot be used, or the disk not be written."}),
    summary="Check the stores and the disk",
)
@reads
def ready(sender: Reader) -> Response:
    """Check that queue and catalog can be used, and that the state directory can be written."""
    found = sender.shared.status.readiness()
    return respond(found, 200 if found.ready else 503)
