"""Connections of the server, with limits missing in uvicorn: on their number, and on the head of a request.

A sender that opens many connections, and sends nothing or a head byte by byte, would otherwise occupy all of
them. A request that outlasts the grace of a stop gets no answer, as from a server that was killed.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import ssl
from asyncio.sslproto import SSLProtocol
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cache, cached_property
from typing import Any, ClassVar, Protocol, TypeAlias

from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from penstock import clock
from penstock.errors import InvalidRequest, PenstockError, RequestHeadTooLarge, RequestTooSlow, ServerBusy
from penstock.http.problems import problem_response

_Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

_FORWARDED = b"x-forwarded-for"
_SITE = 64
"""Bits of an IPv6 address that belong to a site: one machine may use all addresses below them."""


class Peers:
    """Names of the machines that requests come from, also behind a reverse proxy.

    Everything that a proxy passes on comes from its one address. A part for each machine would then be one
    part for all people behind the proxy, so the address of a proxy has none: the proxy says who the sender
    is, in ``X-Forwarded-For``. Only the last entry is the proxy's own, so that a sender cannot choose
    another address. ``proxies``: addresses and networks of proxies, besides this machine itself.
    """

    def __init__(self, proxies: Iterable[str] = ()) -> None:
        self._proxies: tuple[_Network, ...] = tuple(
            ipaddress.ip_network(one, strict=False) for one in proxies
        )

    def of_connection(self, client: Sequence[Any] | None) -> str | None:
        """The machine at the other end of a connection; None for this machine, and for a proxy."""
        address = _address(str(client[0])) if client else None
        return None if address is None or self._is_proxy(address) else _named(address)

    def of_request(self, client: Sequence[Any] | None, headers: Iterable[tuple[bytes, bytes]]) -> str | None:
        """The machine that sent a request; None for this machine, and if a proxy names no other one."""
        if (direct := self.of_connection(client)) is not None:
            return direct
        given = b",".join(value for name, value in headers if name == _FORWARDED).decode("latin-1")
        for part in reversed(given.split(",")):
            address = _address(part.strip())
            if address is None:
                return None
            if not self._is_proxy(address):
                return _named(address)
        return None

    def _is_proxy(self, address: Address) -> bool:
        return address.is_loopback or any(address in network for network in self._proxies)


def _address(text: str) -> Address | None:
    try:
        found = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        return found.ipv4_mapped
    return found


def _named(address: Address) -> str:
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((address, _SITE), strict=False))
    return str(address)


HEAD_S = 20.0
"""Time from the first byte of a request, or from the connection, to the end of the head."""
HEAD_BYTES = 64 * 1024
CONNECTIONS = 2_000
"""Connections at the same time. One more ends one that is not in use."""
SPARE = 16
"""Connections above that number, which answer ``GET /health`` only: the server is busy, and not dead."""
UNKNOWN_OF_PEER = 128
"""Connections of one machine that have not yet sent an accepted request. A browser opens six, and a pool of
a program some dozens."""
PROVE = "penstock.prove"
"""Key of the scope of a request, with the function to call once its sender is known."""
_TOLD_EVERY_S = 10.0
"""Time between two equal warnings about what somebody without a key has sent."""


class WarnedBefore(logging.Filter):
    """Drops a warning of uvicorn that was logged a moment ago.

    It logs each request that is none, and each that asks for a web socket: anybody could fill the disk.
    """

    def __init__(self) -> None:
        super().__init__()
        self._told_at: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether to log a message."""
        if record.levelno != logging.WARNING:
            return True
        now, kind = clock.elapsed_s(), str(record.msg)
        if now - self._told_at.get(kind, -_TOLD_EVERY_S) < _TOLD_EVERY_S:
            return False
        self._told_at[kind] = now
        return True


class OpenConnection(Protocol):
    """A connection that is counted."""

    @property
    def peer(self) -> str | None:
        """The machine at the other end; None for this machine and a proxy."""

    def give_way(self) -> None:
        """End for a new connection."""


class OpenConnections:
    """The connections of one server, in its event loop: which of them are in use, and which may be ended.

    Nobody is locked out by connections that do nothing. Where there are too many, one ends: that of an
    unknown sender which is open for the longest time, of the machine with the most of them; if there is none,
    the one that is unused for the longest time. A request of a known sender is never interrupted.
    """

    def __init__(self, most: int = CONNECTIONS, peers: Peers | None = None) -> None:
        self.most = most
        self.peers = peers or Peers()
        self._all: set[OpenConnection] = set()
        self._unknown: dict[str | None, dict[OpenConnection, None]] = defaultdict(dict)
        """By machine, the oldest first. None: this machine and proxies, whose number is not limited."""
        self._unused: dict[OpenConnection, None] = {}

    @cached_property
    def busy_answer(self) -> bytes:
        """The answer on a connection that has to end, made once: there may be a thousand a second."""
        return _answer(self.busy, 503)

    @property
    def busy(self) -> ServerBusy:
        """The refusal of a server without a place for another connection."""
        return ServerBusy(f"{self.most:,} connections are open, the most for this server")

    @property
    def crowded(self) -> bool:
        """True if only the spare connections are left."""
        return len(self._all) > self.most

    def add(self, connection: OpenConnection) -> bool:
        """Add a connection, and end another one for it if needed. False: there is no place."""
        peer = connection.peer
        if len(self._all) >= self.most:
            self._end_one()
        if len(self._all) >= self.most + SPARE:
            return False
        if peer is not None and len(self._unknown[peer]) >= UNKNOWN_OF_PEER:
            self._end(next(iter(self._unknown[peer])))
        self._all.add(connection)
        self._unknown[peer][connection] = None
        return True

    def prove(self, connection: OpenConnection) -> None:
        """Note a request of a known sender."""
        if connection in self._all:
            self._forget(connection)

    def rest(self, connection: OpenConnection) -> None:
        """Note that the request of a known sender is answered."""
        if connection in self._all and connection not in self._unknown.get(connection.peer, ()):
            self._unused[connection] = None

    def remove(self, connection: OpenConnection) -> None:
        """Remove a closed connection."""
        self._all.discard(connection)
        self._forget(connection)

    def _forget(self, connection: OpenConnection) -> None:
        self._unused.pop(connection, None)
        unknown = self._unknown.get(connection.peer)
        if unknown is not None:
            unknown.pop(connection, None)
            if not unknown:
                del self._unknown[connection.peer]

    def _end_one(self) -> None:
        most = max(self._unknown.values(), key=len, default={})
        if ended := next(iter(most), None) or next(iter(self._unused), None):
            self._end(ended)

    def _end(self, connection: OpenConnection) -> None:
        self.remove(connection)
        connection.give_way()


