"""Connections of the server, with limits missing in uvicorn: the time and the size of a request's head.

A sender that opens many connections and sends their heads byte by byte would otherwise occupy all of them.
A request that outlasts the grace of a stop gets no answer, as from a server that was killed.
"""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from penstock.errors import InvalidRequest, PenstockError, RequestHeadTooLarge, RequestTooSlow
from penstock.http.problems import problem_response

HEAD_S = 20.0
"""Time from the first byte of a request, or from the connection, to the end of the head."""
HEAD_BYTES = 64 * 1024


class TimedConnection(HttpToolsProtocol):
    """A connection with a time limit for the head of a request."""

    head_s: ClassVar[float] = HEAD_S

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._api, self.app = self.app, self._until_cancelled
        self._deadline: asyncio.TimerHandle | None = None
        self._in_head = True
        self._head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_head()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._in_head:
            self._head_bytes += len(data)
        super().data_received(data)
        if not self._in_head or not self._head_bytes:
            return
        # Only a head that did not arrive at once needs a timer.
        self._start_head()
        if self._head_bytes > HEAD_BYTES:
            self._refuse(
                RequestHeadTooLarge(f"the head of the request has more than {HEAD_BYTES:,} bytes"), 431
            )

    def send_400_response(self, msg: str) -> None:
        """Refuse bytes that are no HTTP request, as a problem document like every refusal."""
        self._refuse(InvalidRequest(msg, remedy="Send a request of HTTP/1.1."), 400)

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._head_bytes = 0
        self._end_head()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._in_head = True

    async def _until_cancelled(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request. If the server ends before, close the connection.

        An error would be wrong: a thread may still do what the request asks for.
        """
        try:
            await self._api(scope, receive, send)
        except asyncio.CancelledError:
            if self.cycle is not None:
                self.cycle.disconnected = True
            self.transport.close()

    def _start_head(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(self.head_s, self._expire)

    def _end_head(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _expire(self) -> None:
        self._deadline = None
        if self._head_bytes:
            self._refuse(RequestTooSlow(f"the head did not arrive within {self.head_s:g} seconds"), 408)
        elif self._in_head and (self.cycle is None or self.cycle.response_complete):
            self.transport.close()

    def _refuse(self, error: PenstockError, status: int) -> None:
        if self.transport.is_closing():
            return
        answer = problem_response(error, status=status, headers={"Connection": "close"})
        head = b"".join(b"%s: %s\r\n" % header for header in answer.raw_headers)
        self.transport.write(STATUS_LINE[status] + head + b"\r\n" + bytes(answer.body))
        self.transport.close()
