"""Routes of events: streams in the form of server-sent events."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Header, Path
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from penstock.http.event_hub import EventHub, Listener
from penstock.http.problems import EVERYWHERE, problem
from penstock.http.request_context import Reader, reads

router = APIRouter(tags=["events"])

_SEND_S = 30.0
"""Time for a listener to take what is sent; then it is dropped."""
_HEADERS = {"Cache-Control": "no-cache, no-store", "X-Accel-Buffering": "no"}
_EXAMPLE = 'id: 1794902400000\nevent: failures\ndata: {"total":3}\n\n'
_STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Events until the end of the job, or of the connection.",
        "content": {"text/event-stream": {"schema": {"type": "string"}, "example": _EXAMPLE}},
    },
    **{status: problem(status) for status in EVERYWHERE},
}
_LastEventId = Annotated[
    str | None,
    Header(description="Number of the last event received; other text is ignored.", max_length=64),
]


class EventStream(Response):
    """The response of a stream. The listener exists from the start of the response to the end."""

    media_type = "text/event-stream"

    def __init__(self, hub: EventHub, listener: Listener) -> None:
        super().__init__(headers=_HEADERS)
        del self.headers["content-length"]
        self._hub = hub
        self._listener = listener
        hub.open(listener)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        gone = asyncio.create_task(self._end_with_sender(receive))
        try:
            await send(
                {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
            )
            # Sent at once, so that a browser knows that the stream is open.
            part: bytes | None = b"retry: 2000\n\n"
            while part is not None:
                async with asyncio.timeout(_SEND_S):
                    await send({"type": "http.response.body", "body": part, "more_body": True})
                part = await self._listener.next()
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except TimeoutError:
            # The connection is closed, because the answer is not complete.
            return
        finally:
            gone.cancel()
            self._hub.close(self._listener)

    async def _end_with_sender(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._listener.end()


@router.get(
    "/events",
    operation_id="events_follow",
    responses=_STREAM,
    response_class=Response,
    summary="Follow jobs, lanes and documents",
)
async def events(request: Request, sender: Reader, last_event_id: _LastEventId = None) -> Response:
    """Send the current state, then what changes. After a `reset` event, read everything again."""
    last = int(last_event_id) if last_event_id and last_event_id.isdecimal() else None
    view, valid = sender.principal.tenants_for(None), request.scope["penstock.valid"]
    return EventStream(sender.shared.events, Listener(view, valid, last_id=last, taker=sender.taker))


@router.get(
    "/index/jobs/{job_id}/events",
    operation_id="jobs_follow",
    responses=_STREAM | {404: problem(404)},
    response_class=Response,
    summary="Follow a job",
)
async def job_events(
    request: Request,
    sender: Reader,
    job_id: Annotated[str, Path(description="Id of a job.", max_length=512)],
) -> Response:
    """Send the job now and after each change. The last event is `end`; an ended job has only that."""
    await _own(sender, job_id)
    view, valid = sender.principal.tenants_for(None), request.scope["penstock.valid"]
    return EventStream(sender.shared.events, Listener(view, valid, job_id=job_id, taker=sender.taker))


@reads
def _own(sender: Reader, job_id: str) -> None:
    """Refuse the job of another tenant."""
    sender.shared.job_records.own(job_id, sender.principal.tenants)