class TimedConnection(HttpToolsProtocol):
    """A connection with a time limit for the head of a request."""

    head_s: ClassVar[float] = HEAD_S

    def __init__(self, *given: Any, open_connections: OpenConnections | None = None, **named: Any) -> None:
        super().__init__(*given, **named)
        self._api, self.app = self.app, self._until_cancelled
        self._open = open_connections or OpenConnections()
        self.peer: str | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._in_head = True
        self._head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.peer = self._open.peers.of_connection(self.client)
        if not self._open.add(self):
            self._end_with(self._open.busy_answer)
            return
        self._start_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_head()
        self._open.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
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

    def on_response_complete(self) -> None:
        self._open.rest(self)
        super().on_response_complete()

    def give_way(self) -> None:
        """End a connection that nobody uses for a new one. A request that was begun is told so."""
        if self._head_bytes or (self.cycle is not None and not self.cycle.response_started):
            self._end_with(self._open.busy_answer)
        if self.transport.get_write_buffer_size():
            # The other side does not read, and closing would wait for it.
            self.transport.abort()
        self.transport.close()

    async def _until_cancelled(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request. If the server ends before, close the connection.

        An error would be wrong: a thread may still do what the request asks for.
        """
        if self._open.crowded and (scope["method"], scope["path"].rstrip("/")) != ("GET", "/health"):
            error = problem_response(self._open.busy, headers={"Connection": "close"})
            await error(scope, receive, send)
            return
        scope[PROVE] = self._prove
        try:
            await self._api(scope, receive, send)
        except asyncio.CancelledError:
            if self.cycle is not None:
                self.cycle.disconnected = True
            self.transport.close()

    def _prove(self) -> None:
        self._open.prove(self)

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
            self._end_with(_too_slow(self.head_s))
        elif self._in_head and (self.cycle is None or self.cycle.response_complete):
            self.transport.close()

    def _refuse(self, error: PenstockError, status: int) -> None:
        self._end_with(_answer(error, status))

    def _end_with(self, answer: bytes) -> None:
        if self.transport.is_closing():
            return
        if self.cycle is not None:
            # An answer that comes later would follow this one.
            self.cycle.disconnected = True
        self.transport.write(answer)
        self.transport.close()


@cache
def _too_slow(head_s: float) -> bytes:
    """The answer to a head that does not end, made once: a thousand may expire in the same moment."""
    return _answer(RequestTooSlow(f"the head did not arrive within {head_s:g} seconds"), 408)


def _answer(error: PenstockError, status: int) -> bytes:
    """The bytes of a refusal outside a request."""
    answer = problem_response(error, status=status, headers={"Connection": "close"})
    head = b"".join(b"%s: %s\r\n" % header for header in answer.raw_headers)
    return STATUS_LINE[status] + head + b"\r\n" + bytes(answer.body)


class TlsConnection(SSLProtocol):
    """TLS below a connection. During the handshake it is counted, and gives way, like one without a request.

    A server of asyncio tells of a connection only after the handshake: senders without one could take all
    open files. ``named``: the arguments of uvicorn.
    """

    def __init__(self, *, context: ssl.SSLContext, open_connections: OpenConnections, **named: Any) -> None:
        secure = _SecureConnection(self, open_connections=open_connections, **named)
        # Nobody waits for the handshake: its end is told by connection_made or connection_lost.
        handshake: dict[str, Any] = {"waiter": None, "server_side": True, "ssl_handshake_timeout": HEAD_S}
        super().__init__(asyncio.get_running_loop(), secure, context, **handshake)
        self._open = open_connections
        self._raw: asyncio.Transport | None = None
        self.peer: str | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._raw = transport
        self.peer = self._open.peers.of_connection(transport.get_extra_info("peername"))
        if not self._open.add(self):
            transport.abort()
            return
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        self.end_handshake()
        super().connection_lost(exc)

    def end_handshake(self) -> None:
        """Count the connection no longer: it is lost, or counted with its requests from now on."""
        self._open.remove(self)

    def give_way(self) -> None:
        """End the connection for a new one."""
        if self._raw is not None:
            self._raw.abort()


class _SecureConnection(TimedConnection):
    """A connection after its handshake."""

    def __init__(self, tls: TlsConnection, **named: Any) -> None:
        super().__init__(**named)
        self._tls = tls

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._tls.end_handshake()
        super().connection_made(transport)
