"""Connections with TLS, which are counted from their begin.

A server of asyncio tells of a connection only after the handshake: senders without one could take all open
files.
"""

from __future__ import annotations

import asyncio
import ssl
from asyncio.sslproto import SSLProtocol
from typing import Any

from penstock.http.connections import HEAD_S, OpenConnections, TimedConnection


class TlsConnection(SSLProtocol):
    """TLS below a connection. During the handshake it is counted, and gives way, like one without a request.

    ``named``: the arguments of uvicorn.
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
