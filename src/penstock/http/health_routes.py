"""Routes of the server's health."""

from __future__ import annotations

import msgspec
from fastapi import APIRouter
from starlette.responses import Response

from penstock.http.answers import described, respond
from penstock.http.request_context import Reader
from penstock.http.thread_pools import reads
from penstock.service.server_status import Readiness, ServerStatus

router = APIRouter(prefix="/health", tags=["health"])


class Alive(msgspec.Struct, frozen=True):
    """The server answers."""

    status: str = "ok"


@router.get("", responses=described(Alive, example={"status": "ok"}), summary="Check that the server answers")
async def health() -> Response:
    """Answer without a key and without a look at the stores."""
    return respond(Alive())


@router.get("/status", responses=described(ServerStatus), summary="Show running jobs")
@reads
def status(sender: Reader) -> Response:
    """Show running jobs, the length of the queue and the sizes of the stores. Never waits for a writer."""
    return respond(sender.shared.status.status(sender.principal))


@router.get(
    "/ready",
    responses=described(Readiness, also={503: "A store cannot be used."}),
    summary="Check the stores",
)
@reads
def ready(sender: Reader) -> Response:
    """Check that queue and catalog can be used."""
    found = sender.shared.status.readiness()
    return respond(found, 200 if found.ready else 503)
